//! Places at which a write to the core failed: what it holds there, and whether that can be read, nobody
//! knows. Dirty blocks stay dirty. Other content (a gap, a filler or a block that was written again) stays in
//! memory until the cache has all of it as dirty, whatever the cache had of it before: there it stays until
//! the core has taken it, whatever restarts.

use super::Destage;
use crate::api::{Effect, Nanos};
use crate::commit::RoomFor;
use crate::engine::Engine;
use crate::index::Meta;
use crate::intake::Task;
use crate::journal::Action;
use crate::refusal::ControlError;
use crate::write_task::{Back, BackStep, Route};
use loligo_block::{Buf, Shared};
use loligo_format::record::Record;
use loligo_format::units::{BLOCK, WINDOW_BLOCKS};
use std::collections::BTreeSet;
use std::collections::btree_map::Entry;

/// A block of which the core may have nothing good. The right content is in memory until the cache or the core has all of it.
#[derive(Debug)]
pub(super) struct Doubt {
    /// The sectors at whose place a write failed.
    pub(super) mask: u8,
    /// The data that was to be written there, in a buffer that begins with the block.
    pub(super) content: Shared,
    /// The slot of the newest version, where that had been read for the write and was good: the content has what is dirty in it.
    pub(super) of: Option<u32>,
    /// So often the newest version could not be read, which lacks something of this.
    pub(super) failures: u8,
}

/// After so many it is damaged.
const TRIES: u8 = 2;

impl Doubt {
    pub(super) fn new(mask: u8, content: Shared, of: Option<u32>) -> Doubt {
        Doubt { mask, content, of, failures: 0 }
    }

    /// True if it stays in memory, beside a damaged version that is dirty: who overwrites the block mends it.
    pub(super) fn is_given_up(&self) -> bool {
        self.failures >= TRIES
    }

    /// The newest version is another now.
    pub(super) fn superseded(&mut self) {
        (self.of, self.failures) = (None, 0);
    }

    /// Another write has failed.
    fn add(&mut self, mut new: Doubt) {
        let before = self.mask & !new.mask;
        if before != 0 {
            let mut both = Buf::zeroed(BLOCK as usize);
            both[..new.content.len()].copy_from_slice(&new.content);
            copy_sectors(&self.content, &mut both, before);
            new = Doubt::new(self.mask | new.mask, both.freeze(), None);
        }
        *self = new;
    }
}

/// Copies the sectors `mask` of a block.
pub(super) fn copy_sectors(from: &[u8], to: &mut [u8], mask: u8) {
    for s in (0..8).filter(|s| mask & (1 << s) != 0) {
        to[s * 512..s * 512 + 512].copy_from_slice(&from[s * 512..s * 512 + 512]);
    }
}

impl Destage {
    /// True if the core may have nothing good of any of the blocks, and the index does not say so yet.
    pub(crate) fn any_doubted(&self, first: u32, last: u32) -> bool {
        self.doubts.range(first..=last).next().is_some()
    }

    /// A client's write has replaced the blocks at the core.
    pub(crate) fn doubt_no_more(&mut self, first: u32, last: u32) {
        let blocks: Vec<u32> = self.doubts.range(first..=last).map(|(b, _)| *b).collect();
        for block in blocks {
            self.doubts.remove(&block);
            self.stuck.changed(block);
        }
    }

    /// The sectors of `block` of which the core may have nothing good.
    pub(crate) fn doubted(&self, block: u32) -> u8 {
        self.doubts.get(&block).map_or(0, |d| d.mask)
    }

    /// True if anything is doubted that can be noted.
    pub(crate) fn has_doubts(&self) -> bool {
        self.doubts.values().any(|d| !d.is_given_up())
    }

    /// True if `block`, which is clean, must stay: the core may have nothing good in its place, or is being written there.
    pub(crate) fn holds(&self, block: u32) -> bool {
        let window = || self.by_window.get(&(block / WINDOW_BLOCKS as u32));
        self.doubts.contains_key(&block) || window().is_some_and(|key| self.jobs[*key].rewrites(block))
    }
}

impl Destage {
    /// The core has taken these sectors of blocks, as they are in the newest versions.
    pub(super) fn lift_doubts(&mut self, taken: impl Iterator<Item = (u32, u8)>) {
        for (block, mask) in taken {
            if self.doubts.get(&block).is_some_and(|d| d.mask & !mask == 0) {
                self.doubts.remove(&block);
            }
        }
    }
}

impl Engine {
    /// A write of these sectors of `block` failed at the core. `content`: what was to be written, in a buffer that begins with the
    /// block. `of`: the slot of the version that it was made of, if that is the newest.
    pub(super) fn doubt_block(&mut self, now: Nanos, block: u32, doubt: Doubt, fx: &mut Vec<Effect>) {
        if !self.state.has_both() {
            return;
        }
        let (newest, mask) = (self.map.index.get(block), doubt.mask);
        if mask & !newest.map_or(0, |m| m.dirty) != 0 {
            match self.destage.doubts.entry(block) {
                Entry::Vacant(e) => _ = e.insert(doubt),
                Entry::Occupied(e) => e.into_mut().add(doubt),
            }
        }
        let Some(freeze) = self.state.freeze_mut().filter(|f| !f.is_answered()) else { return };
        let held = match (freeze.pin_more(block, mask), newest) {
            (Some(pinned), _) => pinned,
            (None, Some(m)) if m.dirty != 0 && !freeze.is_pinned(&m) => 0,
            _ => mask,
        };
        if mask & !held != 0 {
            self.end_freeze(now, ControlError::Overwritten, fx);
        }
    }

    /// True if a doubt is not noted yet, and can be.
    pub(crate) fn has_doubts(&self) -> bool {
        self.destage.has_doubts() && self.cannot_salvage().is_none()
    }

    /// True if a record of `block` would meet nothing on its way, and nobody who has looked at the newest version.
    pub(super) fn may_note(&self, block: u32) -> bool {
        let global = self.cfg.stripe.global(block);
        let speaks = |a: &Action| matches!(a, Action::Apply(record, _) if record.block() == Some(global));
        self.is_settled(block) && !self.commit.journal.actions().any(speaks)
    }

    /// True if nobody has looked at the newest version of `block` to put another in its place. A waiter for room, for the
    /// thaw or for the core to have what took effect looks again.
    fn is_settled(&self, block: u32) -> bool {
        let Some(key) = self.map.locks.holder(block) else { return true };
        let waits = |route: &Route| match route {
            Route::Open { .. } | Route::Back(Back { step: BackStep::Admission, .. }) => true,
            route => route.has_taken_effect(),
        };
        matches!(&self.intake.tasks[key], Task::Write(m) if waits(&m.route))
    }

    /// Notes in the journal that what is doubted is dirty. A block that changes meanwhile is looked at once it has: the record
    /// must not bring an older version back.
    pub(super) fn note_doubts(&mut self, now: Nanos, fx: &mut Vec<Effect>) {
        if !self.destage.has_doubts() {
            return;
        }
        let record_of = |a: &Action| match a {
            Action::Apply(record, _) => record.block(),
            _ => None,
        };
        let on_its_way: BTreeSet<u64> = self.commit.journal.actions().filter_map(record_of).collect();
        let doubts: Vec<(u32, u8, Option<u32>)> = self
            .destage
            .doubts
            .iter()
            .filter(|(_, d)| !d.is_given_up())
            .map(|(b, d)| (*b, d.mask, d.of))
            .collect();
        for (block, mask, of) in doubts {
            let global = self.cfg.stripe.global(block);
            // Whoever looked before the record had effect puts a version there that is as clean as it was: looked at again.
            if on_its_way.contains(&global) || !self.is_settled(block) {
                continue;
            }
            let newest = self.map.index.get(block);
            if newest.is_some_and(|m| mask & !m.dirty == 0) {
                self.destage.doubts.remove(&block);
                continue;
            }
            if !self.commit.has_room(RoomFor::Housekeeping) {
                continue;
            }
            // A clean copy that nobody has looked at is good enough only where there is no room for another.
            let good = |m: &Meta| of == Some(m.slot) || m.dirty != 0 || self.space.slots.free_count() == 0;
            let Some(meta) = newest.filter(|m| mask & !m.valid == 0 && good(m)) else {
                self.salvage(now, block, newest, fx);
                continue;
            };
            let Meta { slot, crc, valid, dirty } = meta;
            self.space.lands(dirty == 0);
            let put = Record::Put { block: global, slot, crc, valid, dirty: dirty | mask };
            self.commit.append(now, put, dirty == 0, true);
        }
    }

    /// The version of `block` that was the newest before is dirty now, as `meta` says.
    pub(crate) fn doubt_noted(&mut self, seq: u64, block: u32, meta: Meta) {
        let was_clean = !self.map.index.slot_is_dirty(meta.slot);
        let window = block / WINDOW_BLOCKS as u32;
        if let Some(key) = self.destage.by_window.get(&window) {
            self.destage.jobs[*key].now_dirty(block, meta);
        }
        self.map.recent.note(block, seq);
        self.map.index.put(block, meta);
        self.commit.checkpoint.touch(meta.slot);
        // A flush that has not been answered is to bring it to the core too, and so is a freeze: it held this at the moment.
        self.destage.flushes.iter_mut().for_each(|f| _ = f.remaining.insert(window));
        if let Some(freeze) = self.state.freeze_mut().filter(|_| was_clean) {
            if freeze.is_answered() {
                freeze.note_fresh(meta.slot);
            } else {
                freeze.one_more(window, meta.slot);
            }
        }
    }
}
