//! The probe of a core that refuses writes: it is the core that takes none, or some sectors of it. A clean
//! block, whose content is known, is written to it again: what it takes that for is told apart from what it
//! refuses.

use super::job::Job;
use super::{BACKOFF, Destage, JOBS, SOON, TRICKLE};
use crate::api::{Effect, Nanos};
use crate::engine::Engine;
use crate::index::Meta;
use loligo_format::units::{ALL, WINDOW_BLOCKS};

/// So many blocks in a row, in windows apart, and it is the core.
const TRIES: u32 = 2;
/// From then on it is tried again after a second, and ever more seldom.
const MOST: Nanos = 30_000_000_000;
/// Slots looked at in one go for a clean block.
const LOOK: u32 = 1 << 14;

/// The clean blocks that are written again since writes began to fail.
#[derive(Debug, Default)]
pub(crate) struct Probe {
    /// One is under way.
    running: bool,
    /// Those that failed.
    failures: u32,
    /// The last of them.
    failed: Option<(u32, Meta)>,
    again: Nanos,
    wait: Nanos,
    /// The slot to look at next.
    cursor: u32,
    /// Slots looked at since a clean block was last found.
    sought: u32,
    /// There is none in any slot.
    without: bool,
}

impl Probe {
    fn reset(&mut self) {
        *self = Probe { running: self.running, cursor: self.cursor, ..Probe::default() };
    }

    /// One is over: whether the core took it, or nothing where it was not written after all.
    fn over(&mut self, now: Nanos, tried: (u32, Meta), taken: Option<bool>) {
        match taken {
            Some(true) => self.reset(),
            Some(false) => {
                self.failures = self.failures.saturating_add(1);
                self.failed = Some(tried);
                if self.failures >= TRIES {
                    self.wait = (self.wait * 2).clamp(BACKOFF, MOST);
                    self.again = now + self.wait;
                }
            }
            None => self.again = now + TRICKLE,
        }
    }
}

impl Destage {
    /// True if it is the core that takes nothing: clean blocks fail too, or there are none and windows fail in a row.
    pub(super) fn core_is_down(&self) -> bool {
        let probed = self.probe.failures >= TRIES || (self.probe.without && self.health.is_down());
        self.health.is_failing() && probed
    }

    /// True if writes fail and no clean block is there to tell what it is.
    pub(super) fn cannot_tell(&self) -> bool {
        self.health.is_failing() && self.probe.without
    }

    /// The time at which the next one is due.
    pub(super) fn probe_deadline(&self) -> Option<Nanos> {
        (self.health.is_failing() && !self.probe.running).then_some(self.probe.again)
    }
}

impl Destage {
    /// The core has taken the block again, or refused it, or it was not written: it had been replaced, say.
    pub(super) fn probed(&mut self, now: Nanos, job: &Job) {
        let taken = job.outcome();
        if let (Some(false), Some(why)) = (taken, job.why()) {
            self.health.failed(now, why.clone());
        }
        if taken == Some(true) {
            // The rest need not wait for a core that is well.
            self.backoff = self.backoff.min(now);
        }
        self.probe.running = false;
        self.probe.over(now, job.tried(), taken);
    }
}

impl Engine {
    /// Writes a clean block again where writes fail and it is not known what that means.
    pub(super) fn probe_if_due(&mut self, now: Nanos, fx: &mut Vec<Effect>) {
        let d = &mut self.destage;
        if !d.health.is_failing() {
            return d.probe.reset();
        }
        if d.probe.running || now < d.probe.again || d.jobs.len() >= JOBS || !self.may_probe() {
            return;
        }
        // It is found out for what is dirty. Where nothing is, a write that fails would only spoil something.
        if self.dirty_and_kept() == 0 {
            return;
        }
        let found = self.failed_block_to_write().or_else(|| self.clean_block_to_write());
        let slots = self.space.slots.count();
        let probe = &mut self.destage.probe;
        match found {
            Some((block, meta)) => {
                (probe.running, probe.sought, probe.without) = (true, 0, false);
                self.start_probe(now, block, meta, fx);
            }
            None => {
                probe.sought = probe.sought.saturating_add(LOOK);
                // Only once every slot has been looked at it is known that there is none.
                probe.without = probe.sought >= slots;
                probe.again = now + if probe.without { BACKOFF } else { SOON };
            }
        }
    }

    /// A core that has been brought to its moment is left alone, and a stop waits for nothing that nobody needs.
    pub(super) fn may_probe(&self) -> bool {
        !self.state.is_stopping() && (!self.state.has_freeze() || self.state.is_draining())
    }

    /// The block that failed last, once it is the core: what else is clean need not become dirty to find out when it is back.
    fn failed_block_to_write(&self) -> Option<(u32, Meta)> {
        let d = &self.destage;
        let (block, meta) = d.probe.failed.filter(|_| d.probe.failures >= TRIES)?;
        let newest = self.map.index.get(block)?;
        let same = (newest.slot, newest.crc, newest.valid) == (meta.slot, meta.crc, meta.valid);
        (same && !d.by_window.contains_key(&(block / WINDOW_BLOCKS as u32))).then_some((block, newest))
    }

    /// A clean block that is whole, in a window of which nothing has failed and which no job has.
    fn clean_block_to_write(&mut self) -> Option<(u32, Meta)> {
        let count = self.space.slots.count();
        for _ in 0..LOOK.min(count) {
            let d = &mut self.destage;
            let slot = d.probe.cursor % count;
            d.probe.cursor = slot + 1;
            let Some((block, meta)) = self.map.index.entry(slot) else { continue };
            let window = block / WINDOW_BLOCKS as u32;
            let failed_in = d.probe.failed.map(|(b, _)| b / WINDOW_BLOCKS as u32);
            let apart = failed_in != Some(window) && !d.stuck.is_apart(window);
            if meta.dirty == 0 && meta.valid == ALL && apart && !d.by_window.contains_key(&window) {
                // Neighbours on the cache are often neighbours on the core: the next one lies elsewhere.
                d.probe.cursor = (slot + count / 3 + 1) % count;
                return Some((block, meta));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::CoreWriteError;

    fn tried(window: u32) -> (u32, Meta) {
        (window * WINDOW_BLOCKS as u32, Meta { slot: window, crc: 0, valid: ALL, dirty: 0 })
    }

    #[test]
    fn a_core_is_down_after_two_clean_blocks() {
        let mut d = Destage::new();
        d.health.failed(0, CoreWriteError::saying("x"));
        d.probe.over(0, tried(1), Some(false));
        assert!(!d.core_is_down() && d.probe_deadline() == Some(0), "another one, at once");
        d.probe.over(0, tried(2), Some(false));
        assert!(d.core_is_down() && d.probe_deadline() == Some(BACKOFF));
        d.probe.over(0, tried(3), Some(false));
        assert_eq!(d.probe_deadline(), Some(2 * BACKOFF));
        d.probe.over(0, tried(4), None);
        assert!(d.core_is_down(), "one that was not written says nothing");
        d.health.worked();
        assert!(!d.core_is_down());
    }

    #[test]
    fn without_a_clean_block_four_windows_are_the_core() {
        let mut d = Destage::new();
        for window in 0..4 {
            d.health.failed(0, CoreWriteError::saying("x"));
            d.health.refused_in(window);
        }
        assert!(!d.core_is_down() && !d.cannot_tell(), "it is being found out");
        d.probe.without = true;
        assert!(d.core_is_down() && d.cannot_tell());
    }
}
