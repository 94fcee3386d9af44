//! The process of an OSD: its label is compared before it starts, and it is found again after the agent was restarted.

use crate::behind::Behind;
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
    /// Its LUNs, without that of a cache.
    luns: Vec<PathBuf>,
    dir: PathBuf,
    /// The volume between its data and `device`, if there is a cache.
    behind: Option<Behind>,
    /// The process that an agent of this side has started last.
    last: Option<Process>,
}

impl Osd {
    /// The OSD as `side` has it.
    ///
    /// # Errors
    /// If the volume that it stands on makes no sense.
    pub fn new(pair: &PairConfig, osd: &OsdConfig, side: Side) -> Result<Osd> {
        Ok(Osd {
            config: osd.clone(),
            conf: pair.ceph.conf.clone(),
            luns: std::iter::once(&osd.device).chain(&osd.db).map(|paths| paths[&side].clone()).collect(),
            dir: osd.dir[&side].clone(),
            behind: Behind::new(pair, osd, side)?,
            last: noted(&osd.dir[&side]),
        })
    }

    /// True if it runs here, or the volume that it stands on is served here.
    pub fn is_here(&self) -> bool {
        self.process().is_some() || self.behind.as_ref().is_some_and(Behind::is_here)
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
            Err(why) => Answer::Failed(self.blame(&why)),
        }
    }

    fn try_start(&mut self, cancel: &Cancel) -> Result<()> {
        let id = self.config.id;
        if let (Some(behind), Some(pid)) = (&self.behind, self.process())
            && !behind.carries(pid)
        {
            // Its data went from under it with the daemon.
            self.end(Signal::KILL, None);
        }
        if let Some(behind) = &mut self.behind {
            behind.start(cancel)?;
        }
        if self.process().is_none() {
            self.check_links()?;
            self.check_label()?;
            self.check_database()?;
            cancel.check()?;
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

    /// Its data, as it opens them: a device behind a cache is older than they are.
    fn data(&self) -> &Path {
        self.behind.as_ref().map_or(&self.luns[0], Behind::file)
    }

    /// The links of its folder must lead to what the pair's file names: only that is fenced.
    fn check_links(&self) -> Result<()> {
        let links = [("block", Some(self.data())), ("block.db", self.luns.get(1).map(PathBuf::as_path))];
        for (name, device) in links {
            let link = self.dir.join(name);
            let is_there = std::fs::symlink_metadata(&link).is_ok();
            let Some(device) = device else {
                ensure!(
                    !is_there,
                    "{} is there, and the pair's file names no such LUN of osd.{}: add it as [osd.db], or nothing keeps the \
                     partner away from it",
                    link.display(),
                    self.config.id
                );
                continue;
            };
            let leads = |path: &Path| path.canonicalize().ok();
            ensure!(
                leads(&link).is_some() && leads(&link) == leads(device),
                "{} does not lead to {}, which the pair's file names: make it a link to that",
                link.display(),
                device.display()
            );
        }
        Ok(())
    }

    /// The labels that can be read before anything runs must be those of this OSD: a cache has the newer one of what is behind it.
    ///
    /// # Errors
    /// If one cannot be read, or is another's.
    pub fn check_luns(&self) -> Result<()> {
        if self.behind.is_none() {
            self.check_label()?;
        }
        self.check_database()
    }

    /// The label of the store must be that of this OSD of this cluster.
    fn check_label(&self) -> Result<()> {
        let label = self.label(self.data())?;
        let (id, uuid) = (self.config.id, &self.config.uuid);
        let device = self.data().display();
        ensure!(
            label.says("whoami") == id.to_string() && label.says("osd_uuid") == *uuid,
            "{device} holds osd.{} with the id {}, not osd.{id} with {uuid}: another LUN is mapped there",
            label.says("whoami"),
            label.says("osd_uuid"),
        );
        let fsid = std::fs::read_to_string(self.dir.join("ceph_fsid")).unwrap_or_default();
        ensure!(
            fsid.trim().is_empty() || label.says("ceph_fsid") == fsid.trim(),
            "{device} is of the cluster {}, and {} of {}: another LUN is mapped there",
            label.says("ceph_fsid"),
            self.dir.display(),
            fsid.trim()
        );
        Ok(())
    }

    /// So must that of a database.
    fn check_database(&self) -> Result<()> {
        let (id, uuid) = (self.config.id, &self.config.uuid);
        for db in &self.luns[1..] {
            let of = self.label(db)?.says("osd_uuid").to_owned();
            ensure!(
                of == *uuid,
                "{} is the database of the store {of}, not of osd.{id} with {uuid}: another LUN is mapped there",
                db.display()
            );
        }
        Ok(())
    }

    fn label(&self, device: &Path) -> Result<Label> {
        let mut command = Command::new("ceph-bluestore-tool");
        own_environment(&mut command, &self.conf);
        command.args(["show-label", "--dev"]).arg(device);
        let text = process::run(&mut command, TOOL, &Interrupt::default())?;
        let all: Value = serde_json::from_str(&text).context("the label of the store is not JSON")?;
        let label = all.as_object().and_then(|all| all.values().next().cloned());
        Ok(Label(label.context("the store has no label")?))
    }

    /// Why it could not be started, or ended: the array's doing, or not.
    fn blame(&self, why: &anyhow::Error) -> Failure {
        match (&self.behind, self.array_error()) {
            (_, Some(error)) => Failure::Array(error),
            (Some(behind), None) => behind.volume().blame(why),
            (None, None) => Failure::Other(format!("{why:#}")),
        }
    }

    /// The error of the first of its LUNs that cannot be read.
    fn array_error(&self) -> Option<String> {
        let failed = |path: &PathBuf| Some(format!("{}: {}", path.display(), read_first_block(path).err()?));
        self.luns.iter().find_map(failed)
    }

    /// Looks whether its process, or what it stands on, has ended by itself, and why.
    pub fn has_ended(&mut self) -> Option<Cause> {
        if let Some(pid) = self.process() {
            let cause = self.behind.as_mut()?.has_ended()?;
            // It has nothing to write to any more; it may end at this moment.
            let _ = kill_process(pid, Signal::KILL);
            return Some(cause);
        }
        let of_cache = self.behind.as_ref().and_then(|behind| behind.volume().array_error());
        Some(match self.array_error().or(of_cache) {
            Some(_) => Cause::Array,
            None => Cause::Other,
        })
    }

    /// Ends it at once, and returns once it is gone: the kernel keeps it until the array has answered what it wrote.
    pub fn kill(&mut self) -> Answer {
        if let Some(pid) = self.process() {
            // Both are to end at the same time: one that is killed waits for what it stands on.
            let _ = kill_process(pid, Signal::KILL);
        }
        let below = self.behind.as_mut().map_or(Answer::Done, Behind::kill);
        both(self.end(Signal::KILL, None), below)
    }

    /// Ends it in peace, or at once if it takes too long; then what it stands on.
    pub fn stop(&mut self) -> Answer {
        if self.end(Signal::TERM, Some(STOP)) != Answer::Done {
            return self.kill();
        }
        self.behind.as_mut().map_or(Answer::Done, Behind::stop)
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

/// The label of a store.
struct Label(Value);

impl Label {
    fn says(&self, key: &str) -> &str {
        self.0[key].as_str().unwrap_or_default()
    }
}

/// The answer of two that had to end.
fn both(first: Answer, second: Answer) -> Answer {
    if first == Answer::Done { second } else { first }
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
