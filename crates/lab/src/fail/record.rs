//! The faults in force, written down before they are done, so that each can be undone whatever became of its author.

use super::plan::{Deed, Kind};
use crate::layout::Layout;
use crate::lock::Lock;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;

/// The time that others may hold the record.
const LIMIT: Duration = Duration::from_secs(30);

/// A fault that is in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// Tells it from others of this lab.
    pub id: u64,
    /// Its kind.
    pub kind: Kind,
    /// Its target.
    pub target: String,
    /// The moment of the deed, milliseconds since 1970.
    pub at_ms: u64,
    /// What was done, as far as it is not undone.
    pub deeds: Vec<Deed>,
}

/// The faults of a lab, locked.
#[derive(Debug)]
pub(crate) struct Record {
    path: PathBuf,
    pub(crate) faults: Vec<Fault>,
    _lock: Lock,
}

impl Record {
    /// Opens the record of a lab, alone.
    ///
    /// # Errors
    /// If another holds it for long, or the file is none of ours.
    pub(crate) fn open(at: &Layout) -> Result<Record> {
        let lock = Lock::take(&at.dir().join("faults.lock"), LIMIT)?;
        Ok(Record { path: file(at), faults: read(at)?, _lock: lock })
    }

    /// Writes it, whole or not at all.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn write(&self) -> Result<()> {
        let new = self.path.with_extension("json.new");
        let write = || -> Result<()> {
            fs::write(&new, serde_json::to_vec_pretty(&self.faults)?)?;
            Ok(fs::rename(&new, &self.path)?)
        };
        write().with_context(|| format!("writing {}", self.path.display()))
    }

    /// The number of the next fault.
    pub(crate) fn next(&self) -> u64 {
        self.faults.iter().map(|fault| fault.id).max().unwrap_or(0) + 1
    }

    /// All deeds in force.
    pub(crate) fn deeds(&self) -> impl Iterator<Item = &Deed> {
        self.faults.iter().flat_map(|fault| &fault.deeds)
    }

    /// True if a controller is switched off.
    pub(crate) fn is_off(&self, host: &str) -> bool {
        is_off(&self.faults, host)
    }
}

fn file(at: &Layout) -> PathBuf {
    at.dir().join("faults.json")
}

/// The faults that are written down.
///
/// # Errors
/// If the file is none of ours.
pub(crate) fn read(at: &Layout) -> Result<Vec<Fault>> {
    let path = file(at);
    match fs::read(&path) {
        Ok(raw) => serde_json::from_slice(&raw).with_context(|| format!("{} is damaged", path.display())),
        Err(why) if why.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(why) => Err(why).with_context(|| format!("reading {}", path.display())),
    }
}

/// True if a controller is switched off by one of these.
pub(crate) fn is_off(faults: &[Fault], of: &str) -> bool {
    faults.iter().flat_map(|fault| &fault.deeds).any(|deed| matches!(deed, Deed::Off { host } if host == of))
}

/// Forgets the faults of a lab of which nothing runs.
///
/// # Errors
/// If the file cannot be removed.
pub(crate) fn forget(at: &Layout) -> Result<()> {
    let path = file(at);
    match fs::remove_file(&path) {
        Err(why) if why.kind() != ErrorKind::NotFound => {
            Err(why).with_context(|| format!("removing {}", path.display()))
        }
        _ => Ok(()),
    }
}
