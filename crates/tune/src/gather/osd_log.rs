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
/// The end of the line that each start begins with.
const START: &str = ", process ceph-osd, pid";
/// Parts of lines that name the reason of an end by the program's own hand.
const REASONS: [&str; 2] = ["FAILED ceph_assert", "ceph_abort_msg("];
/// Parts of lines of a daemon that ends.
const ENDS: [&str; 4] =
    ["** ERROR: osd init failed", "FAILED ceph_assert", "ceph_abort_msg(", "*** Caught signal"];
/// Parts of errors that each OSD writes as it starts, on 16 to 20.
const USUAL: [&str; 4] = [
    "Falling back to public interface",
    "log_to_monitors",
    "set_numa_affinity",
    "waiting for initial osdmap",
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

/// The last start of a daemon, as its log tells of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Start {
    /// The line that it begins with.
    pub(crate) line: String,
    /// Failures since then, the last ones last, in words of one line; empty: none.
    pub(crate) words: String,
    /// The daemon has said that it ends.
    pub(crate) ends: bool,
}

/// The last start in the log at `path`; nothing: none is in the end of it.
pub(crate) fn last_start(path: &Path) -> Option<Start> {
    start_in(&tail(path)?)
}

fn start_in(text: &str) -> Option<Start> {
    let at = text.rfind(START)?;
    let line = text[..at].rfind('\n').map_or(0, |before| before + 1);
    let since = &text[line..];
    let ends = since.lines().any(|line| ENDS.iter().any(|part| line.contains(part)));
    // Frames of a backtrace name the same functions.
    let mut lines = since.lines().filter(|line| !line.contains("+0x"));
    let reason = lines.clone().find(|line| REASONS.iter().any(|part| line.contains(part)));
    let words = match reason {
        Some(reason) => without_time(reason).chars().take(WIDTH).collect(),
        None => {
            let mut all: Vec<String> = lines.by_ref().filter_map(failure).collect();
            all.dedup();
            all.drain(..all.len().saturating_sub(SHOWN));
            all.join("; ")
        }
    };
    Some(Start { line: since.lines().next().unwrap_or_default().to_owned(), words, ends })
}

/// A line of an error, without its time and thread.
fn failure(line: &str) -> Option<String> {
    let words = without_time(line).strip_prefix("-1 ")?;
    let is_usual = USUAL.iter().any(|part| words.contains(part));
    let words: String =
        words.replace("\u{1b}[0;31m", "").replace("\u{1b}[0m", "").chars().take(WIDTH).collect();
    Some(words.trim().to_owned()).filter(|it| !is_usual && !it.is_empty())
}

/// A line from its level on, where it begins with its time and thread.
fn without_time(line: &str) -> &str {
    let is_time = line.starts_with(|c: char| c.is_ascii_digit());
    line.splitn(3, ' ').nth(2).filter(|_| is_time).unwrap_or(line).trim_start()
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
    let start = text.rfind(START);
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

    const BEGIN: &str = "2026-11-29 0 ceph version 16.2.15 (x) pacific (stable), process ceph-osd, pid 7\n";

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
        let old = format!("{BEGIN}{}", error("an older end"));
        let fine = "2026-11-29T18:31:17.122+0000 7f00d928d1c0  1 osd.0 fine\n";
        let text = [old.as_str(), BEGIN, &usual, &error(range).repeat(3), fine, &error(end)].concat();
        let of = |text: &str| start_in(text).expect("a start");
        let words = format!("{range}; ** ERROR: osd init failed: (22) Invalid argument");
        assert_eq!(of(&text), Start { line: BEGIN.trim_end().into(), words, ends: true });
        let frame = " 1: (ceph::__ceph_abort(char const*, int, char const*)+0xd4) [0x55]\n";
        let reason = "ceph_abort_msg(\"block checksum mismatch in db/000139.sst\")";
        let at = format!("{} ./src/os/bluestore/BlueStore.cc: 9: {reason}\n", "2026 7f00d928d1c0 -1");
        let said = of(&format!("{BEGIN}{at}{frame}{}", error("*** Caught signal (Aborted) **")));
        assert!(said.ends && said.words.ends_with(reason), "{said:?}");
        let slow = of(&format!("{old}{BEGIN}{usual}"));
        assert_eq!((slow.words.as_str(), slow.ends), ("", false), "one that starts slowly");
        assert_eq!(start_in("1 something\n"), None);
    }

    #[test]
    fn a_log_counts_from_the_last_start() {
        let old = format!("{BEGIN}1 bdev cannot load compressor of type lz4\n{}", family("old"));
        let new = format!("{BEGIN}{}{}{}", family("default"), family("m-0"), family("L"));
        let log = read(&(old.clone() + &new));
        assert_eq!((log.errors.len(), log.sharding.as_deref()), (0, Some("L m-0")));
        let log = read(&format!("{BEGIN}{}", family("default")));
        assert_eq!(log.sharding.as_deref(), Some(""), "one family");
        // The families were printed before the tail begins.
        assert_eq!(read("1 something\n").sharding, None);
        let log = read(&old);
        assert!(log.errors[0].contains("lz4"), "{log:?}");
    }
}
