//! A frozen moment, and the versions that are pinned to it.

use crate::api::ControlId;
use crate::index::Meta;
use loligo_format::units::WINDOW_BLOCKS;
use std::collections::{BTreeMap, VecDeque};

/// A pinned version that is not the newest any more.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pin {
    pub(crate) meta: Meta,
    /// The record that replaced it is in this frame: the slot may be used again once that is durable.
    pub(crate) frame: u64,
}

/// A moment that the core is brought to, and kept at.
#[derive(Debug)]
pub(crate) struct Freeze {
    /// The request to answer once the core holds the moment.
    pub(crate) id: Option<ControlId>,
    /// All that had taken effect at the moment is in frames up to this one.
    pub(crate) seq: u64,
    /// Slots whose version took effect after the moment.
    pub(crate) fresh: Vec<u64>,
    pub(crate) pins: BTreeMap<u32, Pin>,
    /// Windows that a job is yet to be made for.
    pub(crate) todo: VecDeque<u32>,
    /// Pinned versions: at the moment, and those that are not in the core yet.
    pub(crate) pinned: u64,
    pub(crate) left: u64,
    /// Blocks that clients write in [`ROOM_SECONDS`], as they did before the moment: there is to be room for them at the answer.
    pub(crate) inflow: u64,
    /// Free slots wanted before the answer.
    pub(crate) room: u32,
    /// Blocks of zeros taken into the cache that would otherwise have gone past it.
    pub(crate) zeroed: u64,
    /// A block of the moment is nowhere any more.
    pub(crate) lost: bool,
}

impl Freeze {
    /// One of a cache without slots, for tests of whoever owns it.
    #[cfg(test)]
    pub(crate) fn empty(id: ControlId) -> Freeze {
        Freeze {
            id: Some(id),
            seq: 0,
            fresh: Vec::new(),
            pins: BTreeMap::new(),
            todo: VecDeque::new(),
            pinned: 0,
            left: 0,
            inflow: 0,
            room: 0,
            zeroed: 0,
            lost: false,
        }
    }

    pub(crate) fn is_fresh(&self, slot: u32) -> bool {
        self.fresh[slot as usize / 64] & (1 << (slot % 64)) != 0
    }

    /// A version that took effect just now is in `slot`.
    pub(crate) fn note_fresh(&mut self, slot: u32) {
        self.fresh[slot as usize / 64] |= 1 << (slot % 64);
    }

    /// True if this newest version was dirty at the moment and is not in the core yet.
    pub(crate) fn is_pinned(&self, meta: &Meta) -> bool {
        meta.dirty != 0 && !self.is_fresh(meta.slot)
    }

    /// The pinned version of `block` has been replaced by a record in `frame`.
    pub(crate) fn keep(&mut self, block: u32, meta: Meta, frame: u64) {
        self.pins.insert(block, Pin { meta, frame });
    }

    /// A pinned version is in the core, or its content of that moment is there by another route.
    pub(crate) fn one_less(&mut self) {
        self.left -= 1;
    }

    /// A version of the moment in `window`, which the core was believed to have, is to go there (again).
    pub(crate) fn one_more(&mut self, window: u32, slot: u32) {
        // Its slot may have been another version's meanwhile, and was made free again.
        self.moved(slot);
        self.pinned += 1;
        self.left += 1;
        self.later(window);
    }

    /// A pinned version is in `slot` from now on.
    pub(crate) fn moved(&mut self, slot: u32) {
        self.fresh[slot as usize / 64] &= !(1 << (slot % 64));
    }

    /// The version of `block` that is pinned beneath the newest goes to the core with these sectors too, where they are valid.
    /// Gives all that it has valid.
    pub(crate) fn pin_more(&mut self, block: u32, mask: u8) -> Option<u8> {
        let pin = self.pins.get_mut(&block)?;
        pin.meta.dirty |= pin.meta.valid & mask;
        Some(pin.meta.valid)
    }

    /// Slots held by versions that are not the newest.
    pub(crate) fn kept(&self) -> u64 {
        self.pins.len() as u64
    }

    /// The pinned version of `block` that is not the newest, if there is one.
    pub(crate) fn kept_of(&self, block: u32) -> Option<Meta> {
        self.pins.get(&block).map(|p| p.meta)
    }

    /// Frames up to this one hold every pinned version.
    pub(crate) fn seq(&self) -> u64 {
        self.seq
    }

    /// Pinned versions not in the core yet.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    /// Free slots wanted before the answer (0: none beyond the usual).
    pub(crate) fn room(&self) -> u32 {
        self.room
    }

    /// The next window to look at, and how many there are.
    pub(crate) fn next_window(&mut self) -> Option<u32> {
        self.todo.pop_front()
    }

    /// Windows still to look at.
    pub(crate) fn windows_left(&self) -> usize {
        self.todo.len()
    }

    /// `window` is to be looked at (again), after the others.
    pub(crate) fn later(&mut self, window: u32) {
        self.todo.push_back(window);
    }

    /// Turns the dirty versions of `window` into its pinned ones, in ascending order.
    pub(crate) fn pinned_in(&self, window: u32, dirty: &mut Vec<(u32, Meta)>) {
        let first = window * WINDOW_BLOCKS as u32;
        dirty.retain(|(_, meta)| self.is_pinned(meta));
        let kept = self.pins.range(first..=first + (WINDOW_BLOCKS as u32 - 1));
        dirty.extend(kept.map(|(block, pin)| (*block, pin.meta)));
        dirty.sort_unstable_by_key(|d| d.0);
    }

    /// The core holds its moment, and whoever asked knows.
    pub(crate) fn is_answered(&self) -> bool {
        self.id.is_none()
    }
}
