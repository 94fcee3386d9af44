//! One user at a time: `O_EXCL` on block devices, open-file-description locks on files, on the very descriptors that
//! do the I/O. The kernel lets go of such a lock only when the last operation in flight of a killed process has ended,
//! so whoever gets it sees no late write.

use super::holder;
use crate::{IoError, IoKind};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use std::path::Path;
use std::time::{Duration, Instant};

/// Between two tries.
const PAUSE: Duration = Duration::from_millis(20);
/// The least time that a device is waited for if nobody can be seen to have it: the kernel takes down the
/// rings of a process that has ended, or let go of it, in its own time, and until then it counts as used. And
/// how long between two looks.
const UNSEEN: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(100);

/// Opens; while a block device is claimed by another (`EBUSY`), tries again until `deadline`.
pub(super) fn open_waiting(
    path: &Path,
    flags: OFlags,
    deadline: Option<Instant>,
) -> Result<OwnedFd, IoError> {
    let begun = Instant::now();
    loop {
        match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(fd) => return Ok(fd),
            Err(Errno::INTR) => {}
            Err(Errno::BUSY) if deadline.is_some_and(|d| Instant::now() < d) => std::thread::sleep(PAUSE),
            Err(Errno::BUSY) => linger(path, begun, holder::of_block_device(path))?,
            Err(e) => {
                return Err(IoError::from_errno(e.raw_os_error(), format!("opening {}", path.display())));
            }
        }
    }
}

/// True if somebody on this host has the file or device locked, or an operation of somebody who had it is in flight. A file is not
/// locked by asking. A block device is claimed for a moment: whoever opens it by [`super::DeviceFile::open`] waits longer than that.
///
/// # Errors
/// If it cannot be opened.
pub fn is_in_use(path: &Path) -> std::io::Result<bool> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    if FileType::from_raw_mode(rustix::fs::stat(path)?.st_mode) == FileType::BlockDevice {
        // Nobody can be asked who has claimed it: a process that was killed has no descriptors any more, and keeps its claim.
        return match rustix::fs::open(path, flags | OFlags::EXCL, Mode::empty()) {
            Ok(_) => Ok(false),
            Err(Errno::BUSY) => Ok(true),
            Err(why) => Err(why.into()),
        };
    }
    let fd = rustix::fs::open(path, flags, Mode::empty())?;
    let mut lock = range(libc::F_WRLCK, 0, 0);
    // SAFETY: the descriptor is open and `lock` is a complete `flock` that outlives the call.
    match unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) } {
        -1 => Err(std::io::Error::last_os_error()),
        _ => Ok(lock.l_type != libc::F_UNLCK as libc::c_short),
    }
}

/// Descriptors of a file beside its first two that can hold a part of its lock.
const FURTHER: i64 = 1 << 16;
/// The last byte of the offset range; those of the further descriptors lie before it.
const LAST: i64 = i64::MAX - 1;

/// Locks a file on both its descriptors, the second (buffered) one by the last byte of the offset range: a lock of
/// the whole file by anyone else collides with both, and operations in flight on either keep theirs. The bytes of further
/// descriptors come free once nobody else has any.
pub(super) fn lock_file(
    path: &Path,
    main: &OwnedFd,
    plain: Option<&OwnedFd>,
    shared: bool,
    deadline: Instant,
) -> Result<(), IoError> {
    acquire(path, main, shared, 0, LAST, deadline)?;
    match plain {
        Some(plain) => acquire(path, plain, shared, LAST, 1, deadline)?,
        None => acquire(path, main, shared, LAST, 1, deadline)?,
    }
    set_lock(main, libc::F_UNLCK, LAST - FURTHER, FURTHER)
        .map_err(|n| IoError::from_errno(n, format!("locking {}", path.display())))
}

/// Locks a further descriptor of a file that is locked: what is in flight on it keeps others out too.
pub(super) fn lock_further(path: &Path, fd: &OwnedFd, shared: bool) -> Result<(), IoError> {
    let kind = if shared { libc::F_RDLCK } else { libc::F_WRLCK };
    for byte in LAST - FURTHER..LAST {
        match set_lock(fd, kind, byte, 1) {
            Ok(()) => return Ok(()),
            Err(libc::EAGAIN | libc::EACCES | libc::EINTR) => {}
            Err(n) => return Err(IoError::from_errno(n, format!("locking {}", path.display()))),
        }
    }
    Err(IoError::new(IoKind::Invalid, format!("{} is open {FURTHER} times by one process", path.display())))
}

fn acquire(
    path: &Path,
    fd: &OwnedFd,
    shared: bool,
    start: i64,
    len: i64,
    deadline: Instant,
) -> Result<(), IoError> {
    let begun = Instant::now();
    loop {
        match try_lock(fd, shared, start, len) {
            Ok(()) => return Ok(()),
            Err(libc::EINTR) => {}
            Err(libc::EAGAIN | libc::EACCES) if Instant::now() < deadline => std::thread::sleep(PAUSE),
            Err(libc::EAGAIN | libc::EACCES) => linger(path, begun, holder::of_file_lock(path))?,
            Err(n) => return Err(IoError::from_errno(n, format!("locking {}", path.display()))),
        }
    }
}

fn try_lock(fd: &OwnedFd, shared: bool, start: i64, len: i64) -> Result<(), i32> {
    set_lock(fd, if shared { libc::F_RDLCK } else { libc::F_WRLCK }, start, len)
}

fn range(kind: libc::c_int, start: i64, len: i64) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: start,
        l_len: len,
        l_pid: 0,
    }
}

fn set_lock(fd: &OwnedFd, kind: libc::c_int, start: i64, len: i64) -> Result<(), i32> {
    let lock = range(kind, start, len);
    // SAFETY: the descriptor is open and `lock` is a complete `flock` that outlives the call.
    match unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) } {
        -1 => Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)),
        _ => Ok(()),
    }
}

/// Locks a device as well in the two ways in which programs lock files: `O_EXCL` keeps out only those who ask for it too.
pub(super) fn lock_device(path: &Path, fd: &OwnedFd, deadline: Instant) -> Result<(), IoError> {
    loop {
        match rustix::fs::flock(fd, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => break,
            Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) if Instant::now() < deadline => std::thread::sleep(PAUSE),
            Err(Errno::WOULDBLOCK) => return Err(in_use(path, holder::of_block_device(path))),
            Err(e) => {
                return Err(IoError::from_errno(e.raw_os_error(), format!("locking {}", path.display())));
            }
        }
    }
    acquire(path, fd, false, 0, 0, deadline)
}

/// Waits a little longer for somebody who cannot be seen; gives up on a `holder` who can.
fn linger(path: &Path, begun: Instant, holder: Option<String>) -> Result<(), IoError> {
    if holder.is_some() || begun.elapsed() > UNSEEN {
        return Err(in_use(path, holder));
    }
    std::thread::sleep(LOOK);
    Ok(())
}

fn in_use(path: &Path, holder: Option<String>) -> IoError {
    let unseen =
        || "a process that cannot be seen from here (another container or another user's)".to_owned();
    let holder = holder.unwrap_or_else(unseen);
    IoError {
        kind: IoKind::Invalid,
        errno: libc::EBUSY,
        context: format!("{} is in use by {holder}; stop that first", path.display()).into(),
    }
}
