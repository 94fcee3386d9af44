//! A device's own description.

/// Bytes in the unit that every size and offset is a multiple of.
pub const SECTOR: u64 = 512;

/// Size and traits of a block device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes; a multiple of [`SECTOR`].
    pub size: u64,
    /// Smallest unit it accepts, bytes (512 or 4,096).
    pub logical_block: u32,
    /// Unit it writes without reading first, bytes.
    pub physical_block: u32,
    /// True if a completed write may be lost at power loss until a flush.
    pub volatile_cache: bool,
    /// True if it has heads to move.
    pub rotational: bool,
    /// True if zeroed or discarded ranges can be deallocated and then read as zeros.
    pub can_unmap: bool,
}
