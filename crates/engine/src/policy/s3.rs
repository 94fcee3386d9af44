//! S3-FIFO with a correlation window ("S3-corr"): newcomers prove themselves in a small queue, one hit after the first
//! half of it counts; proven entries go round a main queue; keys that failed are remembered for a while.

use super::aged::{Aged, Queue};
use super::ghost::Ghost;
use super::hash::mix;

/// Hits counted at most.
const MAX_FREQ: u8 = 3;
/// Hits during this part of the small queue's length (1/4) count as echoes of the first access.
const WINDOW: u32 = 4;
/// Keys remembered: half as many as ids. A longer memory lets scans of the cache's own size into the main queue.
const GHOST: u32 = 2;
/// Entries looked at for one victim before hits stop to protect one.
const PATIENCE: u32 = 512;
/// Entries looked at for one victim at all: of those that are ready, and of the others.
const LIMIT: u32 = 1024;
/// Entries set aside that each search tries, so that those that became evictable are found without being told.
const RETRY: u32 = 2;

/// Replacement state of the ids `0..capacity` for one share of the small queue.
#[derive(Debug)]
pub struct S3 {
    /// Their marks are the hits that count.
    queues: Aged,
    ghost: Ghost,
    capacity: u32,
    /// Entries the small queue should have of every 1,000.
    share: u32,
    /// Hits this soon after insertion, counted in insertions into the small queue, do not count.
    window: u32,
    /// The queue whose entries that were set aside are tried next.
    retried: Queue,
}

impl S3 {
    /// Nothing resident.
    pub fn new(capacity: u32, share_permille: u32) -> S3 {
        let mut s = S3 {
            queues: Aged::new(capacity),
            ghost: Ghost::new(capacity / GHOST),
            capacity,
            share: 0,
            window: 0,
            retried: Queue::Small,
        };
        s.set_share(share_permille);
        s
    }

    /// Plans for so many ids, of those given at the start.
    pub fn set_limit(&mut self, limit: u32) {
        self.capacity = limit;
        self.queues.set_limit(limit);
        self.ghost.set_limit(limit / GHOST);
        self.set_share(self.share);
    }

    /// Changes the small queue's share; entries follow as they are replaced.
    pub fn set_share(&mut self, share_permille: u32) {
        self.share = share_permille;
        let small = self.small_target(self.capacity);
        self.queues.set_usual(Queue::Small, small);
        self.queues.set_usual(Queue::Main, self.capacity - small);
        self.window = small / WINDOW;
    }

    fn small_target(&self, of: u32) -> u32 {
        ((u64::from(of) * u64::from(self.share) / 1000) as u32).max(1)
    }

    /// `id` became resident with `key`.
    pub fn insert(&mut self, id: u32, key: u64) {
        let q = if self.ghost.take(mix(key)) { Queue::Main } else { Queue::Small };
        self.queues.detach(id);
        self.queues.push(q, id);
        self.queues.set_mark(id, 0);
    }

    /// `id` was used.
    #[inline]
    pub fn hit(&mut self, id: u32) {
        let freq = self.queues.mark(id);
        if freq == MAX_FREQ {
            return;
        }
        match self.queues.queue(id) {
            None => {}
            Some((Queue::Small, false)) if self.queues.joined_since(id) <= self.window => {}
            Some(_) => self.queues.set_mark(id, freq + 1),
        }
    }

    /// `id` is no longer resident, and this was no eviction.
    pub fn remove(&mut self, id: u32) {
        self.queues.detach(id);
    }

    /// Moves the state of `from` to `to`.
    pub fn moved(&mut self, from: u32, to: u32) {
        self.queues.moved(from, to);
        self.queues.set_mark(to, self.queues.mark(from));
    }

    /// `id` can be evicted again: spares a search among those set aside.
    pub fn cleaned(&mut self, id: u32) {
        self.queues.set_ready(id);
    }

    /// Takes out an entry that `evictable` gives a key for, the best to lose among those looked at.
    pub fn victim(&mut self, mut evictable: impl FnMut(u32) -> Option<u64>) -> Option<u32> {
        for _ in 0..LIMIT {
            let Some((q, id)) = self.next_ready() else { break };
            if let Some(v) = self.consider(q, id, true, &mut evictable) {
                return Some(v);
            }
        }
        for _ in 0..RETRY {
            if let Some(v) = self.retry(true, &mut evictable) {
                return Some(v);
            }
        }
        for looked in 0..LIMIT {
            let (small, main) = (self.queues.len(Queue::Small), self.queues.len(Queue::Main));
            let q =
                if main == 0 || small > self.small_target(small + main) { Queue::Small } else { Queue::Main };
            match self.queues.oldest(q) {
                Some(id) => {
                    if let Some(v) = self.consider(q, id, looked < PATIENCE, &mut evictable) {
                        return Some(v);
                    }
                }
                None => {
                    if let Some(v) = self.retry(false, &mut evictable) {
                        return Some(v);
                    }
                }
            }
        }
        None
    }

    /// An entry that was set aside and has become evictable, of the queue that is too long if it has one.
    fn next_ready(&mut self) -> Option<(Queue, u32)> {
        let all = |q| self.queues.len(q) + self.queues.aside(q);
        let (small, main) = (all(Queue::Small), all(Queue::Main));
        let (q, other) = if small > self.small_target(small + main) {
            (Queue::Small, Queue::Main)
        } else {
            (Queue::Main, Queue::Small)
        };
        let mut of = |q| Some((q, self.queues.next_ready(q)?));
        of(q).or_else(|| of(other))
    }

    /// Tries one entry that was set aside, of both queues in turn: the longer one may have none that can go.
    fn retry(&mut self, protect: bool, evictable: &mut impl FnMut(u32) -> Option<u64>) -> Option<u32> {
        let (q, other) = match self.retried {
            Queue::Small => (Queue::Small, Queue::Main),
            Queue::Main => (Queue::Main, Queue::Small),
        };
        self.retried = other;
        let (q, id) = match self.queues.next_aside(q) {
            Some(id) => (q, id),
            None => (other, self.queues.next_aside(other)?),
        };
        self.consider(q, id, protect, evictable)
    }

    /// Evicts, promotes, gives another round to, or sets aside an entry whose turn it is.
    fn consider(
        &mut self,
        q: Queue,
        id: u32,
        protect: bool,
        evictable: &mut impl FnMut(u32) -> Option<u64>,
    ) -> Option<u32> {
        let freq = self.queues.mark(id);
        if freq > 0 && protect {
            let aside = matches!(self.queues.queue(id), Some((_, true)));
            if aside && evictable(id).is_none() {
                self.queues.set_aside(id);
                return None;
            }
            self.queues.set_mark(id, if q == Queue::Small { 0 } else { freq - 1 });
            self.queues.detach(id);
            self.queues.push(Queue::Main, id);
            return None;
        }
        let Some(key) = evictable(id) else {
            self.queues.set_aside(id);
            return None;
        };
        self.queues.detach(id);
        if q == Queue::Small {
            self.ghost.put(mix(key));
        }
        Some(id)
    }

    /// Brings what [`S3::insert`] will ask of a key with this hash towards the processor.
    #[inline]
    pub fn expect(&self, hash: u64) {
        self.ghost.prefetch(hash);
    }

    /// True if `key` was evicted not long ago.
    pub fn remembers(&self, key: u64) -> bool {
        self.ghost.contains(mix(key))
    }

    /// Brings the mark of `id` towards the processor.
    #[inline]
    pub fn prefetch(&self, id: u32) {
        self.queues.prefetch(id);
    }

    /// Queue, frequency and coarse age of `id` in one byte; 0 if it is not resident.
    pub fn state(&self, id: u32) -> u8 {
        match self.queues.queue(id) {
            None => 0,
            Some((q, _)) => 0x80 | (q as u8) << 6 | self.queues.mark(id) << 4 | self.queues.age16(id),
        }
    }

    /// Puts `id` back as [`S3::state`] saved it; 0 leaves it out.
    pub fn restore(&mut self, id: u32, state: u8) {
        if state & 0x80 == 0 {
            return;
        }
        self.queues.detach(id);
        let q = if state & 0x40 == 0 { Queue::Small } else { Queue::Main };
        self.queues.restore(q, id, state & 15);
        self.queues.set_mark(id, state >> 4 & MAX_FREQ);
    }

    /// RAM held, in bytes.
    pub fn bytes(&self) -> usize {
        size_of::<S3>() + self.queues.bytes() + self.ghost.bytes()
    }
}
