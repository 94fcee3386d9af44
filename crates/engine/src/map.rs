//! The map: which version of a block is where, who is changing it, and what of that a read must know.

use crate::index::{Index, Meta};
use crate::locks::Locks;
use crate::recent::Recent;
use crate::tables::Tables;
use std::collections::{BTreeMap, BTreeSet};

/// Blocks that share a change stamp.
const GROUP: u32 = 16;

/// The knowledge that a shard has of its blocks.
#[derive(Debug)]
pub(crate) struct Map {
    /// Block to slot and back, as the completed prefix of the journal has it.
    pub(crate) index: Index,
    /// Blocks that are being changed.
    pub(crate) locks: Locks,
    /// Versions that may not be durable.
    pub(crate) recent: Recent,
    /// Fills recorded that have not taken effect: what changes such a block without a new version must end them.
    pub(crate) filling: BTreeMap<u32, u32>,
    /// Blocks whose fill came after a change had begun: the core may have shown newer content already.
    pub(crate) hidden: BTreeSet<u32>,
    /// Counts changes; and where it stood when one of a group of blocks last changed.
    changes: u64,
    stamps: Vec<u64>,
}

impl Map {
    /// The findings of recovery.
    pub(crate) fn new(index: Index, slots: u32, tables: &Tables) -> Map {
        Map {
            index,
            locks: Locks::new(tables.locks),
            recent: Recent::new(slots, tables.recent),
            filling: BTreeMap::new(),
            hidden: BTreeSet::new(),
            changes: 0,
            stamps: vec![0; tables.stamps],
        }
    }

    /// The content of `first..=last` changes about now: fills under way are not used.
    #[inline]
    pub(crate) fn changed(&mut self, first: u32, last: u32) {
        self.changes += 1;
        for group in first / GROUP..=last / GROUP {
            let place = group as usize % self.stamps.len();
            self.stamps[place] = self.changes;
        }
    }

    /// The present value of the change counter.
    #[inline]
    pub(crate) fn stamp(&self) -> u64 {
        self.changes
    }

    /// True if `block` may have changed since the change counter stood at `stamp`.
    #[inline]
    pub(crate) fn changed_since(&self, block: u32, stamp: u64) -> bool {
        self.stamps[(block / GROUP) as usize % self.stamps.len()] > stamp || self.locks.is_locked(block)
    }

    /// True if any of the blocks is dirty.
    pub(crate) fn any_dirty(&self, first: u32, last: u32) -> bool {
        (first..=last).any(|b| self.index.get(b).is_some_and(|m| m.dirty != 0))
    }

    /// True if the cached version alone answers a read of the sectors `need`. `clean`: the mode serves clean versions.
    #[inline]
    pub(crate) fn serves(&self, block: u32, meta: &Meta, need: u8, clean: bool) -> bool {
        meta.valid & need == need && (meta.dirty != 0 || (clean && !self.hidden.contains(&block)))
    }

    /// True if the cached version goes over what the core says: where it is dirty, and where a change is under way that
    /// may be in the core already but not yet in what other reads get from the cache.
    #[inline]
    pub(crate) fn overlays(&self, block: u32, meta: &Meta) -> bool {
        meta.dirty != 0 || (self.locks.is_locked(block) && !self.hidden.contains(&block))
    }

    /// The version of `block` that is as good as what the core has, in every mode.
    pub(crate) fn known(&self, block: u32) -> Option<Meta> {
        self.index.get(block).filter(|m| m.dirty != 0 || !self.hidden.contains(&block))
    }

    /// A version of `block` in `slot` takes effect. Whether it is a fill; one that is clean is hidden where a change has begun since.
    #[inline]
    pub(crate) fn takes_effect(&mut self, block: u32, slot: u32, dirty: bool) -> bool {
        self.hidden.remove(&block);
        let filled = self.filling.get(&block) == Some(&slot);
        if filled {
            self.filling.remove(&block);
            if !dirty && self.locks.is_locked(block) {
                self.hidden.insert(block);
            }
        }
        filled
    }

    /// A change of `first..=last` is over: what was filled beneath it shows nothing newer.
    #[inline]
    pub(crate) fn show(&mut self, first: u32, last: u32) {
        for block in first..=last {
            self.hidden.remove(&block);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loligo_format::units::ALL;

    fn map() -> Map {
        let tables = Tables { locks: 16, recent: 16, stamps: 4 };
        Map::new(Index::new(64, 4), 64, &tables)
    }

    fn put(map: &mut Map, block: u32, slot: u32, dirty: u8) -> Meta {
        let meta = Meta { slot, crc: 0, valid: ALL, dirty };
        map.index.put(block, meta);
        meta
    }

    #[test]
    fn a_change_marks_its_group_of_blocks_and_no_other() {
        let mut map = map();
        let before = map.stamp();
        map.changed(17, 18);
        assert!(map.changed_since(16, before) && map.changed_since(31, before));
        assert!(!map.changed_since(15, before) && !map.changed_since(32, before));
        assert!(!map.changed_since(17, map.stamp()));
    }

    #[test]
    fn a_locked_block_counts_as_changed() {
        let mut map = map();
        assert!(map.locks.acquire(40, 41, 1));
        assert!(map.changed_since(41, map.stamp()) && !map.changed_since(42, map.stamp()));
    }

    #[test]
    fn a_fill_beneath_a_change_is_hidden_until_that_ends() {
        let mut map = map();
        assert!(map.locks.acquire(5, 5, 1));
        map.filling.insert(5, 9);
        let meta = put(&mut map, 5, 9, 0);
        assert!(map.takes_effect(5, 9, false));
        assert!(!map.serves(5, &meta, ALL, true) && !map.overlays(5, &meta));
        assert_eq!(map.known(5), None);
        map.show(5, 5);
        assert!(map.serves(5, &meta, ALL, true) && map.overlays(5, &meta));
        assert_eq!(map.known(5), Some(meta));
    }

    #[test]
    fn a_dirty_version_serves_whatever_the_mode() {
        let mut map = map();
        let meta = put(&mut map, 7, 3, 1);
        assert!(map.serves(7, &meta, 1, false) && map.overlays(7, &meta));
        assert!(map.any_dirty(6, 8) && !map.any_dirty(8, 9));
        let clean = put(&mut map, 8, 4, 0);
        assert!(!map.serves(8, &clean, 1, false) && map.serves(8, &clean, 1, true));
    }

    #[test]
    fn a_version_of_another_slot_ends_no_fill() {
        let mut map = map();
        map.filling.insert(5, 9);
        assert!(!map.takes_effect(5, 10, true));
        assert_eq!(map.filling.get(&5), Some(&9));
    }
}
