//! A share that grows and shrinks while it is served.
//!
//! Growing is a word: the slots are there, and free. Shrinking takes its time: slots above the new limit are given out no
//! more; clean ones are evicted; dirty ones go to the core, a window at a time; then a checkpoint commits that speaks of
//! none of them. Only then is it answered, and what stands behind them may be given away: no record that recovery could
//! replay, no page that it could read and no operation in flight names them.

use crate::api::{ControlId, Effect, Nanos};
use crate::bug::{Bug, planted};
use crate::commit::RoomFor;
use crate::engine::Engine;
use crate::refusal::ControlError;
use crate::space::Shrink;
use loligo_format::pool::share::MIN_SLOTS;
use loligo_format::record::Record;
use loligo_format::units::{BLOCK, WINDOW_BLOCKS};

/// Slots looked at in a settle.
const LOOK: u32 = 8192;
/// Evictions recorded in one.
const DROPS: u32 = 256;
/// Windows waiting to be destaged at which no more are looked for.
const WINDOWS: usize = 1024;
/// Between two looks, while they find something to do.
const SOON: Nanos = 200_000;
/// And where a whole round found nothing that could be done now.
const LATER: Nanos = 10_000_000;

impl Engine {
    /// The share has, or is to have, `limit` slots.
    pub(crate) fn set_limit(&mut self, now: Nanos, id: ControlId, limit: u32, fx: &mut Vec<Effect>) {
        if let Some(why) = self.state.refusal() {
            return fx.push(Effect::Controlled(id, Err(why)));
        }
        let most = self.space.slots.size();
        if self.state.is_stopping() || !(MIN_SLOTS.min(most)..=most).contains(&limit) {
            return fx.push(Effect::Controlled(id, Err(ControlError::Limit { limit, most })));
        }
        self.end_shrink(ControlError::OtherLimit, fx);
        if limit >= self.cfg.layout.limit {
            self.cfg.layout.limit = limit;
            self.use_slots(limit);
            return fx.push(Effect::Controlled(id, Ok(())));
        }
        self.use_slots(limit);
        let round = self.cfg.layout.limit - limit;
        self.space.shrink =
            Some(Shrink { id, hand: limit, round, found: false, again: now, covered_by: None });
    }

    fn use_slots(&mut self, limit: u32) {
        self.space.use_slots(limit);
        self.stats.cache_bytes = u64::from(limit) * BLOCK;
    }

    /// A shrink will not be: what was there is used again.
    pub(crate) fn end_shrink(&mut self, why: ControlError, fx: &mut Vec<Effect>) {
        if let Some(v) = self.space.shrink.take() {
            self.destage.forget_shrunk();
            self.use_slots(self.cfg.layout.limit);
            fx.push(Effect::Controlled(v.id, Err(why)));
        }
    }

    /// Takes a shrink further.
    pub(crate) fn shrink_step(&mut self, now: Nanos, fx: &mut Vec<Effect>) {
        let Some(v) = &self.space.shrink else { return };
        if self.state.is_stopping() {
            return self.end_shrink(ControlError::EndedByStop, fx);
        }
        if let Some(number) = v.covered_by {
            if self.commit.checkpoint.has_committed(number) {
                self.shrunk(fx);
            }
            return;
        }
        if self.nothing_above() {
            if planted(self.cfg.bug, Bug::ShrunkBeforeCheckpoint) {
                return self.shrunk(fx);
            }
            if self.commit.checkpoint.is_idle() {
                self.commit.checkpoint.touch_written_from(self.space.slots.count());
                self.start_checkpoint(fx);
                let number = self.commit.checkpoint.number();
                self.space.shrink.as_mut().expect("looked at above").covered_by = Some(number);
            }
            return;
        }
        if now >= v.again && self.commit.has_room(RoomFor::Housekeeping) {
            self.look_above(now, fx);
        }
    }

    /// True if nothing is in a slot above the limit, on its way there or from there.
    fn nothing_above(&self) -> bool {
        if planted(self.cfg.bug, Bug::ShrunkWhileLeaving) {
            return (self.space.slots.count()..self.cfg.layout.limit)
                .all(|s| self.map.index.block_in(s).is_none());
        }
        self.space.slots.is_empty_above_limit()
    }

    fn shrunk(&mut self, fx: &mut Vec<Effect>) {
        if let Some(v) = self.space.shrink.take() {
            self.cfg.layout.limit = self.space.slots.count();
            fx.push(Effect::Controlled(v.id, Ok(())));
        }
    }

    /// Evicts what is clean above the limit and has the rest destaged.
    fn look_above(&mut self, now: Nanos, fx: &mut Vec<Effect>) {
        let (from, to) = (self.space.slots.count(), self.cfg.layout.limit);
        let Some(mut v) = self.space.shrink.take() else { return };
        let mut drops = 0;
        for _ in 0..LOOK.min(to - from) {
            if drops == DROPS || self.destage.shrinking() >= WINDOWS {
                break;
            }
            let slot = v.hand;
            v.hand = if slot + 1 == to { from } else { slot + 1 };
            v.round = v.round.saturating_sub(1);
            if self.space.slots.holds_nothing(slot) {
                continue;
            }
            // One without a block is on its way to a block, or from one.
            let Some(block) = self.map.index.block_in(slot) else { continue };
            if self.map.index.slot_is_dirty(slot) {
                if self.destage.any_bad(block, block) {
                    self.space.shrink = Some(v);
                    return self.end_shrink(self.damaged(block), fx);
                }
                if self.destage.stuck.keeps(block, now) {
                    self.space.shrink = Some(v);
                    return self.end_shrink(self.refused().unwrap_or(ControlError::Waits), fx);
                }
                v.found |= self.destage.shrink(block / WINDOW_BLOCKS as u32);
            } else if self.destage.holds(block) {
                v.found = true;
            } else if self.space.policy.state(slot) != 0 {
                // Not counted as an eviction: those say that a cache has too little room.
                self.space.policy.remove(slot);
                self.space.dropping += 1;
                drops += 1;
                v.found = true;
                let record = Record::Drop { block: self.cfg.stripe.global(block), slot };
                self.commit.append(now, record, true, true);
            }
        }
        v.again = now + SOON;
        if v.round == 0 {
            if !v.found {
                v.again = now + LATER;
            }
            (v.round, v.found) = (to - from, false);
        }
        self.space.shrink = Some(v);
    }
}
