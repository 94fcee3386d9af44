//! The space: slots and who gets them, those kept free by eviction, and how much may be dirty.

use crate::api::{ControlId, Nanos};
use crate::bug::{Bug, planted};
use crate::commit::RoomFor;
use crate::engine::Engine;
use crate::policy::Replacement;
use crate::policy::admit::Admission;
use crate::policy::probation::Probation;
use crate::slots::{Slots, Tickets};
use loligo_format::record::Record;

/// Before the wall there is room for what a core that takes groups destages in this time, nanoseconds.
const CLEAR: Nanos = 500_000_000;

/// A deadline for snapshots leaves room for so many dirty blocks (64 MiB), or for a sixteenth of the slots.
const SNAPSHOT_LEAST: u64 = 16_384;

/// A shrink under way.
#[derive(Debug)]
pub(crate) struct Shrink {
    pub(crate) id: ControlId,
    /// The place at which the search goes on.
    pub(crate) hand: u32,
    /// Slots left of this round, and whether it found something to do.
    pub(crate) round: u32,
    pub(crate) found: bool,
    pub(crate) again: Nanos,
    /// The checkpoint that must have committed.
    pub(crate) covered_by: Option<u64>,
}

/// The slots, who is in them and who is to leave.
#[derive(Debug)]
pub(crate) struct Space {
    pub(crate) slots: Slots,
    /// Reads of slots that are under way.
    pub(crate) tickets: Tickets,
    /// The policy that says which clean block leaves first.
    pub(crate) policy: Replacement,
    /// The policy that says which read block comes in, and those that are read once more before they do.
    pub(crate) admission: Admission,
    pub(crate) probation: Probation,
    /// The last look for something to evict found nothing.
    pub(crate) no_victims: bool,
    /// Evictions recorded that have not taken effect.
    pub(crate) dropping: u32,
    /// Blocks on their way to becoming dirty that are not yet.
    pub(crate) pending_dirty: u64,
    /// Dirty versions recorded that have not taken effect, new blocks and others.
    pub(crate) landing: u64,
    /// A share that gets smaller.
    pub(crate) shrink: Option<Shrink>,
}

impl Space {
    /// The slots as recovery found them, of which `limit` may be used.
    pub(crate) fn new(slots: Slots, policy: Replacement, admission: Admission, limit: u32) -> Space {
        let mut space = Space {
            tickets: Tickets::default(),
            probation: Probation::new(slots.size()),
            slots,
            policy,
            admission,
            no_victims: false,
            dropping: 0,
            pending_dirty: 0,
            landing: 0,
            shrink: None,
        };
        space.admission.set_limit(limit);
        space.probation.set_limit(limit);
        space
    }

    /// `limit` slots may be used from now on.
    pub(crate) fn use_slots(&mut self, limit: u32) {
        self.slots.set_limit(limit);
        self.policy.set_limit(limit);
        self.admission.set_limit(limit);
        self.probation.set_limit(limit);
    }

    /// `slot` holds no newest version any more, by a record in this frame. It is used again once that is durable and no read of it is
    /// under way.
    #[inline]
    pub(crate) fn leave(&mut self, slot: u32, frame: u64) {
        self.slots.leave(slot, frame, self.tickets.next());
    }

    /// A dirty version is recorded; `fresh`: of a block that is not dirty yet.
    #[inline]
    pub(crate) fn lands(&mut self, fresh: bool) {
        self.landing += 1;
        self.pending_dirty += u64::from(fresh);
    }

    /// Its record has taken effect.
    #[inline]
    pub(crate) fn landed(&mut self, fresh: bool) {
        self.landing -= 1;
        self.pending_dirty -= u64::from(fresh);
    }

    /// Frees what left in a frame up to `durable`.
    #[inline]
    pub(crate) fn settle(&mut self, durable: u64) {
        self.slots.settle(durable, self.tickets.oldest());
    }

    /// The time at which a shrink wants to look again.
    pub(crate) fn shrink_deadline(&self) -> Option<Nanos> {
        self.shrink.as_ref().filter(|v| v.covered_by.is_none()).map(|v| v.again)
    }

    /// Slots kept for overwrites and housekeeping.
    pub(crate) fn reserve(&self) -> u32 {
        (self.slots.count() / 64).max(320)
    }

    /// Free slots to keep at hand.
    pub(crate) fn room_target(&self) -> u32 {
        self.reserve() + (self.slots.count() / 128).clamp(64, 8192)
    }

    /// Dirty blocks that there is room for.
    pub(crate) fn slot_limit(&self) -> u64 {
        u64::from(self.slots.count().saturating_sub(self.room_target() + 32))
    }

    /// Slots that are free, or will be without a further eviction.
    pub(crate) fn free_soon(&self) -> u32 {
        self.slots.free_count() + self.slots.leaving_count() + self.dropping
    }

    /// The content of `first..=last` changes about now: what was kept of it is old.
    #[inline]
    pub(crate) fn changed(&mut self, first: u32, last: u32) {
        if !self.probation.is_empty() {
            for block in first..=last {
                self.probation.remove(u64::from(block));
            }
        }
    }
}

impl Engine {
    pub(crate) fn free_slots(&mut self) {
        let durable = if planted(self.cfg.bug, Bug::SlotReusedEarly) {
            u64::MAX
        } else {
            self.commit.journal.durable()
        };
        self.space.settle(durable);
    }

    /// Evicts until enough slots are free or on their way. A victim takes the clean blocks of its line along.
    pub(crate) fn make_room(&mut self, now: Nanos) {
        let target = self.room_wanted();
        let mut budget = 256;
        self.space.no_victims = false;
        while self.space.free_soon() < target && budget > 0 && self.commit.has_room(RoomFor::Housekeeping) {
            budget -= 1;
            let (index, stripe, destage) = (&self.map.index, self.cfg.stripe, &self.destage);
            let evictable = |slot: u32| {
                let block = index.block_in(slot)?;
                (!index.slot_is_dirty(slot) && !destage.holds(block)).then(|| stripe.global(block))
            };
            let victim = self.space.policy.victim(evictable);
            self.space.no_victims = victim.is_none();
            let Some(victim) = victim else { break };
            let Some(block) = self.map.index.block_in(victim) else { continue };
            let first = block / self.cfg.line_blocks * self.cfg.line_blocks;
            for b in first..first + self.cfg.line_blocks {
                let Some(meta) = self.map.index.get(b).filter(|m| m.dirty == 0 && !self.destage.holds(b))
                else {
                    continue;
                };
                if meta.slot == victim || self.space.policy.state(meta.slot) != 0 {
                    self.space.policy.remove(meta.slot);
                    self.stats.evictions += 1;
                    self.space.dropping += 1;
                    let record = Record::Drop { block: self.cfg.stripe.global(b), slot: meta.slot };
                    self.commit.append(now, record, true, true);
                }
            }
        }
    }

    /// Free slots to bring about now: more than usual where the first in the queue would not fit.
    pub(crate) fn room_wanted(&self) -> u32 {
        let blocks = self.intake.first_lacks();
        let thaw = self.state.freeze().map_or(0, |f| f.room());
        self.space.room_target().max(self.space.reserve() + blocks.max(thaw))
    }

    /// Blocks that are dirty or about to be, and versions that a freeze keeps besides.
    pub(crate) fn dirty_and_kept(&self) -> u64 {
        self.map.index.dirty_blocks() + self.space.pending_dirty + self.state.freeze().map_or(0, |f| f.kept())
    }

    /// Dirty blocks the shard should hold at most: what there is room for, and where snapshots of the core are to be quick,
    /// what goes to the core in the time they may take, at the rate measured, beside what other shards of the thread have.
    /// Admission is paced towards it; only the first is a wall. A core that takes groups is a cluster, which pauses at
    /// times: [`CLEAR`] of destaging is kept clear of the wall for that, an eighth of the slots at most, which the pacer
    /// gives out ever more slowly.
    pub(crate) fn dirty_limit(&self) -> u64 {
        let (wall, rate) = (self.space.slot_limit(), self.destage.rate());
        let clear = (rate as f64 * CLEAR as f64 / 1e9) as u64;
        let most = if self.cfg.devices.core_groups { wall - clear.min(wall / 8) } else { wall };
        let in_time = self.destage.destaged_in(self.cfg.params.snapshot_deadline, self.cfg.stripe.by.shards);
        if !self.cfg.devices.core_snapshots || in_time == 0 {
            return most;
        }
        let least = SNAPSHOT_LEAST.min(u64::from(self.space.slots.count() / 16));
        most.min(in_time.max(least))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Kind, admit::AdmitKind};

    fn space(slots: u32) -> Space {
        let mut all = Slots::new(slots, slots);
        (0..slots).for_each(|slot| all.free(slot));
        let policy = Replacement::new(Kind::Lru, slots, 0);
        Space::new(all, policy, Admission::new(AdmitKind::Always, slots), slots)
    }

    #[test]
    fn a_slot_that_left_waits_for_its_frame_and_its_readers() {
        let mut space = space(1000);
        let slot = space.slots.take().expect("all are free");
        let ticket = space.tickets.begin();
        space.leave(slot, 7);
        space.settle(6);
        assert_eq!(space.slots.free_count(), 999, "its frame is not durable");
        space.settle(7);
        assert_eq!(space.slots.free_count(), 999, "it is being read");
        space.tickets.end(ticket);
        space.settle(7);
        assert_eq!(space.slots.free_count(), 1000);
    }

    #[test]
    fn the_reserve_is_a_part_of_large_caches() {
        assert_eq!((space(1000).reserve(), space(64_000).reserve()), (320, 1000));
        let large = space(64_000);
        assert_eq!(large.room_target(), 1500);
        assert_eq!(large.slot_limit(), 64_000 - 1532);
        assert_eq!(space(100).slot_limit(), 0, "a tiny one has no room for anything dirty");
    }

    #[test]
    fn evictions_under_way_count_as_room_to_come() {
        let mut space = space(1000);
        let slot = space.slots.take().expect("all are free");
        assert_eq!(space.free_soon(), 999);
        space.leave(slot, 1);
        space.dropping = 2;
        assert_eq!(space.free_soon(), 1002);
    }

    #[test]
    fn only_blocks_that_were_not_dirty_count_as_new_ones() {
        let mut space = space(1000);
        space.lands(true);
        space.lands(false);
        assert_eq!((space.landing, space.pending_dirty), (2, 1));
        space.landed(true);
        space.landed(false);
        assert_eq!((space.landing, space.pending_dirty), (0, 0));
    }

    #[test]
    fn fewer_slots_are_given_out_below_a_limit() {
        let mut space = space(1000);
        space.use_slots(600);
        assert_eq!((space.slots.count(), space.slots.size()), (600, 1000));
        assert_eq!(space.slots.free_count(), 600);
        assert_eq!(space.slot_limit(), 600 - (320 + 64 + 32));
    }

    #[test]
    fn a_change_ends_what_was_kept_for_a_second_read() {
        let mut space = space(1000);
        for block in 3..6 {
            space.probation.insert(block, loligo_block::Buf::zeroed(4096).freeze());
        }
        space.changed(4, 9);
        assert!(space.probation.get(3).is_some());
        assert!(space.probation.get(4).is_none() && space.probation.get(5).is_none());
    }
}
