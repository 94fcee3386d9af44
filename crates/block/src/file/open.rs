//! Opening: direct I/O where it is accepted, locked before anything is read.

use super::writeback::{Failures, User};
use super::{DeviceFile, DioAlign, Handle, Identity, block, lock};
use crate::silence::Silence;
use crate::{Buf, Geometry, IoError, IoKind, SECTOR};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, FallocateFlags, FileType, Mode, OFlags, StatxFlags, fallocate, fstat, statx};
use rustix::io::Errno;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// From the kernel's linux/magic.h.
const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;
/// Likewise.
const FUSE_MAGIC: rustix::fs::FsWord = 0x6573_5546;

/// Options for opening a [`DeviceFile`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenOptions {
    /// Nothing will be written.
    pub read_only: bool,
    /// Use `O_DIRECT` where it is accepted (a warning says where it was not).
    pub direct: bool,
    /// Lock against other users, waiting this long for one that is on its way out; `None` does not lock. A writer
    /// shares with nobody, a reader with readers (on block devices with nobody).
    pub exclusive: Option<Duration>,
}

impl Default for OpenOptions {
    /// Read and write, direct, locked within 10 s.
    fn default() -> OpenOptions {
        OpenOptions { read_only: false, direct: true, exclusive: Some(Duration::from_secs(10)) }
    }
}

impl DeviceFile {
    /// Opens what is at `path`. A refused lock names its holder.
    pub fn open(path: impl AsRef<Path>, options: &OpenOptions) -> Result<DeviceFile, IoError> {
        let path = path.as_ref();
        let deadline = options.exclusive.map(|d| Instant::now() + d);
        let at_path = |e: Errno| IoError::from_errno(e.raw_os_error(), format!("opening {}", path.display()));

        let stat = rustix::fs::stat(path).map_err(at_path)?;
        let is_block = match FileType::from_raw_mode(stat.st_mode) {
            FileType::BlockDevice => true,
            FileType::RegularFile => false,
            other => {
                let text = format!("{} is neither a file nor a block device ({other:?})", path.display());
                return Err(IoError::new(IoKind::Invalid, text));
            }
        };

        let mut flags = OFlags::CLOEXEC | if options.read_only { OFlags::RDONLY } else { OFlags::RDWR };
        if is_block && options.exclusive.is_some() {
            flags |= OFlags::EXCL;
        }
        let mut warnings = Vec::new();
        let direct = if options.direct { open_direct(path, flags, deadline, &mut warnings)? } else { None };
        let (main, direct) = match direct {
            Some((main, align)) => {
                let plain = buffered_again(main.as_fd(), flags).map_err(at_path)?;
                (main, Some((align, plain)))
            }
            None => (lock::open_waiting(path, flags, deadline)?, None),
        };
        if let (false, Some(deadline)) = (is_block, deadline) {
            lock::lock_file(path, &main, direct.as_ref().map(|d| &d.1), options.read_only, deadline)?;
            // Whoever held the lock may have removed the file, or put another in its place.
            let (ours, there) = (fstat(&main).map_err(at_path)?, rustix::fs::stat(path).map_err(at_path)?);
            if (ours.st_dev, ours.st_ino) != (there.st_dev, there.st_ino) {
                let text = format!("{} was replaced while it was being opened; try again", path.display());
                return Err(IoError::new(IoKind::Invalid, text));
            }
        }

        let (geometry, identity) = if is_block {
            let (geometry, identity) = block::describe(&main, path)?;
            // The page cache is volatile, whatever the device has.
            (Geometry { volatile_cache: geometry.volatile_cache || direct.is_none(), ..geometry }, identity)
        } else {
            describe_file(&main, path, direct.as_ref().map(|d| d.0), options.read_only, &mut warnings)?
        };
        let lies_on = |magic| !is_block && rustix::fs::fstatfs(&main).is_ok_and(|s| s.f_type == magic);
        let (in_memory, in_fuse) = (lies_on(TMPFS_MAGIC), lies_on(FUSE_MAGIC));
        if !in_memory {
            let buffered = direct.is_none() && !options.read_only;
            forget_pages(&main, buffered, path, &mut warnings).map_err(at_path)?;
        }
        let path = path.to_owned();
        let size = geometry.size.into();
        let handle = Handle {
            main,
            direct,
            path,
            is_block,
            in_memory,
            in_fuse,
            flags,
            locked: !is_block && options.exclusive.is_some(),
            geometry,
            size,
            identity,
            warnings,
            failures: Failures::default(),
            refusal_said: false.into(),
        };
        Ok(DeviceFile {
            handle: Arc::new(handle),
            user: User::sharing(),
            start: 0,
            silence: Silence::default(),
        })
    }

    /// Makes a file of `size` bytes, all holes, and opens it. Refuses one that exists.
    pub fn create(path: impl AsRef<Path>, size: u64, options: &OpenOptions) -> Result<DeviceFile, IoError> {
        let path = path.as_ref();
        let at_path =
            |e: Errno| IoError::from_errno(e.raw_os_error(), format!("creating {}", path.display()));
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR).map_err(at_path)?;
        let opened =
            rustix::fs::ftruncate(&fd, size).map_err(at_path).and_then(|()| DeviceFile::open(path, options));
        if opened.as_ref().is_err_and(|e| e.errno != libc::EBUSY) {
            // What was just made here holds nothing, unless somebody else was faster to lock it; leaving it would block the
            // next try.
            let _ = rustix::fs::unlink(path);
        }
        opened
    }
}

/// A descriptor with `O_DIRECT` and what it demands, or `None` with a warning.
fn open_direct(
    path: &Path,
    flags: OFlags,
    deadline: Option<Instant>,
    warnings: &mut Vec<String>,
) -> Result<Option<(OwnedFd, DioAlign)>, IoError> {
    let refused = |warnings: &mut Vec<String>| {
        warnings.push(format!(
            "{}: direct I/O is refused here, opened buffered: the page cache of the host will hold a second copy, and \
             speed depends on it",
            path.display()
        ));
        Ok(None)
    };
    let fd = match lock::open_waiting(path, flags | OFlags::DIRECT, deadline) {
        Ok(fd) => fd,
        Err(e) if e.errno == libc::EINVAL || e.errno == libc::EOPNOTSUPP => return refused(warnings),
        Err(e) => return Err(e),
    };
    match dio_align(&fd) {
        Some(align) => Ok(Some((fd, align))),
        None => {
            drop(fd);
            refused(warnings)
        }
    }
}

/// The same inode once more, without direct I/O (and without `O_EXCL`, which the first descriptor holds).
pub(super) fn buffered_again(main: BorrowedFd<'_>, flags: OFlags) -> Result<OwnedFd, Errno> {
    let again = format!("/proc/self/fd/{}", main.as_raw_fd());
    rustix::fs::open(again, flags - OFlags::EXCL - OFlags::DIRECT, Mode::empty())
}

/// Has the kernel drop what it holds of the file in memory, so that what is read from here on is what the device holds. After a
/// flush that failed, the kernel keeps the pages it could not write and takes them for clean: they read well until they
/// are dropped, so a start that believed them would vouch for what is not there. `write_first`: pages that were never
/// written (of a service that was killed) are, before.
fn forget_pages(
    fd: &OwnedFd,
    write_first: bool,
    path: &Path,
    warnings: &mut Vec<String>,
) -> Result<(), Errno> {
    // Advice: where it is not taken, checksums still find what does not come back.
    let drop_pages = || rustix::fs::fadvise(fd, 0, None, rustix::fs::Advice::DontNeed);
    let written = if write_first { rustix::fs::fdatasync(fd) } else { Ok(()) };
    let dropped = drop_pages();
    if let Err(e) = written {
        // It may be an earlier failure that nobody has heard of yet; a second one is of now.
        rustix::fs::fdatasync(fd)?;
        warnings.push(format!(
            "{}: an earlier write to it failed ({e}) and what was in memory is dropped; watch the device",
            path.display()
        ));
    }
    if dropped.is_err() && write_first {
        warnings.push(format!("{}: the kernel does not drop what it holds of it in memory", path.display()));
    }
    Ok(())
}

/// The demands of direct I/O as the kernel tells them, or else as reads find them out.
fn dio_align(fd: &OwnedFd) -> Option<DioAlign> {
    if let Ok(s) = statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN)
        && s.stx_mask & StatxFlags::DIOALIGN.bits() != 0
    {
        let align = DioAlign { memory: s.stx_dio_mem_align, offset: s.stx_dio_offset_align };
        let usable = align.offset != 0 && align.memory.is_power_of_two() && align.offset.is_power_of_two();
        return usable.then(|| DioAlign { offset: align.offset.max(SECTOR as u32), ..align });
    }
    [512u32, 4096, 65536]
        .into_iter()
        .find(|n| reads_at(fd.as_fd(), *n))
        .map(|n| DioAlign { memory: n, offset: n })
}

/// True if a read of `n` bytes at offset `n` into memory aligned to `n`, and to no more, is accepted. One that a bad sector fails
/// has been.
fn reads_at(fd: BorrowedFd<'_>, n: u32) -> bool {
    let n = n as usize;
    let mut buf = Buf::alloc(4 * n);
    let start = (n..=2 * n).find(|s| (buf.as_ptr().addr() + s).trailing_zeros() == n.trailing_zeros());
    let Some(start) = start else { return false };
    !matches!(
        rustix::io::pread(fd, &mut buf[start..start + n], n as u64),
        Err(Errno::INVAL | Errno::OPNOTSUPP)
    )
}

fn describe_file(
    fd: &OwnedFd,
    path: &Path,
    dio: Option<DioAlign>,
    read_only: bool,
    warnings: &mut Vec<String>,
) -> Result<(Geometry, Identity), IoError> {
    let stat = fstat(fd).map_err(|e| IoError::from_errno(e.raw_os_error(), format!("{}", path.display())))?;
    let bytes = stat.st_size as u64;
    let size = bytes / SECTOR * SECTOR;
    if size == 0 {
        let text = match bytes {
            0 => format!("{} is empty: give it a size first (truncate -s SIZE)", path.display()),
            n => format!("{} has {n} bytes, less than one block of 512: it can be no device", path.display()),
        };
        return Err(IoError::new(IoKind::Invalid, text));
    }
    if size != bytes {
        warnings.push(format!(
            "{}: {bytes} bytes are not a multiple of 512; the last {} are not used",
            path.display(),
            bytes - size
        ));
    }
    let logical_block = dio.map_or(SECTOR as u32, |d| d.offset);
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    // Behind the end there is nothing to lose, and the answer is the same.
    let can_unmap = !read_only && fallocate(fd, hole, bytes.next_multiple_of(1 << 20), 1 << 20).is_ok();
    let geometry = Geometry {
        size,
        logical_block,
        physical_block: (stat.st_blksize as u32).clamp(logical_block, 64 << 10),
        volatile_cache: true,
        rotational: false,
        can_unmap,
    };
    Ok((geometry, Identity::Size(size)))
}
