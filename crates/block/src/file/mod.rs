//! Files and raw block devices, opened once: the descriptor that locks is the descriptor that does the I/O.

mod block;
mod extents;
mod grow;
mod holder;
mod identity;
mod lock;
mod open;
mod signature;
mod sync;

pub use identity::Identity;
pub use open::OpenOptions;
pub use signature::{SIGNATURE_PROBE, foreign_signature};
pub use sync::SyncFile;

use crate::{Geometry, IoError, IoKind};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What direct I/O on a descriptor demands, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DioAlign {
    /// Of the address in memory.
    pub memory: u32,
    /// Of offset and length.
    pub offset: u32,
}

#[derive(Debug)]
struct Handle {
    /// Locks, and does the I/O: direct when `direct` is set.
    main: OwnedFd,
    /// Demands of direct I/O, and a descriptor without it for what does not meet them (the tail of a file, say).
    direct: Option<(DioAlign, OwnedFd)>,
    path: PathBuf,
    is_block: bool,
    in_memory: bool,
    /// But for the size, which is beside it.
    geometry: Geometry,
    size: AtomicU64,
    identity: Identity,
    warnings: Vec<String>,
}

/// An open file or raw block device; clones share the descriptors, and with them the lock.
#[derive(Debug, Clone)]
pub struct DeviceFile {
    handle: Arc<Handle>,
    /// Bytes of it that lie before what this one reads and writes.
    start: u64,
}

impl DeviceFile {
    /// Size and traits, as they were when it was opened, or last [looked at](DeviceFile::look_again).
    pub fn geometry(&self) -> Geometry {
        Geometry { size: self.whole() - self.start, ..self.handle.geometry }
    }

    fn whole(&self) -> u64 {
        self.handle.size.load(Ordering::Relaxed)
    }

    /// The same without its first `bytes`, which must be a multiple of 1 MiB and less than all: offset 0 lies behind them.
    ///
    /// # Errors
    /// Where they are not.
    pub fn behind(&self, bytes: u64) -> Result<DeviceFile, IoError> {
        let start = self.start + bytes;
        if !bytes.is_multiple_of(1 << 20) || start >= self.whole() {
            let text = format!("{}: nothing can begin at byte {start} of it", self.path().display());
            return Err(IoError::new(IoKind::Invalid, text));
        }
        Ok(DeviceFile { handle: self.handle.clone(), start })
    }

    /// Where `offset` lies on the whole device.
    pub(crate) fn position(&self, offset: u64) -> u64 {
        self.start + offset
    }

    /// Keeps out of a device also those who lock it as one locks a file, as OSDs do; a file is locked like that already.
    ///
    /// # Errors
    /// Where somebody has it, also after `wait`.
    pub fn lock_as_file(&self, wait: Duration) -> Result<(), IoError> {
        if !self.is_block() {
            return Ok(());
        }
        lock::lock_device(self.path(), &self.handle.main, Instant::now() + wait)
    }

    /// As it was given to [`DeviceFile::open`].
    pub fn path(&self) -> &Path {
        &self.handle.path
    }

    /// Whether it is a block device and not a regular file.
    pub fn is_block(&self) -> bool {
        self.handle.is_block
    }

    /// Whether the file lives in memory (tmpfs), so that I/O on it is a copy and never waits for a device.
    pub fn is_in_memory(&self) -> bool {
        self.handle.in_memory
    }

    /// What direct I/O demands; `None` when the I/O is buffered.
    pub fn dio(&self) -> Option<DioAlign> {
        self.handle.direct.as_ref().map(|d| d.0)
    }

    /// By what this device is recognised at the next start.
    pub fn identity(&self) -> &Identity {
        &self.handle.identity
    }

    /// What the operator should know: opened without direct I/O, size not a multiple of a sector.
    pub fn warnings(&self) -> &[String] {
        &self.handle.warnings
    }

    pub(crate) fn main_fd(&self) -> BorrowedFd<'_> {
        self.handle.main.as_fd()
    }

    /// The descriptor for I/O at `pos` of the whole device with memory at `addr`, and how many of `len` bytes it can take in one call:
    /// direct where offset, length and address allow it, else the plain descriptor up to where they do.
    pub(crate) fn route(&self, pos: u64, len: u64, addr: usize, plain_only: bool) -> (BorrowedFd<'_>, u64) {
        let main = self.handle.main.as_fd();
        let Some((dio, plain)) = &self.handle.direct else { return (main, len) };
        let plain = plain.as_fd();
        let align = dio.offset as u64;
        let off = pos % align;
        if plain_only {
            (plain, len)
        } else if off != 0 {
            (plain, len.min(align - off))
        } else if len < align || !addr.is_multiple_of(dio.memory as usize) {
            (plain, len)
        } else {
            (main, len / align * align)
        }
    }
}
