//! The environment of a daemon's process: the variables that rules set, and no other.

use loligo_block::host_files::HostFiles;
use std::collections::BTreeMap;

/// The size of tcmalloc's cache for each thread, bytes.
pub(crate) const THREAD_CACHE: &str = "TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES";
/// Libraries that are loaded before all others.
pub(crate) const PRELOAD: &str = "LD_PRELOAD";

/// Beginnings of names of libraries that may be preloaded. Those with a profiler or checks are slower.
pub(crate) const TCMALLOCS: [&str; 2] = ["libtcmalloc.so", "libtcmalloc_minimal.so"];

/// The variables of a process that rules set; nothing: its environment cannot be read.
pub(crate) fn of(files: &HostFiles, pid: &str) -> Option<BTreeMap<String, String>> {
    let text = files.read(format!("/proc/{pid}/environ"))?;
    let all = text.split('\0').filter_map(|it| it.split_once('='));
    let known = all.filter(|(name, _)| [THREAD_CACHE, PRELOAD].contains(name));
    Some(known.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
}

/// The same with [`PRELOAD`] only where the process has mapped a tcmalloc: the loader passes by a file that it cannot load.
pub(crate) fn in_force(files: &HostFiles, pid: &str) -> Option<BTreeMap<String, String>> {
    let mut all = of(files, pid)?;
    let maps = files.read(format!("/proc/{pid}/maps")).unwrap_or_default();
    if !maps.contains("libtcmalloc") {
        all.remove(PRELOAD);
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::small_tree::tree;

    #[test]
    fn variables_that_no_rule_sets_are_not_read() {
        let dir = tree(&[
            (
                "proc/7/environ",
                "CEPH_ARGS=--key x\0TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES=1\0LD_PRELOAD=/a.so\0",
            ),
            ("proc/7/maps", "7f00 r-xp /usr/lib/libc.so.6\n"),
        ]);
        let files = HostFiles::new(dir.path());
        let want =
            [(THREAD_CACHE, "1"), (PRELOAD, "/a.so")].map(|(name, it)| (name.to_owned(), it.to_owned()));
        assert_eq!(of(&files, "7"), Some(BTreeMap::from(want)));
        assert_eq!(in_force(&files, "7").expect("it is there").len(), 1, "it was not loaded");
        assert_eq!(of(&files, "8"), None);
    }
}
