//! The cached server's statistics file, looked at each second.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Deserialize;

/// The part of the statistics that experiments use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
pub(crate) struct Stats {
    /// Data capacity of the cache.
    pub(crate) cache_bytes: u64,
    /// Bytes of it in use.
    pub(crate) occupied_bytes: u64,
    /// Bytes of it newer than the core.
    pub(crate) dirty_bytes: u64,
    /// Reads served wholly from the cache.
    #[serde(default)]
    pub(crate) read_hits: u64,
    /// Other reads.
    #[serde(default)]
    pub(crate) read_misses: u64,
    /// 4 KiB blocks written to the core by destaging.
    #[serde(default)]
    pub(crate) destaged_blocks: u64,
}

impl Stats {
    /// Dirty share of the cache, 0..=1.
    pub(crate) fn dirty(&self) -> f64 {
        if self.cache_bytes == 0 { 0.0 } else { self.dirty_bytes as f64 / self.cache_bytes as f64 }
    }

    /// Share of hits among the reads since `before`, 0..=1; 0 where there were none.
    pub(crate) fn hits_since(&self, before: &Stats) -> f64 {
        let hits = self.read_hits.saturating_sub(before.read_hits);
        let all = hits + self.read_misses.saturating_sub(before.read_misses);
        if all == 0 { 0.0 } else { hits as f64 / all as f64 }
    }
}

/// Reads the file once a second and keeps what it saw.
#[derive(Debug)]
pub(crate) struct Watch {
    path: PathBuf,
    begun: Instant,
    next: Instant,
    last: Option<Stats>,
    course: Vec<(f64, f64)>,
}

impl Watch {
    /// Watches this file.
    pub(crate) fn new(path: &Path) -> Watch {
        let now = Instant::now();
        Watch { path: path.to_owned(), begun: now, next: now, last: None, course: Vec::new() }
    }

    /// Starts the course of the dirty share anew, at time zero.
    pub(crate) fn restart(&mut self) {
        self.begun = Instant::now();
        self.next = self.begun;
        self.course.clear();
    }

    /// Looks at the file if a second has passed since the last look.
    pub(crate) fn look(&mut self) {
        let now = Instant::now();
        if now < self.next {
            return;
        }
        self.next = now + Duration::from_secs(1);
        let text = fs::read(&self.path).ok();
        if let Some(stats) = text.and_then(|text| serde_json::from_slice::<Stats>(&text).ok()) {
            self.last = Some(stats);
            self.course.push(((now - self.begun).as_secs_f64(), stats.dirty()));
        }
    }

    /// The last look.
    pub(crate) fn last(&self) -> Option<Stats> {
        self.last
    }

    /// Seconds since [`Watch::restart`] and dirty share.
    pub(crate) fn course(&self) -> &[(f64, f64)] {
        &self.course
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dirty_share_is_read_and_a_missing_file_is_no_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("stats.json");
        let mut watch = Watch::new(&path);
        watch.look();
        assert_eq!((watch.last(), watch.course().len()), (None, 0));
        fs::write(&path, r#"{"cache_bytes": 200, "occupied_bytes": 100, "dirty_bytes": 50, "read_hits": 1}"#)
            .unwrap();
        watch.look();
        assert_eq!(watch.last(), None, "not a second later");
        watch.restart();
        watch.look();
        assert_eq!(watch.course()[0].1, 0.25);
        assert_eq!(watch.last().unwrap().occupied_bytes, 100);
    }
}
