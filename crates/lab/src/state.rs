//! The record of everything started and made, written down before anybody relies on it.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::config::LabConfig;
use crate::layout::Layout;
use crate::monitor::{self, Monitor};
use crate::process::{Held, Process};

/// Says that a file is this and no other program's.
const MAGIC: &str = "loligo-lab";
/// Version of the file.
const VERSION: u32 = 1;

/// A lab as it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    magic: String,
    version: u32,
    /// Its configuration.
    pub config: LabConfig,
    /// The cluster's id.
    pub fsid: String,
    /// Address of the machine itself in the lab's network.
    pub address: String,
    /// The monitors.
    #[serde(default = "monitor::only_one")]
    pub mons: Vec<Monitor>,
    /// Ids of the OSDs' stores, by OSD number.
    pub osds: Vec<(u32, String)>,
    /// Everything on disk is made: the daemons can be started anew.
    pub complete: bool,
    /// Daemons, in the order of their start.
    pub processes: Vec<Process>,
    /// Mounted folders.
    pub mounts: Vec<PathBuf>,
    /// Network namespaces that were made.
    pub namespaces: Vec<String>,
    /// The bridge between them.
    pub bridge: Option<String>,
}

impl State {
    /// Of a lab that is about to be made.
    pub fn new(config: LabConfig, fsid: String, address: String) -> State {
        State {
            magic: MAGIC.to_owned(),
            version: VERSION,
            config,
            fsid,
            address,
            mons: Vec::new(),
            osds: Vec::new(),
            complete: false,
            processes: Vec::new(),
            mounts: Vec::new(),
            namespaces: Vec::new(),
            bridge: None,
        }
    }

    /// Reads what a lab's folder says; nothing where there is no lab.
    ///
    /// # Errors
    /// If the file is there and is not one of ours.
    pub fn read(at: &Layout) -> Result<Option<State>> {
        let path = at.state();
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e).with_context(|| format!("reading {}", path.display())),
        };
        let state: State = serde_json::from_str(&text)
            .with_context(|| format!("{} is not a lab's file, or damaged", path.display()))?;
        if state.magic != MAGIC || state.version != VERSION {
            bail!(
                "{} has version {}, but this program knows {VERSION}: use the program that made it",
                path.display(),
                state.version
            );
        }
        Ok(Some(state))
    }

    /// The lab in a folder.
    ///
    /// # Errors
    /// If there is none.
    pub fn of(at: &Layout) -> Result<State> {
        State::read(at)?.with_context(|| {
            format!("there is no lab in {}: make one with 'loligo lab up --dir {0}'", at.dir().display())
        })
    }

    /// Writes it, whole or not at all.
    pub fn write(&self, at: &Layout) -> Result<()> {
        let path = at.state();
        let new = path.with_extension("json.new");
        let write = || -> Result<()> {
            let mut file = std::fs::File::create(&new)?;
            file.write_all(&serde_json::to_vec_pretty(self)?)?;
            file.sync_all()?;
            Ok(std::fs::rename(&new, &path)?)
        };
        write().with_context(|| format!("writing {}", path.display()))
    }

    /// Writes a process down, then lets it go.
    ///
    /// # Errors
    /// If the file cannot be written; the process never runs then.
    pub(crate) fn start(&mut self, at: &Layout, held: Held) -> Result<()> {
        // One that was started again takes the place of the one that ended.
        self.processes.retain(|p| p.name != held.process.name || p.alive());
        self.processes.push(held.process.clone());
        self.write(at)?;
        held.go();
        Ok(())
    }

    /// Those of the processes that run.
    pub fn running(&self) -> Vec<Process> {
        self.processes.iter().filter(|p| p.alive()).cloned().collect()
    }

    /// The newest process of this name.
    pub fn process(&self, name: &str) -> Option<&Process> {
        self.processes.iter().rev().find(|p| p.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_read_back_and_a_foreign_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let at = Layout::at(dir.path()).unwrap();
        assert!(State::read(&at).unwrap().is_none());
        let state = State::new(LabConfig::default(), "f".into(), "127.0.0.1".into());
        state.write(&at).unwrap();
        assert_eq!(State::of(&at).unwrap(), state);
        let old = serde_json::to_string(&state).unwrap().replace("\"mons\":[],", "\"ports\":[1,2],");
        std::fs::write(at.state(), old).unwrap();
        assert_eq!(State::of(&at).unwrap().mons.len(), 1, "a lab of an older program has one monitor");
        std::fs::write(at.state(), "{}").unwrap();
        assert!(State::read(&at).unwrap_err().to_string().contains("damaged"));
        let newer = serde_json::to_string(&state).unwrap().replace("\"version\":1", "\"version\":9");
        std::fs::write(at.state(), newer).unwrap();
        assert!(State::read(&at).unwrap_err().to_string().contains("version 9"));
    }
}
