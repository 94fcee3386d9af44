//! The file system of one file: requests of the kernel become the volume's, its answers become theirs. No method waits.

use super::attributes::{Attributes, FILE};
use super::counters::Counters;
use super::gate::Gate;
use super::write::Write;
use super::zero::{self, Plan};
use super::{errno, joined};
use crate::local::Volume;
use crate::nbd::Export;
use fuser::{
    BsdFileFlags, Errno, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry,
    ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use loligo_block::{Answer, Buf, ReqKind, Segments};
use rustix::fs::OFlags;
use std::ffi::{OsStr, OsString};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, SystemTime};

/// How long the kernel may answer `stat` by itself. Not for ever: a mount whose server is gone should look like one.
const TTL: Duration = Duration::from_secs(1);
/// Bytes of the largest request; the kernel cuts longer ones.
const MAX_REQUEST: u32 = 1 << 20;
/// Requests that the kernel may have under way for programs that do not wait for each one.
const QUEUE: u16 = 256;

/// A volume as a file system.
pub(super) struct VolumeFs {
    name: OsString,
    block: u64,
    attributes: Attributes,
    volume: Arc<dyn Volume>,
    gate: Arc<Gate>,
    counters: Arc<Counters>,
}

impl VolumeFs {
    pub(super) fn new(export: &Export, volume: Arc<dyn Volume>, counters: Arc<Counters>) -> VolumeFs {
        VolumeFs {
            name: OsString::from(&export.name),
            block: u64::from(export.min_block),
            attributes: Attributes::new(export.size, export.preferred_block),
            volume,
            gate: Arc::default(),
            counters,
        }
    }

    /// How many bytes the file has, for whoever may raise that.
    pub(super) fn shared_size(&self) -> Arc<AtomicU64> {
        self.attributes.shared_size()
    }

    fn size(&self) -> u64 {
        self.attributes.size()
    }
}

/// Answers a read with the part `range` of what was read for it.
fn send(reply: ReplyData, pieces: &Segments, range: Range<usize>) {
    match &pieces[..] {
        [one] => reply.data(&one[range]),
        many => {
            let len = many.iter().map(|piece| piece.len()).sum();
            reply.data(&joined(pieces, len)[range]);
        }
    }
}

impl Filesystem for VolumeFs {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        if config.add_capabilities(InitFlags::FUSE_ASYNC_DIO).is_err() {
            tracing::warn!("this kernel sends direct requests to FUSE one at a time");
        }
        // The kernel may have less of each to give; what it gives will do.
        let _ = config.set_max_write(MAX_REQUEST);
        if let Err(most) = config.set_max_readahead(MAX_REQUEST) {
            let _ = config.set_max_readahead(most);
        }
        let _ = config.set_max_background(QUEUE);
        let _ = config.set_congestion_threshold(QUEUE);
        Ok(())
    }

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if parent == INodeNo::ROOT && name == self.name {
            reply.entry(&TTL, &self.attributes.of(FILE), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&TTL, &self.attributes.of(ino));
    }

    fn setattr(
        &self,
        _req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        if ino != FILE {
            return reply.error(Errno::EPERM);
        }
        if let Some(wanted) = size.filter(|s| *s != self.size()) {
            tracing::warn!(wanted, size = self.size(), "a volume cannot be truncated (dd: conv=notrunc)");
            return reply.error(Errno::EPERM);
        }
        self.attributes.change(mode, uid, gid);
        reply.attr(&TTL, &self.attributes.of(ino));
    }

    /// Also what `create` comes to.
    fn mknod(
        &self,
        _req: &Request,
        _parent: INodeNo,
        _name: &OsStr,
        _mode: u32,
        _umask: u32,
        _rdev: u32,
        reply: ReplyEntry,
    ) {
        reply.error(Errno::EPERM);
    }

    fn unlink(&self, _req: &Request, _parent: INodeNo, _name: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EPERM);
    }

    fn open(&self, _req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let direct = FopenFlags::FOPEN_DIRECT_IO.union(FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES);
        reply.opened(FileHandle(0), direct);
    }

    fn read(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.counters.reads.one();
        let end = offset.saturating_add(u64::from(size)).min(self.size());
        if offset >= end {
            return reply.data(&[]);
        }
        // Whole blocks are read, and what was not asked for is cut off.
        let from = offset - offset % self.block;
        let len = end.next_multiple_of(self.block) - from;
        let range = (offset - from) as usize..(end - from) as usize;
        self.volume.ask(
            loligo_block::Request { id: 0, kind: ReqKind::Read, offset: from, len, fua: false },
            Box::new(move |answer| match answer {
                Ok(Answer::Data(pieces)) => send(reply, &pieces, range),
                Ok(_) => reply.error(Errno::EIO),
                Err(e) => reply.error(errno(e)),
            }),
        );
    }

    fn write(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        self.counters.writes.one();
        if data.is_empty() {
            return reply.written(0);
        }
        if offset.checked_add(data.len() as u64).is_none_or(|end| end > self.size()) {
            return reply.error(Errno::ENOSPC);
        }
        // The kernel leaves this promise to the file system, on every write.
        let fua = OFlags::from_bits_retain(flags.0 as u32).intersects(OFlags::SYNC | OFlags::DSYNC);
        let data = Buf::copy_of(data).freeze();
        Write { offset, data, fua, reply }.go(self.volume.clone(), self.block, &self.gate);
    }

    /// Somebody closes a descriptor, which promises nothing.
    fn flush(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _owner: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    /// Also `fdatasync`: the only metadata there is never changes.
    fn fsync(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        self.counters.fsyncs.one();
        self.volume.ask(
            loligo_block::Request { id: 0, kind: ReqKind::Flush, offset: 0, len: 0, fua: false },
            Box::new(move |answer| match answer {
                Ok(_) => reply.ok(),
                Err(e) => reply.error(errno(e)),
            }),
        );
    }

    fn fallocate(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        self.counters.fallocates.one();
        match zero::plan(self.size(), self.block, (offset, length), mode) {
            Plan::Nothing => reply.ok(),
            Plan::Refuse(errno, why) => {
                tracing::warn!(offset, length, mode, "fallocate was refused: {why}");
                reply.error(errno);
            }
            Plan::Zero { from, to, unmap } => {
                let volume = self.volume.clone();
                self.gate.enter(false, move |pass| zero::zero(&volume, (from, to), unmap, pass, reply));
            }
        }
    }

    fn readdir(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let entries = [
            (INodeNo::ROOT, FileType::Directory, OsStr::new(".")),
            (INodeNo::ROOT, FileType::Directory, OsStr::new("..")),
            (FILE, FileType::RegularFile, &self.name),
        ];
        for (i, (ino, kind, name)) in entries.into_iter().enumerate().skip(offset as usize) {
            if reply.add(ino, i as u64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        // Also what a loop device over the file takes for the unit of discards.
        let unit = self.block as u32;
        reply.statfs(self.size() / self.block, 0, 0, 1, 0, unit, 255, unit);
    }
}
