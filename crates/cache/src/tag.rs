//! What an operation's tag says: whose it is, and which of theirs.

use loligo_block::Tag;

/// Who asked for an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    /// Piece `1` of task `0`.
    Task(usize, u32),
    /// Data that the frame with these low sequence bits speaks of.
    Data(u32),
    /// The frame with these low sequence bits.
    Frame(u32),
    /// The flush of the cache device.
    CacheFlush,
    /// The flush of the core.
    CoreFlush,
    /// Operation `1` of destage job `0`.
    Destage(usize, u32),
    /// A write of the checkpoint.
    Checkpoint,
}

const SUB: u64 = 0xff_ffff;
const KIND_SHIFT: u32 = 56;
/// Bits of a tag that an engine uses. Whoever runs several over one device may use those above.
pub const TAG_BITS: u32 = KIND_SHIFT + 3;

impl Who {
    pub(crate) fn tag(self) -> Tag {
        let (kind, key, sub) = match self {
            Who::Task(k, s) => (1, k as u64, s),
            Who::Data(s) => (2, u64::from(s), 0),
            Who::Frame(s) => (3, u64::from(s), 0),
            Who::CacheFlush => (4, 0, 0),
            Who::CoreFlush => (5, 0, 0),
            Who::Destage(k, s) => (6, k as u64, s),
            Who::Checkpoint => (7, 0, 0),
        };
        kind << KIND_SHIFT | key << 24 | u64::from(sub) & SUB
    }

    pub(crate) fn of(tag: Tag) -> Who {
        let (key, sub) = (tag >> 24 & 0xffff_ffff, (tag & SUB) as u32);
        match tag >> KIND_SHIFT {
            1 => Who::Task(key as usize, sub),
            2 => Who::Data(key as u32),
            3 => Who::Frame(key as u32),
            4 => Who::CacheFlush,
            5 => Who::CoreFlush,
            6 => Who::Destage(key as usize, sub),
            7 => Who::Checkpoint,
            k => unreachable!("tag of kind {k} was never issued"),
        }
    }
}
