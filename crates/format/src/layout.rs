//! The place of everything on the cache device. `docs/format.md` draws the same picture.

use crate::page::PER_PAGE;
use crate::units::BLOCK;
use loligo_block::keys::{CACHE_SIZE, SHARDS};
use thiserror::Error;

/// Smallest cache, bytes.
pub const MIN_CACHE: u64 = 24 << 20;
/// Most shards a superblock has room for.
pub const MAX_SHARDS: u16 = 64;
/// The first shard's region begins here; before it are the two superblocks.
pub const SHARD_BASE: u64 = 1 << 20;
/// The bytes of the two superblocks.
pub const SUPERBLOCKS: [u64; 2] = [0, 512 << 10];
/// Distance of a shard's two roots.
const ROOT_STRIDE: u64 = 32 << 10;
const ROOT_AREA: u64 = 64 << 10;
/// The bytes of the first shard's two roots and its first directory in every layout.
pub const FIRST_MARKS: [u64; 3] = [SHARD_BASE, SHARD_BASE + ROOT_STRIDE, SHARD_BASE + ROOT_AREA];
const JOURNAL_MAX: u64 = 64 << 20;
const JOURNAL_MIN: u64 = 512 << 10;

/// A geometry that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LayoutError {
    /// Below [`MIN_CACHE`].
    #[error("the cache has {0} bytes; it needs at least 24 MiB: give a larger {cache_size}", cache_size = CACHE_SIZE)]
    TooSmall(u64),
    /// Too many shards for the size, or more than [`MAX_SHARDS`].
    #[error("{0} shards do not fit: give a smaller {shards} (at most 64, at least 6 MiB of cache each)", shards = SHARDS)]
    Shards(u16),
    /// More blocks than a shard can number.
    #[error("the core has more than 16 TiB a shard: give {shards:#} {0} or more", shards = SHARDS)]
    CoreTooLarge(u16),
}

/// The region of one shard on the cache device; all offsets in bytes from its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShardLayout {
    /// The two checkpoint roots.
    pub roots: [u64; 2],
    /// The two page directories.
    pub dirs: [u64; 2],
    /// Bytes of a directory.
    pub dir_len: u64,
    /// The two places of page 0; page `i` follows `i * 4096` behind.
    pub pages: [u64; 2],
    /// Pages of the index image.
    pub page_count: u32,
    /// The journal ring.
    pub journal: u64,
    /// Bytes of the ring.
    pub journal_len: u64,
    /// Slot 0.
    pub data: u64,
    /// Slots.
    pub slots: u32,
    /// Of those, the ones that exist: fewer where the device is a share that may grow.
    pub limit: u32,
}

impl ShardLayout {
    /// The byte at which `slot`'s 4 KiB begin.
    pub fn slot(&self, slot: u32) -> u64 {
        self.data + u64::from(slot) * BLOCK
    }

    /// The byte at which copy `which` of page `page` begins.
    pub fn page(&self, page: u32, which: u8) -> u64 {
        self.pages[usize::from(which)] + u64::from(page) * BLOCK
    }
}

/// The division of a cache device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Bytes used of the device.
    pub cache_size: u64,
    /// Bytes of each shard's region.
    pub shard_len: u64,
    /// Bytes of each journal ring.
    pub journal_len: u64,
    /// Shards.
    pub shards: u16,
    /// Slots in use in each, at most. Not on the device: the pool knows which extents there are.
    pub limit: u32,
}

impl Layout {
    /// Divides `cache_size` bytes among `shards`; `journal_len` overrides the size of each ring (0: chosen).
    ///
    /// # Errors
    /// [`LayoutError`] where the parts do not fit.
    pub fn new(cache_size: u64, shards: u16, journal_len: u64) -> Result<Layout, LayoutError> {
        if cache_size < MIN_CACHE {
            return Err(LayoutError::TooSmall(cache_size));
        }
        if shards == 0 || shards > MAX_SHARDS || (cache_size - SHARD_BASE) / u64::from(shards) < (5 << 20) {
            return Err(LayoutError::Shards(shards));
        }
        let cache_size = cache_size / BLOCK * BLOCK;
        let shard_len = (cache_size - SHARD_BASE) / u64::from(shards) / BLOCK * BLOCK;
        let journal_len = match journal_len {
            0 => (shard_len / 64).clamp(JOURNAL_MIN, JOURNAL_MAX),
            n => n.clamp(128 << 10, shard_len / 4),
        } / BLOCK
            * BLOCK;
        Ok(Layout { cache_size, shard_len, journal_len, shards, limit: u32::MAX })
    }

    /// The region of shard `shard`.
    pub fn shard(&self, shard: u16) -> ShardLayout {
        let base = SHARD_BASE + u64::from(shard) * self.shard_len;
        let space = self.shard_len - ROOT_AREA - self.journal_len;
        // Two image pages of 4 KiB per PER_PAGE slots, and two directory entries of five bytes per page.
        let mut slots = space * PER_PAGE as u64 / (PER_PAGE as u64 * BLOCK + 2 * BLOCK + 16);
        loop {
            let page_count = slots.div_ceil(PER_PAGE as u64);
            let dir_len = crate::page::directory_len(page_count as u32).next_multiple_of(BLOCK);
            let meta = 2 * dir_len + 2 * page_count * BLOCK;
            if meta + slots * BLOCK <= space {
                let dirs = base + ROOT_AREA;
                let pages = dirs + 2 * dir_len;
                let journal = pages + 2 * page_count * BLOCK;
                return ShardLayout {
                    roots: [base, base + ROOT_STRIDE],
                    dirs: [dirs, dirs + dir_len],
                    dir_len,
                    pages: [pages, pages + page_count * BLOCK],
                    page_count: page_count as u32,
                    journal,
                    journal_len: self.journal_len,
                    data: journal + self.journal_len,
                    slots: slots as u32,
                    limit: self.limit.min(slots as u32),
                };
            }
            slots -= 1;
        }
    }

    /// Bytes of data the slots of all shards hold.
    pub fn data_bytes(&self) -> u64 {
        (0..self.shards).map(|s| u64::from(self.shard(s).limit) * BLOCK).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_never_overlap_and_stay_inside_the_device() {
        for (size, shards) in
            [(24 << 20, 1), (24 << 20, 4), (256 << 20, 1), (64u64 << 30, 3), (25_165_824 + 4096 * 7, 2)]
        {
            let l = Layout::new(size, shards, 0).unwrap();
            let mut end = SHARD_BASE;
            for s in 0..shards {
                let r = l.shard(s);
                let parts = [
                    (r.roots[0], 4096),
                    (r.roots[1], 4096),
                    (r.dirs[0], r.dir_len),
                    (r.dirs[1], r.dir_len),
                    (r.pages[0], u64::from(r.page_count) * 4096),
                    (r.pages[1], u64::from(r.page_count) * 4096),
                    (r.journal, r.journal_len),
                    (r.data, u64::from(r.slots) * 4096),
                ];
                for (at, len) in parts {
                    assert!(at >= end && at % 4096 == 0, "{size} {shards} {s}");
                    end = at + len;
                }
                assert!(u64::from(r.page_count) * PER_PAGE as u64 >= u64::from(r.slots));
                assert!(end <= SHARD_BASE + u64::from(s + 1) * l.shard_len);
            }
            assert!(end <= size && l.data_bytes() * 100 > size * 80, "{} of {size}", l.data_bytes());
        }
    }

    #[test]
    fn a_cache_below_24_mib_is_refused() {
        assert_eq!(Layout::new((24 << 20) - 1, 1, 0), Err(LayoutError::TooSmall((24 << 20) - 1)));
    }
}
