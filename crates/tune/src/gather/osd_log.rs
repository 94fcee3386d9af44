//! The log of an OSD since its start: failures that tell of settings, and the column families that RocksDB opened.

use loligo_block::host_files::HostFiles;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;

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

/// Failures of the last start that are shown.
const SHOWN: usize = 3;
/// Parts of lines on an end by the program's own hand.
const FATAL: [&str; 3] = ["FAILED ceph_assert", "*** Caught signal", "ceph_abort"];
/// Parts of errors that each OSD writes as it starts, on 16 to 20.
const USUAL: [&str; 3] = ["Falling back to public interface", "log_to_monitors", "set_numa_affinity"];

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

/// Failures that the log at `path` tells of since the last start, the last ones last, in words of one line; empty: none.
pub(crate) fn last_words(path: &Path) -> String {
    tail(path).map(|text| failures(&text)).unwrap_or_default()
}

fn failures(text: &str) -> String {
    let mut all: Vec<String> = since_start(text).1.lines().filter_map(failure).collect();
    all.dedup();
    all.drain(..all.len().saturating_sub(SHOWN));
    all.join("; ")
}

/// A line of an error or of an assertion, without its time and thread.
fn failure(line: &str) -> Option<String> {
    let mut parts = line.splitn(4, char::is_whitespace).skip(2);
    let words = match (parts.next(), parts.next()) {
        (Some("-1"), Some(rest)) => rest,
        _ if FATAL.iter().any(|part| line.contains(part)) => line,
        _ => return None,
    };
    let is_usual = USUAL.iter().any(|part| words.contains(part));
    let words: String =
        words.replace("\u{1b}[0;31m", "").replace("\u{1b}[0m", "").chars().take(WIDTH).collect();
    Some(words.trim().to_owned()).filter(|it| !is_usual && !it.is_empty())
}

/// The text from the last start on; and whether there is one in it.
fn since_start(text: &str) -> (bool, &str) {
    let start = text.rmatch_indices(", process ceph-osd, pid").next().map(|(at, _)| at);
    (start.is_some(), &text[start.unwrap_or(0)..])
}

/// RocksDB has a log in the store beside it.
fn is_of_osd(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().contains("osd"))
}

fn tail(path: &Path) -> Option<String> {
    let mut file = File::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL))).ok()?;
    let mut raw = Vec::new();
    file.take(TAIL).read_to_end(&mut raw).ok()?;
    Some(String::from_utf8_lossy(&raw).into_owned())
}

fn read(text: &str) -> OsdLog {
    let (has_start, since) = since_start(text);
    let is_failure = |line: &&str| FAILURES.iter().any(|part| line.contains(part));
    let errors = since.lines().filter(is_failure).take(LINES);
    let mut families = BTreeSet::new();
    for line in since.lines() {
        let name = line.split_once("Options for column family [").and_then(|(_, rest)| rest.split_once(']'));
        families.extend(name.map(|(name, _)| name));
    }
    let is_known = has_start && families.remove("default");
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
    fn the_reasons_of_an_end_are_the_errors_of_the_last_start() {
        let error = |words: &str| format!("2026-11-29T18:31:17.122+0000 7f00d928d1c0 -1 {words}\n");
        let usual =
            error("Falling back to public interface") + &error("osd.0 12 log_to_monitors {default=true}");
        let range = "bluestore(/x) _set_cache_sizes bluestore_cache_meta_ratio (2) must be in range [0,1.0]";
        let end = "\u{1b}[0;31m ** ERROR: osd init failed: (22) Invalid argument\u{1b}[0m";
        let old = format!("{START}{}", error("an older end"));
        let text =
            [old.as_str(), START, &usual, &error(range).repeat(3), "2026 7f  1 osd.0 fine\n", &error(end)]
                .concat();
        assert_eq!(failures(&text), format!("{range}; ** ERROR: osd init failed: (22) Invalid argument"));
        let assertion = "./src/os/bluestore/X.cc: 1234: FAILED ceph_assert(size > 0)";
        assert_eq!(failures(&format!("{START}{usual}{assertion}\n")), assertion);
        assert_eq!(failures(&format!("{old}{START}{usual}")), "");
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
