//! Least recently used, exactly, and first in first out: for comparison and for those used to it. 9 bytes an id.

use super::ghost::Ghost;
use super::hash::mix;
use crate::huge::HugeVec;

const NIL: u32 = u32::MAX;
/// The places of an id.
const OUT: u8 = 0;
const LIVE: u8 = 1;
const ASIDE: u8 = 2;
/// Entries looked at for one victim.
const LIMIT: u32 = 1024;
/// Entries set aside that each search tries.
const RETRY: u32 = 2;
/// Ages that a saved state tells apart.
const AGES: usize = 64;

#[derive(Debug, Clone, Copy)]
struct Ends {
    /// Most recent.
    front: u32,
    back: u32,
    len: u32,
}

/// A list of the ids `0..capacity` by last use (or by insertion), and one of those that could not be evicted.
#[derive(Debug)]
pub struct Lru {
    links: HugeVec<[u32; 2]>,
    /// List in the upper bits, clock of the last use in the lower six.
    at: HugeVec<u8>,
    lists: [Ends; 2],
    /// True if a hit makes an entry young again.
    by_use: bool,
    clock: u8,
    moves: u32,
    /// The youngest id restored of each age.
    restored: [u32; AGES],
    ghost: Ghost,
    /// Ids to plan for.
    limit: u32,
}

impl Lru {
    /// Nothing resident. `by_use`: least recently used; otherwise first in, first out.
    pub fn new(capacity: u32, by_use: bool) -> Lru {
        let none = Ends { front: NIL, back: NIL, len: 0 };
        Lru {
            links: HugeVec::zeroed(capacity as usize),
            at: HugeVec::zeroed(capacity as usize),
            lists: [none; 2],
            by_use,
            clock: 0,
            moves: 0,
            restored: [NIL; AGES],
            ghost: Ghost::new(capacity),
            limit: capacity,
        }
    }

    /// Plans for so many ids, of those given at the start.
    pub fn set_limit(&mut self, limit: u32) {
        self.limit = limit;
        self.ghost.set_limit(limit);
    }

    fn list(&self, id: u32) -> u8 {
        self.at[id as usize] >> 6
    }

    fn unlink(&mut self, id: u32) {
        let list = self.list(id);
        if list == OUT {
            return;
        }
        let [newer, older] = self.links[id as usize];
        let ends = &mut self.lists[usize::from(list - 1)];
        ends.len -= 1;
        if newer == NIL {
            ends.front = older
        } else {
            self.links[newer as usize][1] = older
        }
        if older == NIL {
            ends.back = newer
        } else {
            self.links[older as usize][0] = newer
        }
        self.at[id as usize] &= 0x3f;
    }

    /// Links `id`, which is in no list, on the older side of `newer` (`NIL`: as the youngest).
    fn link(&mut self, id: u32, list: u8, newer: u32) {
        let ends = &mut self.lists[usize::from(list - 1)];
        let older = if newer == NIL { ends.front } else { self.links[newer as usize][1] };
        ends.len += 1;
        if newer == NIL {
            ends.front = id
        } else {
            self.links[newer as usize][1] = id
        }
        if older == NIL {
            ends.back = id
        } else {
            self.links[older as usize][0] = id
        }
        self.links[id as usize] = [newer, older];
        self.at[id as usize] = list << 6 | self.at[id as usize] & 0x3f;
    }

    /// Makes `id` the youngest.
    fn push(&mut self, id: u32) {
        self.moves += 1;
        // Half a turn of the clock takes one capacity of moves, so the ages of live entries seldom alias.
        if self.moves > self.limit / (AGES as u32 / 2) {
            self.moves = 0;
            self.clock = (self.clock + 1) % AGES as u8;
        }
        self.at[id as usize] = self.clock;
        self.link(id, LIVE, NIL);
    }

    /// `id` became resident.
    pub fn insert(&mut self, id: u32, key: u64) {
        self.ghost.take(mix(key));
        self.unlink(id);
        self.push(id);
    }

    /// `id` was used.
    #[inline]
    pub fn hit(&mut self, id: u32) {
        if self.by_use && self.list(id) != OUT && self.lists[0].front != id {
            self.unlink(id);
            self.push(id);
        }
    }

    /// `id` is no longer resident, and this was no eviction.
    pub fn remove(&mut self, id: u32) {
        self.unlink(id);
    }

    /// `to` takes the place of `from`.
    pub fn moved(&mut self, from: u32, to: u32) {
        self.unlink(to);
        let (list, newer, age) =
            (self.list(from), self.links[from as usize][0], self.at[from as usize] & 0x3f);
        self.unlink(from);
        if list != OUT {
            self.at[to as usize] = age;
            self.link(to, list, newer);
        }
    }

    /// `id` can be evicted again: next in turn.
    pub fn cleaned(&mut self, id: u32) {
        if self.list(id) == ASIDE {
            self.unlink(id);
            let back = self.lists[0].back;
            self.link(id, LIVE, back);
        }
    }

    /// Takes out the oldest entry that `evictable` gives a key for, among those looked at.
    pub fn victim(&mut self, mut evictable: impl FnMut(u32) -> Option<u64>) -> Option<u32> {
        for looked in 0..LIMIT {
            let list = if looked < RETRY || self.lists[0].len == 0 { ASIDE } else { LIVE };
            let id = self.lists[usize::from(list - 1)].back;
            if id == NIL {
                continue;
            }
            self.unlink(id);
            match evictable(id) {
                Some(key) => {
                    self.ghost.put(mix(key));
                    return Some(id);
                }
                None => self.link(id, ASIDE, NIL),
            }
        }
        None
    }

    /// True if `key` was evicted not long ago.
    pub fn remembers(&self, key: u64) -> bool {
        self.ghost.contains(mix(key))
    }

    /// Coarse age of `id` in one byte; 0 if it is not resident.
    pub fn state(&self, id: u32) -> u8 {
        match self.list(id) {
            OUT => 0,
            ASIDE => 0x80 | (AGES as u8 - 1),
            _ => 0x80 | (self.clock.wrapping_sub(self.at[id as usize])) & 0x3f,
        }
    }

    /// Puts `id` back as [`Lru::state`] saved it; 0 leaves it out. Meant for a policy nothing else was done to yet.
    pub fn restore(&mut self, id: u32, state: u8) {
        if state & 0x80 == 0 {
            return;
        }
        self.unlink(id);
        let age = usize::from(state & 0x3f);
        self.at[id as usize] = self.clock.wrapping_sub(age as u8) & 0x3f;
        // Right behind the oldest restored so far of the nearest younger or equal age.
        let newer = (0..=age).rev().map(|a| self.restored[a]).find(|&r| r != NIL && self.list(r) == LIVE);
        self.link(id, LIVE, newer.unwrap_or(NIL));
        self.restored[age] = id;
    }

    /// RAM held, in bytes.
    pub fn bytes(&self) -> usize {
        size_of::<Lru>() + self.links.len() * 8 + self.at.len() + self.ghost.bytes()
    }
}
