//! A read under way: its pieces, and which source each comes from.

use crate::api::Nanos;
use crate::index::Meta;
use loligo_block::{Buf, ReqError, ReqId, Shared};
use smallvec::SmallVec;

/// The source of a piece.
#[derive(Debug)]
pub(crate) enum Source {
    /// Neighbouring slots; what each block must look like.
    Slots { metas: SmallVec<[Meta; 1]>, ticket: u64 },
    /// The core.
    Core,
    /// One dirty block that lies over a piece from the core.
    Overlay { meta: Meta, ticket: u64 },
    /// Already in memory.
    Memory,
    /// The core, which could not be read here in one go: the pieces over it are all that is known.
    Patched,
    /// These bytes of the volume from the core, for a piece that is patched.
    Missing { from: u64, to: u64 },
}

/// Neighbouring blocks that are read in one go.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) first: u32,
    pub(crate) blocks: u32,
    pub(crate) source: Source,
    pub(crate) buf: Option<Buf>,
    pub(crate) ready: Option<Shared>,
}

impl Piece {
    /// One block, of which nothing is there yet.
    pub(crate) fn new(first: u32, source: Source) -> Piece {
        Piece { first, blocks: 1, source, buf: None, ready: None }
    }

    /// True if other pieces may lie over it.
    pub(crate) fn is_from_core(&self) -> bool {
        matches!(self.source, Source::Core | Source::Patched)
    }
}

/// A read in progress.
#[derive(Debug)]
pub(crate) struct ReadTask {
    /// Taken by the answer: from then on the client is told nothing more.
    pub(crate) id: Option<ReqId>,
    pub(crate) since: Nanos,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) first: u32,
    pub(crate) first_global: u64,
    /// The change counter when it was planned.
    pub(crate) stamp: u64,
    pub(crate) promote: bool,
    pub(crate) pieces: SmallVec<[Piece; 1]>,
    /// Sectors of blocks that memory has: they go over what the core says.
    pub(crate) kept: Vec<(u32, u8, Shared)>,
    pub(crate) pending: u32,
    pub(crate) error: Option<ReqError>,
}

impl ReadTask {
    /// Takes the request's id: it is answered for.
    pub(crate) fn take_id(&mut self) -> Option<ReqId> {
        self.id.take()
    }

    pub(crate) fn global(&self, block: u32) -> u64 {
        self.first_global + u64::from(block - self.first)
    }

    /// True if the version of `block` in `slot` lies over what comes from the core.
    pub(crate) fn has_over(&self, block: u32, slot: u32) -> bool {
        let is_it = |p: &Piece| matches!(&p.source, Source::Overlay { meta, .. } if meta.slot == slot);
        self.pieces.iter().any(|p| p.first == block && is_it(p))
    }
}
