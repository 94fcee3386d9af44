//! A search for values of options that serve a load: trials by a Bayesian sampler, each against the default beside it.

mod chooser;
mod record;
mod run;
mod space;

pub use record::{Record, Trial};
pub use run::{Found, Limits, run};
pub use space::{Choices, Space, SpaceOption};
