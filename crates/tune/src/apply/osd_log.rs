//! The process of an OSD and the log of its last start, on its host: both are only looked at.

use super::value::Value;
use crate::ceph_file::in_file;
use crate::gather::osd_log::{Start, last_start};
use crate::gather::processes::has_osd;
use loligo_block::host_files::HostFiles;
use std::path::Path;

/// The word of a host on an OSD whose process runs.
const RUNS: &str = "runs";
/// The name of the line that the last start begins with.
pub(super) const START: &str = "start";
/// The name of the word on a daemon that has said that it ends.
pub(super) const ENDS: &str = "ends";

/// An OSD of a host with its log.
#[derive(Debug)]
pub(super) struct OsdLog {
    id: i64,
    /// Its last start; nothing: its log tells of none, or it has no file.
    start: Option<Start>,
    /// Its cluster, by Ceph's file.
    fsid: Option<String>,
}

impl OsdLog {
    /// The one that the key of an order names.
    ///
    /// # Errors
    /// If it is none, or the file is no log of an OSD.
    pub(super) fn new(host: &HostFiles, key: &str, conf: &Path) -> Result<OsdLog, String> {
        let parts = key.strip_prefix("osd.").and_then(|it| it.split_once(':'));
        let named = parts.and_then(|(id, log)| Some((id.parse().ok()?, log)));
        let (id, log) = named.ok_or_else(|| format!("{key} names no OSD"))?;
        let is_log = log.starts_with('/') && log.ends_with(".log") && log.contains("osd");
        let fsid = host.read(conf).and_then(|text| in_file(text.as_bytes(), "fsid"));
        match (log, is_log) {
            ("", _) => Ok(OsdLog { id, start: None, fsid }),
            (_, true) => Ok(OsdLog { id, start: last_start(&host.at(log)), fsid }),
            _ => Err(format!("{log} is no log of an OSD")),
        }
    }

    /// `runs` while a process of it does; beside it the last start.
    pub(super) fn look(&self, host: &HostFiles) -> Value {
        let mut value = Value::plain(has_osd(host, self.id, self.fsid.as_deref()).then(|| RUNS.to_owned()));
        if let Some(start) = &self.start {
            value.beside.insert(START.to_owned(), start.line.clone());
            value.beside.extend(start.ends.then(|| (ENDS.to_owned(), String::new())));
        }
        value
    }

    /// Failures since the last start.
    pub(super) fn words(&self) -> Option<String> {
        self.start.as_ref().map(|start| start.words.clone())
    }
}
