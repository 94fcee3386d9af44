//! Slots: 4 KiB places for data on the cache device, their free map, and the rule when one may be used again.

use std::collections::VecDeque;

/// A slot that no longer holds a newest version, waiting for its safe point.
#[derive(Debug, Clone, Copy)]
struct Leaving {
    slot: u32,
    /// The record that ended its mapping is in this frame.
    frame: u64,
    /// No read that began before this ticket may still be in flight.
    ticket: u64,
}

/// The free map of one shard. Allocation is next-fit, so that neighbours in time are neighbours on flash.
///
/// Only slots below the *limit* are given out. One above it that holds nothing is *parked*; when all of them are, what stands
/// behind them can be given back.
#[derive(Debug)]
pub struct Slots {
    /// A bit for each slot that holds nothing.
    free: Vec<u64>,
    size: u32,
    limit: u32,
    free_count: u32,
    parked: u32,
    hand: u32,
    leaving: VecDeque<Leaving>,
}

impl Slots {
    /// `size` slots, none free, of which those below `limit` may be used; [`Slots::free`] gives those that hold nothing.
    pub fn new(size: u32, limit: u32) -> Slots {
        let words = (size as usize).div_ceil(64);
        Slots {
            free: vec![0; words],
            size,
            limit: limit.min(size),
            free_count: 0,
            parked: 0,
            hand: 0,
            leaving: VecDeque::new(),
        }
    }

    /// Adds `slot` to those that hold nothing.
    pub fn free(&mut self, slot: u32) {
        let (word, bit) = (slot as usize / 64, 1u64 << (slot % 64));
        assert!(slot < self.size && self.free[word] & bit == 0, "slot {slot} freed twice");
        self.free[word] |= bit;
        if slot < self.limit { self.free_count += 1 } else { self.parked += 1 }
    }

    /// Slots that may be used.
    pub fn count(&self) -> u32 {
        self.limit
    }

    /// Slots that there could be.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Changes how many slots may be used. Those above keep what they hold, and none of them is given out.
    pub fn set_limit(&mut self, limit: u32) {
        let limit = limit.min(self.size);
        let (from, to) = (self.limit.min(limit), self.limit.max(limit));
        let empty = (from..to).filter(|s| self.holds_nothing(*s)).count() as u32;
        if limit > self.limit {
            (self.free_count, self.parked) = (self.free_count + empty, self.parked - empty);
        } else {
            (self.free_count, self.parked) = (self.free_count - empty, self.parked + empty);
        }
        self.limit = limit;
        if self.hand >= limit {
            self.hand = 0;
        }
    }

    /// True if every slot above the limit holds nothing.
    pub fn is_empty_above_limit(&self) -> bool {
        self.parked == self.size - self.limit
    }

    /// True if `slot` holds nothing, and nothing is on its way there or from there.
    pub fn holds_nothing(&self, slot: u32) -> bool {
        self.free[slot as usize / 64] & (1u64 << (slot % 64)) != 0
    }

    /// Slots that hold nothing, those above the limit too.
    pub fn empty_count(&self) -> u32 {
        self.free_count + self.parked
    }

    /// Free slots.
    pub fn free_count(&self) -> u32 {
        self.free_count
    }

    /// Slots on their way to being free.
    pub fn leaving_count(&self) -> u32 {
        self.leaving.len() as u32
    }

    /// A free slot, the next after the last one taken.
    pub fn take(&mut self) -> Option<u32> {
        if self.free_count == 0 {
            return None;
        }
        let words = (self.limit as usize).div_ceil(64);
        // Of the last word only what lies below the limit.
        let below = |word: usize| {
            let over = ((word + 1) * 64).saturating_sub(self.limit as usize);
            u64::MAX >> over
        };
        let mut word = self.hand as usize / 64;
        let mut bits = self.free[word] & (u64::MAX << (self.hand % 64)) & below(word);
        for _ in 0..=words {
            if bits != 0 {
                let bit = bits.trailing_zeros();
                self.free[word] &= !(1u64 << bit);
                self.free_count -= 1;
                let slot = word as u32 * 64 + bit;
                self.hand = if slot + 1 >= self.limit { 0 } else { slot + 1 };
                return Some(slot);
            }
            word = if word + 1 == words { 0 } else { word + 1 };
            bits = self.free[word] & below(word);
        }
        unreachable!("free_count says there is a free slot");
    }

    /// `slot` lost its version by a record in `frame`; reads with a ticket below `ticket` may still be at it.
    pub fn leave(&mut self, slot: u32, frame: u64, ticket: u64) {
        self.leaving.push_back(Leaving { slot, frame, ticket });
    }

    /// The frame that must be durable for the oldest leaving slot.
    pub fn wants_durable(&self) -> Option<u64> {
        self.leaving.front().map(|l| l.frame)
    }

    /// Frees what has reached its safe point: record durable, no older read in flight.
    #[inline]
    pub fn settle(&mut self, durable: u64, oldest_ticket: u64) {
        while let Some(l) = self.leaving.front() {
            if l.frame > durable || l.ticket > oldest_ticket {
                break;
            }
            let slot = l.slot;
            self.leaving.pop_front();
            self.free(slot);
        }
    }

    /// RAM held, in bytes (the leaving queue is bounded by the slots on their way).
    pub fn bytes(&self) -> usize {
        self.free.len() * 8
    }
}

/// Numbers the reads of slots in flight, so that a slot is not reused under one.
#[derive(Debug, Default)]
pub struct Tickets {
    base: u64,
    active: VecDeque<bool>,
}

impl Tickets {
    /// A read begins.
    pub fn begin(&mut self) -> u64 {
        self.active.push_back(true);
        self.base + self.active.len() as u64 - 1
    }

    /// The read with this ticket is over.
    pub fn end(&mut self, ticket: u64) {
        self.active[(ticket - self.base) as usize] = false;
        while self.active.front() == Some(&false) {
            self.active.pop_front();
            self.base += 1;
        }
    }

    /// Every read that begins from now on has this ticket or a higher one.
    pub fn next(&self) -> u64 {
        self.base + self.active.len() as u64
    }

    /// True if no read is in flight.
    pub fn is_idle(&self) -> bool {
        self.active.is_empty()
    }

    /// The oldest read still in flight (or the next to begin).
    pub fn oldest(&self) -> u64 {
        self.base
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_free_once_its_record_is_durable_and_reads_are_over() {
        let mut s = Slots::new(70, 70);
        let mut t = Tickets::default();
        (0..70).for_each(|i| s.free(i));
        let taken: Vec<u32> = (0..70).map(|_| s.take().unwrap()).collect();
        assert_eq!(taken, (0..70).collect::<Vec<_>>());
        let reading = t.begin();
        s.leave(69, 5, t.next());
        s.settle(5, t.oldest());
        assert_eq!(s.take(), None, "a read is in flight");
        let later = t.begin();
        t.end(reading);
        s.settle(4, t.oldest());
        assert_eq!(s.take(), None, "the record is not durable");
        s.settle(5, t.oldest());
        assert_eq!(s.take(), Some(69));
        t.end(later);
    }

    #[test]
    fn a_slot_above_the_limit_is_parked_and_never_given_out() {
        let mut s = Slots::new(200, 130);
        (0..200).for_each(|i| s.free(i));
        assert!((s.free_count(), s.is_empty_above_limit()) == (130, true));
        let mut taken: Vec<u32> = (0..130).map(|_| s.take().unwrap()).collect();
        assert_eq!((taken.iter().max(), s.take()), (Some(&129), None));
        s.set_limit(150);
        taken.extend((0..20).map(|_| s.take().unwrap()));
        assert_eq!(s.take(), None);
        s.set_limit(100);
        assert!(!s.is_empty_above_limit());
        for slot in 100..149 {
            s.free(slot);
        }
        assert_eq!((s.take(), s.is_empty_above_limit()), (None, false));
        s.leave(149, 1, 0);
        s.settle(1, 0);
        assert!(s.is_empty_above_limit());
        s.free(7);
        assert_eq!((s.take(), s.take()), (Some(7), None));
        s.set_limit(200);
        let mut again: Vec<u32> = (0..100).map(|_| s.take().unwrap()).collect();
        again.sort_unstable();
        assert_eq!((again, s.take()), ((100..200).collect(), None));
    }
}
