//! One path to the LUNs, as a file system with a file for each.

use super::medium::BLOCK;
use super::shared::{COUNTERS, FAULT, Fault, POWER_CYCLE, Shared};
use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    IoctlFlags, KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty,
    ReplyEntry, ReplyIoctl, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, WriteFlags,
};
use loligo_block::Buf;
use loligo_pair::fence::{SHOWN, Shown, calls};
use loligo_pair::lun::Reply;
use loligo_pair::reservation::Port;
use parking_lot::Mutex;
use std::ffi::OsStr;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// The time for which the kernel may believe attributes, which never change.
const TTL: Duration = Duration::from_secs(60);
const ROOT: INodeNo = INodeNo(1);
/// The number of the first LUN's file.
const FIRST: u64 = 2;
/// Between two looks whether a silent path answers again.
const LOOK: Duration = Duration::from_millis(10);
/// Least time between the two parts of a write that a loss of power may tear.
const TEAR: Duration = Duration::from_millis(20);

/// One path.
#[derive(Debug)]
pub(super) struct PathFs {
    luns: Arc<Vec<Shared>>,
    port: Port,
    /// By LUN.
    faults: Vec<Mutex<Fault>>,
}

/// One LUN by one path.
#[derive(Debug, Clone, Copy)]
struct LunPath<'a> {
    lun: &'a Shared,
    port: Port,
    fault: &'a Mutex<Fault>,
}

impl PathFs {
    pub(super) fn new(luns: Arc<Vec<Shared>>, port: Port) -> PathFs {
        let faults = luns.iter().map(|_| Mutex::default()).collect();
        PathFs { luns, port, faults }
    }

    /// # Errors
    /// If there is no LUN with this number.
    fn lun(&self, ino: INodeNo) -> Result<LunPath<'_>, Errno> {
        let index = ino.0.checked_sub(FIRST).ok_or(Errno::EISDIR)? as usize;
        let lun = self.luns.get(index).ok_or(Errno::ENOENT)?;
        Ok(LunPath { lun, port: self.port, fault: &self.faults[index] })
    }

    fn attr(&self, ino: INodeNo) -> Result<FileAttr, Errno> {
        let (kind, perm, size) = match ino {
            ROOT => (FileType::Directory, 0o755, 0),
            _ => (FileType::RegularFile, 0o600, self.lun(ino)?.lun.medium.bytes()),
        };
        let time = SystemTime::UNIX_EPOCH;
        Ok(FileAttr {
            ino,
            size,
            blocks: size / 512,
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            kind,
            perm,
            nlink: 1,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }

    fn set_attribute(&self, ino: INodeNo, name: &OsStr, value: &[u8]) -> Result<(), Errno> {
        match name.to_str() {
            Some(FAULT) => {
                *self.lun(ino)?.fault.lock() = serde_json::from_slice(value).map_err(|_| Errno::EINVAL)?;
                Ok(())
            }
            Some(POWER_CYCLE) => {
                let cycled = self.luns.iter().map(Shared::power_cycle);
                cycled.fold(Ok(()), std::io::Result::and).map_err(Errno::from)
            }
            _ => Err(Errno::EOPNOTSUPP),
        }
    }
}

impl LunPath<'_> {
    fn fault(&self) -> Fault {
        *self.fault.lock()
    }

    /// # Errors
    /// If reads, writes and flushes of this path fail.
    fn is_there(&self) -> Result<Fault, Errno> {
        while self.fault().queues {
            std::thread::sleep(LOOK);
        }
        let fault = self.fault();
        if fault.eio || fault.lost { Err(Errno::EIO) } else { Ok(fault) }
    }

    /// # Errors
    /// If there is no path for a call of the reservation.
    fn is_connected(&self) -> Result<(), Errno> {
        let fault = self.fault();
        if fault.lost || fault.queues { Err(Errno::EIO) } else { Ok(()) }
    }

    /// A write or discard of `len` bytes, which `work` carries out for a part of them.
    fn put(
        &self,
        offset: u64,
        len: u64,
        work: impl Fn(Range<u64>) -> std::io::Result<()>,
    ) -> Result<(), Errno> {
        let fault = self.is_there()?;
        let end =
            offset.checked_add(len).filter(|end| *end <= self.lun.medium.bytes()).ok_or(Errno::ENOSPC)?;
        let taken = self.lun.lun.lock().take_write(self.port);
        let ticket = taken.map_err(|_| refused())?;
        let begun = self.lun.lun.lock().begin_write(ticket);
        if let Err((_, over)) = begun {
            self.lun.tell(over, true);
            return Err(refused());
        }
        let delay = Duration::from_millis(fault.delay_ms);
        let done = if fault.torn {
            let cut = ((offset + len / 2) / BLOCK * BLOCK).clamp(offset, end);
            let first = work(offset..cut);
            std::thread::sleep(delay.max(TEAR));
            let has_power = self.lun.lun.lock().is_under_way(ticket);
            if has_power { first.and_then(|()| work(cut..end)) } else { first }
        } else {
            std::thread::sleep(delay);
            work(offset..end)
        };
        let ended = self.lun.lun.lock().end_write(ticket);
        self.lun.tell(ended.ok_or(Errno::EIO)?, true);
        done.map_err(Errno::from)
    }

    fn read(&self, offset: u64, size: u32) -> Result<Buf, Errno> {
        self.is_there()?;
        if !self.lun.lun.lock().reservations().may_read(self.port) {
            return Err(refused());
        }
        let len = u64::from(size).min(self.lun.medium.bytes().saturating_sub(offset));
        self.lun.medium.read(offset, len as usize).map_err(Errno::from)
    }

    fn sync(&self) -> Result<(), Errno> {
        self.is_there()?;
        match self.lun.lun.lock().lets_write(self.port) {
            true => {}
            false => return Err(refused()),
        }
        self.lun.medium.sync().map_err(Errno::from)
    }

    /// The return value of a reservation call.
    fn call(&self, cmd: u32, in_data: &[u8]) -> Result<i32, Errno> {
        let command = calls::decode(cmd, in_data).ok_or(Errno::ENOTTY)?;
        while self.fault().silent {
            std::thread::sleep(LOOK);
        }
        self.is_connected()?;
        match self.lun.command(self.port, command).map_err(Errno::from)? {
            Reply::After(abort) if self.lun.wait_for(abort) => Ok(0),
            Reply::After(_) => Err(Errno::EIO),
            Reply::Now(done) => Ok(calls::status(done)),
        }
    }

    fn attribute(&self, name: &OsStr) -> Result<Vec<u8>, Errno> {
        let text = match name.to_str() {
            Some(SHOWN) => {
                self.is_connected()?;
                serde_json::to_vec(&Shown::of(self.lun.lun.lock().reservations()))
            }
            Some(COUNTERS) => serde_json::to_vec(&self.lun.counters()),
            Some(FAULT) => serde_json::to_vec(&self.fault()),
            _ => return Err(Errno::ENODATA),
        };
        text.map_err(|_| Errno::EIO)
    }
}

/// The error number that the kernel makes of a reservation conflict.
fn refused() -> Errno {
    Errno::from_i32(libc::EBADE)
}

fn answer(reply: ReplyEmpty, done: Result<(), Errno>) {
    match done {
        Ok(()) => reply.ok(),
        Err(why) => reply.error(why),
    }
}

impl Filesystem for PathFs {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // Without it direct writes wait for one another in the kernel.
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        let _ = config.set_max_background(64);
        Ok(())
    }

    fn lookup(&self, _req: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let index = self.luns.iter().position(|lun| name == lun.name.as_str());
        let found = index.ok_or(Errno::ENOENT).and_then(|n| self.attr(INodeNo(FIRST + n as u64)));
        match found {
            Ok(attr) => reply.entry(&TTL, &attr, Generation(0)),
            Err(why) => reply.error(why),
        }
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        match self.attr(ino) {
            Ok(attr) => reply.attr(&TTL, &attr),
            Err(why) => reply.error(why),
        }
    }

    fn setattr(
        &self,
        _req: &Request,
        ino: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<fuser::TimeOrNow>,
        _mtime: Option<fuser::TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        // A LUN has its size; owner, mode and times are nobody's concern.
        match self.attr(ino) {
            Ok(attr) if size.is_none_or(|size| size == attr.size) => reply.attr(&TTL, &attr),
            Ok(_) => reply.error(Errno::EPERM),
            Err(why) => reply.error(why),
        }
    }

    fn open(&self, _req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        // Without both, direct writes hold the kernel's lock of the file one after the other.
        let direct = FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES | FopenFlags::FOPEN_DIRECT_IO;
        let how = if flags.0 & libc::O_DIRECT != 0 { direct } else { FopenFlags::empty() };
        match self.lun(ino) {
            Ok(_) => reply.opened(FileHandle(0), how),
            Err(why) => reply.error(why),
        }
    }

    fn read(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.lun(ino).and_then(|lun| lun.read(offset, size)) {
            Ok(data) => reply.data(&data),
            Err(why) => reply.error(why),
        }
    }

    fn write(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let sync = flags.0 & libc::O_DSYNC != 0;
        let done = self.lun(ino).and_then(|lun| {
            lun.put(offset, data.len() as u64, |part| {
                let bytes = &data[(part.start - offset) as usize..(part.end - offset) as usize];
                lun.lun.medium.write(part.start, bytes)?;
                if sync { lun.lun.medium.sync() } else { Ok(()) }
            })
        });
        match done {
            Ok(()) => reply.written(data.len() as u32),
            Err(why) => reply.error(why),
        }
    }

    fn fallocate(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        if mode & (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE) == 0 {
            return reply.error(Errno::EOPNOTSUPP);
        }
        let done = self.lun(ino).and_then(|lun| lun.put(offset, length, |part| lun.lun.medium.discard(part)));
        answer(reply, done);
    }

    fn flush(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _owner: LockOwner, reply: ReplyEmpty) {
        // Closing makes nothing durable.
        reply.ok();
    }

    fn fsync(&self, _req: &Request, ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        answer(reply, self.lun(ino).and_then(|lun| lun.sync()));
    }

    fn ioctl(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        _flags: IoctlFlags,
        cmd: u32,
        in_data: &[u8],
        _out_size: u32,
        reply: ReplyIoctl,
    ) {
        match self.lun(ino).and_then(|lun| lun.call(cmd, in_data)) {
            Ok(status) => reply.ioctl(status, &[]),
            Err(why) => reply.error(why),
        }
    }

    fn getxattr(&self, _req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let attribute = match ino {
            ROOT => Err(Errno::ENODATA),
            _ => self.lun(ino).and_then(|lun| lun.attribute(name)),
        };
        match attribute {
            Ok(text) if size == 0 => reply.size(text.len() as u32),
            Ok(text) if text.len() <= size as usize => reply.data(&text),
            Ok(_) => reply.error(Errno::ERANGE),
            Err(why) => reply.error(why),
        }
    }

    fn setxattr(
        &self,
        _req: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        _flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        answer(reply, self.set_attribute(ino, name, value));
    }

    fn readdir(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        for (n, lun) in self.luns.iter().enumerate().skip(offset as usize) {
            if reply.add(INodeNo(FIRST + n as u64), n as u64 + 1, FileType::RegularFile, &lun.name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        reply.statfs(1 << 20, 1 << 20, 1 << 20, 1 << 10, 1 << 10, 4096, 255, 4096);
    }
}
