//! The holder of a lock, in words for the operator. Best effort: another user's processes are visible to root
//! only.

use crate::mounts;
use crate::processes::with_open;
use rustix::fs::{AtFlags, CWD, StatxFlags, major, makedev, minor, stat, statx};
use std::fs;
use std::path::Path;

/// The process whose open file description carries the lock that stands in the way of ours; nothing where none can be seen.
pub(super) fn of_file_lock(path: &Path) -> Option<String> {
    let target = stat(path).ok()?;
    let same = |s: &Seen| s.device == target.st_dev && s.inode == target.st_ino;
    // /proc/PID/fdinfo/FD lists the locks of that very description, also those of the open-file-description kind,
    // which /proc/locks shows without an owner.
    let has_lock = |fd: &Path| {
        let info = fd.parent()?.with_file_name("fdinfo").join(fd.file_name()?);
        Some(fs::read_to_string(info).ok()?.contains("\nlock:"))
    };
    let holders = with_open(|fd| look(fd).is_ok_and(|s| same(&s)) && has_lock(fd) == Some(true));
    (!holders.is_empty()).then(|| holders.join(" and "))
}

/// A mount, a device built on top, or the processes that have the device open; nothing where none can be seen.
pub(super) fn of_block_device(path: &Path) -> Option<String> {
    let target = stat(path).ok()?;
    let number = format!("{}:{}", major(target.st_rdev), minor(target.st_rdev));
    if let Some(mount) = mounts::all().unwrap_or_default().iter().find(|m| m.device == number) {
        return Some(format!("the file system mounted at {}", mount.at.display()));
    }
    let above: Vec<String> = fs::read_dir(format!("/sys/dev/block/{number}/holders"))
        .map(|d| d.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect())
        .unwrap_or_default();
    if !above.is_empty() {
        return Some(format!("the kernel's device {} built on it", above.join(", ")));
    }
    let holders =
        with_open(|fd| look(fd).is_ok_and(|s| s.number == target.st_rdev && s.mode == target.st_mode));
    (!holders.is_empty()).then(|| holders.join(" or "))
}

/// The target of a descriptor, as the kernel knows it by itself.
struct Seen {
    device: u64,
    inode: u64,
    number: u64,
    mode: u32,
}

/// Asks no file system's server, which may be one that does not answer.
fn look(path: &Path) -> rustix::io::Result<Seen> {
    let s = statx(CWD, path, AtFlags::STATX_DONT_SYNC, StatxFlags::BASIC_STATS)?;
    Ok(Seen {
        device: makedev(s.stx_dev_major, s.stx_dev_minor),
        inode: s.stx_ino,
        number: makedev(s.stx_rdev_major, s.stx_rdev_minor),
        mode: s.stx_mode.into(),
    })
}
