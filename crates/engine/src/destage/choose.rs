//! The choice of how a window is written: single runs at queue depth, runs bridged over gaps whose content is
//! known, or the whole span read, merged and written back. The cheapest way depends on the density of the
//! window and on the core, and is learned from completions: nothing is assumed of an unknown disk.

use crate::api::Nanos;

/// A way to write a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Strategy {
    /// Each run of dirty blocks by itself.
    Runs,
    /// Runs joined over gaps that are clean in the cache.
    Bridged,
    /// The span from first to last dirty block: read, merged, written.
    Merge,
}

const WAYS: [Strategy; 3] = [Strategy::Runs, Strategy::Bridged, Strategy::Merge];
/// Density classes: 1, 2-3, 4-7 … 128-256 dirty blocks in a window.
const CLASSES: usize = 8;
/// Jobs in a row that go the same way, so that what is measured is that way and not a mixture.
const STREAK: u32 = 24;
/// Of those, the first ones only settle the pipeline.
const SETTLE: u32 = 8;
/// A try of the merge is shorter: each reads and writes a whole window, and clients wait meanwhile. So is one of a way that
/// is much dearer, and the first of any way in a class, with the few that follow where it measured nothing.
const EARLY: u32 = 6;
const TRIES: u8 = 4;
/// Of a short streak the first ones settle the pipeline.
const SETTLE_SOON: u32 = 2;
/// Dirty blocks of a window from which a merge is thought of.
const MERGE_LEAST: usize = 8;
/// One streak in so many tries another way.
const EXPLORE: u32 = 24;
/// A way this much dearer than the best one is tried again only every eighth time.
const HOPELESS: f64 = 1.5;

/// The streak that a job was begun in, and its number in that streak.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Turn {
    streak: u32,
    nth: u32,
    /// So many jobs of the streak only settle the pipeline.
    settle: u32,
}

#[derive(Debug, Default)]
pub(crate) struct Chooser {
    /// ns per dirty block, smoothed, by class and way; 0: not tried.
    cost: [[f64; 3]; CLASSES],
    /// Streaks that were to find that out.
    tries: [[u8; 3]; CLASSES],
    turn: Turn,
    /// Jobs in this streak, and how it ends.
    length: u32,
    trying: Option<usize>,
    last_end: Nanos,
    /// The streak of the job that ended last, and its way.
    ended: Option<(u32, Strategy)>,
}

pub(crate) fn class_of(dirty: usize) -> usize {
    (dirty.max(1).ilog2() as usize).min(CLASSES - 1)
}

impl Chooser {
    /// The way for a window with `dirty` dirty blocks in `runs` runs; `bridges`: gaps with known content, `gaps` in all.
    /// With the job's turn, which [`Chooser::ended`] wants to know.
    pub(crate) fn choose(&mut self, dirty: usize, gaps: usize, bridges: usize) -> (Strategy, Turn) {
        let class = class_of(dirty);
        let possible = |w: usize| match WAYS[w] {
            Strategy::Runs => true,
            Strategy::Bridged => bridges > 0,
            // Reading what is hardly wanted at all is not even tried.
            Strategy::Merge => dirty >= MERGE_LEAST,
        };
        // A bridge saves a command and costs only bytes that pass under the head anyway: the way until measured.
        let default = if possible(1) { 1 } else { 0 };
        let row: [f64; 3] = std::array::from_fn(|w| self.estimate(class, w));
        let cheapest =
            (0..3).filter(|w| possible(*w) && row[*w] > 0.0).map(|w| row[w]).fold(f64::MAX, f64::min);
        let hopeless = |w: usize| row[w] > cheapest * HOPELESS;
        self.turn.nth += 1;
        if self.turn.nth > self.length {
            self.turn = Turn { streak: self.turn.streak.wrapping_add(1), nth: 1, settle: SETTLE };
            (self.trying, self.length) = (None, STREAK);
            let untried = |w: &usize| {
                possible(*w) && !hopeless(*w) && self.cost[class][*w] == 0.0 && self.tries[class][*w] < TRIES
            };
            let soon = [default, 2, 1, 0].into_iter().find(untried).filter(|_| gaps > 0);
            let due = self.turn.streak % EXPLORE == EXPLORE - 1;
            let rare = !(self.turn.streak / EXPLORE / 3).is_multiple_of(8);
            let next = (self.turn.streak / EXPLORE) as usize % 3;
            if let Some(w) = soon {
                // What has not been measured is, soon.
                self.tries[class][w] += 1;
                (self.trying, self.length, self.turn.settle) = (Some(w), EARLY, SETTLE_SOON);
            } else if due && possible(next) && !(rare && hopeless(next)) {
                self.trying = Some(next);
                if WAYS[next] == Strategy::Merge || hopeless(next) {
                    (self.length, self.turn.settle) = (EARLY, SETTLE_SOON);
                }
            }
        }
        if gaps == 0 {
            return (Strategy::Runs, self.turn);
        }
        if let Some(w) = self.trying.filter(|w| possible(*w)) {
            return (WAYS[w], self.turn);
        }
        let best = (0..3)
            .filter(|w| possible(*w) && row[*w] > 0.0)
            .min_by(|a, b| row[*a].total_cmp(&row[*b]))
            .unwrap_or(default);
        (WAYS[best], self.turn)
    }

    /// The cost of a dirty block in this class by way `w`. If that was not measured, it follows from what is
    /// known of the next class: a merge costs the same for each window, the others for each block. 0: nothing
    /// is known.
    fn estimate(&self, class: usize, w: usize) -> f64 {
        let known = |c: usize| {
            let cost = self.cost[c][w];
            let denser = if WAYS[w] == Strategy::Merge { c as i32 - class as i32 } else { 0 };
            (cost > 0.0).then(|| cost * 2f64.powi(denser))
        };
        let apart = |c: &usize| c.abs_diff(class);
        (0..CLASSES).filter(|c| self.cost[*c][w] > 0.0).min_by_key(apart).and_then(known).unwrap_or(0.0)
    }

    /// The core writes of the job with this turn are over. `busy`: others were in flight all the time, so the time since
    /// the last end is its, if that was one of the same streak: by now others may have begun in another.
    pub(crate) fn ended(&mut self, now: Nanos, way: Strategy, turn: Turn, dirty: usize, busy: bool) {
        let took = now.saturating_sub(self.last_end);
        let like = self.ended.is_some_and(|(streak, before)| streak == turn.streak || before == way);
        let pure = like && turn.nth > turn.settle;
        let measured = busy && self.last_end > 0 && pure && dirty > 0;
        (self.last_end, self.ended) = (now, Some((turn.streak, way)));
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
    fn settled(costs: [u64; 3]) -> Strategy {
        let (mut c, mut now) = (Chooser::default(), 1);
        let mut last = Strategy::Runs;
        let mut counts = [0u32; 3];
        for i in 0..40_000 {
            let (way, turn) = c.choose(128, 60, 20);
            now += costs[way as usize];
            c.ended(now, way, turn, 128, true);
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
        assert_eq!(settled([10_000_000, 12_000_000, 30_000_000]), Strategy::Runs);
        assert_eq!(settled([20_000_000, 12_000_000, 30_000_000]), Strategy::Bridged);
        assert_eq!(settled([40_000_000, 32_000_000, 15_000_000]), Strategy::Merge);
    }

    #[test]
    fn each_way_is_measured_within_the_first_jobs() {
        let (mut c, mut now) = (Chooser::default(), 1);
        let mut begun = std::collections::VecDeque::new();
        for _ in 0..40 {
            begun.push_back(c.choose(100, 60, 20));
            // A job ends when three more have begun, by then perhaps of another streak.
            if begun.len() > 3
                && let Some((way, turn)) = begun.pop_front()
            {
                now += [800, 600, 30][way as usize] * 1_000_000;
                c.ended(now, way, turn, 100, true);
            }
        }
        assert_eq!(c.cost[class_of(100)].map(|ns| (ns / 10_000.0).round() as u64), [800, 600, 30]);
        assert_eq!(c.choose(100, 60, 20).0, Strategy::Merge);
    }
}
