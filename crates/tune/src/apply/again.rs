//! Processors that were applied are set again: on a daemon that started anew, and on interrupts after a boot.

use super::affinity::{Bound, kept};
use loligo_block::host_files::HostFiles;
use serde::Serialize;
use std::path::Path;

/// A place that was set again, or was not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Again {
    /// The place: `osd.3/msgr-worker`.
    pub place: String,
    /// Its processors, as they are kept.
    pub value: String,
    /// Threads or interrupts that have them now; 0: nothing of it runs.
    pub count: usize,
    /// Something had others before.
    pub changed: bool,
    /// The reason why it is not set.
    pub why: Option<String>,
}

/// Sets what the host whose root is `root` keeps for `daemon`, `osd.3` or `loligod`, and for its interrupts.
pub fn bind_again(root: &Path, daemon: &str) -> Vec<Again> {
    let host = HostFiles::new(root);
    kept(&host, daemon).into_iter().map(|(fsid, place, value)| one(&host, fsid, place, value)).collect()
}

fn one(host: &HostFiles, fsid: Option<String>, place: String, value: String) -> Again {
    let done = Bound::new(&place, fsid).and_then(|bound| {
        let before = bound.look(host)?;
        let count = bound.put(host, &value)?;
        Ok((count, bound.look(host)? != before))
    });
    match done {
        Ok((count, changed)) => Again { place, value, count, changed, why: None },
        Err(why) => Again { place, value, count: 0, changed: false, why: Some(why) },
    }
}
