//! Layers over any device: they misbehave, or watch, on purpose.

mod delay;
mod error;
mod log;
mod torn;

pub use delay::{Delay, DelayDevice};
pub use error::{ErrorDevice, ErrorRule, OpClass};
pub use log::{LogDevice, LogEntry, LogOp};
pub use torn::{TornDevice, TornRule};

/// The splitmix64 generator (Steele, Lea, Flood 2014): a seed replays a run.
#[derive(Debug, Clone)]
struct Seeded(u64);

impl Seeded {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Evenly from 0 to `n` - 1; 0 when `n` is 0.
    fn below(&mut self, n: u64) -> u64 {
        ((self.next() as u128 * n as u128) >> 64) as u64
    }
}

/// Which of a row of matching operations a rule hits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pick {
    /// This many are let through first.
    pub after: u64,
    /// From then on every `nth` is hit; 1 hits all, 0 counts as 1.
    pub nth: u64,
}

impl Pick {
    /// Every one.
    pub const ALL: Pick = Pick { after: 0, nth: 1 };

    /// Whether the `count`-th match (from 1) is hit.
    fn hits(self, count: u64) -> bool {
        count > self.after && (count - self.after).is_multiple_of(self.nth.max(1))
    }
}
