//! Keys that left not long ago, remembered as fingerprints in two bytes each.

use super::hash::below;
use crate::huge::HugeVec;

/// Fingerprints in a bucket: 16 bytes, four buckets to a cache line of the processor.
const WAYS: usize = 8;
/// Bits of a fingerprint; the rest of the two bytes is its age. A full bucket mistakes a stranger for a known key in
/// one of 256 cases.
const FP_BITS: u32 = 11;
const FP_MASK: u16 = (1 << FP_BITS) - 1;
/// Hashes that wait for their bucket to be near before they are put in.
const LATE: usize = 4;
/// Ages that count as remembered, of the 32 that fit.
const LIVE_AGES: u16 = 16;

/// A set of the last `limit` hashes put into it, nearly first in, first out. 2.67 bytes for each of `capacity`.
#[derive(Debug)]
pub struct Ghost {
    slots: HugeVec<[u16; WAYS]>,
    age: u16,
    /// Insertions left until the age advances.
    left: u32,
    limit: u32,
    sweep: usize,
    /// Hashes put last, whose buckets are still on their way to the processor; `late_at` is the oldest.
    late: [Option<u64>; LATE],
    late_at: usize,
}

impl Ghost {
    /// An empty set that can be asked to hold up to `capacity` hashes.
    pub fn new(capacity: u32) -> Ghost {
        // A third more places than hashes, because hashes fall unevenly into buckets.
        let buckets = (capacity as usize).div_ceil(WAYS - 2).max(1);
        let mut g = Ghost {
            slots: HugeVec::zeroed(buckets),
            age: 0,
            left: 0,
            limit: 0,
            sweep: 0,
            late: [None; LATE],
            late_at: 0,
        };
        g.set_limit(capacity);
        g.left = g.tick();
        g
    }

    /// Hashes to remember from now on, at most the capacity given at the start.
    pub fn set_limit(&mut self, limit: u32) {
        self.limit = limit.max(1);
    }

    fn tick(&self) -> u32 {
        self.limit.div_ceil(u32::from(LIVE_AGES))
    }

    #[inline]
    fn fingerprint(hash: u64) -> u16 {
        (hash as u16 & FP_MASK).max(1)
    }

    #[inline]
    fn age_of(&self, slot: u16) -> u16 {
        self.age.wrapping_sub(slot >> FP_BITS) & 31
    }

    #[inline]
    fn is_live(&self, slot: u16) -> bool {
        slot & FP_MASK != 0 && self.age_of(slot) <= LIVE_AGES
    }

    /// Brings the bucket of `hash` towards the processor.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        self.slots.prefetch(below(hash, self.slots.len()));
    }

    /// True if `hash` was put in and neither taken nor outlived.
    pub fn contains(&self, hash: u64) -> bool {
        let fp = Ghost::fingerprint(hash);
        self.late.contains(&Some(hash))
            || self.slots[below(hash, self.slots.len())].iter().any(|&s| s & FP_MASK == fp && self.is_live(s))
    }

    /// As [`Ghost::contains`], and forgets it.
    pub fn take(&mut self, hash: u64) -> bool {
        if let Some(late) = self.late.iter_mut().find(|l| **l == Some(hash)) {
            *late = None;
            return true;
        }
        let fp = Ghost::fingerprint(hash);
        let b = below(hash, self.slots.len());
        for way in 0..WAYS {
            let s = self.slots[b][way];
            if s & FP_MASK == fp && self.is_live(s) {
                self.slots[b][way] = 0;
                return true;
            }
        }
        false
    }

    /// Remembers `hash`, in place of the oldest of its bucket.
    pub fn put(&mut self, hash: u64) {
        self.prefetch(hash);
        let due = self.late[self.late_at].replace(hash);
        self.late_at = (self.late_at + 1) % LATE;
        if let Some(hash) = due {
            self.put_now(hash);
        }
    }

    fn put_now(&mut self, hash: u64) {
        let fp = Ghost::fingerprint(hash);
        let b = below(hash, self.slots.len());
        // The same fingerprint goes first, then a free place, then the oldest; without branches that guess wrong.
        let rank = |s: u16| {
            let own = u16::from(s & FP_MASK == fp) << 7;
            let free = u16::from(s & FP_MASK == 0) << 6;
            own | free | self.age_of(s)
        };
        let slots = &self.slots[b];
        let worst =
            (0..WAYS).map(|way| (rank(slots[way]) << 3) as usize | way).max().unwrap_or(0) & (WAYS - 1);
        self.slots[b][worst] = fp | self.age << FP_BITS;
        self.left -= 1;
        if self.left == 0 {
            self.advance();
        }
    }

    /// Opens a new age and clears a share of the table, so that no fingerprint is still there when its age number
    /// comes round again.
    fn advance(&mut self) {
        self.age = (self.age + 1) & 31;
        self.left = self.tick();
        for _ in 0..self.slots.len().div_ceil(usize::from(31 - LIVE_AGES)) {
            let mut bucket = self.slots[self.sweep];
            for slot in &mut bucket {
                if !self.is_live(*slot) {
                    *slot = 0;
                }
            }
            self.slots[self.sweep] = bucket;
            self.sweep = (self.sweep + 1) % self.slots.len();
        }
    }

    /// RAM held, in bytes.
    pub fn bytes(&self) -> usize {
        self.slots.len() * size_of::<[u16; WAYS]>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::hash::mix;

    #[test]
    fn the_ghost_remembers_most_of_its_limit_and_no_strangers() {
        let n = 60_000;
        let mut g = Ghost::new(n);
        (0..10 * u64::from(n)).for_each(|k| g.put(mix(k)));
        let known = |from: u64, to: u64| {
            (from..to).filter(|&k| g.contains(mix(k))).count() as f64 / (to - from) as f64
        };
        let n = u64::from(n);
        assert!(known(9 * n, 10 * n) > 0.8, "{}", known(9 * n, 10 * n));
        assert!(known(9 * n + n / 2, 10 * n) > 0.95, "{}", known(9 * n + n / 2, 10 * n));
        assert!(known(0, 8 * n) < 0.01, "{}", known(0, 8 * n));
        assert!(known(100 * n, 101 * n) < 0.01, "{}", known(100 * n, 101 * n));
    }

    #[test]
    fn what_was_taken_is_forgotten_at_once_also_when_put_last() {
        let mut g = Ghost::new(1000);
        for k in 0..100 {
            g.put(mix(k));
            assert!(g.take(mix(k)) && !g.contains(mix(k)) && !g.take(mix(k)), "{k}");
        }
    }
}
