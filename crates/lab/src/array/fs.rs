//! One path to the LUN, as a file system of one file.

use super::shared::{COUNTERS, FAULT, Fault, LUN, POWER_CYCLE, Shared};
use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    IoctlFlags, KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty,
    ReplyEntry, ReplyIoctl, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, WriteFlags,
};
use loligo_pair::fence::{SHOWN, Shown, calls};
use loligo_pair::lun::Reply;
use loligo_pair::reservation::Port;
use parking_lot::Mutex;
use std::ffi::OsStr;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// The time for which the kernel may believe attributes, which never change.
const TTL: Duration = Duration::from_secs(60);
const ROOT: INodeNo = INodeNo(1);
const FILE: INodeNo = INodeNo(2);
/// Between two looks whether a silent path answers again.
const LOOK: Duration = Duration::from_millis(10);

/// One path.
#[derive(Debug)]
pub(super) struct PathFs {
    shared: Arc<Shared>,
    port: Port,
    fault: Mutex<Fault>,
}

impl PathFs {
    pub(super) fn new(shared: Arc<Shared>, port: Port) -> PathFs {
        PathFs { shared, port, fault: Mutex::default() }
    }

    fn fault(&self) -> Fault {
        *self.fault.lock()
    }

    /// # Errors
    /// If reads, writes and flushes of this path fail.
    fn is_there(&self) -> Result<Fault, Errno> {
        let fault = self.fault();
        if fault.eio || fault.lost { Err(Errno::EIO) } else { Ok(fault) }
    }

    /// A write or discard of `len` bytes, which `work` carries out.
    fn put(&self, offset: u64, len: u64, work: impl FnOnce() -> std::io::Result<()>) -> Result<(), Errno> {
        let fault = self.is_there()?;
        if offset.checked_add(len).is_none_or(|end| end > self.shared.bytes) {
            return Err(Errno::ENOSPC);
        }
        let taken = self.shared.lun.lock().take_write(self.port);
        let ticket = taken.map_err(|_| refused())?;
        let begun = self.shared.lun.lock().begin_write(ticket);
        if let Err((_, over)) = begun {
            self.shared.tell(over, true);
            return Err(refused());
        }
        if fault.delay_ms > 0 {
            std::thread::sleep(Duration::from_millis(fault.delay_ms));
        }
        let done = work();
        let ended = self.shared.lun.lock().end_write(ticket);
        self.shared.tell(ended.ok_or(Errno::EIO)?, true);
        done.map_err(Errno::from)
    }

    fn attr(&self, ino: INodeNo) -> Result<FileAttr, Errno> {
        let (kind, perm, size) = match ino {
            ROOT => (FileType::Directory, 0o755, 0),
            FILE => (FileType::RegularFile, 0o600, self.shared.bytes),
            _ => return Err(Errno::ENOENT),
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

    fn attribute(&self, name: &OsStr) -> Result<Vec<u8>, Errno> {
        let text = match name.to_str() {
            Some(SHOWN) => serde_json::to_vec(&Shown::of(self.shared.lun.lock().reservations())),
            Some(COUNTERS) => serde_json::to_vec(&self.shared.counters()),
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
        match self.attr(if name == LUN { FILE } else { INodeNo(0) }) {
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

    fn open(&self, _req: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        match ino {
            FILE => reply.opened(FileHandle(0), FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES),
            _ => reply.error(Errno::EISDIR),
        }
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
        let may = self.shared.lun.lock().reservations().may_read(self.port);
        let len = u64::from(size).min(self.shared.bytes.saturating_sub(offset));
        let mut data = vec![0; len as usize];
        let read = self.is_there().and_then(|_| if may { Ok(()) } else { Err(refused()) });
        match read.and_then(|()| self.shared.file.read_exact_at(&mut data, offset).map_err(Errno::from)) {
            Ok(()) => reply.data(&data),
            Err(why) => reply.error(why),
        }
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
        let sync = flags.0 & libc::O_DSYNC != 0;
        let done = self.put(offset, data.len() as u64, || {
            self.shared.file.write_all_at(data, offset)?;
            if sync { self.shared.file.sync_data() } else { Ok(()) }
        });
        match done {
            Ok(()) => reply.written(data.len() as u32),
            Err(why) => reply.error(why),
        }
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
        if mode & (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE) == 0 {
            return reply.error(Errno::EOPNOTSUPP);
        }
        let flags = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
        let file = &self.shared.file;
        let work = || Ok(rustix::fs::fallocate(file, flags, offset, length)?);
        answer(reply, self.put(offset, length, work));
    }

    fn flush(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _owner: LockOwner, reply: ReplyEmpty) {
        // Closing makes nothing durable.
        reply.ok();
    }

    fn fsync(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        let may = self.shared.lun.lock().reservations().may_write(self.port);
        let done = self.is_there().and_then(|_| if may { Ok(()) } else { Err(refused()) });
        answer(reply, done.and_then(|()| self.shared.file.sync_data().map_err(Errno::from)));
    }

    fn ioctl(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _flags: IoctlFlags,
        cmd: u32,
        in_data: &[u8],
        _out_size: u32,
        reply: ReplyIoctl,
    ) {
        let Some(command) = calls::decode(cmd, in_data) else { return reply.error(Errno::ENOTTY) };
        while self.fault().silent {
            std::thread::sleep(LOOK);
        }
        if self.fault().lost {
            return reply.error(Errno::EIO);
        }
        let done = self.shared.lun.lock().command(self.port, command);
        let status = match done {
            Reply::After(abort) if self.shared.wait_for(abort) => 0,
            Reply::After(_) => return reply.error(Errno::EIO),
            Reply::Now(done) => calls::status(done),
        };
        reply.ioctl(status, &[]);
    }

    fn getxattr(&self, _req: &Request, _ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        match self.attribute(name) {
            Ok(text) if size == 0 => reply.size(text.len() as u32),
            Ok(text) if text.len() <= size as usize => reply.data(&text),
            Ok(_) => reply.error(Errno::ERANGE),
            Err(why) => reply.error(why),
        }
    }

    fn setxattr(
        &self,
        _req: &Request,
        _ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        _flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        match name.to_str() {
            Some(FAULT) => match serde_json::from_slice(value) {
                Ok(fault) => {
                    *self.fault.lock() = fault;
                    reply.ok();
                }
                Err(_) => reply.error(Errno::EINVAL),
            },
            Some(POWER_CYCLE) => {
                let lost = self.shared.lun.lock().power_cycle();
                self.shared.tell(lost, false);
                reply.ok();
            }
            _ => reply.error(Errno::EOPNOTSUPP),
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
        if offset == 0 {
            let _ = reply.add(FILE, 1, FileType::RegularFile, LUN);
        }
        reply.ok();
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        reply.statfs(1 << 20, 1 << 20, 1 << 20, 1 << 10, 1 << 10, 4096, 255, 4096);
    }
}
