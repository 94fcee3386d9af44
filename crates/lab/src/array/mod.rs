//! A model of a dual-ported array: one LUN in a file, and a mount for each controller's path to it.
//!
//! Each path is a file system of its own over the same bytes, so that neither locks nor the page cache of one path are seen
//! by another, as between two hosts. The file on it, [`LUN`], answers the reservation calls of a block device (`IOC_PR_*`).
//! Attributes of that file show the LUN and order faults:
//!
//! | attribute | |
//! |---|---|
//! | [`loligo_pair::fence::SHOWN`] | keys and holder |
//! | [`COUNTERS`] | writes by path: ended, refused, landed after a fence |
//! | [`FAULT`], set on a path's file | a [`Fault`] of that path, as JSON |
//! | [`POWER_CYCLE`], set to anything | the array loses its power |
//!
//! An array that ends forgets its registrations.

mod fs;
mod shared;

use anyhow::{Context, Result, bail, ensure};
use fs::PathFs;
use fuser::BackgroundSession;
use loligo_pair::lun::{Counters, Defects};
use loligo_pair::reservation::Port;
use shared::Shared;
pub use shared::{COUNTERS, FAULT, Fault, LUN, POWER_CYCLE};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Requests of one path that are served at once.
const THREADS: usize = 16;

/// A path to the LUN.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathSpec {
    /// Its name, for counters.
    pub name: String,
    /// The empty folder that it is mounted on.
    pub mountpoint: PathBuf,
}

impl std::str::FromStr for PathSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<PathSpec, String> {
        let (name, place) = text.split_once('=').ok_or("write NAME=MOUNTPOINT")?;
        match name.is_empty() || place.is_empty() {
            true => Err("write NAME=MOUNTPOINT".to_owned()),
            false => Ok(PathSpec { name: name.to_owned(), mountpoint: place.into() }),
        }
    }
}

/// A running array; dropping it unmounts its paths.
#[derive(Debug)]
pub struct Array {
    shared: Arc<Shared>,
    sessions: Vec<BackgroundSession>,
}

impl Array {
    /// Serves the file `backing` by `paths`; it is made `size` bytes long if it is not there.
    ///
    /// # Errors
    /// If the file cannot be used, or a path not be mounted.
    pub fn start(backing: &Path, size: Option<u64>, paths: &[PathSpec], defects: Defects) -> Result<Array> {
        ensure!(!paths.is_empty(), "an array without a path serves nobody: give one for each controller");
        let names: BTreeSet<&str> = paths.iter().map(|path| path.name.as_str()).collect();
        ensure!(names.len() == paths.len(), "two paths have the same name: give each its own");
        let (file, bytes) = open(backing, size)?;
        let names = paths.iter().map(|path| path.name.clone()).collect();
        let shared = Arc::new(Shared::new(file, bytes, names, defects));
        let mut array = Array { shared: shared.clone(), sessions: Vec::new() };
        for (port, path) in paths.iter().enumerate() {
            let mut config = fuser::Config::default();
            config.mount_options = vec![fuser::MountOption::FSName("loligo-array".to_owned())];
            config.n_threads = Some(THREADS);
            config.clone_fd = true;
            let fs = PathFs::new(shared.clone(), Port(port as u32));
            let place = path.mountpoint.display();
            let session = fuser::spawn_mount(fs, &path.mountpoint, &config)
                .with_context(|| format!("{place} cannot be mounted: give an empty folder, as root"))?;
            array.sessions.push(session);
        }
        Ok(array)
    }

    /// Writes by path.
    pub fn counters(&self) -> BTreeMap<String, Counters> {
        self.shared.counters().into_iter().map(|(name, counters)| (name.to_owned(), counters)).collect()
    }
}

/// The file `backing` and its bytes.
fn open(backing: &Path, size: Option<u64>) -> Result<(File, u64)> {
    let name = backing.display();
    let is_there = backing.exists();
    if !is_there && size.is_none() {
        bail!("{name} does not exist: give --size to make it");
    }
    let file = File::options().read(true).write(true).create(true).truncate(false).open(backing);
    let file = file.with_context(|| format!("{name} cannot be opened"))?;
    if let Some(size) = size.filter(|_| !is_there) {
        file.set_len(size).with_context(|| format!("{name} cannot be made {size} bytes long"))?;
    }
    let bytes = file.metadata().with_context(|| format!("{name} cannot be looked at"))?.len();
    ensure!(bytes > 0, "{name} is empty: remove it, and give --size to make it");
    Ok((file, bytes))
}
