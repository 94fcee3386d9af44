//! Block number to slot: buckets of one cache line, twelve ids and their tags each, keys kept by the caller.
//!
//! 64 B per 12 entries at load 0.85 is 6.3 B an entry, one memory access for the bucket and one for the key of a
//! tag that matches (a false match in 4 % of look-ups). Overflow goes to the next bucket; each bucket counts what
//! passed it, so that a search ends where nothing did.

use crate::huge::{HugeVec, Region};

const WAYS: usize = 12;
/// Highest fill for which the table is sized.
const LOAD: f64 = 0.85;

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Bucket {
    /// 0: empty.
    tags: [u8; WAYS],
    /// Entries that found this bucket full and went on; 255 sticks.
    passed: u8,
    _pad: [u8; 3],
    ids: [u32; WAYS],
}

const _: () = assert!(size_of::<Bucket>() == 64);

/// A hash table of ids; `key_of(id)` gives an id's key.
pub struct Buckets {
    buckets: HugeVec<Bucket>,
    len: usize,
}

impl std::fmt::Debug for Buckets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buckets({} of {} ways)", self.len, self.buckets.len() * WAYS)
    }
}

/// A fixed, cheap mix of a key: the same in every run.
#[inline]
pub(crate) fn mix(key: u64) -> u64 {
    let x = (key ^ 0x9E37_79B9_7F4A_7C15).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    let x = (x ^ (x >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    x ^ (x >> 29)
}

impl Buckets {
    /// Space for `capacity` entries.
    pub fn new(capacity: usize) -> Buckets {
        let n = ((capacity as f64 / LOAD / WAYS as f64).ceil() as usize).max(2);
        Buckets { buckets: HugeVec::zeroed(n), len: 0 }
    }

    #[inline]
    fn place(&self, key: u32) -> (usize, u8) {
        let h = mix(u64::from(key));
        let b = ((h >> 32) * self.buckets.len() as u64) >> 32;
        (b as usize, (h as u8).max(1))
    }

    #[inline]
    fn next(&self, b: usize) -> usize {
        if b + 1 == self.buckets.len() { 0 } else { b + 1 }
    }

    /// Brings the bucket of `key` towards the processor.
    #[inline]
    pub fn prefetch(&self, key: u32) {
        let (b, _) = self.place(key);
        self.buckets.prefetch(b);
    }

    /// An id that may be stored under `key` (its tag matches), for prefetching what belongs to it.
    #[inline]
    pub fn likely(&self, key: u32) -> Option<u32> {
        let (b, tag) = self.place(key);
        let bucket = &self.buckets[b];
        bucket.tags.iter().position(|t| *t == tag).map(|w| bucket.ids[w])
    }

    /// The id stored under `key`.
    #[inline]
    pub fn get(&self, key: u32, key_of: impl Fn(u32) -> u32) -> Option<u32> {
        self.find(key, key_of).map(|(b, w)| self.buckets[b].ids[w])
    }

    #[inline]
    fn find(&self, key: u32, key_of: impl Fn(u32) -> u32) -> Option<(usize, usize)> {
        let (mut b, tag) = self.place(key);
        for _ in 0..self.buckets.len() {
            let bucket = &self.buckets[b];
            let mut hits = 0u32;
            for w in 0..WAYS {
                hits |= u32::from(bucket.tags[w] == tag) << w;
            }
            while hits != 0 {
                let w = hits.trailing_zeros() as usize;
                if key_of(bucket.ids[w]) == key {
                    return Some((b, w));
                }
                hits &= hits - 1;
            }
            if bucket.passed == 0 {
                return None;
            }
            b = self.next(b);
        }
        None
    }

    /// Stores `id` under `key`, which must not be present.
    pub fn insert(&mut self, key: u32, id: u32) {
        let (mut b, tag) = self.place(key);
        loop {
            let bucket = &mut self.buckets[b];
            if let Some(w) = bucket.tags.iter().position(|t| *t == 0) {
                bucket.tags[w] = tag;
                bucket.ids[w] = id;
                self.len += 1;
                return;
            }
            bucket.passed = bucket.passed.saturating_add(1);
            b = self.next(b);
        }
    }

    /// Stores `id` under `key`, present or not; the id that it replaces.
    #[inline]
    pub fn put(&mut self, key: u32, id: u32, key_of: impl Fn(u32) -> u32) -> Option<u32> {
        let (b, tag) = self.place(key);
        let bucket = &mut self.buckets[b];
        let (mut alike, mut empty) = (0u32, 0u32);
        for w in 0..WAYS {
            alike |= u32::from(bucket.tags[w] == tag) << w;
            empty |= u32::from(bucket.tags[w] == 0) << w;
        }
        // Most keys are new, and find room where they belong.
        if alike == 0 && bucket.passed == 0 && empty != 0 {
            let w = empty.trailing_zeros() as usize;
            bucket.tags[w] = tag;
            bucket.ids[w] = id;
            self.len += 1;
            return None;
        }
        match self.find(key, key_of) {
            Some((b, w)) => Some(std::mem::replace(&mut self.buckets[b].ids[w], id)),
            None => {
                self.insert(key, id);
                None
            }
        }
    }

    /// Forgets `key`.
    pub fn remove(&mut self, key: u32, key_of: impl Fn(u32) -> u32) -> Option<u32> {
        let (found, w) = self.find(key, key_of)?;
        self.buckets[found].tags[w] = 0;
        self.len -= 1;
        let (mut b, _) = self.place(key);
        while b != found {
            let bucket = &mut self.buckets[b];
            if bucket.passed != u8::MAX {
                bucket.passed -= 1;
            }
            b = self.next(b);
        }
        Some(self.buckets[found].ids[w])
    }

    /// The region that the buckets take.
    pub(crate) fn region(&self) -> Region {
        self.buckets.region()
    }

    /// Entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// RAM held, in bytes.
    pub fn bytes(&self) -> usize {
        self.buckets.len() * size_of::<Bucket>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn buckets_agree_with_an_ordered_map_at_full_load() {
        let mut keys = vec![0u32; 5000];
        let mut map = Buckets::new(keys.len());
        let mut model: BTreeMap<u32, u32> = BTreeMap::new();
        let mut free: Vec<u32> = (0..5000).collect();
        let mut x = 88172645463325252u64;
        for _ in 0..200_000 {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            let key = (x >> 20) as u32 % 9000;
            if let Some(id) = model.get(&key).copied() {
                assert_eq!(map.get(key, |i| keys[i as usize]), Some(id));
                if let (true, Some(new)) = (x & 6 == 0, free.pop()) {
                    assert_eq!(map.put(key, new, |i| keys[i as usize]), Some(id));
                    keys[new as usize] = key;
                    model.insert(key, new);
                    free.push(id);
                } else if x & 1 == 0 {
                    assert_eq!(map.remove(key, |i| keys[i as usize]), Some(id));
                    model.remove(&key);
                    free.push(id);
                }
            } else {
                assert_eq!(map.get(key, |i| keys[i as usize]), None);
                if let Some(id) = free.pop() {
                    if x & 2 == 0 {
                        map.insert(key, id);
                    } else {
                        assert_eq!(map.put(key, id, |i| keys[i as usize]), None);
                    }
                    keys[id as usize] = key;
                    model.insert(key, id);
                }
            }
        }
        assert_eq!(map.len(), model.len());
    }
}
