//! Two settings of one cluster against each other: interleaved runs, in blocks of ABBA or BAAB by lot.

mod field;
mod judge;
mod options;
mod outcome;
mod pulse;
mod run;

pub use judge::{Effect, FEWEST};
pub use options::{Load, Options};
pub use outcome::{Block, Metric, Outcome, Power, Rejected, Run};
pub use run::{Arms, run};

pub(crate) use field::Field;
pub(crate) use pulse::Pulse;
pub(crate) use run::on;
