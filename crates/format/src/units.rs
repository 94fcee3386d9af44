//! The units the engine counts in, and how shards divide a volume.

/// Bytes in a block: the unit of placement and of checksums.
pub const BLOCK: u64 = 4096;
/// Mask of a block whose every sector counts: one bit for each of its eight sectors of 512 B.
pub const ALL: u8 = 0xff;
/// Bytes in a window: the unit of destaging, and the least that stripes over shards have. No request part crosses one.
pub const WINDOW: u64 = 1 << 20;
/// Blocks in a window.
pub const WINDOW_BLOCKS: u64 = WINDOW / BLOCK;

/// True if `n`, read from a device, can be a count of writes, starts or blocks: at a million a second 71
/// years do not count further, so what is larger was never written by us. A number that passes leaves room to
/// count on, to add those of all shards and to turn blocks into bytes.
pub fn is_counted(n: u64) -> bool {
    n < 1 << 51
}

/// Mask of the sectors of block `block` that lie inside the byte range `[from, to)` (multiples of 512).
pub fn sector_mask(block: u64, from: u64, to: u64) -> u8 {
    let start = block * BLOCK;
    let lo = from.max(start) - start;
    let hi = to.min(start + BLOCK).saturating_sub(start);
    if hi <= lo {
        return 0;
    }
    let (lo, hi) = ((lo / 512) as u32, (hi / 512) as u32);
    (((1u16 << hi) - 1) ^ ((1u16 << lo) - 1)) as u8
}

/// The division of a volume among shards: in stripes of as many bytes each, one shard's after the other's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Striping {
    /// Shards of the cache.
    pub shards: u16,
    /// Exponent of the windows in a stripe, a power of two.
    pub exponent: u8,
}

impl Striping {
    /// The largest exponent: 64 GiB.
    pub const MOST: u8 = 16;

    /// Stripes of one window.
    pub const fn by_window(shards: u16) -> Striping {
        Striping { shards, exponent: 0 }
    }

    /// The shard that owns the byte at `offset`.
    pub fn owner(self, offset: u64) -> u16 {
        (((offset / WINDOW) >> self.exponent) % u64::from(self.shards)) as u16
    }

    /// The part of one shard.
    pub const fn of(self, shard: u16) -> Stripe {
        Stripe { shard, by: self }
    }

    /// True if blocks of each shard of a volume of `length` bytes have numbers of 32 bits.
    pub fn can_count(self, length: u64) -> bool {
        // None has more than the first.
        self.of(0).windows(length).checked_mul(WINDOW_BLOCKS).is_some_and(|n| n < u64::from(u32::MAX))
    }
}

/// The windows of a volume that belong to one shard, and how that shard numbers them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stripe {
    /// This shard, from 0.
    pub shard: u16,
    /// The division of the volume among all of them.
    pub by: Striping,
}

impl Stripe {
    /// The shard's own number of a block of the volume.
    pub fn local(&self, block: u64) -> u32 {
        let (window, bits) = (block / WINDOW_BLOCKS, self.by.exponent);
        let before = ((window >> bits) / u64::from(self.by.shards)) << bits;
        ((before + (window & ((1 << bits) - 1))) * WINDOW_BLOCKS + block % WINDOW_BLOCKS) as u32
    }

    /// The block of the volume behind the shard's own number.
    pub fn global(&self, local: u32) -> u64 {
        let (window, bits) = (u64::from(local) / WINDOW_BLOCKS, self.by.exponent);
        let stripe = (window >> bits) * u64::from(self.by.shards) + u64::from(self.shard);
        ((stripe << bits) + (window & ((1 << bits) - 1))) * WINDOW_BLOCKS + u64::from(local) % WINDOW_BLOCKS
    }

    /// Windows this shard owns of a volume of `size` bytes.
    pub fn windows(&self, size: u64) -> u64 {
        let (all, bits) = (size.div_ceil(WINDOW), self.by.exponent);
        let (n, me) = (u64::from(self.by.shards), u64::from(self.shard));
        let (whole, rest) = (all >> bits, all & ((1 << bits) - 1));
        let last = if whole % n == me { rest } else { 0 };
        (((whole + n - 1 - me) / n) << bits) + last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_and_global_numbers_are_inverse_and_dense() {
        for (shards, exponent, all) in (1..5).flat_map(|n| [(n, 0, 11), (n, 1, 11), (n, 2, 13), (n, 3, 33)]) {
            let by = Striping { shards, exponent };
            let mut seen = vec![std::collections::BTreeSet::new(); usize::from(shards)];
            for block in 0..WINDOW_BLOCKS * all {
                let shard = by.owner(block * BLOCK);
                let s = by.of(shard);
                assert_eq!(s.global(s.local(block)), block);
                seen[usize::from(shard)].insert(s.local(block));
            }
            for (i, set) in seen.iter().enumerate() {
                let s = by.of(i as u16);
                assert_eq!(set.len() as u64, s.windows(all * WINDOW) * WINDOW_BLOCKS, "{s:?}");
                assert_eq!(set.last().map(|l| *l as usize + 1), (!set.is_empty()).then_some(set.len()));
            }
        }
    }

    #[test]
    fn a_volume_of_several_shards_reaches_beyond_16_tib() {
        let tib = |n: u64| n << 40;
        for exponent in [0, 5] {
            let by = |shards| Striping { shards, exponent };
            assert!(by(1).can_count(tib(16) - (64 << 20)) && !by(1).can_count(tib(16)));
            assert!(by(2).can_count(tib(17)) && !by(2).can_count(tib(32)));
            let last = tib(17) / BLOCK - 1;
            let owner = by(2).owner(last * BLOCK);
            assert_eq!(by(2).of(owner).global(by(2).of(owner).local(last)), last);
        }
        assert!(!Striping { shards: 64, exponent: Striping::MOST }.can_count(u64::MAX));
    }

    #[test]
    fn a_mask_covers_exactly_the_sectors_of_the_range() {
        assert_eq!(sector_mask(1, 4096, 8192), 0xff);
        assert_eq!(sector_mask(1, 4096 + 512, 4096 + 1536), 0b110);
        assert_eq!(sector_mask(1, 0, 4096), 0);
        assert_eq!(sector_mask(0, 3584, 9000 * 512), 0x80);
    }
}
