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
use std::sync::mpsc::{Sender, channel};

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
    /// Lines to the thread that writes them: whoever decides does not wait for a disk.
    lines: Sender<Vec<u8>>,
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
    /// If the file cannot be opened, or there can be no thread.
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
        History::over(entries, file)
    }

    fn over(entries: VecDeque<HistoryEntry>, mut file: File) -> Result<History> {
        let (lines, written) = channel::<Vec<u8>>();
        let write = move || {
            for line in written {
                let _ = file.write_all(&line);
            }
        };
        std::thread::Builder::new().name("history".to_owned()).spawn(write).context("starting a thread")?;
        Ok(History(Arc::new(Mutex::new(Inner { entries, lines, told: Told::default() }))))
    }

    /// Adds an entry, and waits for nothing. A disk that is full loses it from the file alone.
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
            let _ = inner.lines.send(line);
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn a_disk_that_hangs_holds_nobody_up() {
        let (_reader, writer) = rustix::pipe::pipe().unwrap();
        let history = History::over(VecDeque::new(), File::from(writer)).unwrap();
        let (done, over) = std::sync::mpsc::channel();
        let adds = history.clone();
        std::thread::spawn(move || {
            for _ in 0..100 {
                adds.add(Notice::Step("x".repeat(4096)));
            }
            let _ = done.send(Instant::now());
        });
        assert!(over.recv_timeout(Duration::from_secs(10)).is_ok(), "it waits for the reader of the file");
        assert_eq!(history.entries().len(), 100);
    }

    #[test]
    fn an_entry_comes_to_the_file() {
        let folder = tempfile::tempdir().unwrap();
        History::open(folder.path()).unwrap().add(Notice::Alarm("a".to_owned()));
        let end = Instant::now() + Duration::from_secs(10);
        while History::open(folder.path()).unwrap().entries().is_empty() {
            assert!(Instant::now() < end, "it is not written");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
