//! Faults of a virtual device beyond losing power: armed in advance, fired at the nth matching operation.

use crate::stamp::{self, Content};
use loligo_block::{Op, OpKind, Shared};
use std::ops::Range;

/// The fate of the operation that fires a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// It fails; of a write any subset of the sectors may have reached the medium.
    Error,
    /// It succeeds and nothing was written.
    Lost,
    /// It succeeds and only some of its sectors were written.
    Torn,
    /// It succeeds, and the bytes went somewhere else in the fault's range.
    Misdirected,
    /// The device stops answering anything but errors.
    Gone,
    /// The array has given the device to another controller: it refuses every change and flush from now on.
    Fenced,
}

impl FaultKind {
    /// True if the device says so.
    pub fn is_loud(self) -> bool {
        matches!(self, FaultKind::Error | FaultKind::Gone | FaultKind::Fenced)
    }
}

/// True if every block of `data` names a write, so that whose it is can be told.
pub fn is_stamped(data: &[u8]) -> bool {
    data.chunks(4096).all(|block| block_of(block).is_some())
}

/// The first sector of the volume's block whose content `block` is, if it holds any write.
pub fn block_of(block: &[u8]) -> Option<u32> {
    block.chunks(stamp::SECTOR).find_map(|s| match stamp::read(s) {
        Content::Write { sector, .. } => Some(sector / 8 * 8),
        _ => None,
    })
}

/// The operations that a fault counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// Reads.
    Reads,
    /// Writes, zeroes and discards.
    Writes,
    /// Flushes.
    Flushes,
    /// Everything.
    Any,
}

/// A fault waiting for its operation.
#[derive(Debug, Clone)]
pub struct Fault {
    /// The fault that will happen.
    pub kind: FaultKind,
    /// The operations that count.
    pub target: Target,
    /// Only operations wholly inside these bytes count (flushes always do).
    pub range: Range<u64>,
    /// Matching operations to let pass first.
    pub skip: u64,
}

/// A fault that has fired.
#[derive(Debug, Clone)]
pub struct Fired {
    /// The fault that happened.
    pub kind: FaultKind,
    /// The byte that the operation was meant for.
    pub offset: u64,
    /// The data that it carried, if it was a write.
    pub data: Option<Shared>,
    /// The data that a misdirected write destroyed.
    pub destroyed: Vec<u8>,
}

impl Fault {
    /// Counts `op`; true when it is the one.
    pub fn hits(&mut self, op: &Op) -> bool {
        let kind = match op.kind {
            OpKind::Read(_) => Target::Reads,
            OpKind::Flush => Target::Flushes,
            _ => Target::Writes,
        };
        let counts = self.target == Target::Any || self.target == kind;
        let inside = kind == Target::Flushes
            || (op.offset >= self.range.start && op.offset + op.len() <= self.range.end);
        let told = self.kind.is_loud() || matches!(&op.kind, OpKind::Write { data, .. } if is_stamped(data));
        if !counts || !inside || !told {
            return false;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        true
    }
}
