//! How a window is written: single runs at queue depth, runs bridged over gaps whose content is known, or the whole
//! span read, merged and written back. Which is cheapest depends on the density of the window and on the core, and is
//! learned from completions: nothing is assumed of an unknown disk.

use crate::api::Nanos;

/// A way to write a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// Each run of dirty blocks by itself.
    Runs,
    /// Runs joined over gaps that are clean in the cache.
    Bridged,
    /// The span from first to last dirty block: read, merged, written.
    Merge,
}

const WAYS: [Way; 3] = [Way::Runs, Way::Bridged, Way::Merge];
/// Density classes: 1, 2-3, 4-7 … 128-256 dirty blocks in a window.
const CLASSES: usize = 8;
/// Jobs in a row that go the same way, so that what is measured is that way and not a mixture.
const STREAK: u32 = 24;
/// Of those, the first ones only settle the pipeline.
const SETTLE: u32 = 8;
/// A try of the merge is shorter: each reads and writes a whole window, and clients wait meanwhile.
const MERGE_STREAK: u32 = 5;
const MERGE_SETTLE: u32 = 2;
/// One streak in so many tries another way.
const EXPLORE: u32 = 24;
/// A way this much dearer than the best one is tried again only every eighth time.
const HOPELESS: f64 = 1.5;

#[derive(Debug, Default)]
pub(crate) struct Chooser {
    /// ns per dirty block, smoothed, by class and way; 0: not tried.
    cost: [[f64; 3]; CLASSES],
    streak: u32,
    streaks: u32,
    trying: Option<usize>,
    last_end: Nanos,
}

pub(crate) fn class_of(dirty: usize) -> usize {
    (dirty.max(1).ilog2() as usize).min(CLASSES - 1)
}

impl Chooser {
    /// The way for a window with `dirty` dirty blocks in `runs` runs; `bridges`: gaps with known content, `gaps` in all.
    pub(crate) fn choose(&mut self, dirty: usize, gaps: usize, bridges: usize) -> Way {
        self.streak += 1;
        let merging = self.trying == Some(Way::Merge as usize);
        if self.streak > if merging { MERGE_STREAK } else { STREAK } {
            self.streak = 0;
            self.streaks += 1;
            self.trying =
                (self.streaks % EXPLORE == EXPLORE - 1).then_some((self.streaks / EXPLORE) as usize % 3);
        }
        if gaps == 0 {
            return Way::Runs;
        }
        let row = &self.cost[class_of(dirty)];
        let possible = |w: usize| match WAYS[w] {
            Way::Runs => true,
            Way::Bridged => bridges > 0,
            // Reading what is mostly not wanted is tried only where at least an eighth of the window is dirty.
            Way::Merge => dirty >= 32,
        };
        let cheapest = row.iter().copied().filter(|c| *c > 0.0).fold(f64::MAX, f64::min);
        let rare = !(self.streaks / EXPLORE / 3).is_multiple_of(8);
        let hopeless = |w: usize| row[w] > cheapest * HOPELESS && rare;
        if let Some(w) = self.trying.filter(|w| possible(*w) && !hopeless(*w)) {
            return WAYS[w];
        }
        // A bridge saves a command and costs only bytes that pass under the head anyway: the way until measured.
        let default = if possible(1) { 1 } else { 0 };
        let best = (0..3)
            .filter(|w| possible(*w) && row[*w] > 0.0)
            .min_by(|a, b| row[*a].total_cmp(&row[*b]))
            .unwrap_or(default);
        WAYS[best]
    }

    /// A job's core writes are over. `busy`: others were in flight all the time, so the time since the last end is its.
    pub(crate) fn ended(&mut self, now: Nanos, way: Way, dirty: usize, busy: bool) {
        let took = now.saturating_sub(self.last_end);
        let settle = if way == Way::Merge { MERGE_SETTLE } else { SETTLE };
        let measured = busy && self.last_end > 0 && self.streak > settle && dirty > 0;
        self.last_end = now;
        if !measured {
            return;
        }
        let cell = &mut self.cost[class_of(dirty)][way as usize];
        let sample = took as f64 / dirty as f64;
        *cell = if *cell == 0.0 { sample } else { *cell * 0.95 + sample * 0.05 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A core on which each way has a fixed cost per window of 128 dirty blocks.
    fn settled(costs: [u64; 3]) -> Way {
        let (mut c, mut now) = (Chooser::default(), 1);
        let mut last = Way::Runs;
        let mut counts = [0u32; 3];
        for i in 0..40_000 {
            let way = c.choose(128, 60, 20);
            now += costs[way as usize];
            c.ended(now, way, 128, true);
            if i > 20_000 {
                counts[way as usize] += 1;
                last = way;
            }
        }
        let best = WAYS[(0..3).max_by_key(|w| counts[*w]).unwrap_or(0)];
        assert!(counts[best as usize] > 15_000, "{counts:?} {last:?}");
        best
    }

    #[test]
    fn the_cheapest_way_on_this_core_wins_whatever_it_is() {
        assert_eq!(settled([10_000_000, 12_000_000, 30_000_000]), Way::Runs);
        assert_eq!(settled([20_000_000, 12_000_000, 30_000_000]), Way::Bridged);
        assert_eq!(settled([40_000_000, 32_000_000, 15_000_000]), Way::Merge);
    }
}
