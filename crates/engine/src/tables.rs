//! Sizes of what is hashed.

/// The sizes of a shard's hashed tables. Things that share a place wait for more, or are believed less, than
/// they must.
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
