//! The volume as one file in a folder, through FUSE: what programs reach that want a path and not a socket.
//!
//! The kernel sends every request as it comes, past its page cache and many at a time. The threads that take them only
//! decode: the volume answers whenever it likes, on its own threads. [`Mountpoint`] is a folder found fit, [`Mount`] the file
//! in it.

mod attributes;
mod counters;
mod error;
mod fs;
mod gate;
mod mount;
mod mountpoint;
mod write;
mod zero;

pub use counters::Counters;
pub use error::MountError;
pub use mount::{Mount, Unmounted};
pub use mountpoint::Mountpoint;
pub(crate) use mountpoint::clear_dead;

use fuser::Errno;
use loligo_block::{Buf, ReqError, Segments};

/// What a volume's error is called by the kernel.
fn errno(e: ReqError) -> Errno {
    match e {
        ReqError::Io => Errno::EIO,
        ReqError::Invalid => Errno::EINVAL,
        ReqError::NoSpace => Errno::ENOSPC,
        ReqError::Unsupported => Errno::EOPNOTSUPP,
        ReqError::Shutdown => Errno::ESHUTDOWN,
    }
}

/// The `len` bytes of `pieces` in one.
fn joined(pieces: &Segments, len: usize) -> Buf {
    let mut whole = Buf::alloc(len);
    let mut rest = &mut whole[..];
    for piece in pieces {
        let (here, after) = rest.split_at_mut(piece.len());
        here.copy_from_slice(piece);
        rest = after;
    }
    whole
}
