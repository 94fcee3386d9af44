//! Blocks read once, kept in RAM for a while: a second read is served from here and only then written to flash.

use std::collections::VecDeque;

use foldhash::quality::FixedState;
use hashbrown::HashMap;
use loligo_block::Shared;

/// Blocks kept at least, whatever the cache's size: 1 MiB.
const MIN_BLOCKS: usize = 256;
/// Lines of cache for each block kept.
const LINES_PER_BLOCK: u32 = 1000;

/// A bounded map from block number to its 4 KiB, first in, first out.
#[derive(Debug)]
pub struct Probation {
    blocks: HashMap<u64, (u64, Shared), FixedState>,
    /// Keys in order of arrival with their ticket; those removed or replaced since are skipped.
    order: VecDeque<(u64, u64)>,
    capacity: usize,
    tickets: u64,
}

impl Probation {
    /// Space for a thousandth of `lines`, at least 256 blocks.
    pub fn new(lines: u32) -> Probation {
        let capacity = MIN_BLOCKS.max((lines / LINES_PER_BLOCK) as usize);
        Probation {
            blocks: HashMap::with_capacity_and_hasher(capacity + 1, FixedState::with_seed(0)),
            order: VecDeque::with_capacity(2 * capacity + 1),
            capacity,
            tickets: 0,
        }
    }

    /// Keeps as much as a cache of so many lines wants.
    pub fn set_limit(&mut self, lines: u32) {
        self.capacity = MIN_BLOCKS.max((lines / LINES_PER_BLOCK) as usize);
        self.trim();
    }

    /// Whether none is held.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// The data of block `key`.
    pub fn get(&self, key: u64) -> Option<&Shared> {
        self.blocks.get(&key).map(|(_, data)| data)
    }

    /// Keeps `data` as the content of block `key`; the first in makes room.
    pub fn insert(&mut self, key: u64, data: Shared) {
        self.tickets += 1;
        self.blocks.insert(key, (self.tickets, data));
        self.order.push_back((key, self.tickets));
        self.trim();
    }

    fn trim(&mut self) {
        while self.blocks.len() > self.capacity || self.order.len() > 2 * self.capacity {
            let Some((key, ticket)) = self.order.pop_front() else { break };
            if self.blocks.get(&key).is_some_and(|(t, _)| *t == ticket) {
                self.blocks.remove(&key);
            }
        }
    }

    /// Forgets block `key` and gives back its data.
    pub fn remove(&mut self, key: u64) -> Option<Shared> {
        self.blocks.remove(&key).map(|(_, data)| data)
    }

    /// RAM held, in bytes, the blocks included.
    pub fn bytes(&self) -> usize {
        let entry = size_of::<(u64, (u64, Shared))>() + 1;
        self.blocks.values().map(|(_, d)| d.len()).sum::<usize>()
            + self.blocks.capacity() * 8 / 7 * entry
            + self.order.capacity() * 16
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loligo_block::Buf;

    fn block(byte: u8) -> Shared {
        Buf::copy_of(&[byte; 4096]).freeze()
    }

    #[test]
    fn the_first_in_makes_room() {
        let mut p = Probation::new(0);
        assert_eq!(p.capacity, 256);
        for k in 0..256 {
            p.insert(k, block(k as u8));
        }
        p.insert(1000, block(1));
        assert!(p.get(0).is_none());
        assert_eq!(p.get(1).map(|d| d[0]), Some(1));
    }

    #[test]
    fn a_block_inserted_again_is_young_and_has_its_new_data() {
        let mut p = Probation::new(0);
        p.insert(7, block(1));
        p.insert(8, block(2));
        p.insert(7, block(3));
        for k in 1000..1255 {
            p.insert(k, block(0));
        }
        assert_eq!(p.get(7).map(|d| d[0]), Some(3));
        assert!(p.get(8).is_none());
    }

    #[test]
    fn rewriting_the_same_blocks_for_ever_holds_bounded_memory() {
        let mut p = Probation::new(0);
        for i in 0..100_000u64 {
            p.insert(i % 10, block(0));
            p.remove(i % 7);
        }
        assert!(p.blocks.len() <= 10 && p.order.len() <= 2 * p.capacity);
    }
}
