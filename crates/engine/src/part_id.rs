//! The id of a part of a request: the one place that knows what a [`ReqId`] between threads says.
//!
//! | bits from the top | meaning |
//! |---|---|
//! | 8 | the thread that asks |
//! | 32 | the request there |
//! | 24 | the part of it |
//!
//! The ids of clients are others (`loligo_export::Source`): a router keeps them with the request.

use loligo_block::ReqId;

const PART_BITS: u32 = 24;
const ORIGIN_SHIFT: u32 = 56;

/// The name of one part of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PartId {
    /// The request, by its place in the router.
    pub(crate) request: usize,
    /// The part, from 0 on.
    pub(crate) part: u32,
}

impl PartId {
    /// The id within the thread that asks.
    #[inline]
    pub(crate) fn id(self) -> ReqId {
        debug_assert!(
            self.request < 1 << (ORIGIN_SHIFT - PART_BITS) && self.part < 1 << PART_BITS,
            "{self:?}"
        );
        (self.request as u64) << PART_BITS | u64::from(self.part)
    }

    /// From [`PartId::id`].
    #[inline]
    pub(crate) fn of(id: ReqId) -> PartId {
        PartId { request: (id >> PART_BITS) as usize, part: (id & ((1 << PART_BITS) - 1)) as u32 }
    }
}

/// `id`, and that thread `origin` asks.
#[inline]
pub(crate) fn from_thread(id: ReqId, origin: u16) -> ReqId {
    debug_assert!(origin < 1 << 8 && id < 1 << ORIGIN_SHIFT, "thread {origin}, id {id:#x}");
    id | u64::from(origin) << ORIGIN_SHIFT
}

/// The thread that asks, and the id there.
#[inline]
pub(crate) fn thread_of(id: ReqId) -> (u16, ReqId) {
    ((id >> ORIGIN_SHIFT) as u16, id & ((1 << ORIGIN_SHIFT) - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_comes_back_from_its_id() {
        for request in [0, 1, u32::MAX as usize] {
            for part in [0, 1, (1 << PART_BITS) - 1] {
                let id = PartId { request, part };
                assert_eq!(PartId::of(id.id()), id);
            }
        }
    }

    #[test]
    fn a_thread_comes_back_from_what_it_asks() {
        for origin in [0, 1, 255] {
            for id in [0, PartId { request: u32::MAX as usize, part: 5 }.id()] {
                assert_eq!(thread_of(from_thread(id, origin)), (origin, id));
            }
        }
    }
}
