//! A slow disk that the program under test cannot know: one file of a FUSE file system, with a modelled disk behind it
//! that is none of the presets. To its user it is a file like any other, not marked as rotational.
//!
//! All I/O is direct, so that no page cache hides the disk, and up to its whole queue reaches the model at once.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use fuser::{
    BackgroundSession, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen,
    ReplyWrite, Request, WriteFlags,
};
use loligo_block::{HddKind, HddModel, HddParams};

/// The name of the file.
const NAME: &str = "disk";
const FILE: INodeNo = INodeNo(2);
const TTL: Duration = Duration::from_secs(3600);
/// Threads that take requests; none of them waits for the disk.
const THREADS: usize = 2;

/// A 5,900 rpm archive disk: shorter tracks than the presets', slower arm, costlier commands, a smaller buffer.
fn archive_disk() -> HddParams {
    HddParams {
        revolution: 60_000_000_000 / 5900,
        track: 640 << 10,
        switch: 1_900_000,
        skew: 2_200_000,
        seek_base: 2_400_000,
        seek_knee: 7_400_000,
        knee: 0.2,
        seek_full: 21_000_000,
        overhead: 90_000,
        metadata: 100_000,
        queue: 32,
        patience: 2_000_000_000,
        read_ahead: 2 << 20,
        bus_per_kib: 3_400,
        stream_min: 128 << 10,
        stream_gap: 700_000,
    }
}

/// Who waits for a command of the disk.
enum Waiting {
    Read { reply: ReplyData, offset: u64, len: usize },
    Write { reply: ReplyWrite, len: u32 },
    Flush(ReplyEmpty),
}

struct Spindle {
    model: HddModel,
    waiting: HashMap<u64, Waiting>,
    next: u64,
    ended: bool,
}

struct Shared {
    /// The content.
    file: File,
    size: u64,
    begun: Instant,
    spindle: Mutex<Spindle>,
    /// A command has come, or the end.
    news: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Spindle> {
        self.spindle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> u64 {
        self.begun.elapsed().as_nanos() as u64
    }

    fn submit(&self, offset: u64, len: u64, kind: HddKind, who: Waiting) {
        let mut s = self.lock();
        s.next += 1;
        let id = s.next;
        s.waiting.insert(id, who);
        let now = self.now();
        s.model.submit(now, id, offset, len, kind);
        self.news.notify_one();
    }

    /// Answers each command when the model says that it has ended.
    fn turn(&self) {
        let mut done = Vec::new();
        let mut s = self.lock();
        while !s.ended {
            let now = self.now();
            s.model.advance(now, &mut done);
            if done.is_empty() {
                // In steps, so that a clock that was read early can do no harm.
                let wait = s.model.next_deadline().map_or(1_000_000_000, |at| at.saturating_sub(now).max(1));
                (s, _) = self
                    .news
                    .wait_timeout(s, Duration::from_nanos(wait))
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let answered: Vec<Waiting> = done.drain(..).filter_map(|f| s.waiting.remove(&f.id)).collect();
            drop(s);
            answered.into_iter().for_each(|who| self.answer(who));
            s = self.lock();
        }
    }

    fn answer(&self, who: Waiting) {
        match who {
            Waiting::Read { reply, offset, len } => {
                let mut data = vec![0; len];
                match self.file.read_exact_at(&mut data, offset) {
                    Ok(()) => reply.data(&data),
                    Err(e) => reply.error(e.into()),
                }
            }
            Waiting::Write { reply, len } => reply.written(len),
            Waiting::Flush(reply) => reply.ok(),
        }
    }

    fn attr(&self, ino: INodeNo) -> FileAttr {
        let file = ino == FILE;
        let time = SystemTime::UNIX_EPOCH;
        FileAttr {
            ino,
            size: if file { self.size } else { 0 },
            blocks: if file { self.size / 512 } else { 0 },
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            kind: if file { FileType::RegularFile } else { FileType::Directory },
            perm: if file { 0o600 } else { 0o700 },
            nlink: 1,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}

struct DiskFs(Arc<Shared>);

impl Filesystem for DiskFs {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Without it direct requests wait for one another in the kernel, and the disk had nothing to choose from.
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        let _ = config.set_max_background(256);
        let _ = config.set_congestion_threshold(256);
        Ok(())
    }

    fn lookup(&self, _req: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if name == NAME {
            reply.entry(&TTL, &self.0.attr(FILE), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&TTL, &self.0.attr(ino));
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
        let len = u64::from(size).min(self.0.size.saturating_sub(offset));
        if len == 0 {
            return reply.data(&[]);
        }
        self.0.submit(offset, len, HddKind::Read, Waiting::Read { reply, offset, len: len as usize });
    }

    fn write(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let len = data.len() as u64;
        if offset + len > self.0.size {
            return reply.error(Errno::ENOSPC);
        }
        match self.0.file.write_all_at(data, offset) {
            Ok(()) => {
                self.0.submit(offset, len, HddKind::Write, Waiting::Write { reply, len: data.len() as u32 });
            }
            Err(e) => reply.error(e.into()),
        }
    }

    fn flush(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _owner: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        // The model has no write cache: what is answered is on the platter.
        self.0.submit(0, 0, HddKind::Flush, Waiting::Flush(reply));
    }
}

/// The mounted disk; dropping it unmounts and ends its threads. Declare it before the servers that use it.
#[derive(Debug)]
pub(crate) struct UnknownDisk {
    dir: PathBuf,
    shared: Arc<Shared>,
    session: Option<BackgroundSession>,
    turning: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Shared({} bytes)", self.size)
    }
}

impl UnknownDisk {
    /// Mounts one over `content` in the empty folder `dir`. Its text, where FUSE cannot be used here, says why.
    pub(crate) fn mount(content: &Path, dir: &Path) -> Result<UnknownDisk, String> {
        if !Path::new("/dev/fuse").exists() {
            return Err("/dev/fuse is missing (modprobe fuse)".to_owned());
        }
        let open = || -> io::Result<(File, u64)> {
            let file = File::options().read(true).write(true).open(content)?;
            let size = file.metadata()?.len();
            Ok((file, size))
        };
        let (file, size) = open().map_err(|e| format!("{}: {e}", content.display()))?;
        let model = HddModel::new(archive_disk(), size);
        let spindle = Spindle { model, waiting: HashMap::new(), next: 0, ended: false };
        let shared = Arc::new(Shared {
            file,
            size,
            begun: Instant::now(),
            spindle: Mutex::new(spindle),
            news: Condvar::new(),
        });
        let mut config = fuser::Config::default();
        config.mount_options = vec![fuser::MountOption::FSName("loligo-unknown-disk".to_owned())];
        config.n_threads = Some(THREADS);
        config.clone_fd = true;
        let session = fuser::spawn_mount(DiskFs(shared.clone()), dir, &config)
            .map_err(|e| format!("mounting through FUSE: {e} (apt-get install fuse3, or be root)"))?;
        let turns = shared.clone();
        let turning = std::thread::spawn(move || turns.turn());
        Ok(UnknownDisk { dir: dir.to_owned(), shared, session: Some(session), turning: Some(turning) })
    }

    /// The disk.
    pub(crate) fn path(&self) -> PathBuf {
        self.dir.join(NAME)
    }
}

impl Drop for UnknownDisk {
    fn drop(&mut self) {
        if let Some(session) = self.session.take()
            && let Err(e) = session.umount_and_join()
        {
            loligo_log::say!("unmounting {}: {e}", self.dir.display());
        }
        self.shared.lock().ended = true;
        self.shared.news.notify_one();
        if let Some(turning) = self.turning.take() {
            let _ = turning.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_disk_reads_back_what_was_written_turns_for_it_and_is_gone_afterwards() {
        let dir = tempfile::tempdir().unwrap();
        let (content, mount) = (dir.path().join("content"), dir.path().join("mount"));
        File::create_new(&content).unwrap().set_len(64 << 20).unwrap();
        std::fs::create_dir(&mount).unwrap();
        let disk = match UnknownDisk::mount(&content, &mount) {
            Ok(disk) => disk,
            Err(why) => return loligo_log::outln!("SKIP: a disk behind FUSE: {why}"),
        };
        let file = File::options().read(true).write(true).open(disk.path()).unwrap();
        let begun = Instant::now();
        file.write_all_at(&[7; 4096], 48 << 20).unwrap();
        let took = begun.elapsed();
        file.sync_data().unwrap();
        let mut back = [0; 8192];
        file.read_exact_at(&mut back, (48 << 20) - 4096).unwrap();
        assert_eq!((back[0], back[4096], back[8191]), (0, 7, 7));
        assert!(took > Duration::from_millis(3), "a seek over three quarters of the disk took {took:?}");
        drop(file);
        drop(disk);
        assert!(std::fs::read_dir(&mount).unwrap().next().is_none(), "unmounted");
    }
}
