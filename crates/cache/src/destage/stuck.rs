//! Windows with blocks that the core does not take. Each waits by itself, and the others go on.
//!
//! A write of many blocks that fails names none of them: the window is written once more, each block by itself. Those
//! that fail then are known. They are tried again ever more seldom, and what else is dirty in their window goes on.

use crate::api::Nanos;
use crate::core::Core;
use crate::units::{BLOCK, WINDOW_BLOCKS};
use std::collections::{BTreeMap, BTreeSet};

/// From the first failure of a block by itself until it is tried again, and at most.
const FIRST: Nanos = 1_000_000_000;
const MOST: Nanos = 30_000_000_000;
/// Windows remembered for a gap that cannot be read.
const UNREADABLE: usize = 4096;
/// Places that are named of those that the core refuses.
const NAMED: usize = 8;

#[derive(Debug)]
struct Window {
    /// Successful core writes when it first failed.
    since: u64,
    again: Nanos,
    wait: Nanos,
    /// Those that failed by themselves; none: until `again` the whole window is left alone.
    blocks: BTreeSet<u32>,
    why: String,
}

/// The windows, and what is known of them.
#[derive(Debug, Default)]
pub(crate) struct Stuck {
    windows: BTreeMap<u32, Window>,
    /// Of those, the ones in which something may be dirty no longer.
    changed: BTreeSet<u32>,
    unreadable: BTreeSet<u32>,
}

impl Stuck {
    /// Whether blocks of `window` are written each by itself.
    pub(crate) fn is_apart(&self, window: u32) -> bool {
        self.windows.contains_key(&window)
    }

    /// A write of several blocks failed, because of `why`. `successes`: core writes that have succeeded so far.
    pub(crate) fn failed_together(&mut self, now: Nanos, window: u32, successes: u64, why: &str) {
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
        why: &str,
    ) {
        let w = self.entry(now, window, successes, why);
        w.blocks.retain(|b| !taken.contains(b));
        w.blocks.extend(refused);
        if all {
            w.blocks.clear();
        }
        w.again = now + w.wait;
        w.wait = (w.wait * 2).min(MOST);
        why.clone_into(&mut w.why);
    }

    fn entry(&mut self, now: Nanos, window: u32, successes: u64, why: &str) -> &mut Window {
        self.windows.entry(window).or_insert_with(|| Window {
            since: successes,
            again: now,
            wait: FIRST,
            blocks: BTreeSet::new(),
            why: why.to_owned(),
        })
    }

    /// The core took all that it was given of `window`.
    pub(crate) fn taken(&mut self, window: u32, blocks: &[u32]) {
        if let Some(w) = self.windows.get_mut(&window) {
            w.blocks.retain(|b| !blocks.contains(b));
            if w.blocks.is_empty() {
                self.windows.remove(&window);
            }
        }
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
        let whole = w.blocks.is_empty();
        w.blocks.retain(|b| is_dirty(*b));
        if !any || (w.blocks.is_empty() && !whole) {
            self.windows.remove(&window);
        }
    }

    /// Whether `block` is not to be tried now.
    pub(crate) fn keeps(&self, block: u32, now: Nanos) -> bool {
        let window = self.windows.get(&(block / WINDOW_BLOCKS as u32));
        window.is_some_and(|w| now < w.again && (w.blocks.is_empty() || w.blocks.contains(&block)))
    }

    /// Whether anything of `window` is not to be tried now.
    pub(crate) fn is_waiting(&self, window: u32, now: Nanos) -> bool {
        self.windows.get(&window).is_some_and(|w| now < w.again)
    }

    /// Everything is to be tried now.
    pub(crate) fn retry_all(&mut self) {
        self.windows.values_mut().for_each(|w| w.again = 0);
    }

    /// When the next of them is tried again.
    pub(crate) fn deadline(&self, now: Nanos) -> Option<Nanos> {
        self.windows.values().map(|w| w.again).filter(|at| *at > now).min()
    }

    /// A gap of `window` cannot be read: it is not merged any more.
    pub(crate) fn cannot_merge(&mut self, window: u32) {
        if self.unreadable.len() >= UNREADABLE {
            self.unreadable.clear();
        }
        self.unreadable.insert(window);
    }

    /// Whether `window` may be read to be merged.
    pub(crate) fn can_merge(&self, window: u32) -> bool {
        !self.unreadable.contains(&window)
    }

    /// Blocks that are known to be refused.
    pub(crate) fn count(&self) -> u64 {
        self.windows.values().map(|w| w.blocks.len() as u64).sum()
    }

    /// What is known to be refused, as first block and number of blocks, joined where they are neighbours.
    pub(crate) fn runs(&self) -> Vec<(u32, u32)> {
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for (window, w) in &self.windows {
            let whole = w.blocks.is_empty() && w.wait > FIRST;
            let all = whole.then_some((window * WINDOW_BLOCKS as u32, WINDOW_BLOCKS as u32));
            for (first, n) in w.blocks.iter().map(|b| (*b, 1)).chain(all) {
                match runs.last_mut() {
                    Some((at, len)) if *at + *len == first => *len += n,
                    _ => runs.push((first, n)),
                }
            }
        }
        runs
    }

    /// Why the first of them failed, and how many core writes had succeeded before that.
    pub(crate) fn first(&self) -> Option<(&str, u64)> {
        let since = self.windows.values().map(|w| w.since).min()?;
        self.windows.values().next().map(|w| (w.why.as_str(), since))
    }
}

impl Core {
    /// How writes to the core fail, where the newest ones did.
    /// Not where others have succeeded since: then it is some sectors, see [`Core::core_refuses`].
    pub fn core_failing(&self) -> Option<&str> {
        let d = &self.destage;
        let sectors = d.stuck.first().is_some_and(|(_, before)| d.health.successes() > before);
        d.health.why().filter(|_| !sectors || d.health.is_down())
    }

    /// Which sectors the core does not take, where there are any.
    pub fn core_refuses(&self) -> Option<String> {
        let runs = self.destage.stuck.runs();
        let (why, _) = self.destage.stuck.first().filter(|_| !runs.is_empty())?;
        let named: Vec<String> = runs
            .iter()
            .take(NAMED)
            .map(|(first, n)| {
                let at = (self.cfg.stripe.global(*first) * BLOCK + self.cfg.home_start) / 512;
                format!("{at} to {}", at + u64::from(*n) * 8 - 1)
            })
            .collect();
        let more = runs.len() - named.len();
        let more = if more > 0 { format!(" and in {more} more places") } else { String::new() };
        Some(format!(
            "the core refuses writes to its sectors of 512 bytes {}{more} ({why}). They stay dirty on the cache, everything else goes on: \
             have the disk remap them or replace it, then flush again",
            named.join(", ")
        ))
    }

    /// Whether nothing (more) that is dirty in `window` can go to the core now.
    pub(super) fn cannot_go(&mut self, now: Nanos, window: u32) -> bool {
        if self.destage.by_window.contains_key(&window) {
            return false;
        }
        if self.index.window_dirty(window) == 0 {
            return true;
        }
        if self.bad_in(window).is_none() && !self.destage.stuck.is_waiting(window, now) {
            return false;
        }
        let mut dirty = Vec::new();
        self.index.dirty_in(window, &mut dirty);
        dirty.iter().all(|(b, _)| self.destage.bad.contains(b) || self.destage.stuck.keeps(*b, now))
    }

    /// Nothing is refused that is not to go to the core any more, in whatever way it came to be clean.
    pub(crate) fn forget_clean(&mut self) {
        while let Some(window) = self.destage.stuck.next_changed() {
            let first = window * WINDOW_BLOCKS as u32;
            let (index, freeze) = (&self.index, &self.freeze);
            let is_dirty = |b: u32| {
                index.get(b).is_some_and(|m| m.dirty != 0)
                    || freeze.as_ref().is_some_and(|f| f.kept_of(b).is_some())
            };
            let any = index.window_dirty(window) > 0
                || (freeze.is_some() && (first..=first + (WINDOW_BLOCKS as u32 - 1)).any(is_dirty));
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
        s.failed_together(0, 1, 0, "x");
        assert!(s.is_apart(1) && !s.keeps(300, 0), "tried again at once");
        let mut now = 0;
        for wait in [1, 2, 4, 8, 16, 30, 30] {
            s.failed_apart(now, 1, 0, (&[301], &[300], false), "x");
            assert!(s.keeps(300, now + wait * FIRST - 1) && !s.keeps(301, now));
            now += wait * FIRST;
            assert!(!s.keeps(300, now));
        }
        assert_eq!((s.runs(), s.count()), (vec![(300, 1)], 1));
        s.taken(1, &[300]);
        assert!(!s.is_apart(1));
    }

    #[test]
    fn a_refused_block_that_is_not_dirty_is_forgotten() {
        let mut s = Stuck::default();
        s.failed_apart(0, 1, 0, (&[], &[300, 301], false), "x");
        s.failed_apart(0, 2, 0, (&[], &[512], true), "x");
        for block in [300, 600, 900] {
            s.changed(block);
        }
        assert_eq!((s.next_changed(), s.next_changed(), s.next_changed()), (Some(1), Some(2), None));
        s.keep_dirty(1, true, |b| b == 301);
        s.keep_dirty(2, true, |_| false);
        assert_eq!(
            s.runs(),
            [(301, 1), (512, 256)],
            "a whole window is refused as long as it has anything dirty"
        );
        s.keep_dirty(1, true, |_| false);
        s.keep_dirty(2, false, |_| false);
        assert!(!s.is_apart(1) && !s.is_apart(2));
    }

    #[test]
    fn a_window_that_refuses_everything_waits_as_a_whole() {
        let mut s = Stuck::default();
        s.failed_apart(0, 2, 0, (&[], &[512, 513], true), "x");
        assert!(s.keeps(700, 0) && s.runs() == [(512, 256)]);
        s.retry_all();
        assert!(!s.keeps(512, 0));
    }
}
