//! The process of an OSD: its label is compared before it starts, and it is found again after the agent was restarted.

use crate::cancel::Cancel;
use crate::config::{OsdConfig, PairConfig};
use crate::luns::read_first_block;
use crate::whole_file;
use anyhow::{Context, Result, ensure};
use loligo_lab::ceph::own_environment;
use loligo_lab::interrupt::Interrupt;
use loligo_lab::process::{self, Process};
use loligo_pair::machine::{Answer, Cause, Failure};
use loligo_pair::plan::Side;
use rustix::process::{Flock, FlockType, Pid, Signal, fcntl_getlk, kill_process};
use serde_json::Value;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
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
    /// The process that an agent of this side has started last.
    last: Option<Process>,
}

impl Osd {
    /// The OSD as `side` has it.
    pub fn new(pair: &PairConfig, osd: &OsdConfig, side: Side) -> Osd {
        Osd {
            config: osd.clone(),
            conf: pair.ceph.conf.clone(),
            device: osd.device[&side].clone(),
            dir: osd.dir[&side].clone(),
            last: noted(&osd.dir[&side]),
        }
    }

    /// Its process: the one that was started last, which may not have come to its store yet, or the one that has the OSD's
    /// folder, since it locks the file `fsid` in it.
    pub fn process(&self) -> Option<Pid> {
        let last = self.last.as_ref().filter(|process| process.alive());
        last.and_then(|process| Pid::from_raw(process.pid)).or_else(|| self.holder())
    }

    fn holder(&self) -> Option<Pid> {
        let file = File::options().read(true).write(true).open(self.dir.join("fsid")).ok()?;
        let held = fcntl_getlk(&file, &Flock::from(FlockType::WriteLock)).ok()??;
        held.pid
    }

    /// Starts it; it is done once the process has its folder. One that runs already is this side's, and is taken on.
    pub fn start(&mut self, cancel: &Cancel) -> Answer {
        match self.try_start(cancel) {
            Ok(()) => Answer::Done,
            Err(why) => Answer::Failed(self.blame(&format!("{why:#}"))),
        }
    }

    fn try_start(&mut self, cancel: &Cancel) -> Result<()> {
        let id = self.config.id;
        if self.process().is_none() {
            self.check_label()?;
            self.spawn()?;
        }
        let begun = Instant::now();
        // The lock is taken right before the store is opened.
        while self.holder().is_none() {
            cancel.check()?;
            ensure!(self.process().is_some(), "osd.{id} ended at its start: its log says why");
            ensure!(begun.elapsed() < START, "osd.{id} has not opened its store after {} s", START.as_secs());
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Starts the process. It is noted before it runs, so that an agent that comes after this one knows it.
    fn spawn(&mut self) -> Result<()> {
        let id = self.config.id;
        let mut command = Command::new("ceph-osd");
        own_environment(&mut command, &self.conf);
        command.args(["-f", "-i", &id.to_string(), "--osd-data"]).arg(&self.dir);
        command.args(["--osd_crush_update_on_start=false", "--osd_class_update_on_start=false"]);
        command.arg(AIO_POLL);
        let held = Process::hold(&format!("osd.{id}"), &command, &self.dir.join("agent.out"))?;
        note(&self.dir, &held.process)?;
        self.last = Some(held.go());
        Ok(())
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
        match read_first_block(&self.device) {
            Err(error) => Failure::Array(format!("{}: {error}", self.device.display())),
            Ok(()) => Failure::Other(why.to_owned()),
        }
    }

    /// Looks whether its process has ended by itself, and why.
    pub fn has_ended(&mut self) -> Option<Cause> {
        if self.process().is_some() {
            return None;
        }
        Some(if read_first_block(&self.device).is_err() { Cause::Array } else { Cause::Other })
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
        while let Some(pid) = self.process() {
            // It may end at this moment. One that is frozen ends too.
            let _ = kill_process(pid, signal);
            if limit.is_some_and(|limit| begun.elapsed() > limit) {
                return Answer::Failed(Failure::TimedOut);
            }
            std::thread::sleep(LOOK);
        }
        Answer::Done
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.config.id
    }
}

/// The name of the note of the process that was started last, in the OSD's folder.
const NOTE: &str = "agent.process";

fn noted(dir: &Path) -> Option<Process> {
    serde_json::from_slice(&std::fs::read(dir.join(NOTE)).ok()?).ok()
}

fn note(dir: &Path, process: &Process) -> Result<()> {
    let path = dir.join(NOTE);
    whole_file::write(&path, &serde_json::to_vec(process)?)
        .with_context(|| format!("{} cannot be written", path.display()))
}
