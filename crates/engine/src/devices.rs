//! The properties of the two devices that the engine goes by.

use loligo_block::Geometry;

/// The devices, as the engine must know them.
#[derive(Debug, Clone, Copy)]
pub struct Devices {
    /// Journal frames are multiples of this: 512, or the cache's logical block if larger.
    pub journal_unit: u32,
    /// The cache may lose completed writes at power loss.
    pub cache_volatile: bool,
    /// The core may.
    pub core_volatile: bool,
    /// Discarded space of the core reads as zeros.
    pub core_unmaps: bool,
    /// The core takes groups of writes ([`loligo_block::OpKind::WriteMany`]), and wants whatever is destaged in them.
    pub core_groups: bool,
    /// Writes that may pass the cache by.
    pub core_large: Large,
    /// Others take snapshots of the core: what is dirty is kept within [`Params::snapshot_deadline`](crate::params::Params).
    pub core_snapshots: bool,
    /// Pages of a checkpoint being written at a time ([`PAGE_WRITES`] unless something else is to be tried).
    pub page_writes: u32,
    /// Most slots that one write of data takes, if they follow one another ([`SLOT_RUN`] unless something else is to be tried).
    pub slot_run: u32,
}

impl Devices {
    /// Units of 512 B, and nothing that asks the engine for more: what is written stays, nobody wants groups or takes snapshots.
    pub const PLAIN: Devices = Devices {
        journal_unit: 512,
        cache_volatile: false,
        core_volatile: false,
        core_unmaps: false,
        core_groups: false,
        core_large: Large::NEVER,
        core_snapshots: false,
        page_writes: PAGE_WRITES,
        slot_run: SLOT_RUN,
    };

    /// A cache and a core that say this of themselves.
    pub fn of(cache: Geometry, core: Geometry) -> Devices {
        Devices {
            journal_unit: cache.logical_block.max(512),
            cache_volatile: cache.volatile_cache,
            core_volatile: core.volatile_cache,
            core_unmaps: core.can_unmap,
            ..Devices::PLAIN
        }
    }
}

/// From which size on (bytes, whole blocks) a write costs the core as little at once as when destaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Large {
    /// From here on where the cache has no room to spare.
    pub least: u64,
    /// From here on whatever room there is.
    pub always: u64,
}

impl Large {
    /// No size: everything is best gathered.
    pub const NEVER: Large = Large { least: u64::MAX, always: u64::MAX };
}

/// Pages of a checkpoint being written at a time.
pub const PAGE_WRITES: u32 = 16;

/// Most slots that one write of data takes: 1 MiB.
pub const SLOT_RUN: u32 = 256;
