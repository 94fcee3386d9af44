//! The source of a request: the one place that knows how a [`ReqId`] says so.
//!
//! | bits from the top | source |
//! |---|---|
//! | 32 generation (not 0), 16 index, 16 place | a connection |
//! | 32 of 0, then 1, 19 index, 12 tag | a queue |
//! | 33 of 0, then 1, 18 index, 12 key | a mount |
//! | 34 of 0, 30 key | the process itself |

use crate::ConnId;
use loligo_block::ReqId;

const PLACE_BITS: u32 = 16;
const KEY_BITS: u32 = 12;
/// From these ids on they are of the source that is named.
const MOUNTS: ReqId = 1 << 30;
const QUEUES: ReqId = 1 << 31;

/// Requests of a mount or a queue under way at most.
pub(crate) const KEYS: usize = 1 << KEY_BITS;

/// The source of a request, of all who ask one thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// This process, without an export: who waits is known by this key.
    Local(u32),
    /// A mount of the thread.
    Mount {
        /// The index of the source.
        index: u32,
        /// Its request.
        key: u16,
    },
    /// A queue of a block device, on the thread.
    Queue {
        /// The index of the source.
        index: u32,
        /// The tag that the kernel gave the request.
        tag: u16,
    },
    /// A connection of the thread's server.
    Connection {
        /// The connection.
        conn: ConnId,
        /// Its request.
        place: u16,
    },
}

impl Source {
    /// The id that says so.
    #[inline]
    pub fn id(self) -> ReqId {
        match self {
            Source::Local(key) => {
                debug_assert!(ReqId::from(key) < MOUNTS, "{self:?}");
                ReqId::from(key)
            }
            Source::Mount { index, key } => {
                debug_assert!(ReqId::from(index) < MOUNTS >> KEY_BITS && usize::from(key) < KEYS, "{self:?}");
                MOUNTS | ReqId::from(index) << KEY_BITS | ReqId::from(key)
            }
            Source::Queue { index, tag } => {
                debug_assert!(ReqId::from(index) < QUEUES >> KEY_BITS && usize::from(tag) < KEYS, "{self:?}");
                QUEUES | ReqId::from(index) << KEY_BITS | ReqId::from(tag)
            }
            Source::Connection { conn, place } => conn.to_u64() << PLACE_BITS | ReqId::from(place),
        }
    }

    /// The source of the request with this id.
    #[inline]
    pub fn of(id: ReqId) -> Source {
        let key = (id & (KEYS as ReqId - 1)) as u16;
        if let Some(conn) = ConnId::from_u64(id >> PLACE_BITS) {
            Source::Connection { conn, place: id as u16 }
        } else if id >= QUEUES {
            Source::Queue { index: ((id & (QUEUES - 1)) >> KEY_BITS) as u32, tag: key }
        } else if id >= MOUNTS {
            Source::Mount { index: ((id & (MOUNTS - 1)) >> KEY_BITS) as u32, key }
        } else {
            Source::Local(id as u32)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection(generation: u64, index: u64, place: u16) -> Source {
        let conn = ConnId::from_u64(generation << 16 | index).expect("a generation");
        Source::Connection { conn, place }
    }

    #[test]
    fn every_source_comes_back_from_its_id() {
        let all = [
            Source::Local(0),
            Source::Local((1 << 30) - 1),
            Source::Mount { index: 0, key: 0 },
            Source::Mount { index: (1 << 18) - 1, key: 0xfff },
            Source::Queue { index: 0, tag: 0 },
            Source::Queue { index: (1 << 19) - 1, tag: 0xfff },
            connection(1, 0, 0),
            connection(0xffff_ffff, 0xffff, 0xffff),
        ];
        for source in all {
            assert_eq!(Source::of(source.id()), source);
        }
        assert!(all.is_sorted_by_key(|s| s.id()), "the ranges lie one behind the other");
    }

    #[test]
    fn every_id_comes_back_from_its_source() {
        for bit in 0..64 {
            for id in [1u64 << bit, (1 << bit) | 1, (1 << bit) | 0xabc, u64::MAX >> bit] {
                assert_eq!(Source::of(id).id(), id, "{id:#x}");
            }
        }
    }

    #[test]
    fn the_ranges_of_ids_stay_as_they_were() {
        assert_eq!(Source::Mount { index: 2, key: 3 }.id(), (1 << 30) | (2 << 12) | 3);
        assert_eq!(Source::Queue { index: 2, tag: 3 }.id(), (1 << 31) | (2 << 12) | 3);
        assert_eq!(connection(1, 2, 3).id(), (1 << 32) | (2 << 16) | 3);
    }
}
