//! The processes that have a block device open, in words for the operator. Best effort: other mount name
//! spaces are not looked into. Nothing is opened for it, and no file of others is touched, which might hang.

use loligo_block::mounts::{self, Mount};
use loligo_block::processes::with_open;
use std::fs;
use std::path::Path;

/// The device itself and its partitions.
fn own(target: &str, node: &str) -> bool {
    target.strip_prefix(node).is_some_and(|rest| {
        let partition = rest.strip_prefix('p').is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()));
        rest.is_empty() || partition
    })
}

/// Mounts, devices built on top, swap, and processes that have the node open.
pub(super) fn of(number: u32) -> Vec<String> {
    let node = format!("/dev/loop{number}");
    let mut found = Vec::new();
    let mounts = mounts::all().unwrap_or_default();
    found.extend(
        mounted(&mounts, number, &node).map(|at| format!("the file system mounted at {}", at.display())),
    );
    for above in fs::read_dir(format!("/sys/block/loop{number}/holders")).into_iter().flatten().flatten() {
        found.push(format!("the kernel's device {} built on it", above.file_name().to_string_lossy()));
    }
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    if swaps.lines().any(|l| l.split_whitespace().next().is_some_and(|t| own(t, &node))) {
        found.push("the kernel, which swaps to it".to_owned());
    }
    found.extend(with_open(|fd| fs::read_link(fd).is_ok_and(|to| own(&to.to_string_lossy(), &node))));
    found
}

/// The mountpoints of file systems on the device, by the list `mounts`.
fn mounted<'a>(mounts: &'a [Mount], number: u32, node: &'a str) -> impl Iterator<Item = &'a Path> {
    let device = format!("7:{number}");
    // A file system of several devices has a number of its own; its source is still one of them.
    let is_ours = move |m: &&Mount| m.device == device || own(&m.source, node);
    mounts.iter().filter(is_ours).map(|m| m.at.as_path())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    #[test]
    fn mounts_of_the_device_are_found_and_those_of_others_are_not() {
        let list = b"36 22 7:3 / /mnt/a rw - ext4 /dev/loop3 rw\n37 22 7:30 / /mnt/b rw - ext4 /dev/loop30 rw\n\
            38 22 0:51 / /mnt/c rw shared:1 - btrfs /dev/loop3 rw\n39 22 259:1 / /mnt/d rw - ext4 /dev/loop3p1 rw\n";
        let at = |number, node| -> Vec<PathBuf> {
            mounted(&mounts::parse(list), number, node).map(Path::to_owned).collect()
        };
        assert_eq!(at(3, "/dev/loop3"), ["/mnt/a", "/mnt/c", "/mnt/d"].map(PathBuf::from));
        assert!(at(4, "/dev/loop4").is_empty());
    }
}
