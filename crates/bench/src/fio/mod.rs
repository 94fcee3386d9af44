//! fio as a load generator: a typed job, the process that runs it, a typed result.

mod hist;
mod job;
mod parse;
mod run;

pub use hist::{Histogram, Second};
pub use job::{FileEngine, Job, Rw, Target, Verify};
pub use parse::{Latency, Measured};
pub use run::{Checked, run, verify, version};
