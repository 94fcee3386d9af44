//! Sizes of what is hashed.

/// How large a shard's hashed tables are. What shares a place waits for more, or is believed less, than it must.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tables {
    /// Granules of 16 blocks that remember their last change.
    pub stamps: usize,
    /// Blocks that remember the frame of their newest version, at most; a power of two.
    pub recent: usize,
    /// Lists of locks, by window.
    pub locks: usize,
}

impl Default for Tables {
    fn default() -> Tables {
        Tables { stamps: 1 << 16, recent: 1 << 18, locks: 4096 }
    }
}
