//! One run of `loligod`, from its file to the end of its last volume.

use crate::api::router;
use crate::control::{Api, ControlThread};
use crate::daemon::{Daemon, DaemonOptions, bind_metrics, state_dir};
use crate::descriptors;
use crate::folder::Folder;
use crate::metrics::Served;
use crate::pair::{self, PairAgent, PairThread};
use crate::registry::Registry;
use crate::sections::Sections;
use crate::state::StateFile;
use crate::supervisor::Status;
use crate::systemd::notify;
use crate::tune::{TuneThread, TuneWatch};
use crate::volumes::Volumes;
use anyhow::{Context, Result, bail};
use loligo_export::ListenAddr;
use loligo_log::say;
use loligo_volume::control_socket;
use rustix::process::{Signal, getpid, kill_process};
use rustix::time::{ClockId, clock_gettime};
use sd_notify::NotifyState;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::net::{SocketAddr, TcpListener};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Between two words to systemd.
const BEAT: Duration = Duration::from_secs(1);
/// The time that the daemon waits for volumes to come before it says that it is ready: those that take longer
/// come later.
const FIRST: Duration = Duration::from_secs(60);
/// In the first minutes of a machine its devices come one after another, which udev and LVM see to: so long after the daemon's start it waits for those
/// that are not there yet, too.
const COMING: Duration = Duration::from_secs(30);
/// The length of those first minutes.
const BOOT: Duration = Duration::from_secs(900);
/// Time that systemd is asked for while volumes start or stop, beyond what it grants anyway.
const MORE_TIME: Duration = Duration::from_secs(30);

/// The time that a stop, of a volume or of the daemon, waits for a start that may hang and of which there is
/// nothing to end yet.
const HANGS: Duration = Duration::from_secs(5);

/// Serves until SIGTERM or SIGINT; SIGHUP reads the file again.
///
/// # Errors
/// If the daemon itself cannot start. A volume that cannot start is refused alone.
pub fn run(options: &DaemonOptions) -> Result<ExitCode> {
    let sections = Sections::load(&options.config)?;
    let pair = sections.right.pair.as_ref().map(|it| Ok::<_, anyhow::Error>((pair::read(it)?, it.side)));
    let pair = pair.transpose()?;
    // The thread of the log carries no request out: it need not inherit what follows.
    loligo_log::begin_service().context("starting the thread of the log")?;
    // Before any other thread: what is set here they inherit.
    crate::guard::prepare();
    descriptors::raise();
    let socket = control_socket::claim_daemon()?;
    let state_dir = std::path::absolute(state_dir(&sections.right)?)?;
    let file = StateFile::at(&state_dir)?;
    // Before it is read: what another daemon writes would be lost by what this one does.
    let _folder = Folder::take(&state_dir)?;
    let state = file.load()?;
    let metrics = sections.right.daemon.metrics;
    let listener = metrics.map(bind_metrics).transpose()?.flatten();
    let caught = catch_signals()?;
    let control = ControlThread::start()?;
    let volumes = Arc::<Volumes>::default();
    let daemon = Arc::new(Daemon {
        // Whoever asks for it may be in another folder.
        config_path: std::path::absolute(&options.config)?,
        state_dir,
        started: Instant::now(),
        control: control.clone(),
        memory: Registry::new(file, state, volumes.clone(), sections.right.daemon.identity.clone()),
        volumes,
        pair: pair.as_ref().map(|_| PairAgent::new()),
        tune: sections.right.tune.as_ref().map(|_| TuneWatch::new()),
    });
    daemon.begin(&sections)?;
    let section = sections.right.tune.clone();
    look_after(&daemon, sections)?;
    let mut scrapes = Scrapes::begin(&daemon, metrics, listener)?;
    let ListenAddr::Unix(path) = socket.addr().clone() else { bail!("the control socket has no path") };
    let _api = control.serve(socket, router(daemon.clone()))?;
    tracing::debug!(socket = %path.display(), "the API is served");
    // It asks this daemon for the pair's volumes, by the same socket as everybody.
    let agent = pair.zip(daemon.pair.clone());
    let agent = agent.map(|((config, side), agent)| PairThread::start(config, side, agent)).transpose()?;
    let watch = section.zip(daemon.tune.clone());
    let watch =
        watch.map(|(section, watch)| TuneThread::start(section, &daemon.state_dir, watch)).transpose()?;
    serve(&daemon, &caught, &mut scrapes)?;
    drop(scrapes);
    watch.into_iter().for_each(|mut watch| watch.end());
    // Before the volumes: what ends then is not to be started again.
    agent.into_iter().for_each(|mut agent| agent.end());
    stop(&daemon, &caught);
    Ok(if daemon.has_failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Signals as messages, so that a thread can wait for one and for a time.
fn catch_signals() -> Result<Receiver<i32>> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).context("catching signals")?;
    let (send, caught) = channel();
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || signals.forever().take_while(|s| send.send(*s).is_ok()).for_each(drop))
        .context("starting the signal thread")?;
    Ok(caught)
}

/// Starts the two threads that look after volumes beside their own: a start that hangs, and two volumes on one device.
fn look_after(daemon: &Arc<Daemon>, sections: Sections) -> Result<()> {
    let of = daemon.clone();
    let leave = move || loop {
        std::thread::sleep(BEAT);
        of.leave_hanging(HANGS);
    };
    // A thread of its own: what is left of such starts may lie where they hang.
    std::thread::Builder::new().name("hangs".into()).spawn(leave).context("starting a thread")?;
    // Names may have come to mean other devices since the file was checked. Whoever is second is refused; the others are served.
    let look = move || {
        if let Err(why) = sections.right.distinct() {
            say!("warning: {why:#}");
        }
    };
    std::thread::Builder::new().name("look".into()).spawn(look).context("starting a thread")?;
    Ok(())
}

/// `/metrics`, which an address may have to come first for.
struct Scrapes {
    control: ControlThread,
    served: Served,
    /// While it is served.
    api: Option<Api>,
    /// The address that is waited for.
    late: Option<SocketAddr>,
}

impl Scrapes {
    /// Serves `listener`; without one `addr` is waited for.
    fn begin(
        daemon: &Arc<Daemon>,
        addr: Option<SocketAddr>,
        listener: Option<TcpListener>,
    ) -> Result<Scrapes> {
        let of = daemon.clone();
        let mut scrapes = Scrapes {
            control: daemon.control.clone(),
            served: Arc::new(move || of.scraped()),
            api: None,
            late: None,
        };
        if let Some(listener) = listener {
            scrapes.serve(listener)?;
        } else if let Some(addr) = addr {
            say!("waiting: {addr} for metrics is no address of this host, and is listened on once it is");
            scrapes.late = Some(addr);
        }
        Ok(scrapes)
    }

    fn serve(&mut self, listener: TcpListener) -> Result<()> {
        self.api = Some(self.control.serve_metrics(listener, self.served.clone())?);
        self.late = None;
        Ok(())
    }

    /// Looks whether the address has come.
    fn look(&mut self) {
        let Some(addr) = self.late else { return };
        let served = bind_metrics(addr).and_then(|bound| bound.map_or(Ok(()), |l| self.serve(l)));
        if let Err(why) = served {
            say!("error: nobody is told of metrics: {why:#}");
            self.late = None;
        }
    }
}

/// Serves until a signal says stop: reads the file again on SIGHUP, and tells systemd how things stand.
fn serve(daemon: &Arc<Daemon>, caught: &Receiver<i32>, scrapes: &mut Scrapes) -> Result<()> {
    let (first, up) = (Instant::now(), clock_gettime(ClockId::Boottime));
    let is_boot = (up.tv_sec as u64) < BOOT.as_secs();
    let mut ready = false;
    loop {
        match caught.recv_timeout(if ready { BEAT } else { BEAT / 10 }) {
            Ok(SIGHUP) => {
                if let Err(why) = daemon.reload_aloud() {
                    say!("error: nothing is changed: {why:#}");
                }
            }
            Ok(_) => return Ok(()),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => bail!("the signal thread is gone"),
        }
        scrapes.look();
        if !ready && daemon.statuses().iter().all(|s| has_begun(s, is_boot, first.elapsed())) {
            ready = true;
            notify(&[NotifyState::Ready]);
            loligo_log::outln!("ready");
            loligo_log::flush_output();
        }
        let more = [NotifyState::ExtendTimeoutUsec(MORE_TIME.as_micros() as u32)];
        notify(if ready { &[NotifyState::Watchdog] } else { &more });
        notify(&[NotifyState::Status(&daemon.summary())]);
    }
}

/// Stops every volume. A second signal ends the process at once, where a crash loses nothing.
fn stop(daemon: &Daemon, caught: &Receiver<i32>) {
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
}

/// True if nobody who stands on a volume needs to wait for it any longer, so long after the daemon's start.
fn has_begun(status: &Status, is_boot: bool, since: Duration) -> bool {
    match status {
        Status::Starting => since >= FIRST,
        Status::Waiting(_) => !is_boot || since >= COMING,
        Status::Stopped
        | Status::Serving
        | Status::Refused(_)
        | Status::Stopping
        | Status::Failed(_)
        | Status::Lost(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boot_waits_for_late_devices_and_not_long_for_missing_ones() {
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
