//! The history of a side: kept in memory for the socket, and as lines of JSON in a file.

use crate::status::HistoryEntry;
use anyhow::{Context, Result};
use loligo_pair::machine::{Notice, RoleName};
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

/// Entries in memory.
const ENTRIES: usize = 1000;
/// Bytes of the file, after which it becomes the one before.
const BYTES: u64 = 4 << 20;

/// The history of a side.
#[derive(Debug, Clone)]
pub struct History(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    entries: VecDeque<HistoryEntry>,
    file: File,
    told: Told,
}

/// Numbers of what was told since this run began.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Told {
    /// Changes of role, by the role that they led to.
    pub roles: BTreeMap<RoleName, u64>,
    /// Alarms.
    pub alarms: u64,
}

impl History {
    /// Opens the history in `folder`; what earlier runs wrote is read back.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn open(folder: &Path) -> Result<History> {
        let path = folder.join("pair.history");
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        if text.len() as u64 > BYTES {
            std::fs::rename(&path, path.with_extension("history.1"))
                .with_context(|| format!("{} cannot be put aside", path.display()))?;
        }
        let mut entries: VecDeque<HistoryEntry> =
            text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        while entries.len() > ENTRIES {
            entries.pop_front();
        }
        let file = File::options().create(true).append(true).open(&path);
        let file = file.with_context(|| format!("{} cannot be opened", path.display()))?;
        Ok(History(Arc::new(Mutex::new(Inner { entries, file, told: Told::default() }))))
    }

    /// Adds an entry. A disk that is full loses it from the file alone.
    pub fn add(&self, notice: Notice) {
        let at_ms = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |d| d.as_millis() as u64);
        let entry = HistoryEntry { at_ms, notice };
        let mut inner = self.0.lock();
        match &entry.notice {
            Notice::Role { to, .. } => *inner.told.roles.entry(*to).or_default() += 1,
            Notice::Alarm(_) => inner.told.alarms += 1,
            Notice::Step(_) => {}
        }
        if let Ok(mut line) = serde_json::to_vec(&entry) {
            line.push(b'\n');
            let _ = inner.file.write_all(&line);
        }
        if inner.entries.len() == ENTRIES {
            inner.entries.pop_front();
        }
        inner.entries.push_back(entry);
    }

    /// All entries, the oldest first.
    pub fn entries(&self) -> Vec<HistoryEntry> {
        self.0.lock().entries.iter().cloned().collect()
    }

    /// The numbers of what was told since this run began.
    pub fn told(&self) -> Told {
        self.0.lock().told.clone()
    }
}
