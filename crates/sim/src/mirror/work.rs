//! The things that are under way in the world of a mirrored device.

use loligo_block::mirror::{Leg, Mark, OpId, Time};
use std::ops::Range;

/// The deed of a client, and what it relies on.
#[derive(Debug, Clone)]
pub(super) enum Deed {
    /// Of this block, not to be older than that write.
    Read(u64, u64),
    /// To this block, as this write.
    Write(u64, u64),
    /// What was kept when it began.
    Flush(Vec<u64>),
}

#[derive(Debug, Clone)]
pub(super) struct ClientOp {
    pub(super) deed: Deed,
    pub(super) since: Time,
    pub(super) answered: bool,
    pub(super) read: [Option<u64>; 2],
}

/// An operation that a leg has still to answer; a flush with the leg's last write before it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flight {
    pub(super) id: OpId,
    pub(super) leg: Leg,
    pub(super) before: u64,
}

#[derive(Debug, Clone)]
pub(super) enum Job {
    Note(Leg, Mark),
    /// From the leg, with what was read of it.
    Copy(Leg, Range<u64>, Option<Vec<u64>>),
    Try(Leg),
}
