//! The parts that all figures share: how often and how long they run, and how their result is shown.

use std::time::Duration;

use serde::Serialize;

use crate::table::Table;

/// The number and the length of a figure's measurements.
#[derive(Debug, Clone, Copy)]
pub struct Runs {
    /// Interleaved rounds; each runs every side once.
    pub rounds: usize,
    /// Length of a run.
    pub time: Duration,
}

impl Runs {
    pub(crate) const fn new(rounds: usize, seconds: u64) -> Runs {
        Runs { rounds, time: Duration::from_secs(seconds) }
    }
}

/// The result of a figure.
pub trait Figure: Serialize {
    /// The same as a table.
    fn table(&self) -> Table;
}
