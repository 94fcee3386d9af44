//! A freeze: the core is brought to one moment and kept there, while clients go on writing into the cache.
//!
//! The moment is the event itself. Versions that are dirty then are *pinned*: one that is replaced afterwards
//! keeps its slot until it has been written to the core ([`Engine::drain`]), and never a newer one goes there
//! before the thaw. A bit for each slot says which versions came after the moment, so that the event costs no
//! walk over dirty blocks.

pub(crate) mod moment;

use crate::api::{ControlId, Effect, Nanos};
use crate::bug::{Bug, planted};
use crate::engine::Engine;
use crate::refusal::ControlError;
use crate::write_task::Route;
use loligo_format::mode::WriteRoute;
use moment::{Freeze, Pin};
use std::collections::BTreeMap;

/// Free slots at the answer last for so many seconds of writes as they have come of late.
const ROOM_SECONDS: u64 = 2;
/// A dirty block costs no more than this while the core is frozen, nanoseconds.
const DEAREST: f64 = 20e6;

impl Engine {
    /// Blocks that a freeze still has to bring to the core (0: the core holds its moment); `None`: nothing is frozen.
    pub fn frozen(&self) -> Option<u64> {
        self.state.freeze().map(|f| f.left)
    }

    /// The core is to be brought to this moment and kept there.
    pub(crate) fn freeze(&mut self, now: Nanos, id: ControlId, fx: &mut Vec<Effect>) {
        let bad = self.destage.first_bad().map(|block| self.damaged(block));
        if let Err(why) = self.state.can_freeze().and(bad.map_or(Ok(()), Err)) {
            return fx.push(Effect::Controlled(id, Err(why)));
        }
        let begun = self.state.begin_freeze(Freeze {
            id: Some(id),
            seq: self.commit.journal.completed(),
            fresh: vec![0; (self.space.slots.size() as usize).div_ceil(64)],
            pins: BTreeMap::new(),
            todo: (0..self.map.index.windows()).filter(|w| self.map.index.window_dirty(*w) > 0).collect(),
            pinned: self.map.index.dirty_blocks(),
            left: self.map.index.dirty_blocks(),
            inflow: (self.intake.inflow.rate(now) * ROOM_SECONDS).min(self.space.slot_limit() / 2),
            room: 0,
            zeroed: 0,
            lost: false,
        });
        match begun {
            Ok(()) => self.destage.pin_jobs(true),
            Err(why) => fx.push(Effect::Controlled(id, Err(why))),
        }
    }

    /// The core may change again.
    pub(crate) fn thaw(&mut self, now: Nanos, id: ControlId, fx: &mut Vec<Effect>) {
        self.end_freeze(now, ControlError::Thawed, fx);
        fx.push(Effect::Controlled(id, Ok(())));
    }

    /// Ends a freeze, if there is one: whoever still waits for it is told `why`, pinned versions that are not the newest
    /// are let go, and those who waited for the end go on.
    pub(crate) fn end_freeze(&mut self, now: Nanos, why: ControlError, fx: &mut Vec<Effect>) {
        let Some(freeze) = self.state.end_freeze() else { return };
        if let Some(id) = freeze.id {
            fx.push(Effect::Controlled(id, Err(why)));
        }
        self.destage.pin_jobs(false);
        self.destage.stuck.all_changed();
        self.destage.forgive(now);
        for pin in freeze.pins.into_values() {
            self.let_go(pin);
        }
        for key in std::mem::take(&mut self.intake.held) {
            self.route(now, key, fx);
        }
    }

    /// The same for a cache that has failed, in which nothing goes on.
    pub(crate) fn fail_freeze(
        &mut self,
        freeze: Option<Box<Freeze>>,
        why: ControlError,
        fx: &mut Vec<Effect>,
    ) {
        self.intake.held.clear();
        if let Some(id) = freeze.and_then(|f| f.id) {
            fx.push(Effect::Controlled(id, Err(why)));
        }
    }

    /// The slot of a pinned version may be used again, by the usual rules.
    fn let_go(&mut self, pin: Pin) {
        if !planted(self.cfg.bug, Bug::PinnedSlotReused) {
            self.space.leave(pin.meta.slot, pin.frame);
        }
    }

    /// The pinned version of `block`, which is not the newest, is in the core.
    pub(crate) fn release_pin(&mut self, block: u32) {
        let Some(freeze) = self.state.freeze_mut() else { return };
        if let Some(pin) = freeze.pins.remove(&block) {
            freeze.left -= 1;
            self.let_go(pin);
            self.destage.stuck.changed(block);
        }
    }

    /// Answers the freeze once the core holds its moment and there is room for what comes until the thaw.
    pub(crate) fn freeze_step(&mut self, now: Nanos, fx: &mut Vec<Effect>) {
        if self.state.freeze().is_some_and(|f| f.lost && !f.is_answered()) {
            return self.end_freeze(now, ControlError::Overwritten, fx);
        }
        let waiting = self.state.freeze().is_some_and(|f| f.id.is_some() && f.left == 0);
        if !waiting || self.destage.uses_core() {
            return;
        }
        if let Some(why) = self.cannot_salvage() {
            return self.end_freeze(now, why, fx);
        }
        if self.destage.has_doubts() {
            return;
        }
        let room =
            (self.intake.inflow.rate(now) * ROOM_SECONDS).min(u64::from(self.space.slots.count() / 2)) as u32;
        if let Some(freeze) = self.state.freeze_mut() {
            freeze.room = freeze.room.max(room);
        }
        self.make_room(now);
        let under_way = self.space.slots.leaving_count() > 0 || self.space.dropping > 0;
        let enough = self.space.slots.free_count() >= self.room_wanted();
        if let Some(freeze) =
            self.state.freeze_mut().filter(|_| enough || (self.space.no_victims && !under_way))
        {
            freeze.room = 0;
            if let Some(id) = freeze.id.take() {
                fx.push(Effect::Controlled(id, Ok(())));
            }
        }
    }

    /// The least cost of each further dirty block while the core is frozen, nanoseconds; `dirty`: the blocks
    /// that take room already. Until the answer clients are kept so far below the rate of destaging that in
    /// the end there is room for what they write until the thaw, and then to what lasts: what came after the
    /// moment can leave only when the core may change again, and whoever met the end of the room would wait
    /// for that.
    pub(crate) fn frozen_cost(&self, dirty: u64) -> f64 {
        let Some(freeze) = self.state.freeze() else { return 0.0 };
        let limit = self.space.slot_limit();
        if freeze.left == 0 {
            let room = limit.saturating_sub(dirty);
            let lasts = ROOM_SECONDS as f64 * 1e9 / room.max(1) as f64;
            return if room >= freeze.inflow { 0.0 } else { lasts.min(DEAREST) };
        }
        let (pinned, left) = (freeze.pinned as f64, freeze.left as f64);
        let budget = limit.saturating_sub(freeze.inflow).max(1) as f64;
        let spent = dirty.saturating_sub(freeze.left) as f64;
        // Not crowded: what is written can only become less than this. Or the drain is ahead of them.
        if dirty as f64 <= budget || spent < budget * (1.0 - left / pinned) {
            return 0.0;
        }
        (pinned / budget * 1e9 / self.destage.frozen_rate(freeze.left).max(50) as f64).min(DEAREST)
    }

    /// True if a change must not reach the core now.
    pub(crate) fn is_frozen(&self) -> bool {
        self.state.has_freeze() && !planted(self.cfg.bug, Bug::BypassWhileFrozen)
    }

    /// A change holds its lock while the core is frozen. True when it goes no further now: a discard is over (it only
    /// allows), and what must reach the core, or finds no room for its zeros, waits for the thaw.
    pub(crate) fn stays_out(&mut self, now: Nanos, key: usize, fx: &mut Vec<Effect>) -> bool {
        let synchronous = self.cfg.mode.write_route() != WriteRoute::Back;
        let head = &self.intake.write(key).head;
        let (blocks, zero, discard) = (u64::from(head.blocks()), head.is_zero(), head.discard);
        if zero && discard {
            self.finish(now, key, Ok(()), fx);
            return true;
        }
        // A quarter is left to those who write data: whoever clears a volume can wait. Zeros may not have been admitted yet.
        let zeroed = self.state.freeze().map_or(0, |f| f.zeroed);
        let room = u64::from(self.space.slots.free_count().saturating_sub(self.space.reserve())) >= blocks
            && self.dirty_and_kept() + zeroed + blocks <= self.space.slot_limit() * 3 / 4;
        if synchronous || (zero && !room) {
            self.intake.write(key).route = Route::Open { counted: true };
            self.intake.held.push(key);
            return true;
        }
        if let Some(freeze) = self.state.freeze_mut().filter(|_| zero) {
            freeze.zeroed += blocks;
            self.intake.write(key).head.zeros_as_data();
        }
        false
    }
}
