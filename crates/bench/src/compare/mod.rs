//! Settings of one cluster against each other: interleaved runs, in blocks of ABBA or BAAB by lot, or of a whole ladder of settings up
//! and down again.

mod arms;
mod field;
mod judge;
mod options;
mod outcome;
mod pulse;
mod run;

pub use arms::{Arms, Ladder};
pub use field::image_of;
pub use judge::{Effect, FEWEST};
pub use options::{Load, Options};
pub use outcome::{Block, Metric, Outcome, Power, Rejected, Run, Rung};
pub use run::run;

pub(crate) use field::Field;
pub(crate) use pulse::Pulse;
pub(crate) use run::on;
