//! Space: slots kept free by eviction, the reserve, and who may still write into the journal.

use crate::api::Nanos;
use crate::bug::{Bug, planted};
use crate::engine::{Engine, Task};
use loligo_format::record::Record;

/// Before the wall there is room for what a core that takes groups destages in this time, nanoseconds.
const CLEAR: Nanos = 500_000_000;

/// A deadline for snapshots leaves room for so many dirty blocks (64 MiB), or for a sixteenth of the slots.
const SNAPSHOT_LEAST: u64 = 16_384;

/// Whose records want journal room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Space {
    Client,
    Housekeeping,
}

impl Engine {
    pub(crate) fn free_slots(&mut self) {
        let durable =
            if planted(self.cfg.bug, Bug::SlotReusedEarly) { u64::MAX } else { self.journal.durable() };
        self.slots.settle(durable, self.tickets.oldest());
    }

    /// Evicts until enough slots are free or on their way. A victim takes the clean blocks of its line along.
    pub(crate) fn make_room(&mut self, now: Nanos) {
        let target = self.room_wanted();
        let mut budget = 256;
        self.no_victims = false;
        while self.slots.free_count() + self.slots.leaving_count() + self.dropping < target
            && budget > 0
            && self.journal_has_room(Space::Housekeeping)
        {
            budget -= 1;
            let (index, stripe, destage) = (&self.index, self.cfg.stripe, &self.destage);
            let evictable = |slot: u32| {
                let block = index.block_in(slot)?;
                (!index.slot_is_dirty(slot) && !destage.holds(block)).then(|| stripe.global(block))
            };
            let victim = self.policy.victim(evictable);
            self.no_victims = victim.is_none();
            let Some(victim) = victim else { break };
            let Some(block) = self.index.block_in(victim) else { continue };
            let first = block / self.cfg.line_blocks * self.cfg.line_blocks;
            for b in first..first + self.cfg.line_blocks {
                let Some(meta) = self.index.get(b).filter(|m| m.dirty == 0 && !self.destage.holds(b)) else {
                    continue;
                };
                if meta.slot == victim || self.policy.state(meta.slot) != 0 {
                    self.policy.remove(meta.slot);
                    self.stats.evictions += 1;
                    self.dropping += 1;
                    let record = Record::Drop { block: self.cfg.stripe.global(b), slot: meta.slot };
                    self.record(now, record, true, true);
                }
            }
        }
    }

    /// Slots kept for overwrites and housekeeping.
    pub(crate) fn reserve(&self) -> u32 {
        (self.slots.count() / 64).max(320)
    }

    /// Free slots to keep at hand.
    pub(crate) fn room_target(&self) -> u32 {
        self.reserve() + (self.slots.count() / 128).clamp(64, 8192)
    }

    /// Free slots to bring about now: more than usual where the first in the queue would not fit.
    pub(crate) fn room_wanted(&self) -> u32 {
        let first = self.waiting.front().map(|key| &self.tasks[*key]);
        let blocks = if let Some(Task::Write(m)) = first { m.last - m.next + 1 } else { 0 };
        let thaw = self.state.freeze().map_or(0, |f| f.room());
        self.room_target().max(self.reserve() + blocks.max(thaw))
    }

    /// Dirty blocks that there is room for.
    pub(crate) fn slot_limit(&self) -> u64 {
        u64::from(self.slots.count().saturating_sub(self.room_target() + 32))
    }

    /// Blocks that are dirty or about to be, and versions that a freeze keeps besides.
    pub(crate) fn dirty_and_kept(&self) -> u64 {
        self.index.dirty_blocks() + self.pending_dirty + self.state.freeze().map_or(0, |f| f.kept())
    }

    /// Dirty blocks the shard should hold at most: what there is room for, and where snapshots of the core are to be quick,
    /// what goes to the core in the time they may take, at the rate measured, beside what other shards of the thread have.
    /// Admission is paced towards it; only the first is a wall. A core that takes groups is a cluster, which pauses at
    /// times: [`CLEAR`] of destaging is kept clear of the wall for that, an eighth of the slots at most, which the pacer
    /// gives out ever more slowly.
    pub(crate) fn dirty_limit(&self) -> u64 {
        let (wall, rate) = (self.slot_limit(), self.destage.rate());
        let clear = (rate as f64 * CLEAR as f64 / 1e9) as u64;
        let most = if self.cfg.core_groups { wall - clear.min(wall / 8) } else { wall };
        let in_time = self.destaged_in(self.params.snapshot_deadline);
        if !self.cfg.core_snapshots || in_time == 0 {
            return most;
        }
        let least = SNAPSHOT_LEAST.min(u64::from(self.slots.count() / 16));
        most.min(in_time.max(least))
    }

    /// Whether the journal has room for `who`'s records before a checkpoint must have freed some.
    pub(crate) fn journal_has_room(&self, who: Space) -> bool {
        let used = self.journal.used() * 16;
        let len = self.journal.len();
        match who {
            Space::Client => used < len * 11,
            Space::Housekeeping => used < len * 14,
        }
    }
}
