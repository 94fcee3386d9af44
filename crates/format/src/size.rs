//! A core that gets another size: what its superblock says, and how far a cache can follow.

use crate::superblock::{MAX_REGIONS, Superblock};
use crate::units::{Striping, WINDOW};
use loligo_block::keys::SHARDS;
use thiserror::Error;

/// A size that a cache cannot follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum TooLarge {
    /// Blocks of a shard have numbers of 32 bits.
    #[error(
        "the core grew beyond 16 TiB a shard: flush and release the cache, and make one with more {shards}", shards = SHARDS
    )]
    Shards,
    /// A checkpoint's root has no room for so many regions.
    #[error(
        "the core grew more than a cache of its first size can follow: flush and release the cache with the core at its \
         old size, and make a new one"
    )]
    Regions,
}

/// Bytes of a core of `size` that are exported with a reserve of so many percent.
pub fn exported(size: u64, reserve: u8) -> u64 {
    if reserve == 0 { size } else { size / 100 * (100 - u64::from(reserve)) / WINDOW * WINDOW }
}

/// Checks that a cache can follow to `length` bytes.
///
/// # Errors
/// If it has too many blocks for a shard, or too many regions for a root.
pub fn check(length: u64, by: Striping, region: u64) -> Result<(), TooLarge> {
    if !by.can_count(length) {
        return Err(TooLarge::Shards);
    }
    if length.div_ceil(region) > MAX_REGIONS {
        return Err(TooLarge::Regions);
    }
    Ok(())
}

impl Superblock {
    /// The core has `bytes` now, which is more than before: the volume grows with it.
    ///
    /// # Errors
    /// If the cache cannot follow; nothing is changed then.
    pub fn grow(&mut self, bytes: u64) -> Result<(), TooLarge> {
        let length = exported(bytes, self.core_reserve).max(self.data_length);
        check(length, self.striping(), self.region)?;
        (self.core.size, self.data_length) = (bytes, length);
        Ok(())
    }

    /// The core has `bytes` now, and nothing is cached behind that (`Opened::cut_off` of the engine).
    pub fn shrink(&mut self, bytes: u64) {
        self.cut = None;
        self.core.size = self.core.size.min(bytes);
        self.data_length = self.data_length.min(bytes);
    }

    /// The core ends at `bytes`, while the engine reaches further.
    pub fn note_cut(&mut self, bytes: u64) {
        let end = self.cut.unwrap_or(self.data_length).min(bytes);
        self.cut = (end < self.data_length).then_some(end);
    }
}
