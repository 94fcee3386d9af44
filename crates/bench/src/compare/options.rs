//! The settings of a comparison.

use crate::bed::Place;
use crate::fio::Rw;
use crate::rbd::Source;
use crate::units;
use std::time::Duration;

/// The load of each run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// Direction and order.
    pub rw: Rw,
    /// Bytes of a request.
    pub block: u64,
    /// Requests in flight.
    pub depth: u32,
}

impl Load {
    /// In words: `4K random writes at queue 32`.
    pub fn words(self) -> String {
        let what = match self.rw {
            Rw::Read => "reads in order".to_owned(),
            Rw::Write => "writes in order".to_owned(),
            Rw::RandRead => "random reads".to_owned(),
            Rw::RandWrite => "random writes".to_owned(),
            Rw::RandMix(reads) => format!("random requests, {reads} % reads,"),
        };
        format!("{} {what} at queue {}", units::bytes(self.block as f64), self.depth)
    }
}

/// The settings of a comparison.
#[derive(Debug, Clone)]
pub struct Options {
    /// Scratch folder, interrupt.
    pub place: Place,
    /// The cluster and the pool of the image.
    pub source: Source,
    /// The load.
    pub load: Load,
    /// Time of each run.
    pub time: Duration,
    /// Time of the same load before each, unmeasured.
    pub ramp: Duration,
    /// The change that is to be seen, as a share.
    pub detect: f64,
    /// The time that all runs may take.
    pub budget: Duration,
    /// Bytes of the image.
    pub size: u64,
    /// The number that lots are drawn by.
    pub seed: u64,
}
