//! The units the engine counts in, and how shards divide a volume.

/// Bytes in a block: the unit of placement and of checksums.
pub const BLOCK: u64 = 4096;
/// Mask of a block whose every sector counts: one bit for each of its eight sectors of 512 B.
pub const ALL: u8 = 0xff;
/// Bytes in a window: the unit of striping over shards and of destaging. No request part crosses one.
pub const WINDOW: u64 = 1 << 20;
/// Blocks in a window.
pub const WINDOW_BLOCKS: u64 = WINDOW / BLOCK;

/// Whether `n`, read from a device, can be a count of writes, starts or blocks: at a million a second 71 years do not count
/// further, so what is larger was never written by us. What passes leaves room to count on, to add those of all shards and
/// to turn blocks into bytes.
pub(crate) fn is_counted(n: u64) -> bool {
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

/// Which windows of a volume belong to one shard, and how that shard numbers them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stripe {
    /// This shard, from 0.
    pub shard: u16,
    /// Shards of the cache.
    pub shards: u16,
}

impl Stripe {
    /// The shard that owns the byte at `offset`.
    pub fn owner(offset: u64, shards: u16) -> u16 {
        ((offset / WINDOW) % u64::from(shards)) as u16
    }

    /// The shard's own number of a block of the volume.
    pub fn local(&self, block: u64) -> u32 {
        let window = block / WINDOW_BLOCKS;
        (window / u64::from(self.shards) * WINDOW_BLOCKS + block % WINDOW_BLOCKS) as u32
    }

    /// The block of the volume behind the shard's own number.
    pub fn global(&self, local: u32) -> u64 {
        let window = u64::from(local) / WINDOW_BLOCKS;
        (window * u64::from(self.shards) + u64::from(self.shard)) * WINDOW_BLOCKS
            + u64::from(local) % WINDOW_BLOCKS
    }

    /// Windows this shard owns of a volume of `size` bytes.
    pub fn windows(&self, size: u64) -> u64 {
        let all = size.div_ceil(WINDOW);
        let (n, me) = (u64::from(self.shards), u64::from(self.shard));
        (all + n - 1 - me) / n
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_and_global_numbers_are_inverse_and_dense() {
        for shards in 1..5u16 {
            let mut seen = vec![std::collections::BTreeSet::new(); usize::from(shards)];
            for block in 0..WINDOW_BLOCKS * 11 {
                let shard = Stripe::owner(block * BLOCK, shards);
                let s = Stripe { shard, shards };
                assert_eq!(s.global(s.local(block)), block);
                seen[usize::from(shard)].insert(s.local(block));
            }
            for (i, set) in seen.iter().enumerate() {
                let s = Stripe { shard: i as u16, shards };
                assert_eq!(set.len() as u64, s.windows(11 * WINDOW) * WINDOW_BLOCKS);
                assert_eq!(set.last().map(|l| *l as usize + 1), (!set.is_empty()).then_some(set.len()));
            }
        }
    }

    #[test]
    fn a_mask_covers_exactly_the_sectors_of_the_range() {
        assert_eq!(sector_mask(1, 4096, 8192), 0xff);
        assert_eq!(sector_mask(1, 4096 + 512, 4096 + 1536), 0b110);
        assert_eq!(sector_mask(1, 0, 4096), 0);
        assert_eq!(sector_mask(0, 3584, 9000 * 512), 0x80);
    }
}
