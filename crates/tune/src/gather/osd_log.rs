//! The log of an OSD since its start: failures that tell of settings, and the column families that RocksDB opened.

use loligo_block::host_files::HostFiles;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

/// Bytes at the end of a log that are looked at.
const TAIL: u64 = 16 << 20;
/// Lines of failures that are kept.
const LINES: usize = 20;
/// Characters of a line that are kept.
const WIDTH: usize = 300;
/// Parts of lines that rules ask for.
const FAILURES: [&str; 5] = [
    "cannot load compressor",
    "cannot load erasure code plugin",
    "_collection_list",
    "omap_iterator",
    "Not enough space",
];

/// The view of a log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct OsdLog {
    /// Lines that tell of a failure.
    pub(super) errors: Vec<String>,
    /// Column families of RocksDB without `default`, as a list of words; empty: there is one alone. Nothing: the log does not say.
    pub(super) sharding: Option<String>,
}

/// Reads the log that the process `pid` has open.
pub(super) fn look(files: &HostFiles, pid: &str) -> Option<OsdLog> {
    let fds = format!("/proc/{pid}/fd");
    let mut open = files.names(&fds).into_iter().filter_map(|fd| files.link(format!("{fds}/{fd}")));
    let path = open.find(|path| path.extension().is_some_and(|it| it == "log") && is_of_osd(path))?;
    let inside = files.at(format!("/proc/{pid}/root{}", path.display()));
    let text = tail(&inside).or_else(|| tail(&files.at(&path)))?;
    Some(read(&text))
}

/// RocksDB has a log in the store beside it.
fn is_of_osd(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().contains("osd"))
}

fn tail(path: &PathBuf) -> Option<String> {
    let mut file = File::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL))).ok()?;
    let mut raw = Vec::new();
    file.take(TAIL).read_to_end(&mut raw).ok()?;
    Some(String::from_utf8_lossy(&raw).into_owned())
}

fn read(text: &str) -> OsdLog {
    let start = text.rmatch_indices(", process ceph-osd, pid").next().map(|(at, _)| at);
    let since = &text[start.unwrap_or(0)..];
    let is_failure = |line: &&str| FAILURES.iter().any(|part| line.contains(part));
    let errors = since.lines().filter(is_failure).take(LINES);
    let mut families = BTreeSet::new();
    for line in since.lines() {
        let name = line.split_once("Options for column family [").and_then(|(_, rest)| rest.split_once(']'));
        families.extend(name.map(|(name, _)| name));
    }
    let is_known = start.is_some() && families.remove("default");
    OsdLog {
        errors: errors.map(|line| line.chars().take(WIDTH).collect()).collect(),
        sharding: is_known.then(|| families.into_iter().collect::<Vec<_>>().join(" ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: &str = "2026-11-29 0 ceph version 16.2.15 (x) pacific (stable), process ceph-osd, pid 7\n";

    fn family(name: &str) -> String {
        format!(
            "2026-11-29  4 rocksdb: [column_family.cc:597] --------------- Options for column family [{name}]:\n"
        )
    }

    #[test]
    fn a_log_counts_from_the_last_start() {
        let old = format!("{START}1 bdev cannot load compressor of type lz4\n{}", family("old"));
        let new = format!("{START}{}{}{}", family("default"), family("m-0"), family("L"));
        let log = read(&(old.clone() + &new));
        assert_eq!((log.errors.len(), log.sharding.as_deref()), (0, Some("L m-0")));
        let log = read(&format!("{START}{}", family("default")));
        assert_eq!(log.sharding.as_deref(), Some(""), "one family");
        // The families were printed before the tail begins.
        assert_eq!(read("1 something\n").sharding, None);
        let log = read(&old);
        assert!(log.errors[0].contains("lz4"), "{log:?}");
    }
}
