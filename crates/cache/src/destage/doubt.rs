//! Places at which a write to the core failed: what it holds there, and whether that can be read, nobody knows. What was
//! dirty stays so. What was clean, a filler or a block that was written again, becomes dirty: the cache has the only good
//! copy, which is to stay until the core has taken it, whatever restarts. What the cache does not have of it is salvaged.

use super::Destage;
use crate::api::{Effect, Nanos};
use crate::core::{Core, Task};
use crate::freeze::OVERWRITTEN;
use crate::index::Meta;
use crate::journal::Action;
use crate::mutation::{Mutation, Stage};
use crate::record::Record;
use crate::room::Room;
use crate::units::{BLOCK, WINDOW_BLOCKS, sector_mask};
use loligo_block::Shared;
use std::collections::BTreeSet;

/// A block of which the core may have nothing good.
#[derive(Debug, Default)]
pub(super) struct Doubt {
    /// The sectors at whose place a write failed.
    pub(super) mask: u8,
    /// The bytes written there, where the cache may not have all of them.
    pub(super) content: Option<Shared>,
}

impl Destage {
    /// Whether the core may have nothing good of any of the blocks, and the index does not say so yet.
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

    /// Whether anything is doubted.
    pub(crate) fn has_doubts(&self) -> bool {
        !self.doubts.is_empty()
    }

    /// Whether `block`, which is clean, must stay: the core may have nothing good in its place, or is being written there.
    pub(crate) fn holds(&self, block: u32) -> bool {
        let window = || self.by_window.get(&(block / WINDOW_BLOCKS as u32));
        self.doubts.contains_key(&block) || window().is_some_and(|key| self.jobs[*key].rewrites(block))
    }
}

impl Core {
    /// A write of the volume's bytes `from..to`, within a window, failed at the core.
    pub(super) fn doubt(&mut self, now: Nanos, from: u64, to: u64, fx: &mut Vec<Effect>) {
        for global in from / BLOCK..to.div_ceil(BLOCK) {
            let (block, mask) = (self.cfg.stripe.local(global), sector_mask(global, from, to));
            self.doubt_block(now, block, mask, None, fx);
        }
    }

    /// A write of these sectors of `block` failed at the core; `content`: what they are of, where only the write had all of it.
    pub(super) fn doubt_block(
        &mut self,
        now: Nanos,
        block: u32,
        mask: u8,
        content: Option<Shared>,
        fx: &mut Vec<Effect>,
    ) {
        if self.lost.is_some() || self.poisoned.is_some() {
            return;
        }
        let newest = self.index.get(block);
        let (valid, dirty) = newest.map_or((0, 0), |m| (m.valid, m.dirty));
        let content = content.filter(|_| mask & !valid != 0);
        if content.is_some() || mask & valid & !dirty != 0 {
            let doubt = self.destage.doubts.entry(block).or_default();
            doubt.mask |= mask;
            doubt.content = content.or(doubt.content.take());
        }
        let Some(freeze) = self.freeze.as_mut().filter(|f| !f.is_answered()) else { return };
        let held = match (freeze.pin_more(block, mask), newest) {
            (Some(pinned), _) => pinned,
            (None, Some(m)) if m.dirty != 0 && !freeze.is_pinned(&m) => 0,
            _ => mask,
        };
        if mask & !held != 0 {
            self.end_freeze(now, OVERWRITTEN, fx);
        }
    }

    /// Whether a doubt is not noted yet, and can be.
    pub(crate) fn has_doubts(&self) -> bool {
        self.destage.has_doubts() && self.cannot_salvage().is_none()
    }

    /// Whether a record of `block` would meet nothing on its way, and nobody who has looked at the newest version.
    pub(super) fn may_note(&self, block: u32) -> bool {
        let global = self.cfg.stripe.global(block);
        let speaks = |a: &Action| matches!(a, Action::Apply(record, _) if record.block() == Some(global));
        self.is_settled(block) && !self.journal.actions().any(speaks)
    }

    /// Whether nobody has looked at the newest version of `block` to put another in its place. Whoever waits for room, for the
    /// thaw or for the core to have what took effect looks again.
    fn is_settled(&self, block: u32) -> bool {
        let Some(key) = self.locks.holder(block) else { return true };
        let waits = |m: &Mutation| matches!(m.stage, Stage::Admission | Stage::Thaw) || m.has_taken_effect();
        matches!(&self.tasks[key], Task::Mutation(m) if waits(m))
    }

    /// The core has taken these sectors of blocks, as they are in the newest versions.
    pub(super) fn lift_doubts(&mut self, taken: impl Iterator<Item = (u32, u8)>) {
        for (block, mask) in taken {
            if self.destage.doubts.get(&block).is_some_and(|d| d.mask & !mask == 0) {
                self.destage.doubts.remove(&block);
            }
        }
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
        let on_its_way: BTreeSet<u64> = self.journal.actions().filter_map(record_of).collect();
        let doubts: Vec<(u32, u8, bool)> =
            self.destage.doubts.iter().map(|(block, d)| (*block, d.mask, d.content.is_some())).collect();
        for (block, mask, has_content) in doubts {
            let global = self.cfg.stripe.global(block);
            // Whoever looked before the record had effect puts a version there that is as clean as it was: looked at again.
            if on_its_way.contains(&global) || !self.is_settled(block) {
                continue;
            }
            let newest = self.index.get(block);
            if has_content && mask & !newest.map_or(0, |m| m.valid) != 0 {
                self.salvage(now, block, newest, fx);
                continue;
            }
            let clean = |m: &Meta| m.valid & mask & !m.dirty != 0;
            let Some(meta) = newest.filter(clean) else {
                self.destage.doubts.remove(&block);
                continue;
            };
            if !self.journal_has_room(Room::Housekeeping) {
                continue;
            }
            let Meta { slot, crc, valid, dirty } = meta;
            self.pending_dirty += u64::from(dirty == 0);
            let put = Record::Put { block: global, slot, crc, valid, dirty: dirty | valid & mask };
            self.record(now, put, dirty == 0, true);
        }
    }

    /// The version of `block` that was the newest before is dirty now, as `meta` says.
    pub(crate) fn doubt_noted(&mut self, seq: u64, block: u32, meta: Meta) {
        let was_clean = !self.index.slot_is_dirty(meta.slot);
        let window = block / WINDOW_BLOCKS as u32;
        if let Some(key) = self.destage.by_window.get(&window) {
            self.destage.jobs[*key].now_dirty(block, meta);
        }
        self.recent.note(block, seq);
        self.index.put(block, meta);
        self.checkpoint.touch(meta.slot);
        // A flush that has not been answered is to bring it to the core too, and so is a freeze: it held this at the moment.
        self.destage.flushes.iter_mut().for_each(|f| _ = f.remaining.insert(window));
        if let Some(freeze) = self.freeze.as_mut().filter(|_| was_clean) {
            if freeze.is_answered() {
                freeze.note_fresh(meta.slot);
            } else {
                freeze.one_more(window, meta.slot);
            }
        }
    }
}
