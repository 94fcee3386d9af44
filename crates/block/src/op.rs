//! Owned operations: what a device is asked and what it answers. An operation in flight owns its buffer, and gives it
//! back with the completion, also when it failed.

use crate::{Buf, IoError, IoKind, SECTOR, Shared};
use std::ops::Range;

/// Chosen by whoever submits; comes back in the [`Completion`].
pub type Tag = u64;

/// The deed at [`Op::offset`].
#[derive(Debug)]
pub enum OpKind {
    /// Fill the whole buffer; a device that cannot fill it all fails the operation.
    Read(Buf),
    /// Write all the bytes; with `fua` they are on stable media before the completion.
    Write {
        /// The payload.
        data: Shared,
        /// Durable before the completion.
        fua: bool,
    },
    /// Several writes with one completion: offset and bytes of each, ascending, not overlapping, each on sectors;
    /// [`Op::offset`] is the first one's. All of them are written once it completes with success; after an error any of
    /// them may be there or not. Only for devices that are known to take groups.
    WriteMany(Vec<(u64, Shared)>),
    /// Everything completed before this was submitted is on stable media when it completes. `offset` is ignored.
    Flush,
    /// The range may be forgotten: it reads as zeros or as before until written again.
    Discard {
        /// Bytes.
        len: u64,
    },
    /// The range reads as zeros afterwards. With `unmap` the space may be given back.
    WriteZeroes {
        /// Bytes.
        len: u64,
        /// Space may be deallocated.
        unmap: bool,
    },
}

/// One operation on a device, with its buffer.
#[derive(Debug)]
pub struct Op {
    /// The submitter's name for it.
    pub tag: Tag,
    /// Bytes from the start of the device.
    pub offset: u64,
    /// Its kind.
    pub kind: OpKind,
}

impl Op {
    /// Bytes the operation touches (0 for a flush).
    pub fn len(&self) -> u64 {
        match &self.kind {
            OpKind::Read(b) => b.len() as u64,
            OpKind::Write { data, .. } => data.len() as u64,
            OpKind::WriteMany(pieces) => pieces.iter().map(|(_, data)| data.len() as u64).sum(),
            OpKind::Flush => 0,
            OpKind::Discard { len } | OpKind::WriteZeroes { len, .. } => *len,
        }
    }

    /// True if it touches no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// True if it changes the device's content.
    pub fn changes_data(&self) -> bool {
        match self.kind {
            OpKind::Read(_) | OpKind::Flush => false,
            OpKind::Write { .. }
            | OpKind::WriteMany(_)
            | OpKind::Discard { .. }
            | OpKind::WriteZeroes { .. } => true,
        }
    }

    /// True if it touches any byte of `range` (a flush: none).
    pub fn touches(&self, range: &Range<u64>) -> bool {
        let meets = |at: u64, len: u64| at < range.end && at + len > range.start;
        match &self.kind {
            OpKind::WriteMany(pieces) => pieces.iter().any(|(at, data)| meets(*at, data.len() as u64)),
            _ => meets(self.offset, self.len()),
        }
    }
}

/// The outcome of an [`Op`].
#[derive(Debug)]
pub struct Completion {
    /// The tag it was submitted with.
    pub tag: Tag,
    /// The buffer of a read, filled if `result` is `Ok`.
    pub buf: Option<Buf>,
    /// Success, or why not.
    pub result: Result<(), IoError>,
}

/// The outcome of a submission.
#[derive(Debug)]
pub enum Submit {
    /// In flight; a [`Completion`] will follow.
    Taken,
    /// Done at once.
    Finished(Completion),
    /// The queue is full; the operation comes back whole, to be tried again after a completion.
    Busy(Op),
}

/// Refuses a range that leaves a device of `size` bytes or is not on sectors.
pub(crate) fn check_range(offset: u64, len: u64, size: u64) -> Result<(), IoError> {
    if !offset.is_multiple_of(SECTOR) || !len.is_multiple_of(SECTOR) {
        return Err(IoError::new(
            IoKind::Invalid,
            format!("{len} bytes at {offset} are not on 512-byte sectors"),
        ));
    }
    if offset.checked_add(len).is_none_or(|end| end > size) {
        return Err(IoError::new(
            IoKind::Invalid,
            format!("{len} bytes at {offset} leave a device of {size} bytes"),
        ));
    }
    Ok(())
}

/// Refuses a group whose pieces are not what [`OpKind::WriteMany`] says of them.
fn check_pieces(offset: u64, pieces: &[(u64, Shared)], size: u64) -> Result<(), IoError> {
    let mut end = offset;
    for (i, (at, data)) in pieces.iter().enumerate() {
        check_range(*at, data.len() as u64, size)?;
        if *at < end || (i == 0 && *at != offset) {
            return Err(IoError::new(
                IoKind::Invalid,
                format!("piece {i} of a group of writes is at {at}, before {end}, where the last one ended"),
            ));
        }
        end = at + data.len() as u64;
    }
    Ok(())
}

/// The completion of a group of writes on a device that takes none.
pub(crate) fn refuse_group(op: Op) -> Completion {
    let context = format!("a group of writes at {}: this device takes one write at a time", op.offset);
    op.complete(Err(IoError::new(IoKind::Unsupported, context)))
}

impl Op {
    /// The completion of this operation, without its having been carried out.
    pub fn complete(self, result: Result<(), IoError>) -> Completion {
        let buf = match self.kind {
            OpKind::Read(b) => Some(b),
            _ => None,
        };
        Completion { tag: self.tag, buf, result }
    }
}

/// Hands back `op` if a device of `size` bytes can carry it out, and its completion otherwise: with an error when it
/// is out of range, with success when it is empty.
pub fn refuse_invalid(op: Op, size: u64) -> Result<Op, Completion> {
    if matches!(op.kind, OpKind::Flush) {
        return Ok(op);
    }
    let valid = match &op.kind {
        OpKind::WriteMany(pieces) => check_pieces(op.offset, pieces, size),
        _ => check_range(op.offset, op.len(), size),
    };
    match valid {
        Ok(()) if op.is_empty() => Err(op.complete(Ok(()))),
        Ok(()) => Ok(op),
        Err(e) => Err(op.complete(Err(e))),
    }
}
