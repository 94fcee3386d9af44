//! The file system itself, served through FUSE by this process. All I/O is direct, so that no page cache stands between
//! the writer and the loss; delays make writes overlap and complete in any order.

use super::image::Image;
use fuser::{
    BackgroundSession, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, WriteFlags,
};
use loligo_sim::rng::Rng;
use parking_lot::{Mutex, MutexGuard};
use std::ffi::{CString, OsStr};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// Requests served at once.
const THREADS: usize = 12;
/// Longest a write takes, microseconds.
const WRITE_US: u64 = 250;
/// Longest a flush takes, microseconds.
const FLUSH_US: u64 = 1_000;
/// Nothing is cached by the kernel, attributes neither.
const TTL: Duration = Duration::ZERO;

#[derive(Debug)]
struct State {
    /// By inode number, from 2; 1 is the directory.
    files: Vec<(String, Image)>,
    on: bool,
    /// Counts the times power came back; handles of earlier ones are dead.
    boot: u64,
    /// Writes and flushes until the power goes by itself, and the seed of what survives.
    countdown: Option<(u64, u64)>,
    delays: Rng,
    /// Flushes are acknowledged and do nothing.
    lies: bool,
    /// Parts of files that fail with EIO, and for which bytes.
    broken: Vec<(String, Part, Range<u64>)>,
    /// The files' parts that answer nothing.
    hung: Vec<(String, Part)>,
    /// Reads that are answered later: they hold up no thread, so that others are served meanwhile.
    late: Vec<(INodeNo, FileHandle, u64, u32, ReplyData)>,
    /// Opening for direct I/O is refused, and all I/O goes through the kernel's page cache.
    buffered: bool,
}

/// The parts of a file that can fail by themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Its reads.
    Reads,
    /// Its writes; nothing of them is taken.
    Writes,
    /// Its flushes.
    Flushes,
    /// Everything, as where a device is gone.
    All,
}

impl State {
    fn cut(&mut self, seed: u64) {
        let mut rng = Rng::new(seed);
        self.on = false;
        self.countdown = None;
        self.files.iter_mut().for_each(|(_, image)| image.power_cut(&mut rng));
    }

    /// True if the power is on for this handle.
    fn alive(&self, handle: FileHandle) -> bool {
        self.on && handle.0 == self.boot
    }

    fn name(&self, ino: INodeNo) -> Option<&String> {
        ino.0.checked_sub(2).and_then(|at| self.files.get(at as usize)).map(|f| &f.0)
    }

    fn is_hung(&self, ino: INodeNo, part: Part) -> bool {
        let name = self.name(ino);
        self.hung.iter().any(|(of, p)| Some(of) == name && (*p == part || *p == Part::All))
    }

    /// True if `part` of the file fails for any of the bytes `at`.
    fn fails(&self, ino: INodeNo, part: Part, at: &Range<u64>) -> bool {
        let name = self.name(ino);
        let hits = |r: &Range<u64>| r.start < at.end && at.start < r.end;
        self.broken.iter().any(|(of, p, r)| Some(of) == name && (*p == part || *p == Part::All) && hits(r))
    }

    /// The flags that files are opened with.
    fn flags(&self) -> FopenFlags {
        if self.buffered { FopenFlags::empty() } else { DIRECT }
    }

    /// Counts a write or flush; the one that uses the countdown up is itself in flight when the power goes.
    fn count(&mut self) {
        if let Some((left, seed)) = self.countdown {
            match left {
                0 => self.cut(seed),
                _ => self.countdown = Some((left - 1, seed)),
            }
        }
    }
}

/// The files and the power switch; clones share them.
#[derive(Debug, Clone)]
pub struct Lossy {
    state: Arc<Mutex<State>>,
}

impl Lossy {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Cuts the power: every file keeps what was flushed and a part, chosen by `seed`, of what was not. From here on
    /// everything fails until [`Lossy::power_on`].
    pub fn power_cut(&self, seed: u64) {
        let mut s = self.lock();
        if s.on {
            s.cut(seed);
        }
    }

    /// Cuts the power by itself at the `after`th write or flush from now.
    pub fn power_cut_after(&self, after: u64, seed: u64) {
        self.lock().countdown = Some((after, seed));
    }

    /// From now on flushes do nothing, as on a disk that lies about them: what must be found out.
    pub fn lie_about_flushes(&self) {
        self.lock().lies = true;
    }

    /// From now on `part` of the file `name` fails with EIO, until [`Lossy::mend`].
    pub fn fail(&self, name: &str, part: Part) {
        self.fail_at(name, part, 0..u64::MAX);
    }

    /// The same for these bytes alone: bad sectors.
    pub fn fail_at(&self, name: &str, part: Part, at: Range<u64>) {
        self.lock().broken.push((name.to_owned(), part, at));
    }

    /// From now on `part` of the file `name` is not answered, until [`Lossy::mend`]; then it is. The kernel holds the file's lock during
    /// writes and flushes, so that whoever asks more of it then waits in the kernel, and not for an answer.
    pub fn hang(&self, name: &str, part: Part) {
        self.lock().hung.push((name.to_owned(), part));
    }

    /// Nothing fails or hangs any more.
    pub fn mend(&self) {
        let late = {
            let mut s = self.lock();
            s.broken.clear();
            s.hung.clear();
            std::mem::take(&mut s.late)
        };
        for (ino, fh, offset, size, reply) in late {
            self.get(ino, fh, offset, size, reply);
        }
    }

    /// A read.
    fn get(&self, ino: INodeNo, fh: FileHandle, offset: u64, size: u32, reply: ReplyData) {
        let mut s = self.lock();
        if s.is_hung(ino, Part::Reads) {
            return s.late.push((ino, fh, offset, size, reply));
        }
        if !s.alive(fh) || s.fails(ino, Part::Reads, &(offset..offset + u64::from(size))) {
            return reply.error(Errno::EIO);
        }
        match s.image(ino) {
            Ok(image) => reply.data(image.read(offset, size as usize)),
            Err(e) => reply.error(e),
        }
    }

    fn wait_while_hung(&self, ino: INodeNo, part: Part) {
        while self.lock().is_hung(ino, part) {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Refuses direct I/O from now on.
    pub fn refuse_direct_io(&self) {
        self.lock().buffered = true;
    }

    /// True if the power is on.
    pub fn is_on(&self) -> bool {
        self.lock().on
    }

    /// As after a fresh mount: descriptors opened before stay dead.
    pub fn power_on(&self) {
        let mut s = self.lock();
        s.on = true;
        s.boot += 1;
        s.countdown = None;
    }

    fn nap(&self, longest_us: u64) {
        let us = self.lock().delays.skewed(0..longest_us);
        std::thread::sleep(Duration::from_micros(us));
    }

    /// A write, or zeros made by `fallocate`: taken, delayed, and acknowledged if the power held.
    fn put(&self, ino: INodeNo, fh: FileHandle, offset: u64, data: &[u8], sync: bool) -> Result<(), Errno> {
        self.wait_while_hung(ino, Part::Writes);
        let number = {
            let mut s = self.lock();
            if !s.alive(fh) || s.fails(ino, Part::Writes, &(offset..offset + data.len() as u64)) {
                return Err(Errno::EIO);
            }
            let number = s.image(ino)?.write(offset, data);
            s.count();
            number
        };
        self.nap(WRITE_US);
        let mut s = self.lock();
        if !s.alive(fh) {
            return Err(Errno::EIO);
        }
        let image = s.image(ino)?;
        if sync {
            image.harden(number)
        } else {
            image.done(number)
        }
        Ok(())
    }

    fn sync(&self, ino: INodeNo, fh: FileHandle) -> Result<(), Errno> {
        self.wait_while_hung(ino, Part::Flushes);
        let covered = {
            let mut s = self.lock();
            if !s.alive(fh) || s.fails(ino, Part::Flushes, &(0..1)) {
                return Err(Errno::EIO);
            }
            let covered = if s.lies { Vec::new() } else { s.image(ino)?.flush_begins() };
            s.count();
            covered
        };
        self.nap(FLUSH_US);
        let mut s = self.lock();
        if !s.alive(fh) {
            return Err(Errno::EIO);
        }
        let image = s.image(ino)?;
        covered.into_iter().for_each(|n| image.harden(n));
        Ok(())
    }
}

impl State {
    fn image(&mut self, ino: INodeNo) -> Result<&mut Image, Errno> {
        let at = ino.0.checked_sub(2).ok_or(Errno::EISDIR)?;
        self.files.get_mut(at as usize).map(|f| &mut f.1).ok_or(Errno::ENOENT)
    }

    fn find(&self, name: &OsStr) -> Option<INodeNo> {
        self.files.iter().position(|f| OsStr::new(&f.0) == name).map(|i| INodeNo(i as u64 + 2))
    }

    fn attr(&self, ino: INodeNo) -> Result<FileAttr, Errno> {
        let file =
            ino.0.checked_sub(2).map(|i| self.files.get(i as usize).ok_or(Errno::ENOENT)).transpose()?;
        let size = file.map_or(0, |f| f.1.len());
        let time = SystemTime::UNIX_EPOCH;
        Ok(FileAttr {
            ino,
            size,
            blocks: size / 512,
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            kind: if file.is_some() { FileType::RegularFile } else { FileType::Directory },
            perm: if file.is_some() { 0o600 } else { 0o700 },
            nlink: 1,
            // SAFETY: these calls take nothing and cannot fail.
            uid: unsafe { libc::geteuid() },
            // SAFETY: as above.
            gid: unsafe { libc::getegid() },
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }
}

const DIRECT: FopenFlags = FopenFlags::FOPEN_DIRECT_IO.union(FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES);

impl Filesystem for Lossy {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // Without it direct writes wait for one another in the kernel, and nothing would ever be reordered.
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        let _ = config.set_max_background(64);
        Ok(())
    }

    fn lookup(&self, _req: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let s = self.lock();
        match s.find(name).ok_or(Errno::ENOENT).and_then(|i| s.attr(i)) {
            Ok(a) => reply.entry(&TTL, &a, Generation(0)),
            Err(e) => reply.error(e),
        }
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        match self.lock().attr(ino) {
            Ok(a) => reply.attr(&TTL, &a),
            Err(e) => reply.error(e),
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
        let mut s = self.lock();
        let resized = match size {
            Some(_) if !s.on => Err(Errno::EIO),
            Some(n) => s.image(ino).map(|image| image.resize(n)),
            None => Ok(()),
        };
        match resized.and_then(|()| s.attr(ino)) {
            Ok(a) => reply.attr(&TTL, &a),
            Err(e) => reply.error(e),
        }
    }

    fn open(&self, _req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let mut s = self.lock();
        if s.buffered && flags.0 & libc::O_DIRECT != 0 {
            return reply.error(Errno::EINVAL);
        }
        match s.image(ino).map(|_| ()) {
            Ok(()) if s.on => reply.opened(FileHandle(s.boot), s.flags()),
            Ok(()) => reply.error(Errno::EIO),
            Err(e) => reply.error(e),
        }
    }

    fn create(
        &self,
        _req: &Request,
        _parent: INodeNo,
        name: &OsStr,
        _mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let mut s = self.lock();
        let Some(text) = name.to_str().filter(|_| s.on) else { return reply.error(Errno::EIO) };
        s.files.push((text.to_owned(), Image::default()));
        let ino = INodeNo(s.files.len() as u64 + 1);
        match s.attr(ino) {
            Ok(a) => reply.created(&TTL, &a, Generation(0), FileHandle(s.boot), s.flags()),
            Err(e) => reply.error(e),
        }
    }

    fn unlink(&self, _req: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let mut s = self.lock();
        let Some(ino) = s.find(name) else { return reply.error(Errno::ENOENT) };
        // The number stays taken, so that those of the other files do not move.
        s.files[ino.0 as usize - 2].0.clear();
        reply.ok();
    }

    fn read(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.get(ino, fh, offset, size, reply);
    }

    fn write(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.put(ino, fh, offset, data, flags.0 & libc::O_DSYNC != 0) {
            Ok(()) => reply.written(data.len() as u32),
            Err(e) => reply.error(e),
        }
    }

    fn flush(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _owner: LockOwner, reply: ReplyEmpty) {
        // Closing makes nothing durable.
        reply.ok();
    }

    fn fsync(&self, _req: &Request, ino: INodeNo, fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        match self.sync(ino, fh) {
            Ok(()) => reply.ok(),
            Err(e) => reply.error(e),
        }
    }

    fn fallocate(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let zeroes = mode & (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE) != 0;
        if !zeroes {
            return reply.error(Errno::EOPNOTSUPP);
        }
        let len = match self.lock().image(ino) {
            Ok(image) => image.len(),
            Err(e) => return reply.error(e),
        };
        let end = (offset + length).min(len);
        let done = if offset < end {
            self.put(ino, fh, offset, &vec![0; (end - offset) as usize], false)
        } else {
            Ok(())
        };
        match done {
            Ok(()) => reply.ok(),
            Err(e) => reply.error(e),
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
        for (i, (name, _)) in self.lock().files.iter().enumerate().skip(offset as usize) {
            if !name.is_empty() && reply.add(INodeNo(i as u64 + 2), i as u64 + 1, FileType::RegularFile, name)
            {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        reply.statfs(1 << 20, 1 << 20, 1 << 20, 1 << 10, 1 << 10, 4096, 255, 4096);
    }
}

/// A lossy file system at a place; dropping it unmounts and ends its threads.
#[derive(Debug)]
pub struct Mounted {
    fs: Lossy,
    dir: PathBuf,
    session: Option<BackgroundSession>,
}

impl Mounted {
    /// Mounts an empty one at `dir`; `seed` chooses its delays.
    ///
    /// # Errors
    /// If FUSE cannot be used here.
    pub fn new(dir: &Path, seed: u64) -> std::io::Result<Mounted> {
        let state = State {
            files: Vec::new(),
            on: true,
            boot: 0,
            countdown: None,
            delays: Rng::new(seed),
            lies: false,
            broken: Vec::new(),
            hung: Vec::new(),
            late: Vec::new(),
            buffered: false,
        };
        let fs = Lossy { state: Arc::new(Mutex::new(state)) };
        let mut config = fuser::Config::default();
        config.mount_options = vec![fuser::MountOption::FSName("loligo-lossy".to_owned())];
        config.n_threads = Some(THREADS);
        config.clone_fd = true;
        let session = fuser::spawn_mount(fs.clone(), dir, &config)?;
        Ok(Mounted { fs, dir: dir.to_owned(), session: Some(session) })
    }

    /// Its power switch.
    pub fn power(&self) -> &Lossy {
        &self.fs
    }

    /// Its mountpoint.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Makes a file of `size` zeros, durable.
    ///
    /// # Panics
    /// If the name is taken.
    pub fn make(&self, name: &str, size: u64) -> PathBuf {
        let mut s = self.fs.lock();
        assert!(s.find(OsStr::new(name)).is_none(), "{name} is there already");
        let mut image = Image::default();
        image.resize(size);
        s.files.push((name.to_owned(), image));
        self.dir.join(name)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let Some(session) = self.session.take() else { return };
        let ended = match self.unmount() {
            Ok(true) => session.join(),
            Ok(false) => session.umount_and_join(),
            // The threads end with the mount, whenever that is; waiting for them could take for ever.
            Err(e) => Err(e),
        };
        if let Err(e) = ended {
            eprintln!("unmounting {}: {e}", self.dir.display());
        }
    }
}

impl Mounted {
    /// A killed user holds its files until its last I/O has ended: waits for that, then detaches. False where only a
    /// helper may unmount.
    fn unmount(&self) -> std::io::Result<bool> {
        let dir = CString::new(self.dir.as_os_str().as_bytes())?;
        let deadline = Instant::now() + Duration::from_secs(5);
        loop {
            let flags = if Instant::now() < deadline { 0 } else { libc::MNT_DETACH };
            // SAFETY: `dir` is a string that outlives the call.
            if unsafe { libc::umount2(dir.as_ptr(), flags) } == 0 {
                return if flags == 0 {
                    Ok(true)
                } else {
                    Err(std::io::Error::other("still in use, detached"))
                };
            }
            match std::io::Error::last_os_error() {
                e if e.raw_os_error() == Some(libc::EBUSY) && flags == 0 => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                e if e.raw_os_error() == Some(libc::EPERM) => return Ok(false),
                e => return Err(e),
            }
        }
    }
}
