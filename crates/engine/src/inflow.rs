//! The rate at which clients write into the cache.

use crate::api::Nanos;

/// The rate of writes is measured over at least this long.
const SPAN: Nanos = 250_000_000;

/// The blocks that are written into the cache a second, smoothed.
#[derive(Debug, Default)]
pub(crate) struct Inflow {
    rate: f64,
    since: Nanos,
    blocks: u64,
}

impl Inflow {
    /// So many blocks were admitted.
    pub(crate) fn admitted(&mut self, now: Nanos, blocks: u64) {
        let span = now.saturating_sub(self.since);
        if span >= SPAN {
            let rate = self.blocks as f64 * 1e9 / span as f64;
            // After a pause only what comes now counts.
            self.rate = if span > 8 * SPAN { rate } else { self.rate * 0.7 + rate * 0.3 };
            (self.since, self.blocks) = (now, 0);
        }
        self.blocks += blocks;
    }

    /// Blocks a second, by `now`.
    pub(crate) fn rate(&self, now: Nanos) -> u64 {
        let span = now.saturating_sub(self.since);
        let of_late = self.blocks as f64 * 1e9 / span.max(SPAN) as f64;
        (if span > 8 * SPAN { of_late } else { self.rate.max(of_late) }) as u64
    }
}
