//! Blocking access for format and recovery, with a fuse: the process dies in the middle of the nth call.

use crate::disk::Disk;
use loligo_block::{IoError, IoKind, SyncIo};
use std::cell::Cell;

/// Burns down with every changing call on any device that shares it; then everything fails.
#[derive(Debug)]
pub struct Fuse {
    left: Cell<u64>,
    blown: Cell<bool>,
}

impl Fuse {
    /// Blows at the `n`th write or flush from now (0: at the first).
    pub fn after(n: u64) -> Fuse {
        Fuse { left: Cell::new(n), blown: Cell::new(false) }
    }

    /// One that never blows.
    pub fn never() -> Fuse {
        Fuse::after(u64::MAX)
    }

    /// True if it has blown.
    pub fn blown(&self) -> bool {
        self.blown.get()
    }

    fn burn(&self) -> bool {
        match self.left.get() {
            0 => self.blown.set(true),
            n => self.left.set(n - 1),
        }
        self.blown.get()
    }
}

/// A virtual device behind [`SyncIo`].
#[derive(Debug)]
pub struct SyncDisk<'a> {
    disk: &'a mut Disk,
    fuse: &'a Fuse,
}

impl<'a> SyncDisk<'a> {
    /// Access to `disk` until `fuse` blows.
    pub fn new(disk: &'a mut Disk, fuse: &'a Fuse) -> SyncDisk<'a> {
        SyncDisk { disk, fuse }
    }

    fn dead() -> IoError {
        IoError::new(IoKind::Gone, "the process has ended")
    }
}

impl SyncIo for SyncDisk<'_> {
    fn size(&self) -> u64 {
        self.disk.traits().size
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), IoError> {
        if self.fuse.blown() { Err(SyncDisk::dead()) } else { self.disk.read_now(offset, buf) }
    }

    fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<(), IoError> {
        if self.fuse.blown() {
            return Err(SyncDisk::dead());
        }
        if self.fuse.burn() {
            self.disk.write_unfinished(offset, data);
            return Err(SyncDisk::dead());
        }
        self.disk.write_now(offset, data)
    }

    fn flush(&mut self) -> Result<(), IoError> {
        if self.fuse.blown() || self.fuse.burn() { Err(SyncDisk::dead()) } else { self.disk.flush_now() }
    }
}
