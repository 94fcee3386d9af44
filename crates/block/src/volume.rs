//! Requests of a client to a volume, and their answers. Exports make requests, engines answer them.

use crate::{IoError, IoKind, Shared};
use smallvec::SmallVec;

/// Chosen by whoever asks; comes back in the [`Reply`].
pub type ReqId = u64;

/// The kind of a request.
#[derive(Debug, Clone)]
pub enum ReqKind {
    /// The bytes of the range.
    Read,
    /// The payload becomes the content of the range; its length is `Request::len`.
    Write(Shared),
    /// The range reads as zeros afterwards.
    WriteZeroes {
        /// The space may be given back (false: NBD's NO_HOLE).
        unmap: bool,
    },
    /// The range may be forgotten.
    Discard,
    /// Every write answered before this came, on any connection, is durable when it is answered.
    Flush,
    /// The parts of the range that hold data (NBD base:allocation).
    Status,
}

/// One request on a volume.
#[derive(Debug, Clone)]
pub struct Request {
    /// The asker's name for it.
    pub id: ReqId,
    /// Its kind.
    pub kind: ReqKind,
    /// Bytes from the start of the volume, a multiple of 512.
    pub offset: u64,
    /// Bytes, a multiple of 512; 0 for a flush.
    pub len: u64,
    /// Durable before the answer.
    pub fua: bool,
}

/// The reason why a request failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReqError {
    /// A device failed, or the data is damaged (EIO).
    Io,
    /// Out of range or off the blocks (EINVAL).
    Invalid,
    /// No space behind the device (ENOSPC).
    NoSpace,
    /// Not supported by what is below (EOPNOTSUPP).
    Unsupported,
    /// The volume is stopping (ESHUTDOWN).
    Shutdown,
}

impl From<&IoError> for ReqError {
    /// The error that a client hears where a device refuses.
    fn from(e: &IoError) -> ReqError {
        match e.kind {
            IoKind::NoSpace => ReqError::NoSpace,
            IoKind::Unsupported => ReqError::Unsupported,
            IoKind::Io | IoKind::Invalid | IoKind::Gone | IoKind::Fenced => ReqError::Io,
        }
    }
}

/// One run of the answer to [`ReqKind::Status`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Bytes.
    pub len: u64,
    /// True if anything is stored there.
    pub allocated: bool,
    /// True if it reads as zeros.
    pub zero: bool,
}

/// The bytes of a read, in order, in as many pieces as they came in.
pub type Segments = SmallVec<[Shared; 2]>;

/// The answer to a request.
#[derive(Debug, Clone)]
pub enum Answer {
    /// Done; nothing to hand over.
    Done,
    /// The bytes of a read.
    Data(Segments),
    /// The extents of a status request, covering the range in order.
    Extents(Vec<Extent>),
}

/// The answer to one [`Request`].
#[derive(Debug, Clone)]
pub struct Reply {
    /// The request's id.
    pub id: ReqId,
    /// The result.
    pub result: Result<Answer, ReqError>,
}
