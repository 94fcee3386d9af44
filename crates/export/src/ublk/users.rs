//! The users who have a block device open. The kernel keeps the number to itself, so it is asked in the ways
//! there are.

use loligo_block::processes;
use rustix::fs::{FileType, Mode, OFlags, makedev, open, stat};
use rustix::io::Errno;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// True if anybody uses the device `name` of `/dev`, as far as can be seen: file systems, swap, and whatever else claims it
/// in the kernel, and open and mapped files of all processes but this one.
pub(super) fn in_use(name: &str) -> bool {
    is_there(name) && (claimed(&Path::new("/dev").join(name)) || opened_by_others(name))
}

/// The part of that which can be seen without opening it.
pub(super) fn opened_by_others(name: &str) -> bool {
    has_holders(name) || opened(&numbers(name))
}

fn is_there(name: &str) -> bool {
    stat(Path::new("/dev").join(name))
        .is_ok_and(|s| FileType::from_raw_mode(s.st_mode) == FileType::BlockDevice)
}

/// The names of the device's partitions, which are opened without the whole being so.
pub(super) fn partitions(name: &str) -> Vec<String> {
    let below = std::fs::read_dir(Path::new("/sys/class/block").join(name)).into_iter().flatten().flatten();
    let parts = below.filter(|part| part.path().join("partition").exists());
    parts.filter_map(|part| part.file_name().into_string().ok()).collect()
}

/// The numbers of the device and its partitions.
fn numbers(name: &str) -> Vec<u64> {
    let number = |of: &str| {
        let text = std::fs::read_to_string(Path::new("/sys/class/block").join(of).join("dev")).ok()?;
        let (major, minor) = text.trim().split_once(':')?;
        Some(makedev(major.parse().ok()?, minor.parse().ok()?))
    };
    partitions(name).iter().map(String::as_str).chain([name]).filter_map(number).collect()
}

/// Mounted, or under LVM, md, dm or swap.
fn claimed(node: &Path) -> bool {
    let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::NONBLOCK | OFlags::CLOEXEC;
    matches!(open(node, flags, Mode::empty()), Err(Errno::BUSY))
}

fn has_holders(name: &str) -> bool {
    std::fs::read_dir(Path::new("/sys/class/block").join(name).join("holders"))
        .is_ok_and(|mut all| all.next().is_some())
}

/// An open file of another process, or what a loop device stands on.
fn opened(devices: &[u64]) -> bool {
    let us = std::process::id().to_string();
    let Ok(processes) = processes::folders() else { return true };
    for process in processes.filter(|p| !p.ends_with(&us)) {
        if mapped(&process, devices) {
            return true;
        }
        let Ok(files) = std::fs::read_dir(process.join("fd")) else { continue };
        // Looking at what a file stands for opens nothing.
        if files.flatten().any(|f| std::fs::metadata(f.path()).is_ok_and(|m| is(&m, devices))) {
            return true;
        }
    }
    let Ok(disks) = std::fs::read_dir("/sys/class/block") else { return false };
    disks.flatten().any(|d| {
        std::fs::read_to_string(d.path().join("loop/backing_file"))
            .is_ok_and(|file| std::fs::metadata(file.trim_end()).is_ok_and(|m| is(&m, devices)))
    })
}

/// True if a process has it in its memory: that outlives the descriptor that it was mapped by.
fn mapped(process: &Path, devices: &[u64]) -> bool {
    let Ok(maps) = std::fs::read_to_string(process.join("maps")) else { return false };
    let files = process.join("map_files");
    maps.lines()
        .filter(|line| line.contains(" /dev/"))
        .filter_map(|line| line.split(' ').next())
        .any(|range| std::fs::metadata(files.join(range)).is_ok_and(|m| is(&m, devices)))
}

fn is(m: &std::fs::Metadata, devices: &[u64]) -> bool {
    FileType::from_raw_mode(m.mode()) == FileType::BlockDevice && devices.contains(&m.rdev())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

    #[test]
    fn a_device_that_is_mapped_and_not_open_any_more_is_seen() {
        let disks = std::fs::read_dir("/sys/class/block").into_iter().flatten().flatten();
        let mut nodes = disks.map(|d| Path::new("/dev").join(d.file_name()));
        let found = nodes.find_map(|node| {
            let device = stat(&node).ok()?.st_rdev;
            let file = open(&node, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
            // SAFETY: a new mapping at a place that the kernel chooses; nobody reads it.
            let at = unsafe { mmap(std::ptr::null_mut(), 4096, ProtFlags::READ, MapFlags::SHARED, &file, 0) };
            Some((device, at.ok()?))
        });
        let Some((device, at)) = found else {
            return println!("SKIP: a mapped block device: there is none that can be opened");
        };
        let own = Path::new("/proc/self");
        let seen = mapped(own, &[device]);
        // SAFETY: the mapping made above, which nobody has a reference into.
        unsafe { munmap(at, 4096) }.expect("it is mapped");
        assert!(seen, "it was mapped");
        assert!(!mapped(own, &[device]));
    }
}
