//! The number of core writes to keep in flight: few for a disk, many for a core with many spindles behind it.
//!
//! A disk that may choose among 32 writes of a sweep leaves one behind on every other track and comes back
//! for it a second later; among 8 it finishes its track (virtual clock, 25 % cache: 64x against 61x, and no
//! second with a p99 above 7 ms against 227 ms). An image on many disks wants them all at once. The rate
//! shows which of them a core is.

/// Depths to choose from, the first at start.
const DEPTHS: [u32; 2] = [8, 32];
/// Measured spans on the better depth between two looks at the other.
const STAY: u32 = 120;
/// Spans of a look; the first one only settles.
const LOOK: u32 = 3;
/// The other must be this much better to be taken.
const BETTER: f64 = 1.1;

/// The depth in use, and what each has been worth.
#[derive(Debug, Default)]
pub(crate) struct Depth {
    best: usize,
    rate: f64,
    spans: u32,
    looked: f64,
}

impl Depth {
    /// Writes to keep in flight now.
    pub(crate) fn now(&self) -> u32 {
        DEPTHS[if self.looking() { 1 - self.best } else { self.best }]
    }

    fn looking(&self) -> bool {
        // The first look comes soon: the start depth may be far off.
        self.spans >= STAY || (self.spans == STAY / 10 && self.looked == 0.0)
    }

    /// A busy span went at `rate` blocks a second.
    pub(crate) fn measured(&mut self, rate: f64) {
        if !self.looking() {
            self.rate = if self.rate == 0.0 { rate } else { self.rate * 0.8 + rate * 0.2 };
            self.spans += 1;
            return;
        }
        self.spans = self.spans.max(STAY) + 1;
        self.looked = rate;
        if self.spans - STAY < LOOK {
            return;
        }
        if rate > self.rate * BETTER {
            self.best = 1 - self.best;
            self.rate = rate;
        }
        self.spans = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settled(rate_at: impl Fn(u32) -> f64) -> u32 {
        let mut d = Depth::default();
        let mut counts = [0; 33];
        for _ in 0..2000 {
            counts[d.now() as usize] += 1;
            d.measured(rate_at(d.now()));
        }
        if counts[8] > counts[32] { 8 } else { 32 }
    }

    #[test]
    fn a_single_disk_stays_shallow_and_many_spindles_go_deep() {
        assert_eq!(settled(|_| 9000.0), 8);
        assert_eq!(settled(|d| if d == 8 { 9100.0 } else { 8600.0 }), 8);
        assert_eq!(settled(|d| f64::from(d) * 100.0), 32);
    }
}
