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
#[derive(Debug)]
pub struct Slots {
    free: Vec<u64>,
    count: u32,
    free_count: u32,
    hand: u32,
    leaving: VecDeque<Leaving>,
}

impl Slots {
    /// `count` slots, none free; [`Slots::free`] gives those that hold nothing.
    pub fn new(count: u32) -> Slots {
        let words = (count as usize).div_ceil(64);
        Slots { free: vec![0; words], count, free_count: 0, hand: 0, leaving: VecDeque::new() }
    }

    /// Adds `slot` to the free ones.
    pub fn free(&mut self, slot: u32) {
        let (word, bit) = (slot as usize / 64, 1u64 << (slot % 64));
        assert!(slot < self.count && self.free[word] & bit == 0, "slot {slot} freed twice");
        self.free[word] |= bit;
        self.free_count += 1;
    }

    /// Slots in all.
    pub fn count(&self) -> u32 {
        self.count
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
        let words = self.free.len();
        let mut word = self.hand as usize / 64;
        let mut bits = self.free[word] & (u64::MAX << (self.hand % 64));
        for _ in 0..=words {
            if bits != 0 {
                let bit = bits.trailing_zeros();
                self.free[word] &= !(1u64 << bit);
                self.free_count -= 1;
                let slot = word as u32 * 64 + bit;
                self.hand = if slot + 1 >= self.count { 0 } else { slot + 1 };
                return Some(slot);
            }
            word = if word + 1 == words { 0 } else { word + 1 };
            bits = self.free[word];
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

    /// The oldest read still in flight (or the next to begin).
    pub fn oldest(&self) -> u64 {
        self.base
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_free_only_when_its_record_is_durable_and_older_reads_are_over() {
        let mut s = Slots::new(70);
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
}
