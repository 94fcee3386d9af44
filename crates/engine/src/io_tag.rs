//! The tag of an operation: whose it is, and which of theirs.

use crate::api::Nanos;
use loligo_block::{Buf, IoError, Tag};

/// The asker of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IoTag {
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

/// An operation that is over.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) now: Nanos,
    /// The task or job that asked for it, and which of its operations it was; 0 where it was neither's.
    pub(crate) key: usize,
    pub(crate) sub: u32,
    /// The buffer of a read.
    pub(crate) buf: Option<Buf>,
    /// Success, or why not.
    pub(crate) result: Result<(), IoError>,
}

impl Done {
    /// The operation with this tag is over.
    #[inline]
    pub(crate) fn new(now: Nanos, tag: IoTag, buf: Option<Buf>, result: Result<(), IoError>) -> Done {
        let (key, sub) = match tag {
            IoTag::Task(key, sub) | IoTag::Destage(key, sub) => (key, sub),
            _ => (0, 0),
        };
        Done { now, key, sub, buf, result }
    }
}

const SUB: u64 = 0xff_ffff;
const KIND_SHIFT: u32 = 56;
/// Bits of a tag that an engine uses. A program that runs several over one device may use those above.
pub const TAG_BITS: u32 = KIND_SHIFT + 3;

impl IoTag {
    pub(crate) fn tag(self) -> Tag {
        let (kind, key, sub) = match self {
            IoTag::Task(k, s) => (1, k as u64, s),
            IoTag::Data(s) => (2, u64::from(s), 0),
            IoTag::Frame(s) => (3, u64::from(s), 0),
            IoTag::CacheFlush => (4, 0, 0),
            IoTag::CoreFlush => (5, 0, 0),
            IoTag::Destage(k, s) => (6, k as u64, s),
            IoTag::Checkpoint => (7, 0, 0),
        };
        kind << KIND_SHIFT | key << 24 | u64::from(sub) & SUB
    }

    pub(crate) fn of(tag: Tag) -> IoTag {
        let (key, sub) = (tag >> 24 & 0xffff_ffff, (tag & SUB) as u32);
        match tag >> KIND_SHIFT {
            1 => IoTag::Task(key as usize, sub),
            2 => IoTag::Data(key as u32),
            3 => IoTag::Frame(key as u32),
            4 => IoTag::CacheFlush,
            5 => IoTag::CoreFlush,
            6 => IoTag::Destage(key as usize, sub),
            7 => IoTag::Checkpoint,
            k => unreachable!("tag of kind {k} was never issued"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_says_who_asked_and_for_what() {
        let all = [
            IoTag::Task(7, 0xff_ffff),
            IoTag::Task(u32::MAX as usize, 0),
            IoTag::Data(u32::MAX),
            IoTag::Frame(3),
            IoTag::CacheFlush,
            IoTag::CoreFlush,
            IoTag::Destage(63, 1 << 22 | 5),
            IoTag::Checkpoint,
        ];
        for tag in all {
            assert_eq!(IoTag::of(tag.tag()), tag);
            assert!(tag.tag() < 1 << TAG_BITS, "{tag:?}");
        }
    }

    #[test]
    fn only_tasks_and_jobs_have_a_key() {
        let key = |tag| {
            let done = Done::new(5, tag, None, Ok(()));
            (done.key, done.sub)
        };
        assert_eq!(key(IoTag::Task(7, 2)), (7, 2));
        assert_eq!(key(IoTag::Destage(3, 9)), (3, 9));
        assert_eq!((key(IoTag::Frame(4)), key(IoTag::CoreFlush)), ((0, 0), (0, 0)));
    }
}
