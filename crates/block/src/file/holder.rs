//! Who holds a lock, in words for the operator. Best effort: another user's processes are visible to root only.

use rustix::fs::{AtFlags, CWD, StatxFlags, major, makedev, minor, stat, statx};
use std::fs;
use std::path::Path;

/// The process whose open file description carries the lock that stands in the way of ours; nothing where none can be seen.
pub(super) fn of_file_lock(path: &Path) -> Option<String> {
    let target = stat(path).ok()?;
    let same = |s: &Seen| s.device == target.st_dev && s.inode == target.st_ino;
    // /proc/PID/fdinfo/FD lists the locks of that very description, also those of the open-file-description kind,
    // which /proc/locks shows without an owner.
    let holders = processes(|pid, fd, s| {
        same(s) && fs::read_to_string(format!("/proc/{pid}/fdinfo/{fd}")).is_ok_and(|t| t.contains("\nlock:"))
    });
    (!holders.is_empty()).then(|| holders.join(" and "))
}

/// A mount, a device built on top, or the processes that have the device open; nothing where none can be seen.
pub(super) fn of_block_device(path: &Path) -> Option<String> {
    let target = stat(path).ok()?;
    let number = format!("{}:{}", major(target.st_rdev), minor(target.st_rdev));
    if let Some(mount) = mount_point(&number) {
        return Some(format!("the file system mounted at {mount}"));
    }
    let above: Vec<String> = fs::read_dir(format!("/sys/dev/block/{number}/holders"))
        .map(|d| d.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect())
        .unwrap_or_default();
    if !above.is_empty() {
        return Some(format!("the kernel's device {} built on it", above.join(", ")));
    }
    let holders = processes(|_, _, s| s.number == target.st_rdev && s.mode == target.st_mode);
    (!holders.is_empty()).then(|| holders.join(" or "))
}

fn mount_point(number: &str) -> Option<String> {
    let table = fs::read_to_string("/proc/self/mountinfo").ok()?;
    table.lines().find_map(|line| {
        let mut fields = line.split(' ');
        (fields.nth(2)? == number).then(|| fields.nth(1).unwrap_or("?").to_owned())
    })
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

/// "process 123 (name)" of every process with a descriptor for which `wanted(pid, fd, stat)` is true.
fn processes(wanted: impl Fn(&str, &str, &Seen) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let pid = entry.file_name().to_string_lossy().into_owned();
        if !pid.bytes().all(|b| b.is_ascii_digit()) {
            continue;
        }
        let Ok(fds) = fs::read_dir(entry.path().join("fd")) else { continue };
        let holds = fds.flatten().any(|fd| {
            let name = fd.file_name().to_string_lossy().into_owned();
            look(&fd.path()).is_ok_and(|s| wanted(&pid, &name, &s))
        });
        if holds {
            let command = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            found.push(format!("process {pid} ({})", command.trim_end()));
        }
    }
    found
}
