//! The wants of shards that share a core.

/// The wants of a shard of the core that it shares with others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Demand {
    /// Blocks dirty or about to be, and versions that a freeze keeps besides.
    pub(crate) dirty: u64,
    /// Blocks that a freeze has yet to bring to the core.
    pub(crate) pinned: u64,
    /// Blocks brought to it so far.
    pub(crate) destaged: u64,
    /// Blocks a second that it takes from all of them, the highest that one measured.
    pub(crate) rate: u64,
}

impl Demand {
    pub(crate) fn plus(self, other: Demand) -> Demand {
        Demand {
            dirty: self.dirty + other.dirty,
            pinned: self.pinned + other.pinned,
            destaged: self.destaged + other.destaged,
            rate: self.rate.max(other.rate),
        }
    }
}
