//! A change under way: what was asked for, and the route it has taken.
//!
//! A [`Route`] is a state machine of its own. Each of its states owns what it needs and nothing else: slots and old versions
//! exist while blocks are merged, the claim of a window from the write to the core on, an outcome once there is one.

use crate::api::Nanos;
use crate::bug::{Bug, planted};
use crate::index::Meta;
use loligo_block::{Buf, OpKind, ReqError, ReqId, ReqKind, Request, Shared};
use loligo_format::units::{BLOCK, sector_mask};
use smallvec::SmallVec;
use std::ops::RangeInclusive;

/// The content to come.
#[derive(Debug, Clone)]
pub(crate) enum Content {
    Data(Shared),
    Zero { unmap: bool },
}

impl Content {
    /// As `len` bytes for the core.
    pub(crate) fn for_core(self, len: u64) -> OpKind {
        match self {
            Content::Data(data) => OpKind::Write { data, fua: false },
            Content::Zero { unmap } => OpKind::WriteZeroes { len, unmap },
        }
    }
}

/// The change that was asked for, as far as every route must know it.
#[derive(Debug)]
pub(crate) struct Header {
    /// Taken by the answer: from then on the client is told nothing more.
    id: Option<ReqId>,
    pub(crate) since: Nanos,
    content: Content,
    /// First and last block, the shard's numbers.
    pub(crate) first: u32,
    pub(crate) last: u32,
    /// First block of the volume.
    first_global: u64,
    /// Bytes within the volume.
    pub(crate) offset: u64,
    pub(crate) len: u64,
    /// Bytes of the request it belongs to, where the core could take it past the cache; else 0.
    pub(crate) whole: u64,
    /// It is answered only when it is durable.
    pub(crate) fua: bool,
    /// The request has other parts.
    pub(crate) split: bool,
    /// Zeros that need not be.
    pub(crate) discard: bool,
    /// Part of a stream that goes past the cache.
    pub(crate) sequential: bool,
    /// The core refused it: the intent of its region stays until the cache has it.
    pub(crate) in_doubt: bool,
    /// The pacer has held it back, which counts once.
    pub(crate) paced: bool,
}

impl Header {
    /// A write of `len` bytes at `offset` that came at `since`: no FUA, no discard, nothing known of its stream.
    #[inline]
    pub(crate) fn new(
        id: ReqId,
        since: Nanos,
        blocks: RangeInclusive<u32>,
        (offset, len): (u64, u64),
        content: Content,
    ) -> Header {
        let (first, last) = blocks.into_inner();
        Header {
            id: Some(id),
            since,
            content,
            first,
            last,
            first_global: offset / BLOCK,
            offset,
            len,
            whole: 0,
            fua: false,
            split: false,
            discard: false,
            sequential: false,
            in_doubt: false,
            paced: false,
        }
    }

    /// The request's id, unless it is answered for.
    pub(crate) fn id(&self) -> Option<ReqId> {
        self.id
    }

    /// Takes the request's id, once: a poisoned cache answers for everybody.
    pub(crate) fn take_id(&mut self) -> Option<ReqId> {
        self.id.take()
    }

    /// The request once more, with its id taken as by [`Header::take_id`].
    pub(crate) fn again(&mut self, bug: Option<Bug>) -> Option<Request> {
        let id = self.take_id()?;
        let kind = match &self.content {
            _ if planted(bug, Bug::ReplayedWithoutPayload) => ReqKind::WriteZeroes { unmap: false },
            _ if self.discard => ReqKind::Discard,
            Content::Data(data) => ReqKind::Write(data.clone()),
            Content::Zero { unmap } => ReqKind::WriteZeroes { unmap: *unmap },
        };
        Some(Request { id, kind, offset: self.offset, len: self.len, fua: self.fua })
    }

    /// Blocks that it touches.
    pub(crate) fn blocks(&self) -> u32 {
        self.last - self.first + 1
    }

    /// The content to come. It never leaves the change.
    pub(crate) fn content(&self) -> &Content {
        &self.content
    }

    /// True if it is zeros for the core.
    pub(crate) fn is_zero(&self) -> bool {
        matches!(self.content, Content::Zero { .. })
    }

    /// Its zeros are data from now on, for the cache.
    pub(crate) fn zeros_as_data(&mut self) {
        if self.is_zero() {
            self.content = Content::Data(Buf::zeroed(self.len as usize).freeze());
        }
    }

    /// The sectors of `block` it covers.
    pub(crate) fn mask(&self, block: u32) -> u8 {
        let global = self.first_global + u64::from(block - self.first);
        sector_mask(global, self.offset, self.offset + self.len)
    }

    /// Its payload within `block`: the bytes, and at which byte of the block they begin.
    pub(crate) fn piece(&self, block: u32) -> (u64, u64, usize) {
        let start = (self.first_global + u64::from(block - self.first)) * BLOCK;
        let from = self.offset.max(start);
        let to = (self.offset + self.len).min(start + BLOCK);
        (from - self.offset, to - self.offset, (from - start) as usize)
    }
}

/// An old version that a partial write needs.
#[derive(Debug)]
pub(crate) struct Merge {
    pub(crate) block: u32,
    pub(crate) meta: Meta,
    pub(crate) ticket: u64,
    pub(crate) buf: Option<Buf>,
}

/// Old content of partly written blocks is being read.
#[derive(Debug)]
pub(crate) struct Merging {
    /// Slots for the next blocks, in order.
    pub(crate) slots: SmallVec<[u32; 2]>,
    pub(crate) merges: SmallVec<[Merge; 2]>,
    /// Reads under way; never 0.
    pub(crate) pending: u32,
    /// Dirty content could not be read.
    pub(crate) lost: bool,
}

/// A change on its way into the cache.
#[derive(Debug)]
pub(crate) struct Back {
    /// The first block that is not in the journal's hands.
    pub(crate) next: u32,
    /// The last frame with a record of it; 0: there is none.
    pub(crate) seq: u64,
    /// The answer waits until the dirty blocks are in the core.
    pub(crate) sync: bool,
    pub(crate) step: BackStep,
}

/// The progress of a change into the cache.
#[derive(Debug)]
pub(crate) enum BackStep {
    /// It waits for slots, journal room or the pacer.
    Admission,
    /// It waits for old content.
    Merging(Merging),
    /// Records are in the journal's hands.
    Recording,
    /// It has taken effect, and waits for its dirty blocks to reach the core.
    Destage,
}

/// The progress of a change that goes to the core first. It owns its window from `Writing` on.
#[derive(Debug)]
pub(crate) enum CoreStep {
    /// It waits for an intent to be durable.
    Intent,
    /// It waits for a destage job that owns the window.
    Claim,
    /// The core is being written.
    Writing,
    /// The core has it. It waits for the core's flush, before dirty mappings may end.
    Flush,
    /// Records are in the journal's hands, the last of them in frame `seq`; 0: there is none.
    Recording { result: Result<(), ReqError>, seq: u64 },
}

/// The way of a change, and how far it is.
#[derive(Debug)]
pub(crate) enum Route {
    /// Not decided: it waits for its blocks, or for a thaw. `counted`: whether it hit has been told.
    Open { counted: bool },
    /// Dirty into the cache; destaging brings it to the core.
    Back(Back),
    /// To the core, then clean into the cache.
    Through(CoreStep),
    /// To the core; what is clean beneath it ends.
    Invalidate(CoreStep),
    /// To the core as zeros; whatever the cache has beneath it ends.
    Zero(CoreStep),
    /// To the core although the cache writes back; it replaces what is dirty beneath it. Refused there it is staged
    /// instead.
    Direct(CoreStep),
    /// It has taken effect. The answer waits for so many things to be durable.
    Durable { pending: u32 },
}

impl Route {
    /// Into the cache, from the change's block `first` on.
    pub(crate) fn back(first: u32, sync: bool) -> Route {
        Route::Back(Back { next: first, seq: 0, sync, step: BackStep::Admission })
    }

    /// Its progress with the core, if it goes there first.
    #[inline]
    pub(crate) fn core_step(&self) -> Option<&CoreStep> {
        match self {
            Route::Through(s) | Route::Invalidate(s) | Route::Zero(s) | Route::Direct(s) => Some(s),
            Route::Open { .. } | Route::Back(_) | Route::Durable { .. } => None,
        }
    }

    /// Goes on to `step` with the core.
    #[inline]
    pub(crate) fn go_on(&mut self, step: CoreStep) {
        match self {
            Route::Through(s) | Route::Invalidate(s) | Route::Zero(s) | Route::Direct(s) => *s = step,
            Route::Open { .. } | Route::Back(_) | Route::Durable { .. } => {
                unreachable!("{self:?} does not go to the core")
            }
        }
    }

    /// Its records have taken effect, the last of them in frame `seq`. The result is what becomes of it.
    pub(crate) fn recorded(&mut self, seq: u64) -> Result<(), ReqError> {
        match self {
            Route::Through(s) | Route::Invalidate(s) | Route::Zero(s) | Route::Direct(s) => match s {
                CoreStep::Recording { result, seq: last } => {
                    *last = seq;
                    *result
                }
                _ => unreachable!("{s:?} has nothing recorded"),
            },
            Route::Open { .. } | Route::Back(_) | Route::Durable { .. } => {
                unreachable!("{self:?} is not recorded behind the core")
            }
        }
    }

    /// True if it goes to the core although the cache writes back.
    pub(crate) fn is_direct(&self) -> bool {
        matches!(self, Route::Direct(_))
    }

    /// True if dirty blocks beneath it end once the core has it.
    pub(crate) fn replaces_dirty(&self) -> bool {
        matches!(self, Route::Zero(_) | Route::Direct(_))
    }

    /// True if its window is kept from destage jobs.
    pub(crate) fn owns_window(&self) -> bool {
        matches!(self.core_step(), Some(CoreStep::Writing | CoreStep::Flush | CoreStep::Recording { .. }))
    }

    /// True if the core has it by the time it ends well.
    pub(crate) fn ends_in_core(&self) -> bool {
        self.core_step().is_some() || matches!(self, Route::Back(Back { step: BackStep::Destage, .. }))
    }

    /// The last frame with a record of it; 0: there is none.
    pub(crate) fn seq(&self) -> u64 {
        match (self, self.core_step()) {
            (Route::Back(back), _) => back.seq,
            (_, Some(CoreStep::Recording { seq, .. })) => *seq,
            _ => 0,
        }
    }

    /// True if it has taken effect in the cache and only its answer waits.
    pub(crate) fn has_taken_effect(&self) -> bool {
        matches!(self, Route::Durable { .. } | Route::Back(Back { step: BackStep::Destage, .. }))
    }

    /// Its outcome, if that stands by now.
    pub(crate) fn outcome(&self) -> Option<Result<(), ReqError>> {
        match self.core_step() {
            Some(CoreStep::Recording { result, .. }) => Some(*result),
            Some(CoreStep::Flush) => Some(Ok(())),
            _ => self.has_taken_effect().then_some(Ok(())),
        }
    }
}

/// A change in progress.
#[derive(Debug)]
pub(crate) struct WriteTask {
    pub(crate) head: Header,
    pub(crate) route: Route,
}

impl WriteTask {
    /// One that has got nowhere.
    #[inline]
    pub(crate) fn new(head: Header) -> WriteTask {
        WriteTask { head, route: Route::Open { counted: false } }
    }

    /// A block-wise write that came at `since` and waits to be admitted, for tests of its owners.
    #[cfg(test)]
    pub(crate) fn of_blocks(id: ReqId, since: Nanos, blocks: RangeInclusive<u32>) -> WriteTask {
        let len = u64::from(blocks.end() - blocks.start() + 1) * BLOCK;
        let offset = u64::from(*blocks.start()) * BLOCK;
        let head = Header::new(id, since, blocks, (offset, len), Content::Zero { unmap: false });
        WriteTask { route: Route::back(head.first, false), head }
    }

    /// Its progress on the way into the cache.
    #[inline]
    pub(crate) fn back(&mut self) -> &mut Back {
        match &mut self.route {
            Route::Back(back) => back,
            other => unreachable!("a change on its way {other:?} does not go into the cache"),
        }
    }

    /// True if some of its blocks have come into the cache and others have not.
    pub(crate) fn is_halfway(&self) -> bool {
        matches!(&self.route, Route::Back(back) if (self.head.first + 1..=self.head.last).contains(&back.next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of a change in progress. Each write allocates one: it is not to grow unseen.
    const SIZE: usize = 240;

    #[test]
    fn a_change_in_progress_stays_small() {
        assert_eq!(size_of::<WriteTask>(), SIZE);
    }
}
