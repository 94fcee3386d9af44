//! The process of an OSD and the log of its last start, on its host: both are only looked at.

use super::value::Value;
use crate::gather::osd_log::last_words;
use crate::gather::processes::has_osd;
use loligo_block::host_files::HostFiles;
use std::path::PathBuf;

/// The word of a host on an OSD whose process runs.
const RUNS: &str = "runs";

/// An OSD of a host with its log.
#[derive(Debug)]
pub(super) struct OsdLog {
    id: i64,
    log: Option<PathBuf>,
}

impl OsdLog {
    /// The one that the key of an order names.
    ///
    /// # Errors
    /// If it is none, or the file is no log of an OSD.
    pub(super) fn new(host: &HostFiles, key: &str) -> Result<OsdLog, String> {
        let parts = key.strip_prefix("osd.").and_then(|it| it.split_once(':'));
        let named = parts.and_then(|(id, log)| Some((id.parse().ok()?, log)));
        let (id, log) = named.ok_or_else(|| format!("{key} names no OSD"))?;
        let is_log = log.starts_with('/') && log.ends_with(".log") && log.contains("osd");
        match (log, is_log) {
            ("", _) => Ok(OsdLog { id, log: None }),
            (_, true) => Ok(OsdLog { id, log: Some(host.at(log)) }),
            _ => Err(format!("{log} is no log of an OSD")),
        }
    }

    /// `runs` while a process of it does.
    pub(super) fn look(&self, host: &HostFiles) -> Value {
        Value::plain(has_osd(host, self.id).then(|| RUNS.to_owned()))
    }

    /// The last words.
    pub(super) fn words(&self) -> Option<String> {
        self.log.as_ref().map(|path| last_words(path))
    }
}
