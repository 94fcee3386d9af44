//! Threads of a process with their processors, and the devices that it has open.

use super::devices::disks;
use crate::partition::Group;
use loligo_block::host_files::HostFiles;
use std::collections::{BTreeMap, BTreeSet};

/// A thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Thread {
    /// Its number.
    pub(crate) tid: String,
    /// Its name.
    pub(crate) name: String,
    /// Processors that it may use, as the kernel writes them.
    pub(crate) cpus: String,
}

/// The threads of a process; those that end meanwhile are left out.
pub(crate) fn look(files: &HostFiles, pid: &str) -> Vec<Thread> {
    let tasks = format!("/proc/{pid}/task");
    let one = |tid: String| {
        let name = files.read(format!("{tasks}/{tid}/comm"))?;
        let status = files.read(format!("{tasks}/{tid}/status")).unwrap_or_default();
        let cpus = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        Some(Thread { tid, name, cpus: cpus.unwrap_or_default().trim().to_owned() })
    };
    files.names(&tasks).into_iter().filter_map(one).collect()
}

/// Processors by group of an OSD's threads; several of one group are joined by a slash.
pub(super) fn allowed(threads: &[Thread]) -> BTreeMap<String, String> {
    let mut sets: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for thread in threads.iter().filter(|thread| !thread.cpus.is_empty()) {
        for group in [Group::of(&thread.name).word(), "all"] {
            sets.entry(group).or_default().insert(&thread.cpus);
        }
    }
    let join = |all: BTreeSet<&str>| all.into_iter().collect::<Vec<_>>().join(" / ");
    sets.into_iter().map(|(group, all)| (group.to_owned(), join(all))).collect()
}

/// The disks below the block devices that a process has open.
pub(super) fn devices(files: &HostFiles, pid: &str) -> BTreeSet<String> {
    let fds = format!("/proc/{pid}/fd");
    let open = files.names(&fds).into_iter().filter_map(|fd| files.link(format!("{fds}/{fd}")));
    let names = open.filter_map(|to| Some(to.strip_prefix("/dev").ok()?.to_str()?.to_owned()));
    names.filter(|name| !name.contains('/')).flat_map(|name| disks(files, &name)).collect()
}
