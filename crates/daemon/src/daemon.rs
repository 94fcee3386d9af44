//! `loligod`: many volumes in one process, by one file and by command.
//!
//! Each volume has a thread of its own that starts it, looks after it and stops it ([`crate::supervisor`]); the API's thread and the signals
//! only say what is wanted. A volume that cannot start holds nobody else up.

use crate::config::Config;
use crate::control::ControlThread;
use crate::metrics::{self, Scrape, Scraped};
use crate::pair::PairAgent;
use crate::registry::Registry;
use crate::remembered::with_overrides;
use crate::sections::Sections;
use crate::state::{State, StateFile};
use crate::supervisor::{Status, Supervisor};
use crate::tune::TuneWatch;
use crate::volumes::Volumes;
use anyhow::{Result, anyhow, bail};
use loligo_block::keyed;
use loligo_log::say;
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The options that the daemon is started with.
#[derive(Debug, Clone)]
pub struct DaemonOptions {
    /// The file.
    pub config: PathBuf,
}

/// The daemon's volumes and what it remembers.
#[derive(Debug)]
pub(crate) struct Daemon {
    pub(crate) config_path: PathBuf,
    pub(crate) state_dir: PathBuf,
    pub(crate) started: Instant,
    pub(crate) control: ControlThread,
    pub(crate) memory: Arc<Registry>,
    pub(crate) volumes: Arc<Volumes>,
    /// The agent, on a controller of a pair.
    pub(crate) pair: Option<PairAgent>,
    /// The watch over applied values, where the file has one.
    pub(crate) tune: Option<TuneWatch>,
}

/// The folder in which the daemon keeps what it remembers: `state-dir` of the configuration, else `$LOLIGO_STATE_DIR`, else
/// `/var/lib/loligo` for root and `$XDG_STATE_HOME/loligo` for others.
///
/// # Errors
/// If no folder is known.
pub fn state_dir(config: &Config) -> Result<PathBuf> {
    if let Some(dir) = &config.daemon.state_dir {
        return Ok(dir.clone());
    }
    let from = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    if let Some(dir) = from("LOLIGO_STATE_DIR") {
        return Ok(dir);
    }
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from("/var/lib/loligo"));
    }
    match from("XDG_STATE_HOME") {
        Some(dir) => Ok(dir.join("loligo")),
        None => bail!(
            "no place for what the daemon remembers: give state-dir in the configuration, or set LOLIGO_STATE_DIR"
        ),
    }
}

/// A file as a daemon would serve it.
#[derive(Debug)]
pub struct Shown {
    /// The configuration that counts, with what was set by command.
    pub config: Config,
    /// Sections that are not right, each with its name and what is wrong with it.
    pub wrong: Vec<String>,
}

/// The configuration in `path` with what was set by command, as the daemon would serve it that keeps its state in `state`; by
/// default where one would that is started by that file.
///
/// # Errors
/// If it cannot be read as a whole, or what is remembered cannot be.
pub fn show(path: &Path, state: Option<&Path>) -> Result<Shown> {
    let mut sections = Sections::load(path)?;
    let dir = state.map_or_else(|| state_dir(&sections.right), |dir| Ok(dir.to_owned()))?;
    let state = if dir.exists() { StateFile::at(&dir)?.load()? } else { State::default() };
    let made = sections.beside_made(&state);
    let Sections { right: mut config, wrong } = sections;
    config.volumes.extend(made);
    for (name, volume) in &mut config.volumes {
        let remembered = state.volumes.get(name).cloned().unwrap_or_default();
        *volume = with_overrides(volume, &remembered);
    }
    let wrong = wrong.iter().map(|(name, fault)| format!("[volume.{name}]: {}", fault.why));
    Ok(Shown { config, wrong: wrong.collect() })
}

/// Listens where metrics are asked for; nothing where that is no address of this host yet.
pub(crate) fn bind_metrics(addr: SocketAddr) -> Result<Option<TcpListener>> {
    let is_not_yet = |why: &anyhow::Error| {
        let why = why.downcast_ref::<std::io::Error>();
        why.is_some_and(|why| why.kind() == std::io::ErrorKind::AddrNotAvailable)
    };
    match metrics::bind(addr) {
        Ok(listener) => Ok(Some(listener)),
        Err(why) if is_not_yet(&why) => Ok(None),
        Err(why) => Err(anyhow!(keyed!("{why:#}").for_file())),
    }
}

impl Daemon {
    pub fn supervisors(&self) -> Vec<Arc<Supervisor>> {
        self.volumes.all().into_iter().map(|known| known.supervisor).collect()
    }

    /// The volume `name`.
    ///
    /// # Errors
    /// If there is none.
    pub(crate) fn supervisor(&self, name: &str) -> Result<Arc<Supervisor>> {
        self.volumes.find(name).map(|known| known.supervisor)
    }

    /// Every volume, the pair and the watch over applied values, for a scrape.
    pub(crate) fn scraped(&self) -> Scrape {
        let of = |e: &Arc<Supervisor>| Scraped { name: e.name.clone(), state: e.status(), app: e.app() };
        let volumes = self.supervisors().iter().map(of).collect();
        Scrape {
            volumes,
            pair: self.pair.as_ref().and_then(PairAgent::numbers),
            tune: self.tune.as_ref().map(TuneWatch::numbers),
        }
    }

    pub(crate) fn statuses(&self) -> Vec<Status> {
        self.supervisors().iter().map(|e| e.status()).collect()
    }

    pub(crate) fn is_over(&self) -> bool {
        !self.supervisors().iter().any(|e| e.is_waited_for())
    }

    /// Has nobody wait for a start any more that was to stop so long ago, and of which nothing is made, noted or served: a device
    /// that answers nothing may hold it for ever.
    pub(crate) fn leave_hanging(&self, after: Duration) {
        for supervisor in self.supervisors() {
            if let Some(what) = supervisor.leave_behind(after) {
                say!(
                    "{}: warning: its start does not come to an end ({what}) and is not waited for: nothing was noted or served yet",
                    supervisor.name
                );
            }
        }
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.supervisors().iter().any(|e| matches!(e.status(), Status::Failed(_)))
    }

    /// True if all that a stop still waits for loses nothing by a crash.
    pub(crate) fn may_be_cut_off(&self) -> bool {
        let supervisors = self.supervisors();
        let mut left = supervisors.iter().filter(|e| e.is_waited_for()).peekable();
        // Where nothing is left the stop is over, and clean.
        left.peek().is_some() && left.all(|e| e.may_be_cut_off())
    }

    pub(crate) fn summary(&self) -> String {
        let mut by_word: BTreeMap<&str, usize> = BTreeMap::new();
        for e in self.supervisors() {
            *by_word.entry(e.status().word()).or_default() += 1;
        }
        let parts: Vec<String> = by_word.iter().map(|(word, n)| format!("{n} {word}")).collect();
        if parts.is_empty() { "no volumes".to_owned() } else { parts.join(", ") }
    }
}
