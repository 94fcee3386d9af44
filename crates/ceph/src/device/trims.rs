//! Space that clients give up, gathered until it is whole objects: only those give space back.
//!
//! A volume's discards come in parts of a window at most, and an object that is given up in parts is filled with zeros and stays.
//! Parts that come together go as one request, which removes the objects that it covers. Of those that come one by one it is
//! remembered which blocks of their object are zeros by now; once all are, the object is removed. Nothing is written to an
//! object while it is removed, and whatever was written to it since takes it off the list. See
//! `docs/decisions/0040-discards-by-object.md`.

use loligo_block::Tag;
use std::collections::{HashMap, HashSet, VecDeque};

/// Bytes that one bit stands for.
const BLOCK: u64 = 4096;
/// Bytes after which a request ends with the object that it is in: whoever asked for a part of it waits for all.
const MOST: u64 = 64 << 20;
/// Objects with holes that are remembered. One that is forgotten keeps its space until it is given up again.
const REMEMBERED: usize = 4096;

/// Neighbouring discards that go as one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Trim {
    /// Byte of the image.
    pub(super) at: u64,
    /// Bytes.
    pub(super) len: u64,
    /// The tags of those who asked for them.
    pub(super) tags: Vec<Tag>,
}

/// Blocks of one object that are zeros in the image.
#[derive(Debug)]
struct Hole {
    zeros: Vec<u64>,
    /// Blocks that are not, or of which it is not known.
    missing: u64,
}

/// A part of an object while it is given up, and nobody writes to that object.
#[derive(Debug, PartialEq, Eq)]
struct Flying {
    object: u64,
    from: u64,
    to: u64,
}

/// All discards of an image.
#[derive(Debug)]
pub(super) struct Trims {
    object_size: u64,
    /// Object `n` is the bytes from `n` times its size on.
    linear: bool,
    waiting: Vec<(u64, u64, Tag)>,
    flying: Vec<Flying>,
    holes: HashMap<u64, Hole>,
    /// The objects with holes, oldest first; some may be gone from there.
    order: VecDeque<u64>,
    /// Writes of clients under way, by object.
    writes: HashMap<u64, u32>,
    /// Objects that are to be removed.
    whole: VecDeque<u64>,
    removing: HashSet<u64>,
}

impl Trims {
    /// Of an image with objects of so many bytes.
    pub(super) fn new(object_size: u64, linear: bool) -> Trims {
        Trims {
            object_size,
            linear,
            waiting: Vec::new(),
            flying: Vec::new(),
            holes: HashMap::new(),
            order: VecDeque::new(),
            writes: HashMap::new(),
            whole: VecDeque::new(),
            removing: HashSet::new(),
        }
    }

    /// A discard has come.
    pub(super) fn offer(&mut self, tag: Tag, at: u64, len: u64) {
        self.waiting.push((at, len, tag));
    }

    /// The extents that have come since this was last asked, neighbours as one.
    pub(super) fn gather(&mut self) -> Vec<Trim> {
        let mut out: Vec<Trim> = Vec::new();
        self.waiting.sort_unstable_by_key(|w| w.0);
        for (at, len, tag) in self.waiting.drain(..) {
            match out.last_mut().filter(|t| t.at + t.len == at) {
                Some(t) if t.len < MOST || !at.is_multiple_of(self.object_size) => {
                    t.len += len;
                    t.tags.push(tag);
                }
                _ => out.push(Trim { at, len, tags: vec![tag] }),
            }
        }
        out
    }

    fn objects(&self, at: u64, end: u64) -> std::ops::RangeInclusive<u64> {
        at / self.object_size..=(end.max(at + 1) - 1) / self.object_size
    }

    /// The parts of objects at the ends of a range.
    fn ends(&self, at: u64, end: u64) -> impl Iterator<Item = Flying> + use<> {
        let size = self.object_size;
        let all = self.objects(at, end);
        let (first, last) = (*all.start(), *all.end());
        let part = move |object: u64| {
            let start = object * size;
            Flying { object, from: at.max(start) - start, to: end.min(start + size) - start }
        };
        let some = (first != last).then(|| part(last));
        [Some(part(first)), some].into_iter().flatten().filter(move |p| p.to - p.from < size)
    }

    /// A discard goes to the image. `busy`: whether a group of writes to an object is under way.
    pub(super) fn sent(&mut self, at: u64, len: u64, busy: impl Fn(u64) -> bool) {
        if !self.linear {
            return;
        }
        for part in self.ends(at, at + len) {
            if !self.writes.contains_key(&part.object) && !busy(part.object) {
                self.flying.push(part);
            }
        }
    }

    /// It is over, and `done` says whether it worked.
    pub(super) fn landed(&mut self, at: u64, len: u64, done: bool) {
        for part in self.ends(at, at + len) {
            let Some(n) = self.flying.iter().position(|f| *f == part) else { continue };
            self.flying.swap_remove(n);
            if done {
                self.is_zero(part);
            }
        }
    }

    fn is_zero(&mut self, part: Flying) {
        let blocks = self.object_size.div_ceil(BLOCK);
        if !self.holes.contains_key(&part.object) {
            self.order.push_back(part.object);
            if self.order.len() > REMEMBERED {
                let oldest = self.order.pop_front().expect("one was just added");
                self.holes.remove(&oldest);
            }
        }
        let fresh = || Hole { zeros: vec![0; blocks.div_ceil(64) as usize], missing: blocks };
        let hole = self.holes.entry(part.object).or_insert_with(fresh);
        for block in part.from.div_ceil(BLOCK)..part.to / BLOCK {
            let (word, bit) = ((block / 64) as usize, 1 << (block % 64));
            hole.missing -= u64::from(hole.zeros[word] & bit == 0);
            hole.zeros[word] |= bit;
        }
        if hole.missing == 0 {
            self.whole.push_back(part.object);
        }
    }

    /// Data goes to an object: it is no hole any more, and none that is being made there counts.
    pub(super) fn filled(&mut self, object: u64) {
        self.holes.remove(&object);
        self.flying.retain(|f| f.object != object);
    }

    /// A write from `at` to `end` goes to the image.
    pub(super) fn write_sent(&mut self, at: u64, end: u64) {
        for object in self.objects(at, end) {
            *self.writes.entry(object).or_default() += 1;
            self.filled(object);
        }
    }

    /// It is over.
    pub(super) fn write_landed(&mut self, at: u64, end: u64) {
        for object in self.objects(at, end) {
            let Some(n) = self.writes.get_mut(&object) else { continue };
            *n -= 1;
            if *n == 0 {
                self.writes.remove(&object);
            }
        }
    }

    /// An object that is wholly zeros, if one is to be removed.
    pub(super) fn next(&mut self) -> Option<u64> {
        while let Some(object) = self.whole.pop_front() {
            // Something may have been written to it since, and it may be here twice.
            if self.holes.get(&object).is_some_and(|h| h.missing == 0) {
                return Some(object);
            }
        }
        None
    }

    /// It cannot be removed yet.
    pub(super) fn wait_again(&mut self, object: u64) {
        self.whole.push_front(object);
    }

    /// The object is being removed: nothing may be written to it meanwhile.
    pub(super) fn remove(&mut self, object: u64) {
        self.holes.remove(&object);
        self.removing.insert(object);
    }

    /// It is gone, or stays after all.
    pub(super) fn removed(&mut self, object: u64) {
        self.removing.remove(&object);
    }

    /// The number of objects that are being removed.
    pub(super) fn removing(&self) -> usize {
        self.removing.len()
    }

    /// Nothing is given up any more, and what is being removed may never be over.
    pub(super) fn give_up(&mut self) {
        self.whole.clear();
        self.removing.clear();
    }

    /// True if something from `at` to `end` is being removed.
    pub(super) fn is_removing(&self, at: u64, end: u64) -> bool {
        !self.removing.is_empty() && self.objects(at, end).any(|o| self.removing.contains(&o))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OBJECT: u64 = 4 << 20;
    const MIB: u64 = 1 << 20;

    fn trims() -> Trims {
        Trims::new(OBJECT, true)
    }

    fn done(t: &mut Trims, at: u64, len: u64) {
        t.sent(at, len, |_| false);
        t.landed(at, len, true);
    }

    #[test]
    fn neighbours_that_come_together_go_as_one() {
        let mut t = trims();
        [3, 1, 2, 7].into_iter().for_each(|n| t.offer(n, n * MIB, MIB));
        let all = t.gather();
        assert_eq!(all[0], Trim { at: MIB, len: 3 * MIB, tags: vec![1, 2, 3] });
        assert_eq!(all[1], Trim { at: 7 * MIB, len: MIB, tags: vec![7] });
        assert!(t.gather().is_empty());
        (0..100).for_each(|n| t.offer(n, 2 * MIB + n * MIB, MIB));
        let ends: Vec<u64> = t.gather().iter().map(|t| (t.at + t.len) / MIB).collect();
        assert_eq!(ends, [68, 102], "a long one ends with an object");
    }

    #[test]
    fn an_object_given_up_in_parts_is_removed_once() {
        let mut t = trims();
        for part in [2, 0, 3] {
            done(&mut t, OBJECT + part * MIB, MIB);
            assert_eq!(t.next(), None);
        }
        done(&mut t, OBJECT + MIB, MIB);
        assert_eq!(t.next(), Some(1));
        t.remove(1);
        assert_eq!(t.removing(), 1);
        assert!(t.is_removing(2 * OBJECT - 1, 2 * OBJECT) && !t.is_removing(0, OBJECT));
        t.removed(1);
        assert!(!t.is_removing(OBJECT, 2 * OBJECT) && t.next().is_none());
    }

    #[test]
    fn nothing_is_under_way_once_it_was_given_up() {
        let mut t = trims();
        [0, OBJECT].into_iter().for_each(|at| {
            done(&mut t, at, 2 * MIB);
            done(&mut t, at + 2 * MIB, 2 * MIB);
        });
        let first = t.next().expect("two are whole");
        t.remove(first);
        t.give_up();
        assert_eq!((t.removing(), t.next()), (0, None));
        t.removed(first);
    }

    #[test]
    fn whatever_is_written_meanwhile_keeps_an_object() {
        // Between two parts.
        let mut t = trims();
        done(&mut t, 0, 2 * MIB);
        t.write_sent(MIB, MIB + 4096);
        t.write_landed(MIB, MIB + 4096);
        done(&mut t, 2 * MIB, 2 * MIB);
        assert_eq!(t.next(), None);
        // While a part is under way, begun before it and after it.
        for before in [true, false] {
            let mut t = trims();
            done(&mut t, 0, 3 * MIB);
            if before {
                t.write_sent(3 * MIB, 4 * MIB);
                done(&mut t, 0, 3 * MIB);
            }
            t.sent(3 * MIB, MIB, |_| false);
            if !before {
                t.write_sent(3 * MIB, 4 * MIB);
            }
            t.landed(3 * MIB, MIB, true);
            assert_eq!(t.next(), None);
        }
        // After the last part, and before it is removed.
        let mut t = trims();
        [0, 2 * MIB].into_iter().for_each(|at| done(&mut t, at, 2 * MIB));
        t.filled(0);
        assert_eq!(t.next(), None);
        // A group that is under way.
        let mut t = trims();
        done(&mut t, 0, 2 * MIB);
        t.sent(2 * MIB, 2 * MIB, |object| object == 0);
        t.landed(2 * MIB, 2 * MIB, true);
        assert_eq!(t.next(), None);
    }

    #[test]
    fn what_failed_or_is_no_whole_block_does_not_count() {
        let mut t = trims();
        done(&mut t, 0, 2 * MIB);
        t.sent(2 * MIB, 2 * MIB, |_| false);
        t.landed(2 * MIB, 2 * MIB, false);
        assert_eq!(t.next(), None);
        done(&mut t, 2 * MIB, 2 * MIB - 512);
        done(&mut t, OBJECT - 512, 512);
        assert_eq!(t.next(), None, "half a block is not known to be zeros");
        done(&mut t, OBJECT - 4096, 4096);
        assert_eq!(t.next(), Some(0));
    }

    #[test]
    fn a_bounded_number_of_objects_is_remembered() {
        let mut t = trims();
        (0..3 * REMEMBERED as u64).for_each(|o| done(&mut t, o * OBJECT, MIB));
        assert!(t.holes.len() <= REMEMBERED && t.order.len() <= REMEMBERED);
    }
}
