//! `loligod`: many volumes in one process, by one file and by command.
//!
//! Each volume has a thread of its own that starts it, looks after it and stops it ([`entry`]); the API's thread and the signals
//! only say what is wanted. A volume that cannot start holds nobody else up.

pub mod config;
pub mod entry;
pub mod exchange;
mod guard;
mod notes;
mod pools;
mod restart;
pub mod state;
mod void;
pub(crate) mod words;

use crate::app::App;
use crate::control::daemon::router;
use crate::control::{ControlThread, Served};
use crate::say::say;
use crate::stats::trouble;
use crate::{log, metrics, names};
use anyhow::{Context, Result, anyhow, bail, ensure};
use config::{Config, Leave, Taken, VolumeConfig};
use entry::{Entry, Status};
use loligo_export::ListenAddr;
use notes::{Notes, with_overrides};
use rustix::process::{Signal, getpid, kill_process};
use rustix::time::{ClockId, clock_gettime};
use sd_notify::NotifyState;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use state::StateFile;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The name of the daemon's own socket among those of volumes.
pub(crate) const SOCKET: &str = "loligod";
/// Between two words to systemd.
const BEAT: Duration = Duration::from_secs(1);
/// How long the daemon waits for volumes to come before it says that it is ready: those that take longer come later.
const FIRST: Duration = Duration::from_secs(60);
/// In the first minutes of a machine its devices come one after another, which udev and LVM see to: so long after the daemon's start it waits for those
/// that are not there yet, too.
const COMING: Duration = Duration::from_secs(30);
/// How many those are.
const BOOT: Duration = Duration::from_secs(900);
/// What systemd is asked for while volumes start or stop, beyond what it grants anyway.
const MORE_TIME: Duration = Duration::from_secs(30);

/// How the daemon is started.
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
    control: ControlThread,
    memory: Arc<Notes>,
    volumes: Mutex<BTreeMap<String, Known>>,
}

#[derive(Debug)]
struct Known {
    entry: Arc<Entry>,
    /// It is in the file, and not made by command.
    from_file: bool,
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where the daemon keeps what it remembers.
pub(crate) fn state_dir(config: &Config) -> Result<PathBuf> {
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

/// The configuration in `path` with what was set by command, as the daemon would serve it.
///
/// # Errors
/// What is wrong with it, or with what is remembered.
pub fn show(path: &Path) -> Result<Config> {
    let mut config = Config::load(path)?;
    let dir = state_dir(&config)?;
    if !dir.exists() {
        return Ok(config);
    }
    let state = StateFile::at(&dir)?.load()?;
    for (name, remembered) in state.volumes {
        let Some(defined) = config.volumes.get(&name).cloned().or(remembered.made.clone()) else { continue };
        config.volumes.insert(name, with_overrides(&defined, &remembered));
    }
    Ok(config)
}

/// Serves until SIGTERM or SIGINT; SIGHUP reads the file again.
///
/// # Errors
/// Where the daemon itself cannot start; what is wrong with a volume is that volume's.
pub fn run(options: &DaemonOptions) -> Result<ExitCode> {
    let config = Config::load(&options.config)?;
    // Before any other thread: what is set here they inherit.
    guard::prepare();
    let _log = log::aside()?;
    let socket = names::claim_daemon()?;
    let state_dir = std::path::absolute(state_dir(&config)?)?;
    let file = StateFile::at(&state_dir)?;
    let state = file.load()?;
    let metrics = config.daemon.metrics.map(metrics::bind).transpose();
    let metrics = metrics.map_err(|why| anyhow!(words::of_file(&format!("{why:#}"))))?;
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).context("catching signals")?;
    let (send, caught) = channel();
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || signals.forever().take_while(|s| send.send(*s).is_ok()).for_each(drop))
        .context("starting the signal thread")?;
    let control = ControlThread::start()?;
    let memory = Arc::new_cyclic(|me| Notes {
        file,
        state: Mutex::new(state),
        me: me.clone(),
        defined: Mutex::default(),
        plain: Mutex::default(),
    });
    let daemon = Arc::new(Daemon {
        config_path: options.config.clone(),
        state_dir,
        started: Instant::now(),
        control: control.clone(),
        memory,
        volumes: Mutex::default(),
    });
    daemon.begin(&config)?;
    // Names may have come to mean other devices since the file was checked. Whoever is second is refused; the others are served.
    let look = move || {
        if let Err(why) = config.distinct() {
            say!("warning: {why:#}");
        }
    };
    std::thread::Builder::new().name("look".into()).spawn(look).context("starting a thread")?;
    let of = daemon.clone();
    let served: Served = Arc::new(move || of.apps());
    let _scrapes = metrics.map(|m| control.serve_metrics(m, served)).transpose()?;
    let ListenAddr::Unix(path) = socket.addr().clone() else { bail!("the control socket has no path") };
    let _api = control.serve(socket, router(daemon.clone()))?;
    tracing::debug!(socket = %path.display(), "the API is served");

    let (first, up) = (Instant::now(), clock_gettime(ClockId::Boottime));
    let is_boot = (up.tv_sec as u64) < BOOT.as_secs();
    let mut ready = false;
    let stop = loop {
        match caught.recv_timeout(if ready { BEAT } else { BEAT / 10 }) {
            Ok(SIGHUP) => daemon.reload_aloud()?,
            Ok(_) => break true,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break false,
        }
        if !ready && daemon.statuses().iter().all(|s| has_begun(s, is_boot, first.elapsed())) {
            ready = true;
            notify(&[NotifyState::Ready]);
            let mut out = std::io::stdout();
            let _ = writeln!(out, "ready").and_then(|()| out.flush());
        }
        let more = [NotifyState::ExtendTimeoutUsec(MORE_TIME.as_micros() as u32)];
        notify(if ready { &[NotifyState::Watchdog] } else { &more });
        notify(&[NotifyState::Status(&daemon.summary())]);
    };
    ensure!(stop, "the signal thread is gone");
    notify(&[NotifyState::Stopping]);
    daemon.quit_all();
    while !daemon.is_over() {
        notify(&[
            NotifyState::ExtendTimeoutUsec(MORE_TIME.as_micros() as u32),
            NotifyState::Status("stopping: what was promised is made durable"),
        ]);
        if caught.recv_timeout(BEAT / 10).is_ok_and(|s| s != SIGHUP) {
            if daemon.may_be_cut_off() {
                say!(
                    "given up on a second signal: everything acknowledged is on the caches, the next start recovers"
                );
                let _ = kill_process(getpid(), Signal::KILL);
            }
            daemon.quit_all();
        }
    }
    Ok(if daemon.has_failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Whether whoever stands on a volume need not wait for it any longer, so long after the daemon's start.
fn has_begun(status: &Status, is_boot: bool, since: Duration) -> bool {
    match status {
        Status::Starting => since >= FIRST,
        Status::Waiting(_) => !is_boot || since >= COMING,
        Status::Stopped | Status::Serving | Status::Refused(_) | Status::Stopping | Status::Failed(_) => true,
    }
}

fn notify(states: &[NotifyState<'_>]) {
    // Nobody listens where systemd is not.
    let _ = sd_notify::notify(states);
}

/// A volume in a list; `GET /v1/volumes`.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// How it is.
    pub status: Status,
    /// It is in the file, and not made by command.
    pub from_file: bool,
    /// What it said last; while it starts or stops, and if it said anything.
    #[serde(default)]
    pub says: Option<String>,
    /// What it is from its next start on, with what was set by command.
    pub definition: VolumeConfig,
    /// The mode in force; while it is served with a cache.
    #[serde(default)]
    pub mode: Option<String>,
    /// The mode from its next start on, which may be its profile's; if it has a cache then.
    #[serde(default)]
    pub next_mode: Option<String>,
    /// Bytes exported; while it is served.
    pub size: Option<u64>,
    /// Bytes that the core does not have yet; while it is served.
    pub dirty_bytes: Option<u64>,
    /// What its cache holds that its core lacks; while it is not served, and if that is so or not known.
    #[serde(default)]
    pub lacks: Option<String>,
    /// What is wrong with its devices; while it is served, and if anything is.
    #[serde(default)]
    pub trouble: Option<String>,
}

impl Listed {
    /// More than its state in a word, where there is more to say.
    pub fn why(&self) -> Option<&str> {
        self.status.why().or(self.says.as_deref())
    }
}

impl Daemon {
    /// Starts every volume of the file, and those made by command.
    fn begin(self: &Arc<Daemon>, config: &Config) -> Result<()> {
        for (name, volume) in &config.volumes {
            self.add(name, volume.clone(), true)?;
        }
        let state = lock(&self.memory.state).clone();
        for (name, remembered) in &state.volumes {
            let Some(made) = &remembered.made else { continue };
            if config.volumes.contains_key(name) {
                say!("{name}: warning: made by command once, and in the file now: the file counts");
                continue;
            }
            self.add(name, made.clone(), false)?;
        }
        Ok(())
    }

    fn add(&self, name: &str, volume: VolumeConfig, from_file: bool) -> Result<Arc<Entry>> {
        let run = self.memory.of(name).run.unwrap_or(volume.autostart);
        let entry = Entry::new(name, volume, run, self.memory.clone(), self.control.clone())
            .context("starting a thread")?;
        lock(&self.volumes).insert(name.to_owned(), Known { entry: entry.clone(), from_file });
        Ok(entry)
    }

    fn entries(&self) -> Vec<Arc<Entry>> {
        lock(&self.volumes).values().map(|k| k.entry.clone()).collect()
    }

    /// The volume `name`.
    ///
    /// # Errors
    /// Where there is none.
    pub(crate) fn entry(&self, name: &str) -> Result<Arc<Entry>> {
        match lock(&self.volumes).get(name) {
            Some(known) => Ok(known.entry.clone()),
            None => bail!("there is no volume '{name}': 'loligo volume list' shows those that there are"),
        }
    }

    fn apps(&self) -> Vec<Arc<App>> {
        self.entries().iter().filter_map(|e| e.app()).collect()
    }

    fn statuses(&self) -> Vec<Status> {
        self.entries().iter().map(|e| e.status()).collect()
    }

    fn quit_all(&self) {
        self.entries().iter().for_each(|e| e.quit());
    }

    fn is_over(&self) -> bool {
        self.entries().iter().all(|e| e.is_over())
    }

    fn has_failed(&self) -> bool {
        self.entries().iter().any(|e| matches!(e.status(), Status::Failed(_)))
    }

    /// Whether all that a stop still waits for loses nothing by a crash.
    fn may_be_cut_off(&self) -> bool {
        self.entries().iter().filter(|e| !e.is_over()).all(|e| e.may_be_cut_off())
    }

    fn summary(&self) -> String {
        let mut by_word: BTreeMap<&str, usize> = BTreeMap::new();
        for e in self.entries() {
            *by_word.entry(e.status().word()).or_default() += 1;
        }
        let parts: Vec<String> = by_word.iter().map(|(word, n)| format!("{n} {word}")).collect();
        if parts.is_empty() { "no volumes".to_owned() } else { parts.join(", ") }
    }

    /// All volumes.
    pub(crate) fn list(&self) -> Vec<Listed> {
        let known: Vec<(Arc<Entry>, bool)> =
            lock(&self.volumes).values().map(|k| (k.entry.clone(), k.from_file)).collect();
        known.into_iter().map(|(entry, from_file)| self.listed(&entry, from_file)).collect()
    }

    /// One of them.
    ///
    /// # Errors
    /// Where there is no such volume.
    pub(crate) fn show(&self, name: &str) -> Result<Listed> {
        let entry = self.entry(name)?;
        let from_file = lock(&self.volumes).get(name).is_some_and(|k| k.from_file);
        Ok(self.listed(&entry, from_file))
    }

    fn listed(&self, entry: &Entry, from_file: bool) -> Listed {
        let app = entry.app();
        let dirty = |app: &Arc<App>| app.handle.snapshots().iter().map(|s| s.stats.dirty_bytes).sum();
        let mode = |app: &Arc<App>| app.handle.snapshots().first().and_then(|s| s.mode);
        let remembered = self.memory.of(&entry.name);
        let definition = with_overrides(&entry.config(), &remembered);
        Listed {
            name: entry.name.clone(),
            status: entry.status(),
            from_file,
            says: entry.says(),
            mode: app.as_ref().and_then(mode).map(|mode| mode.name().to_owned()),
            next_mode: definition.mode_to_be(),
            definition,
            size: app.as_ref().map(|a| a.info().size),
            dirty_bytes: app.as_ref().map(dirty),
            lacks: remembered.cache.filter(|_| app.is_none()).and_then(|last| last.lost()),
            trouble: app.as_ref().and_then(|app| trouble(&app.handle.snapshots())),
        }
    }

    /// Refuses `volume` where it is wrong, or has what another has that `counts`.
    fn refuse_taken(&self, name: &str, volume: &VolumeConfig, counts: impl Fn(&Entry) -> bool) -> Result<()> {
        let mut taken = Taken::default();
        for other in self.entries().iter().filter(|other| other.name != name && counts(other)) {
            // What is wrong with another is no matter here.
            let of = with_overrides(&other.config(), &self.memory.of(&other.name));
            let _ = taken.add_whole(&other.name, &of);
        }
        taken.add_whole(name, volume)
    }

    /// Makes a volume by command and starts it.
    ///
    /// # Errors
    /// What is wrong with it, or why it cannot be remembered. That it cannot start is its status.
    pub(crate) fn create(&self, name: &str, volume: VolumeConfig, leave: Leave) -> Result<Arc<Entry>> {
        ensure!(
            self.entry(name).is_err(),
            "there is a volume '{name}' already: choose another name, or delete that one first"
        );
        self.refuse_taken(name, &volume, |_| true)?;
        self.memory
            // What is known of a cache by this name still counts.
            .change(name, |r| {
                let cache = r.cache.take();
                *r = state::Remembered { made: Some(volume.clone()), cache, ..Default::default() };
            })?;
        let autostart = volume.autostart;
        let entry = self.add(name, VolumeConfig { autostart: false, ..volume.clone() }, false)?;
        entry.define(volume);
        if autostart {
            entry.start(leave);
        }
        Ok(entry)
    }

    /// Forgets a volume that is stopped and was made by command. Its cache and core stay as they are. Of one that was refused, without `force`, the cache
    /// of that name stays known: it was served before, by another definition.
    ///
    /// # Errors
    /// Where it is in the file, runs, or its cache holds what its core does not have.
    pub(crate) fn delete(&self, name: &str, force: bool) -> Result<()> {
        let entry = self.entry(name)?;
        let from_file = lock(&self.volumes).get(name).is_some_and(|k| k.from_file);
        ensure!(
            !from_file,
            "volume '{name}' is in {}: take it out of there and run 'loligo config reload'",
            self.config_path.display()
        );
        let idle = matches!(entry.status(), Status::Stopped | Status::Refused(_) | Status::Waiting(_));
        ensure!(idle, "volume '{name}' is {}: stop it first", entry.status().word());
        if let Some(cache) = self.memory.of(name).cache.filter(|_| !force)
            && let Some(lost) = cache.lost()
        {
            bail!(
                "the cache of volume '{name}' ({}) holds {lost}: start it, 'loligo flush {name}', stop and delete it then; or add \
                 --force: the cache keeps that data, but nobody here remembers it",
                cache.path.display()
            );
        }
        if !force && matches!(entry.status(), Status::Refused(_)) {
            self.memory.change(name, |r| {
                *r = state::Remembered { cache: r.cache.take(), ..Default::default() };
            })?;
        } else {
            self.memory.forget(name)?;
        }
        entry.quit();
        lock(&self.volumes).remove(name);
        Ok(())
    }

    /// Starts or stops a volume by command; that holds over restarts of the daemon.
    ///
    /// # Errors
    /// Where there is no such volume, or that cannot be remembered.
    pub(crate) fn set_running(&self, name: &str, run: Option<Leave>, flush: bool) -> Result<Arc<Entry>> {
        let entry = self.entry(name)?;
        let autostart = entry.config().autostart;
        let wanted = Some(run.is_some()).filter(|wanted| *wanted != autostart);
        self.memory.change(name, |r| r.run = wanted)?;
        match run {
            Some(leave) => entry.start(leave),
            None => entry.stop(flush),
        }
        Ok(entry)
    }

    /// On a thread of its own: it looks at devices, which may answer late, and systemd is told meanwhile that the daemon lives.
    fn reload_aloud(self: &Arc<Daemon>) -> Result<()> {
        let daemon = self.clone();
        let reload = move || match daemon.reload() {
            Ok(said) => said.iter().for_each(|line| say!("{line}")),
            Err(why) => say!("error: nothing is changed: {why:#}"),
        };
        std::thread::Builder::new().name("reload".into()).spawn(reload).context("starting a thread").map(drop)
    }

    /// Reads the file again: new volumes start, those that are gone stop, those that changed are as they were until they are
    /// started again. What was done, in lines.
    ///
    /// # Errors
    /// What is wrong with the file; nothing is changed then.
    pub(crate) fn reload(&self) -> Result<Vec<String>> {
        let config = Config::load(&self.config_path)?;
        config.distinct()?;
        let known: BTreeMap<String, (Arc<Entry>, bool)> =
            lock(&self.volumes).iter().map(|(n, k)| (n.clone(), (k.entry.clone(), k.from_file))).collect();
        let mut said = Vec::new();
        for (name, volume) in &config.volumes {
            match known.get(name) {
                None => {
                    self.add(name, volume.clone(), true)?;
                    said.push(format!("{name}: new"));
                }
                Some((_, false)) => {
                    said.push(format!(
                        "{name}: was made by command, and stays as it was made: delete it first"
                    ));
                }
                Some((entry, true)) if entry.config() != *volume => {
                    entry.define(volume.clone());
                    // What is set from now on was set by somebody who had seen this.
                    self.memory.is_defined(name, volume);
                    said.push(format!("{name}: changed; 'loligo volume restart {name}' makes it so"));
                }
                Some((_, true)) => {}
            }
        }
        for (name, (entry, from_file)) in known {
            if from_file && !config.volumes.contains_key(&name) {
                entry.quit();
                lock(&self.volumes).remove(&name);
                said.push(format!("{name}: no longer in the file: it is being stopped"));
            }
        }
        Ok(said)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_a_boot_devices_that_come_late_are_waited_for_and_those_that_never_come_are_not_for_long() {
        let second = Duration::from_secs;
        let waiting = Status::Waiting("the core is not there".to_owned());
        assert!(!has_begun(&waiting, true, second(5)), "an OSD would start without its volume");
        assert!(has_begun(&waiting, true, second(31)), "the machine comes up without one of its disks");
        assert!(has_begun(&waiting, false, second(0)), "nothing more comes of itself");
        assert!(
            !has_begun(&Status::Starting, false, second(31))
                && has_begun(&Status::Starting, false, second(61))
        );
        assert!(has_begun(&Status::Refused("no".to_owned()), true, second(0)));
    }
}
