//! fio as a load generator: a typed job, the process that runs it, a typed result.

mod hist;
mod job;
mod parse;
mod run;
mod waited;

pub use hist::Second;
pub use job::{FileEngine, Job, Rw, Target, Verify};
pub use parse::{Latency, Measured};
pub use run::{Checked, run, run_each, verify, version};
pub use waited::Waited;
