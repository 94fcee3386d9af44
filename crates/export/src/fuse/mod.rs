//! The volume as one file in a folder, through FUSE: what programs reach that want a path and not a socket.
//!
//! The kernel sends every request as it comes, past its page cache and many at a time. They are taken and answered on a thread of
//! the volume, without another thread between. [`Mountpoint`] is a folder found fit, [`Mount`] the file in it, [`Session`] where its
//! requests are served.

mod attributes;
mod counters;
mod device;
mod error;
mod mount;
mod mountpoint;
mod rare;
mod session;
mod wire;
mod write_barrier;
mod zero;

pub use counters::Counters;
pub use error::MountError;
pub use mount::{Mount, Unmounted};
pub use mountpoint::Mountpoint;
pub(crate) use mountpoint::clear_dead;
pub use session::Session;

use loligo_block::{Buf, ReqError, Segments};
use rustix::io::Errno;

/// The kernel's number for a volume's error.
fn errno(e: ReqError) -> Errno {
    match e {
        ReqError::Io => Errno::IO,
        ReqError::Invalid => Errno::INVAL,
        ReqError::NoSpace => Errno::NOSPC,
        ReqError::Unsupported => Errno::OPNOTSUPP,
        ReqError::Shutdown => Errno::SHUTDOWN,
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
