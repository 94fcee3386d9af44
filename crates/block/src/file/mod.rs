//! Files and raw block devices, opened once: each descriptor that does I/O on a file holds a part of its lock, so that what a
//! killed process has under way keeps the next one out.

mod block;
mod extents;
mod grow;
mod holder;
mod identity;
mod lock;
mod names;
mod open;
mod signature;
mod sync;
mod writeback;

pub use identity::Identity;
pub use lock::is_in_use;
pub use names::names_of;
pub use open::OpenOptions;
pub use signature::{SIGNATURE_PROBE, foreign_signature, known_signature};
pub use sync::SyncFile;

use crate::silence::Silence;
use crate::{Geometry, IoError, IoKind};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::OFlags;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The demands of direct I/O on a descriptor, bytes.
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
    in_fuse: bool,
    /// The flags that it was opened with, but for direct I/O.
    flags: OFlags,
    locked: bool,
    /// But for the size, which is beside it.
    geometry: Geometry,
    size: AtomicU64,
    identity: Identity,
    warnings: Vec<String>,
    failures: writeback::Failures,
    /// Direct I/O was refused for an operation, and that was said.
    refusal_said: AtomicBool,
}

impl Handle {
    fn read_only(&self) -> bool {
        !self.flags.contains(OFlags::RDWR)
    }
}

/// An open file or raw block device; clones share the descriptors, and with them the lock.
#[derive(Debug, Clone)]
pub struct DeviceFile {
    handle: Arc<Handle>,
    user: Arc<writeback::User>,
    /// Bytes of it that lie before what this one reads and writes.
    start: u64,
    /// With others it falls silent.
    silence: Silence,
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
    /// If they are not.
    pub fn behind(&self, bytes: u64) -> Result<DeviceFile, IoError> {
        let start = self.start + bytes;
        if !bytes.is_multiple_of(1 << 20) || start >= self.whole() {
            let text = format!("{}: nothing can begin at byte {start} of it", self.path().display());
            return Err(IoError::new(IoKind::Invalid, text));
        }
        Ok(DeviceFile { start, ..self.clone() })
    }

    /// The same, silent with all others that `silence` was given to.
    pub fn silenced_by(self, silence: &Silence) -> DeviceFile {
        DeviceFile { silence: silence.clone(), ..self }
    }

    /// The silence that it is part of; one of its own, if nobody gave it another.
    pub fn silence(&self) -> &Silence {
        &self.silence
    }

    /// An operation has failed: with a fence it falls silent.
    pub(crate) fn heard(&self, error: &IoError) {
        self.silence.hear(error);
    }

    /// The place of `offset` on the whole device.
    pub(crate) fn position(&self, offset: u64) -> u64 {
        self.start + offset
    }

    /// Keeps out of a device also those who lock it as one locks a file, as OSDs do; a file is locked like that already.
    ///
    /// # Errors
    /// If somebody has it, also after `wait`.
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

    /// Tells udev that the start of the device has changed. Nothing where it is a file.
    ///
    /// # Errors
    /// If the kernel takes no such word (a container without its own `/sys`, say): udev goes by what it saw before.
    pub fn announce(&self) -> std::io::Result<()> {
        if !self.is_block() {
            return Ok(());
        }
        block::announce(self.handle.main.as_fd())
    }

    /// True if it is a block device and not a regular file.
    pub fn is_block(&self) -> bool {
        self.handle.is_block
    }

    /// True if the file lives in memory (tmpfs), so that I/O on it is a copy and never waits for a device.
    pub fn is_in_memory(&self) -> bool {
        self.handle.in_memory
    }

    /// True if the file is served by a program (FUSE), for whose answer the kernel waits where an operation is submitted, though
    /// nobody asked it to.
    pub(crate) fn waits_at_submission(&self) -> bool {
        self.handle.in_fuse
    }

    /// The demands of direct I/O; `None` when the I/O is buffered.
    pub fn dio(&self) -> Option<DioAlign> {
        self.handle.direct.as_ref().map(|d| d.0)
    }

    /// By what this device is recognised at the next start.
    pub fn identity(&self) -> &Identity {
        &self.handle.identity
    }

    /// Warnings for the operator: opened without direct I/O, size not a multiple of a sector.
    pub fn warnings(&self) -> &[String] {
        &self.handle.warnings
    }

    pub(crate) fn main_fd(&self) -> BorrowedFd<'_> {
        self.handle.main.as_fd()
    }

    /// The way for I/O at `pos` of the whole device with memory at `addr`, `len` bytes at most: direct where offset, length and
    /// address allow it, else buffered up to where they do.
    pub(crate) fn route(&self, pos: u64, len: u64, addr: usize, plain_only: bool) -> Route<'_> {
        let buffered = |len| Route { fd: self.buffered_fd(), len, is_direct: false };
        let Some((dio, _)) = &self.handle.direct else { return buffered(len) };
        let align = dio.offset as u64;
        let off = pos % align;
        if plain_only {
            buffered(len)
        } else if off != 0 {
            buffered(len.min(align - off))
        } else if len < align || !addr.is_multiple_of(dio.memory as usize) {
            buffered(len)
        } else {
            Route { fd: self.handle.main.as_fd(), len: len / align * align, is_direct: true }
        }
    }

    /// True if a write by `route` must be durable when it returns, though nobody asked: nobody flushes a device without a
    /// volatile cache, and the page cache is one.
    pub(crate) fn writes_through(&self, route: &Route<'_>) -> bool {
        !route.is_direct && !self.handle.geometry.volatile_cache
    }

    /// Says, once, that direct I/O was refused for an operation although the file accepts it.
    pub(crate) fn say_refusal(&self) {
        if !self.handle.refusal_said.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "{}: direct I/O is refused for some operations: they go through the page cache, slower{}",
                self.path().display(),
                if self.handle.geometry.volatile_cache { "" } else { ", and each is written through" }
            );
        }
    }
}

/// The route by which a part of an operation is carried out.
#[derive(Debug)]
pub(crate) struct Route<'a> {
    /// The descriptor.
    pub(crate) fd: BorrowedFd<'a>,
    /// Bytes that one call may move.
    pub(crate) len: u64,
    /// Past the page cache.
    pub(crate) is_direct: bool,
}
