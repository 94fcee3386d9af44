//! A block device as the kernel describes it.

use super::Identity;
use crate::{Geometry, IoError, IoKind, SECTOR};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::fs::{fstat, ioctl_blkpbszget, ioctl_blksszget, major, minor};
use rustix::io::Errno;
use std::fs;
use std::path::{Path, PathBuf};

/// The kernel's files of names, in the order of how lasting they are; relative to the whole disk's directory.
const NAMES: [&str; 6] = ["wwid", "device/wwid", "serial", "device/serial", "dm/uuid", "md/uuid"];

/// Bytes of an open block device.
pub(super) fn size(fd: BorrowedFd<'_>) -> Result<u64, Errno> {
    let number = fstat(fd)?.st_rdev;
    let own = PathBuf::from(format!("/sys/dev/block/{}:{}", major(number), minor(number)));
    read_number(&own.join("size")).map(|n| n * SECTOR).ok_or(Errno::NODEV)
}

pub(super) fn describe(fd: &OwnedFd, path: &Path) -> Result<(Geometry, Identity), IoError> {
    let failed =
        |e: rustix::io::Errno| IoError::from_errno(e.raw_os_error(), format!("asking {}", path.display()));
    let number = fstat(fd).map_err(failed)?.st_rdev;
    let (own, disk) = folders(number);

    let size = read_number(&own.join("size")).unwrap_or(0) * SECTOR;
    if size == 0 {
        let text = format!("{} has no size: no medium, or the device is not set up", path.display());
        return Err(IoError::new(IoKind::Gone, text));
    }
    let queue = |name: &str| read_number(&disk.join("queue").join(name)).unwrap_or(0);
    let geometry = Geometry {
        size,
        logical_block: ioctl_blksszget(fd).map_err(failed)?,
        physical_block: ioctl_blkpbszget(fd).map_err(failed)?,
        // An unreadable answer counts as the unsafe one.
        volatile_cache: read_text(&disk.join("queue/write_cache")).is_none_or(|t| t != "write through"),
        rotational: queue("rotational") == 1,
        can_unmap: queue("discard_max_bytes") > 0 && queue("write_zeroes_max_bytes") > 0,
    };
    let identity = lasting_name(number);
    Ok((geometry, identity.map_or(Identity::Size(size), |(id, offset)| Identity::Device { id, offset })))
}

/// The kernel's folders of a device, and of the disk that it is a part of or is itself.
fn folders(number: u64) -> (PathBuf, PathBuf) {
    let own = PathBuf::from(format!("/sys/dev/block/{}:{}", major(number), minor(number)));
    // A partition's directory lies inside its disk's, which has the queue and the name.
    let disk = if own.join("partition").exists() { own.join("..") } else { own.clone() };
    (own, disk)
}

/// A device's identity over restarts and changes of its path: the name of its disk, and bytes from the start of that.
pub(super) fn lasting_name(number: u64) -> Option<(String, u64)> {
    let (own, disk) = folders(number);
    let id = NAMES.iter().find_map(|n| read_text(&disk.join(n)).filter(|t| !t.is_empty()))?;
    // Only a partition has a start.
    Some((id, read_number(&own.join("start")).unwrap_or(0) * SECTOR))
}

/// The file under a loop device, and the byte of it that the device begins at.
pub(super) fn backing_file(number: u64) -> Option<(PathBuf, u64)> {
    let folder = folders(number).0.join("loop");
    let file = read_text(&folder.join("backing_file"))?;
    Some((file.into(), read_number(&folder.join("offset")).unwrap_or(0)))
}

/// Has udev look at the device again: it does so by itself only when a writer closes it.
pub(super) fn announce(fd: BorrowedFd<'_>) -> std::io::Result<()> {
    let number = fstat(fd)?.st_rdev;
    fs::write(format!("/sys/dev/block/{}:{}/uevent", major(number), minor(number)), "change")
}

fn read_text(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|t| t.trim().to_owned())
}

fn read_number(path: &Path) -> Option<u64> {
    read_text(path)?.parse().ok()
}
