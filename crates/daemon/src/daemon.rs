//! `loligod`: many volumes in one process, by one file and by command.
//!
//! Each volume has a thread of its own that starts it, looks after it and stops it ([`crate::supervisor`]); the API's thread and the signals
//! only say what is wanted. A volume that cannot start holds nobody else up.

use crate::api::router;
use crate::config::Config;
use crate::control::ControlThread;
use crate::descriptors;
use crate::device_ids::DeviceIds;
use crate::exclusive::Exclusive;
use crate::folder::Folder;
use crate::metrics::{self, Scraped, Served};
use crate::registry::{Registry, with_overrides};
use crate::sections::Sections;
use crate::state::{State, StateFile};
use crate::supervisor::{Status, Supervisor};
use crate::systemd::notify;
use crate::volumes::Volumes;
use crate::writer_lock::WriterLock;
use anyhow::{Context, Result, anyhow, bail, ensure};
use loligo_block::keyed;
use loligo_client::api::definition::VolumeConfig;
use loligo_export::ListenAddr;
use loligo_log::say;
use loligo_volume::control_socket;
use parking_lot::Mutex;
use rustix::process::{Signal, getpid, kill_process};
use rustix::time::{ClockId, clock_gettime};
use sd_notify::NotifyState;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Between two words to systemd.
const BEAT: Duration = Duration::from_secs(1);
/// How long the daemon waits for volumes to come before it says that it is ready: those that take longer come later.
const FIRST: Duration = Duration::from_secs(60);
/// In the first minutes of a machine its devices come one after another, which udev and LVM see to: so long after the daemon's start it waits for those
/// that are not there yet, too.
const COMING: Duration = Duration::from_secs(30);
/// How many those are.
const BOOT: Duration = Duration::from_secs(900);
/// Time that systemd is asked for while volumes start or stop, beyond what it grants anyway.
const MORE_TIME: Duration = Duration::from_secs(30);

/// How long a stop, of a volume or of the daemon, waits for a start that may hang and of which there is nothing to end yet.
const HANGS: Duration = Duration::from_secs(5);

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
    pub(crate) control: ControlThread,
    pub(crate) memory: Arc<Registry>,
    pub(crate) volumes: Arc<Volumes>,
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

/// Serves until SIGTERM or SIGINT; SIGHUP reads the file again.
///
/// # Errors
/// If the daemon itself cannot start; what is wrong with a volume is that volume's.
pub fn run(options: &DaemonOptions) -> Result<ExitCode> {
    let sections = Sections::load(&options.config)?;
    let config = &sections.right;
    // The thread of the log carries no request out: it need not inherit what follows.
    loligo_log::begin_service().context("starting the thread of the log")?;
    // Before any other thread: what is set here they inherit.
    crate::guard::prepare();
    descriptors::raise();
    let socket = control_socket::claim_daemon()?;
    let state_dir = std::path::absolute(state_dir(config)?)?;
    let file = StateFile::at(&state_dir)?;
    // Before it is read: what another daemon writes would be lost by what this one does.
    let _folder = Folder::take(&state_dir)?;
    let state = file.load()?;
    let mut late = config.daemon.metrics;
    let metrics = late.map(bind_metrics).transpose()?.flatten();
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).context("catching signals")?;
    let (send, caught) = channel();
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || signals.forever().take_while(|s| send.send(*s).is_ok()).for_each(drop))
        .context("starting the signal thread")?;
    let control = ControlThread::start()?;
    let volumes = Arc::<Volumes>::default();
    let memory = Arc::new_cyclic(|me| Registry {
        file,
        volumes: volumes.clone(),
        state: Mutex::new(state),
        pen: WriterLock::default(),
        me: me.clone(),
        defined: Mutex::default(),
        plain: Mutex::default(),
        owed: Mutex::default(),
    });
    let daemon = Arc::new(Daemon {
        // Whoever asks for it may be in another folder.
        config_path: std::path::absolute(&options.config)?,
        state_dir,
        started: Instant::now(),
        control: control.clone(),
        memory,
        volumes,
    });
    daemon.begin(&sections)?;
    // Names may have come to mean other devices since the file was checked. Whoever is second is refused; the others are served.
    let of = daemon.clone();
    let leave = move || loop {
        std::thread::sleep(BEAT);
        of.leave_hanging(HANGS);
    };
    // A thread of its own: what is left of such starts may lie where they hang.
    std::thread::Builder::new().name("hangs".into()).spawn(leave).context("starting a thread")?;
    let look = move || {
        if let Err(why) = sections.right.distinct() {
            say!("warning: {why:#}");
        }
    };
    std::thread::Builder::new().name("look".into()).spawn(look).context("starting a thread")?;
    let of = daemon.clone();
    let served: Served = Arc::new(move || of.scraped());
    if metrics.is_some() {
        late = None;
    } else if let Some(addr) = late {
        say!("waiting: {addr} for metrics is no address of this host, and is listened on once it is");
    }
    let mut scrapes = metrics.map(|m| control.serve_metrics(m, served.clone())).transpose()?;
    let ListenAddr::Unix(path) = socket.addr().clone() else { bail!("the control socket has no path") };
    let _api = control.serve(socket, router(daemon.clone()))?;
    tracing::debug!(socket = %path.display(), "the API is served");

    let (first, up) = (Instant::now(), clock_gettime(ClockId::Boottime));
    let is_boot = (up.tv_sec as u64) < BOOT.as_secs();
    let mut ready = false;
    let stop = loop {
        match caught.recv_timeout(if ready { BEAT } else { BEAT / 10 }) {
            Ok(SIGHUP) => {
                if let Err(why) = daemon.reload_aloud() {
                    say!("error: nothing is changed: {why:#}");
                }
            }
            Ok(_) => break true,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break false,
        }
        if let Some(addr) = late {
            match bind_metrics(addr).map(|bound| bound.map(|m| control.serve_metrics(m, served.clone()))) {
                Ok(None) => {}
                Ok(Some(Ok(api))) => (scrapes, late) = (Some(api), None),
                Ok(Some(Err(why))) | Err(why) => {
                    say!("error: nobody is told of metrics: {why:#}");
                    late = None;
                }
            }
        }
        if !ready && daemon.statuses().iter().all(|s| has_begun(s, is_boot, first.elapsed())) {
            ready = true;
            notify(&[NotifyState::Ready]);
            loligo_log::outln!("ready");
            loligo_log::flush_output();
        }
        let more = [NotifyState::ExtendTimeoutUsec(MORE_TIME.as_micros() as u32)];
        notify(if ready { &[NotifyState::Watchdog] } else { &more });
        notify(&[NotifyState::Status(&daemon.summary())]);
    };
    drop(scrapes);
    ensure!(stop, "the signal thread is gone");
    notify(&[NotifyState::Stopping]);
    daemon.volumes.close();
    let asked = Instant::now();
    while !daemon.is_over() {
        if asked.elapsed() >= HANGS {
            daemon.leave_hanging(HANGS);
        }
        notify(&[
            NotifyState::ExtendTimeoutUsec(MORE_TIME.as_micros() as u32),
            NotifyState::Status("stopping: what was promised is made durable"),
        ]);
        if caught.recv_timeout(BEAT / 10).is_ok_and(|s| s != SIGHUP) {
            if daemon.may_be_cut_off() {
                say!(
                    "given up on a second signal: everything acknowledged is on the caches, the next start recovers"
                );
                loligo_log::finish();
                let _ = kill_process(getpid(), Signal::KILL);
            }
            daemon.leave_hanging(Duration::ZERO);
            daemon.supervisors().iter().for_each(|e| e.hurry());
        }
    }
    Ok(if daemon.has_failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Listens where metrics are asked for; nothing where that is no address of this host yet.
fn bind_metrics(addr: SocketAddr) -> Result<Option<TcpListener>> {
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

/// Whether whoever stands on a volume need not wait for it any longer, so long after the daemon's start.
fn has_begun(status: &Status, is_boot: bool, since: Duration) -> bool {
    match status {
        Status::Starting => since >= FIRST,
        Status::Waiting(_) => !is_boot || since >= COMING,
        Status::Stopped | Status::Serving | Status::Refused(_) | Status::Stopping | Status::Failed(_) => true,
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

    /// Every volume, for a scrape.
    fn scraped(&self) -> Vec<Scraped> {
        let of = |e: &Arc<Supervisor>| Scraped { name: e.name.clone(), state: e.status(), app: e.app() };
        self.supervisors().iter().map(of).collect()
    }

    fn statuses(&self) -> Vec<Status> {
        self.supervisors().iter().map(|e| e.status()).collect()
    }

    fn is_over(&self) -> bool {
        !self.supervisors().iter().any(|e| e.is_waited_for())
    }

    /// Has nobody wait for a start any more that was to stop so long ago, and of which nothing is made, noted or served: a device
    /// that answers nothing may hold it for ever.
    fn leave_hanging(&self, after: Duration) {
        for supervisor in self.supervisors() {
            if let Some(what) = supervisor.leave_behind(after) {
                say!(
                    "{}: warning: its start does not come to an end ({what}) and is not waited for: nothing was noted or served yet",
                    supervisor.name
                );
            }
        }
    }

    fn has_failed(&self) -> bool {
        self.supervisors().iter().any(|e| matches!(e.status(), Status::Failed(_)))
    }

    /// Whether all that a stop still waits for loses nothing by a crash.
    fn may_be_cut_off(&self) -> bool {
        let supervisors = self.supervisors();
        let mut left = supervisors.iter().filter(|e| e.is_waited_for()).peekable();
        // Where nothing is left the stop is over, and clean.
        left.peek().is_some() && left.all(|e| e.may_be_cut_off())
    }

    fn summary(&self) -> String {
        let mut by_word: BTreeMap<&str, usize> = BTreeMap::new();
        for e in self.supervisors() {
            *by_word.entry(e.status().word()).or_default() += 1;
        }
        let parts: Vec<String> = by_word.iter().map(|(word, n)| format!("{n} {word}")).collect();
        if parts.is_empty() { "no volumes".to_owned() } else { parts.join(", ") }
    }

    /// Refuses `volume` where it is wrong, or has what another has that `counts`, by the devices that were `device_ids` at.
    pub fn refuse_taken(
        &self,
        name: &str,
        volume: &VolumeConfig,
        device_ids: &DeviceIds,
        counts: impl Fn(&Supervisor) -> bool,
    ) -> Result<()> {
        let mut exclusive = Exclusive::default();
        for other in self.supervisors().iter().filter(|other| other.name != name && counts(other)) {
            // What is wrong with another is no matter here.
            let of = with_overrides(&other.config(), &self.memory.of(&other.name));
            let _ = exclusive.add_whole(&other.name, &of, device_ids);
        }
        exclusive.add_whole(name, volume, device_ids)
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
