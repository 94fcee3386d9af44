//! Who has a block device open, in words for the operator. Best effort: other mount name spaces are not looked into. Nothing
//! is opened for it, and no file of others is touched, which might hang.

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
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    found.extend(
        mounted(&mounts, number, &node).into_iter().map(|at| format!("the file system mounted at {at}")),
    );
    for above in fs::read_dir(format!("/sys/block/loop{number}/holders")).into_iter().flatten().flatten() {
        found.push(format!("the kernel's device {} built on it", above.file_name().to_string_lossy()));
    }
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    if swaps.lines().any(|l| l.split_whitespace().next().is_some_and(|t| own(t, &node))) {
        found.push("the kernel, which swaps to it".to_owned());
    }
    found.extend(processes(&node));
    found
}

/// The mountpoints of file systems on the device, by the list `mounts`.
fn mounted(mounts: &str, number: u32, node: &str) -> Vec<String> {
    let device = format!("7:{number}");
    let mut places = Vec::new();
    for line in mounts.lines() {
        let mut fields = line.split(' ');
        let (Some(on), Some(at)) = (fields.nth(2), fields.nth(1)) else { continue };
        // A file system of several devices has a number of its own; its source is still one of them.
        let source = line.split(" - ").nth(1).and_then(|rest| rest.split(' ').nth(1));
        if on == device || source.is_some_and(|s| own(s, node)) {
            places.push(at.to_owned());
        }
    }
    places
}

fn processes(node: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let pid = entry.file_name().to_string_lossy().into_owned();
        if !pid.bytes().all(|b| b.is_ascii_digit()) {
            continue;
        }
        let Ok(fds) = fs::read_dir(entry.path().join("fd")) else { continue };
        let holds = |path: &Path| fs::read_link(path).is_ok_and(|t| own(&t.to_string_lossy(), node));
        if fds.flatten().any(|fd| holds(&fd.path())) {
            found.push(process(&pid));
        }
    }
    found
}

/// "process 123 (name)".
pub(super) fn process(pid: &str) -> String {
    let command = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    format!("process {pid} ({})", command.trim_end())
}

/// Whether process `pid` has ended or is about to.
pub(super) fn has_ended(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
    // The state follows the name, which may itself hold any character.
    stat.map_or(true, |s| s.rsplit(") ").next().is_some_and(|rest| rest.starts_with(['Z', 'X'])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_of_the_device_are_found_and_those_of_others_are_not() {
        let list = "36 22 7:3 / /mnt/a rw - ext4 /dev/loop3 rw\n37 22 7:30 / /mnt/b rw - ext4 /dev/loop30 rw\n\
            38 22 0:51 / /mnt/c rw shared:1 - btrfs /dev/loop3 rw\n39 22 259:1 / /mnt/d rw - ext4 /dev/loop3p1 rw\n";
        assert_eq!(mounted(list, 3, "/dev/loop3"), ["/mnt/a", "/mnt/c", "/mnt/d"]);
        assert!(mounted(list, 4, "/dev/loop4").is_empty());
    }

    #[test]
    fn this_process_lives_and_one_without_a_number_does_not() {
        assert!(!has_ended(std::process::id()));
        assert!(has_ended(u32::MAX));
    }
}
