//! A model of a dual-ported array: LUNs in files, and a mount for each controller's path to them.
//!
//! Each path is a file system of its own over the same bytes, so that neither locks nor the page cache of one path are seen
//! by another, as between two hosts. A file on it is a LUN ([`LUN`], where nobody named it). It answers the reservation calls of
//! a block device (`IOC_PR_*`). Attributes of that file show the LUN and order faults:
//!
//! | attribute | |
//! |---|---|
//! | [`loligo_pair::fence::SHOWN`] | keys and holder |
//! | [`COUNTERS`] | writes by path: ended, refused, landed after a fence |
//! | [`FAULT`], set on a path's file | a [`Fault`] of that path to that LUN, as JSON |
//! | [`POWER_CYCLE`], set to anything | the array loses its power, all LUNs |
//!
//! Registrations that were to be persistent, and the counters, outlive the array's process, in a file beside the LUN's bytes.

mod fs;
mod keep;
mod medium;
mod shared;
mod spec;

use anyhow::{Context, Result, ensure};
use fs::PathFs;
use fuser::BackgroundSession;
use loligo_pair::lun::{Counters, Defects};
use loligo_pair::reservation::Port;
use shared::Shared;
pub use shared::{COUNTERS, FAULT, Fault, POWER_CYCLE};
pub use spec::{LUN, LunSpec, PathSpec};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Requests of one path that are served at once.
const THREADS: usize = 16;

/// A running array; dropping it unmounts its paths.
#[derive(Debug)]
pub struct Array {
    luns: Arc<Vec<Shared>>,
    sessions: Vec<BackgroundSession>,
}

impl Array {
    /// Serves `luns` by `paths`. A file that is not there is made.
    ///
    /// # Errors
    /// If a file cannot be used, or a path not be mounted.
    pub fn start(luns: &[LunSpec], paths: &[PathSpec], defects: Defects) -> Result<Array> {
        ensure!(!paths.is_empty(), "an array without a path serves nobody: give one for each controller");
        ensure!(!luns.is_empty(), "an array without a LUN has nothing to serve: give FILE, or --lun");
        let names: BTreeSet<&str> = paths.iter().map(|path| path.name.as_str()).collect();
        ensure!(names.len() == paths.len(), "two paths have the same name: give each its own");
        for (what, of) in
            [("name", |lun: &LunSpec| lun.name.clone().into()), ("file", |lun: &LunSpec| lun.backing.clone())]
                as [(&str, fn(&LunSpec) -> std::path::PathBuf); 2]
        {
            let all: BTreeSet<_> = luns.iter().map(of).collect();
            ensure!(all.len() == luns.len(), "two LUNs have the same {what}: give each its own");
        }
        let names = Arc::new(paths.iter().map(|path| path.name.clone()).collect::<Vec<_>>());
        let opened = luns.iter().map(|lun| Shared::open(lun, names.clone(), defects));
        let luns = Arc::new(opened.collect::<Result<Vec<_>>>()?);
        let mut array = Array { luns: luns.clone(), sessions: Vec::new() };
        for (port, path) in paths.iter().enumerate() {
            let mut config = fuser::Config::default();
            config.mount_options = vec![fuser::MountOption::FSName("loligo-array".to_owned())];
            config.n_threads = Some(THREADS);
            config.clone_fd = true;
            let fs = PathFs::new(luns.clone(), Port(port as u32));
            let place = path.mountpoint.display();
            let session = fuser::spawn_mount(fs, &path.mountpoint, &config)
                .with_context(|| format!("{place} cannot be mounted: give an empty folder, as root"))?;
            array.sessions.push(session);
        }
        Ok(array)
    }

    /// Writes by LUN and path.
    pub fn counters(&self) -> BTreeMap<String, BTreeMap<String, Counters>> {
        let of = |lun: &Shared| lun.counters().into_iter().map(|(name, c)| (name.to_owned(), c)).collect();
        self.luns.iter().map(|lun| (lun.name.clone(), of(lun))).collect()
    }

    /// Writes the counters down, for the next process that serves these LUNs.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn remember(&self) -> Result<()> {
        for lun in self.luns.iter() {
            lun.remember_counters()
                .with_context(|| format!("what {} remembers cannot be written", lun.name))?;
        }
        Ok(())
    }
}
