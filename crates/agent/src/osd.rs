//! The process of an OSD: its label is compared before it starts, and it is found again after the agent was restarted.

use crate::config::{OsdConfig, PairConfig};
use anyhow::{Context, Result, bail, ensure};
use loligo_lab::ceph::own_environment;
use loligo_lab::interrupt::Interrupt;
use loligo_lab::process;
use loligo_pair::machine::{Answer, Cause, Failure};
use loligo_pair::plan::Side;
use rustix::process::{Flock, FlockType, Pid, Signal, fcntl_getlk, kill_process};
use serde_json::Value;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Between two looks.
const LOOK: Duration = Duration::from_millis(20);
/// The time that a process may take to open its store.
const START: Duration = Duration::from_secs(110);
/// The time that one may take to end in peace.
const STOP: Duration = Duration::from_secs(5);
/// An OSD opens and closes its device eight times before it mounts its store, and each close waits for one poll of the thread that
/// reaps I/O: 250 ms as Ceph ships it, two seconds in all.
const AIO_POLL: &str = "--bdev_aio_poll_ms=10";
/// The time that Ceph's tools may take.
const TOOL: Duration = Duration::from_secs(20);

/// An OSD of the pair, on one side.
#[derive(Debug)]
pub struct Osd {
    config: OsdConfig,
    conf: PathBuf,
    device: PathBuf,
    dir: PathBuf,
    child: Option<Child>,
}

impl Osd {
    /// The OSD as `side` has it.
    pub fn new(pair: &PairConfig, osd: &OsdConfig, side: Side) -> Osd {
        Osd {
            config: osd.clone(),
            conf: pair.ceph.conf.clone(),
            device: osd.device[&side].clone(),
            dir: osd.dir[&side].clone(),
            child: None,
        }
    }

    /// The process that has the OSD's folder: it locks the file `fsid` in it.
    pub fn process(&self) -> Option<Pid> {
        let file = File::options().read(true).write(true).open(self.dir.join("fsid")).ok()?;
        let held = fcntl_getlk(&file, &Flock::from(FlockType::WriteLock)).ok()??;
        held.pid
    }

    /// Starts it; it is done once the process has opened its store.
    pub fn start(&mut self) -> Answer {
        match self.try_start() {
            Ok(()) => Answer::Done,
            Err(why) => Answer::Failed(self.blame(&format!("{why:#}"))),
        }
    }

    fn try_start(&mut self) -> Result<()> {
        let id = self.config.id;
        if let Some(pid) = self.process() {
            bail!("process {} has the folder {}", pid.as_raw_nonzero(), self.dir.display());
        }
        self.check_label()?;
        let mut command = Command::new("ceph-osd");
        own_environment(&mut command, &self.conf);
        command.args(["-f", "-i", &id.to_string(), "--osd-data"]).arg(&self.dir);
        command.args(["--osd_crush_update_on_start=false", "--osd_class_update_on_start=false"]);
        command.arg(AIO_POLL);
        let log = File::options().create(true).append(true).open(self.dir.join("agent.out"))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        // A group of its own: a signal to the agent's is none to the OSD. In '/': Debian's Ceph 18 looks for its object classes
        // below the folder that it is started in.
        command.process_group(0).current_dir("/");
        let mut child = command.spawn().context("starting ceph-osd")?;
        let begun = Instant::now();
        // The lock is taken before the store is opened; the socket for administration comes right after it was.
        while !self.has_opened(child.id()) {
            if let Some(status) = child.try_wait()? {
                bail!("osd.{id} ended at its start ({status}): its log says why");
            }
            if begun.elapsed() > START {
                self.child = Some(child);
                bail!("osd.{id} has not opened its store after {} s", START.as_secs());
            }
            std::thread::sleep(LOOK);
        }
        self.child = Some(child);
        Ok(())
    }

    /// True once process `pid` listens: it has opened its store then.
    fn has_opened(&self, pid: u32) -> bool {
        self.process().is_some_and(|holder| holder.as_raw_nonzero().get() as u32 == pid)
    }

    /// The label of the store must be that of this OSD of this cluster.
    fn check_label(&self) -> Result<()> {
        let mut command = Command::new("ceph-bluestore-tool");
        own_environment(&mut command, &self.conf);
        command.args(["show-label", "--dev"]).arg(&self.device);
        let text = process::run(&mut command, TOOL, &Interrupt::default())?;
        let label: Value = serde_json::from_str(&text).context("the label of the store is not JSON")?;
        let label =
            label.as_object().and_then(|all| all.values().next()).context("the store has no label")?;
        let device = self.device.display();
        let says = |key: &str| label[key].as_str().unwrap_or_default().to_owned();
        ensure!(
            says("whoami") == self.config.id.to_string() && says("osd_uuid") == self.config.uuid,
            "{device} holds osd.{} with the id {}, not osd.{} with {}: another LUN is mapped there",
            says("whoami"),
            says("osd_uuid"),
            self.config.id,
            self.config.uuid
        );
        let fsid = std::fs::read_to_string(self.dir.join("ceph_fsid")).unwrap_or_default();
        ensure!(
            fsid.trim().is_empty() || says("ceph_fsid") == fsid.trim(),
            "{device} is of the cluster {}, and {} of {}",
            says("ceph_fsid"),
            self.dir.display(),
            fsid.trim()
        );
        Ok(())
    }

    /// Why it could not be started, or ended: the array's doing, or not.
    fn blame(&self, why: &str) -> Failure {
        match read_device(&self.device) {
            Err(error) => Failure::Array(format!("{}: {error}", self.device.display())),
            Ok(()) => Failure::Other(why.to_owned()),
        }
    }

    /// Looks whether its process has ended by itself, and why.
    pub fn has_ended(&mut self) -> Option<Cause> {
        if let Some(child) = &mut self.child {
            match child.try_wait() {
                Ok(Some(_)) => self.child = None,
                _ => return None,
            }
        } else if self.process().is_some() {
            return None;
        }
        Some(if read_device(&self.device).is_err() { Cause::Array } else { Cause::Other })
    }

    /// Ends it at once, and returns once it is gone: the kernel keeps it until the array has answered what it wrote.
    pub fn kill(&mut self) -> Answer {
        self.end(Signal::KILL, None)
    }

    /// Ends it in peace, or at once if it takes too long.
    pub fn stop(&mut self) -> Answer {
        match self.end(Signal::TERM, Some(STOP)) {
            Answer::Done => Answer::Done,
            _ => self.kill(),
        }
    }

    fn end(&mut self, signal: Signal, limit: Option<Duration>) -> Answer {
        let begun = Instant::now();
        loop {
            let own = self.child.as_ref().and_then(|child| Pid::from_raw(child.id() as i32));
            let pid = own.or_else(|| self.process());
            let Some(pid) = pid else { return Answer::Done };
            // It may end at this moment.
            let _ = kill_process(pid, signal);
            if let Some(child) = &mut self.child
                && !matches!(child.try_wait(), Ok(None))
            {
                self.child = None;
                continue;
            }
            if limit.is_some_and(|limit| begun.elapsed() > limit) {
                return Answer::Failed(Failure::TimedOut);
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.config.id
    }
}

/// Reads the first block past the page cache.
fn read_device(path: &Path) -> std::io::Result<()> {
    use rustix::fs::{Mode, OFlags};
    #[repr(align(4096))]
    struct Block([u8; 4096]);
    let mut block = Block([0; 4096]);
    let open = |more| rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC | more, Mode::empty());
    let file = match open(OFlags::DIRECT) {
        Err(rustix::io::Errno::INVAL) => open(OFlags::empty())?,
        opened => opened?,
    };
    rustix::io::pread(&file, &mut block.0, 0)?;
    Ok(())
}
