//! Windows with blocks that the core does not take. Each waits by itself, and the others go on.
//!
//! A write of many blocks that fails names none of them: the window is written once more, each block by itself. Those
//! that fail then are known. They are tried again ever more seldom, and what else is dirty in their window goes on.

use super::Destage;
use crate::api::Nanos;
use crate::engine::Engine;
use crate::map::Map;
use crate::refusal::{ControlError, CoreWriteError};
use loligo_format::units::{BLOCK, WINDOW_BLOCKS};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// From the first failure of a block by itself until it is tried again, and at most.
const FIRST: Nanos = 1_000_000_000;
const MOST: Nanos = 30_000_000_000;
/// Windows remembered that are not merged.
const UNREADABLE: usize = 4096;
/// Places that are told of those that the core refuses.
const PLACES: usize = 256;
/// Windows that are remembered while the core takes nothing at all: what is known of them may be worth nothing once it does.
const WHILE_DOWN: usize = 256;

/// The dirty blocks of a shard that the core refuses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// Bytes of the core as the engine sees it, ascending, neighbours joined; 256 of them at most.
    pub ranges: Vec<Range<u64>>,
    /// The number of such ranges in all.
    pub places: u64,
    /// Dirty blocks beside them that wait untried: so many of their window were refused.
    pub untried: u64,
    /// The places of those, as in `ranges`.
    pub untried_ranges: Vec<Range<u64>>,
    /// The error of the first of them.
    pub why: String,
    /// They fill the cache: what needs room goes to the core itself, and fails where that refuses it.
    pub full: bool,
}

#[derive(Debug)]
struct Window {
    /// Successful core writes when it first failed.
    since: u64,
    again: Nanos,
    wait: Nanos,
    /// Those that failed by themselves.
    blocks: BTreeSet<u32>,
    /// So many failed that the rest was not tried: until `again` the whole window is left alone.
    rest: bool,
    why: CoreWriteError,
}

/// The windows, and what is known of them.
#[derive(Debug, Default)]
pub(crate) struct Stuck {
    windows: BTreeMap<u32, Window>,
    /// The time at which each of them that waits is tried again.
    due: BTreeSet<(Nanos, u32)>,
    /// Of those, the ones in which something may be dirty no longer.
    changed: BTreeSet<u32>,
    unreadable: BTreeSet<u32>,
}

impl Stuck {
    /// True if blocks of `window` are written each by itself.
    pub(crate) fn is_apart(&self, window: u32) -> bool {
        self.windows.contains_key(&window)
    }

    /// A write of several blocks failed, because of `why`. `successes`: core writes that have succeeded so far.
    pub(crate) fn failed_together(&mut self, now: Nanos, window: u32, successes: u64, why: &CoreWriteError) {
        self.entry(now, window, successes, why);
    }

    /// Of blocks written each by itself these were `taken` and those `refused`; `all`: so many were refused that the rest
    /// was not tried.
    pub(crate) fn failed_apart(
        &mut self,
        now: Nanos,
        window: u32,
        successes: u64,
        (taken, refused, all): (&[u32], &[u32], bool),
        why: &CoreWriteError,
    ) {
        let w = self.entry(now, window, successes, why);
        w.blocks.retain(|b| !taken.contains(b));
        w.blocks.extend(refused);
        w.rest = all;
        let before = std::mem::replace(&mut w.again, now + w.wait);
        w.wait = (w.wait * 2).min(MOST);
        w.why = why.clone();
        let again = w.again;
        self.due.remove(&(before, window));
        self.due.insert((again, window));
    }

    fn entry(&mut self, now: Nanos, window: u32, successes: u64, why: &CoreWriteError) -> &mut Window {
        self.windows.entry(window).or_insert_with(|| Window {
            since: successes,
            again: now,
            wait: FIRST,
            blocks: BTreeSet::new(),
            rest: false,
            why: why.clone(),
        })
    }

    /// The core took all that it was given of `window`.
    pub(crate) fn taken(&mut self, window: u32, blocks: &[u32]) {
        if let Some(w) = self.windows.get_mut(&window) {
            w.blocks.retain(|b| !blocks.contains(b));
            w.rest = false;
            if w.blocks.is_empty() {
                self.forget(window);
            }
        }
    }

    fn forget(&mut self, window: u32) {
        if let Some(w) = self.windows.remove(&window) {
            self.due.remove(&(w.again, window));
        }
    }

    /// True if each of `blocks` has failed by itself before, in `window`.
    pub(crate) fn are_known(&self, window: u32, blocks: &[u32]) -> bool {
        self.windows.get(&window).is_some_and(|w| blocks.iter().all(|b| w.blocks.contains(b)))
    }

    /// True if the core has taken something since `window` first failed: then it is the window, not the core.
    pub(crate) fn is_sectors(&self, window: u32, successes: u64) -> bool {
        self.windows.get(&window).is_some_and(|w| w.since < successes)
    }

    /// True if one more window may be remembered while the core takes nothing.
    pub(crate) fn may_remember(&self, window: u32) -> bool {
        self.windows.len() < WHILE_DOWN || self.windows.contains_key(&window)
    }

    /// `block` may be dirty no longer: it was dropped, say, or written to the core by a client.
    #[inline]
    pub(crate) fn changed(&mut self, block: u32) {
        let window = block / WINDOW_BLOCKS as u32;
        if !self.windows.is_empty() && self.windows.contains_key(&window) {
            self.changed.insert(window);
        }
    }

    /// Any block may be dirty no longer.
    pub(crate) fn all_changed(&mut self) {
        self.changed.extend(self.windows.keys());
    }

    /// A window to look at for what is dirty no longer.
    pub(crate) fn next_changed(&mut self) -> Option<u32> {
        self.changed.pop_first()
    }

    /// Forgets what is not dirty any more in `window`: nothing there is refused. `any`: something is dirty in it.
    pub(crate) fn keep_dirty(&mut self, window: u32, any: bool, is_dirty: impl Fn(u32) -> bool) {
        let Some(w) = self.windows.get_mut(&window) else { return };
        let none = w.blocks.is_empty();
        w.blocks.retain(|b| is_dirty(*b));
        if !any || (w.blocks.is_empty() && !none) {
            self.forget(window);
        }
    }

    /// True if `block` is not to be tried now.
    pub(crate) fn keeps(&self, block: u32, now: Nanos) -> bool {
        let window = self.windows.get(&(block / WINDOW_BLOCKS as u32));
        window.is_some_and(|w| now < w.again && (w.rest || w.blocks.contains(&block)))
    }

    /// True if `block` failed by itself when it was last tried.
    pub(crate) fn is_refused(&self, block: u32) -> bool {
        let window = self.windows.get(&(block / WINDOW_BLOCKS as u32));
        window.is_some_and(|w| w.blocks.contains(&block))
    }

    /// True if `block`, which is dirty, is among those that [`Stuck::count`] counts.
    pub(crate) fn counts(&self, block: u32) -> bool {
        let window = self.windows.get(&(block / WINDOW_BLOCKS as u32));
        window.is_some_and(|w| w.rest || w.blocks.contains(&block))
    }

    /// True if anything of `window` is not to be tried now.
    pub(crate) fn is_waiting(&self, window: u32, now: Nanos) -> bool {
        self.windows.get(&window).is_some_and(|w| now < w.again)
    }

    /// True if none of the `dirty` blocks of `window` is to be tried now. False too where it would have to be looked at.
    pub(crate) fn keeps_all(&self, window: u32, dirty: usize, now: Nanos) -> bool {
        self.windows.get(&window).is_some_and(|w| now < w.again && (w.rest || w.blocks.len() >= dirty))
    }

    /// Everything is to be tried now.
    pub(crate) fn retry_all(&mut self) {
        self.windows.values_mut().for_each(|w| w.again = 0);
        self.due.clear();
    }

    /// The time at which the next of them is tried again.
    pub(crate) fn deadline(&self, now: Nanos) -> Option<Nanos> {
        self.due.range((now + 1, 0)..).next().map(|(at, _)| *at)
    }

    /// A gap of `window` cannot be read, or a merge there failed: it is not merged any more.
    pub(crate) fn cannot_merge(&mut self, window: u32) {
        if self.unreadable.len() >= UNREADABLE {
            self.unreadable.clear();
        }
        self.unreadable.insert(window);
    }

    /// True if `window` may be read to be merged.
    pub(crate) fn can_merge(&self, window: u32) -> bool {
        !self.unreadable.contains(&window)
    }

    /// Blocks that failed by themselves, those that count, and those that were not tried beside them. `dirty`: the dirty blocks of a
    /// window.
    pub(crate) fn count(&self, dirty: impl Fn(u32) -> u64, counts: impl Fn(u32) -> bool) -> u64 {
        let known = |w: &Window| w.blocks.iter().filter(|b| counts(**b)).count() as u64;
        let of = |(window, w): (&u32, &Window)| match (known(w), w.rest) {
            (known, true) => dirty(*window).max(known),
            (known, false) => known,
        };
        self.windows.iter().map(of).sum()
    }

    /// True if any block has failed by itself.
    pub(crate) fn any_known(&self) -> bool {
        self.windows.values().any(|w| !w.blocks.is_empty())
    }

    /// True if a window was given up as a whole, and nothing succeeded since.
    pub(crate) fn is_hopeless(&self, successes: u64) -> bool {
        self.windows.values().any(|w| w.rest && w.since >= successes)
    }

    /// Those that failed by themselves, ascending.
    fn blocks(&self) -> impl Iterator<Item = u32> {
        self.windows.values().flat_map(|w| w.blocks.iter().copied())
    }

    /// Those of windows whose rest was not tried that have not failed, dirty or not, ascending.
    fn beside(&self) -> impl Iterator<Item = u32> {
        self.windows.iter().filter(|(_, w)| w.rest).flat_map(|(window, w)| {
            let first = window * WINDOW_BLOCKS as u32;
            (first..=first + (WINDOW_BLOCKS as u32 - 1)).filter(|b| !w.blocks.contains(b))
        })
    }

    /// The reason why the first of them failed.
    fn first(&self) -> Option<&CoreWriteError> {
        self.windows.values().find(|w| !w.blocks.is_empty()).map(|w| &w.why)
    }
}

impl Destage {
    /// Looks whether all that is dirty in a `full` cache is refused; `coming`: new dirty blocks on their way.
    pub(crate) fn look_for_jam(&mut self, now: Nanos, full: bool, map: &Map, coming: u64) {
        if !full {
            return self.jam.over();
        }
        let (stuck, bad) = (&self.stuck, &self.bad);
        self.jam.look(now, || {
            let damaged = bad.iter().filter(|b| !stuck.counts(**b)).count() as u64;
            // Those that only memory has are not dirty yet.
            let is_dirty = |b: u32| map.index.get(b).is_some_and(|m| m.dirty != 0);
            let refused = stuck.count(|window| u64::from(map.index.window_dirty(window)), is_dirty);
            refused + damaged >= map.index.dirty_blocks() + coming
        });
    }

    /// True if for a minute all that is dirty has been refused, or nothing of it taken while the core refused what it was asked for.
    pub(crate) fn is_jammed(&self) -> bool {
        self.jam.lasts()
    }
}

impl Engine {
    /// The error of writes to the core, if the newest ones failed and it is not some sectors, see
    /// [`Engine::core_refuses`].
    pub fn core_failing(&self) -> Option<&CoreWriteError> {
        let d = &self.destage;
        // Without a clean block to tell, a window that was given up as a whole looks like the core.
        let looks = || !d.stuck.any_known() || d.stuck.is_hopeless(d.health.successes());
        let core = || d.core_is_down() || (d.cannot_tell() && looks());
        d.health.why().filter(|_| core())
    }

    /// The blocks that the core does not take, if it is some sectors that fail. A shard's windows lie apart
    /// in the core, and so do these.
    pub fn core_refuses(&self) -> Option<Refused> {
        let salvaged: BTreeSet<u32> = self.in_memory().collect();
        let in_memory = || self.destage.salvaged_why.as_ref().map_or_else(String::new, ToString::to_string);
        let first = self.destage.stuck.first().map(ToString::to_string);
        let why = first.or_else(|| (!salvaged.is_empty()).then(in_memory))?;
        let blocks: BTreeSet<u32> = self.destage.stuck.blocks().chain(salvaged).collect();
        let untried = self.refused_blocks() - self.destage.stuck.blocks().count() as u64;
        let (ranges, places) = self.runs_of(blocks.into_iter());
        let dirty = |b: &u32| self.map.index.get(*b).is_some_and(|m| m.dirty != 0);
        let (untried_ranges, _) = self.runs_of(self.destage.stuck.beside().filter(dirty));
        let full = self.destage.is_jammed() && !self.state.has_freeze();
        Some(Refused { ranges, places, untried, untried_ranges, why, full })
    }

    /// Ascending blocks as bytes of the core, neighbours joined: the first of those ranges, and how many there are.
    fn runs_of(&self, blocks: impl Iterator<Item = u32>) -> (Vec<Range<u64>>, u64) {
        let (mut ranges, mut places): (Vec<Range<u64>>, u64) = (Vec::new(), 0);
        let (volume_start, mut behind) = (self.cfg.data_start, None);
        for block in blocks {
            let start = self.cfg.stripe.global(block) * BLOCK;
            let end = (start + BLOCK).min(self.cfg.data_length) + volume_start;
            let start = start + volume_start;
            if behind != Some(start) {
                places += 1;
                if ranges.len() < PLACES {
                    ranges.push(start..end);
                }
            } else if places as usize <= PLACES
                && let Some(last) = ranges.last_mut()
            {
                last.end = end;
            }
            behind = Some(end);
        }
        (ranges, places)
    }

    /// Blocks that the core refuses, and those that wait beside them.
    pub(crate) fn refused_blocks(&self) -> u64 {
        self.destage.stuck.count(|window| u64::from(self.map.index.window_dirty(window)), |_| true)
    }

    /// The error for those who wait for dirty data.
    pub(crate) fn refused(&self) -> Option<ControlError> {
        let why = self.destage.stuck.first()?.clone();
        Some(ControlError::Refused { blocks: self.refused_blocks(), why })
    }

    /// True if nothing (more) that is dirty in `window` can go to the core now.
    pub(super) fn cannot_go(&mut self, now: Nanos, window: u32) -> bool {
        if self.destage.by_window.contains_key(&window) {
            return false;
        }
        if self.map.index.window_dirty(window) == 0 {
            return true;
        }
        if self.destage.bad_in(window).is_none() && !self.destage.stuck.is_waiting(window, now) {
            return false;
        }
        let mut dirty = Vec::new();
        self.map.index.dirty_in(window, &mut dirty);
        dirty.iter().all(|(b, _)| self.destage.bad.contains(b) || self.destage.stuck.keeps(*b, now))
    }

    /// Nothing is refused that is not to go to the core any more, in whatever way it came to be clean.
    pub(crate) fn forget_clean(&mut self) {
        while let Some(window) = self.destage.stuck.next_changed() {
            let first = window * WINDOW_BLOCKS as u32;
            let (index, freeze, doubts) = (&self.map.index, self.state.freeze(), &self.destage.doubts);
            let is_dirty = |b: u32| {
                doubts.contains_key(&b)
                    || index.get(b).is_some_and(|m| m.dirty != 0)
                    || freeze.as_ref().is_some_and(|f| f.kept_of(b).is_some())
            };
            let last = first + (WINDOW_BLOCKS as u32 - 1);
            let any = index.window_dirty(window) > 0
                || doubts.range(first..=last).next().is_some()
                || (freeze.is_some() && (first..=last).any(is_dirty));
            self.destage.stuck.keep_dirty(window, any, is_dirty);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_block_waits_longer_each_time_and_alone() {
        let mut s = Stuck::default();
        s.failed_together(0, 1, 0, &CoreWriteError::saying("x"));
        assert!(s.is_apart(1) && !s.keeps(300, 0), "tried again at once");
        let mut now = 0;
        for wait in [1, 2, 4, 8, 16, 30, 30] {
            s.failed_apart(now, 1, 0, (&[301], &[300], false), &CoreWriteError::saying("x"));
            assert!(s.keeps(300, now + wait * FIRST - 1) && !s.keeps(301, now));
            now += wait * FIRST;
            assert!(!s.keeps(300, now));
        }
        assert_eq!((s.blocks().collect::<Vec<_>>(), s.count(|_| 9, |_| true)), (vec![300], 1));
        s.taken(1, &[300]);
        assert!(!s.is_apart(1));
    }

    #[test]
    fn a_refused_block_that_is_not_dirty_is_forgotten() {
        let mut s = Stuck::default();
        s.failed_apart(0, 1, 0, (&[], &[300, 301], false), &CoreWriteError::saying("x"));
        s.failed_apart(0, 2, 0, (&[], &[512], true), &CoreWriteError::saying("x"));
        for block in [300, 600, 900] {
            s.changed(block);
        }
        assert_eq!((s.next_changed(), s.next_changed(), s.next_changed()), (Some(1), Some(2), None));
        s.keep_dirty(1, true, |b| b == 301);
        s.keep_dirty(2, true, |_| false);
        assert_eq!(s.blocks().collect::<Vec<_>>(), [301], "the rest of window 2 is tried anew");
        s.keep_dirty(1, true, |_| false);
        assert!(!s.is_apart(1) && !s.is_apart(2));
    }

    #[test]
    fn a_window_that_refuses_everything_waits_as_a_whole() {
        let mut s = Stuck::default();
        s.failed_apart(0, 2, 0, (&[], &[512, 513], true), &CoreWriteError::saying("x"));
        assert!(
            s.keeps(700, 0) && s.count(|_| 200, |_| true) == 200 && s.is_hopeless(0) && !s.is_hopeless(1)
        );
        s.retry_all();
        assert!(!s.keeps(512, 0) && s.is_refused(512) && !s.is_refused(700));
        s.failed_apart(0, 2, 0, (&[700], &[514], false), &CoreWriteError::saying("x"));
        assert!(
            s.keeps(512, 0) && !s.keeps(700, 0) && s.count(|_| 200, |_| true) == 3,
            "what is known stays known"
        );
    }
}
