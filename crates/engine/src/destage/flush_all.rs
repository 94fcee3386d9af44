//! A flush of everything dirty: which windows it still waits for, and what those who wait are told.

use super::Destage;
use crate::api::{ControlId, Effect, Nanos};
use crate::engine::Engine;
use crate::refusal::{ControlError, Failure};
use crate::state::Orphans;
use loligo_format::units::{BLOCK, Stripe, WINDOW_BLOCKS};
use std::collections::{BTreeMap, BTreeSet};

/// Jobs of a window that may find a block replaced before a flush that waits for it is given up.
const MOST_REPLACED: u32 = 200;

/// An operator's wish that everything dirty now be in the core.
#[derive(Debug)]
pub(super) struct FlushAll {
    id: ControlId,
    /// Jobs numbered from here on count.
    pub(super) from: u64,
    pub(super) remaining: BTreeSet<u32>,
    pub(super) failed: Option<ControlError>,
    /// Windows in which the core has refused something that was dirty.
    pub(super) refused: BTreeSet<u32>,
    /// Jobs of a window that left something behind because a client had replaced it.
    replaced: BTreeMap<u32, u32>,
}

impl FlushAll {
    /// Of these windows, by jobs numbered from `from` on.
    fn new(id: ControlId, from: u64, remaining: BTreeSet<u32>) -> FlushAll {
        FlushAll { id, from, remaining, failed: None, refused: BTreeSet::new(), replaced: BTreeMap::new() }
    }

    /// A job of `window` left something there that was replaced meanwhile: another is to bring it, as often as that may be.
    pub(super) fn left_in(&mut self, window: u32, stripe: Stripe) {
        let times = self.replaced.entry(window).or_default();
        *times += 1;
        if *times > MOST_REPLACED && self.failed.is_none() {
            let at = stripe.global(window * WINDOW_BLOCKS as u32) * BLOCK;
            self.failed = Some(ControlError::Rewritten { at });
        }
    }
}

impl Destage {
    /// The first block of `window` whose data does not match its checksum.
    pub(crate) fn bad_in(&self, window: u32) -> Option<u32> {
        let first = window * WINDOW_BLOCKS as u32;
        self.bad.range(first..first + WINDOW_BLOCKS as u32).next().copied()
    }

    /// Fails the flushes: data that was to be in the core will not be.
    pub(crate) fn fail_flushes(&mut self, why: &ControlError, fx: &mut Vec<Effect>) {
        for f in std::mem::take(&mut self.flushes) {
            fx.push(Effect::Controlled(f.id, Err(why.clone())));
        }
    }
}

impl Engine {
    /// Everything dirty now is to be in the core.
    pub(crate) fn flush_dirty(&mut self, _now: Nanos, id: ControlId, fx: &mut Vec<Effect>) {
        if let Some(why) = self.state.refusal() {
            return fx.push(Effect::Controlled(id, Err(why)));
        }
        let remaining =
            (0..self.map.index.windows()).filter(|w| self.map.index.window_dirty(*w) > 0).collect();
        let from = self.destage.number;
        // Whoever asks for it may have mended the core.
        self.destage.retry_all();
        self.destage.flushes.push(FlushAll::new(id, from, remaining));
    }

    /// Blocks that the oldest flush still has before it, roughly (for progress).
    pub fn flush_remaining(&self) -> Option<u64> {
        let f = self.destage.flushes.first()?;
        Some(f.remaining.iter().map(|w| u64::from(self.map.index.window_dirty(*w))).sum())
    }

    pub(super) fn check_flushes(&mut self, now: Nanos, fx: &mut Vec<Effect>) {
        if self.state.is_stopping() {
            for f in std::mem::take(&mut self.destage.flushes) {
                fx.push(Effect::Controlled(f.id, Err(ControlError::EndedByStop)));
            }
        }
        let mut i = 0;
        while i < self.destage.flushes.len() {
            while let Some(w) = self.destage.flushes[i].remaining.first().copied() {
                if self.map.index.window_dirty(w) > 0 || self.destage.by_window.contains_key(&w) {
                    break;
                }
                self.destage.flushes[i].remaining.pop_first();
            }
            let remaining = std::mem::take(&mut self.destage.flushes[i].remaining);
            let over = remaining.iter().all(|w| self.cannot_go(now, *w));
            let first = remaining.first().copied();
            self.destage.flushes[i].remaining = remaining;
            let over =
                over && !self.has_doubts() && !self.destage.rewrites_until(self.destage.flushes[i].from);
            if !over && self.destage.flushes[i].failed.is_none() {
                i += 1;
                continue;
            }
            let f = self.destage.flushes.remove(i);
            let bad = first.and_then(|w| self.destage.bad_in(w)).map(|block| self.damaged(block));
            // What a client has dropped or written to the core since holds nobody up.
            let stays = first.is_some() || f.refused.iter().any(|w| self.destage.stuck.is_apart(*w));
            let refused = stays.then(|| self.refused()).flatten();
            let refused = refused.or_else(|| self.cannot_salvage());
            let why = f.failed.or(bad).or(refused.map(|why| ControlError::Incomplete(Box::new(why))));
            fx.push(Effect::Controlled(f.id, why.map_or(Ok(()), Err)));
        }
    }

    /// Dirty data of `block` is not what was written.
    pub(crate) fn damaged(&self, block: u32) -> ControlError {
        ControlError::Damaged { at: self.cfg.stripe.global(block) * BLOCK }
    }

    /// Nobody will hear of anything any more: a cache that has failed fails what operators wait for.
    pub(crate) fn fail_controls(&mut self, why: Failure, left: Orphans, fx: &mut Vec<Effect>) {
        let why = ControlError::Failed(why);
        self.destage.fail_flushes(&why, fx);
        self.commit.fail_core_flushes(&why, fx);
        self.fail_freeze(left.freeze, why.clone(), fx);
        self.end_shrink(why.clone(), fx);
        if let Some(id) = left.stop {
            fx.push(Effect::Controlled(id, Err(why)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_gives_up_a_window_that_is_replaced_without_end() {
        let stripe = loligo_format::units::Striping::by_window(2).of(1);
        let mut flush = FlushAll::new(0, 0, BTreeSet::from([7]));
        (0..MOST_REPLACED).for_each(|_| flush.left_in(7, stripe));
        (0..MOST_REPLACED).for_each(|_| flush.left_in(8, stripe));
        assert_eq!(flush.failed, None, "each window counts by itself");
        flush.left_in(7, stripe);
        assert_eq!(flush.failed, Some(ControlError::Rewritten { at: 15 << 20 }));
    }
}
