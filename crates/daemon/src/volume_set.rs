//! Operations on the set of volumes, by the file and by command. They are done one at a time, and by the daemon alone, so that
//! nobody has to stay for one to come to its end.

use crate::daemon::Daemon;
use crate::remembered::Remembered;
use crate::remembered::with_overrides;
use crate::sections::{Fault, Sections};
use crate::supervisor::{Status, Supervisor};
use crate::volumes::{Member, Turn};
use anyhow::{Context, Result, bail, ensure};
use loligo_block::keyed;
use loligo_block::keys::FORCE;
use loligo_client::api::daemon::{Forgotten, Reloaded};
use loligo_client::api::definition::{Leave, VolumeConfig};
use loligo_log::say;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The time that something waits for a volume that leaves, if that is all it waits for.
const LEAVES: Duration = Duration::from_secs(5);

fn refused(name: &str, fault: &Fault) -> String {
    format!("{name}: its section of the file is not right: {}", fault.why)
}

/// The state that a command wants of a volume.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Run {
    /// To be served, and what its start is allowed.
    Start(Leave),
    /// Not to be.
    Stop {
        /// Everything dirty goes to the core before.
        flush: bool,
        /// The stop gives up what it waits for.
        force: bool,
    },
}

impl Daemon {
    /// Starts every volume of the file, and those made by command.
    pub(super) fn begin(&self, sections: &Sections) -> Result<()> {
        let turn = self.volumes.turn();
        let state = self.memory.state.lock().clone();
        let mut sections = sections.clone();
        sections.beside_made(&state);
        for (name, volume) in &sections.right.volumes {
            self.add(&turn, name, volume.clone(), true)?;
        }
        for (name, fault) in &sections.wrong {
            say!("error: {}", refused(name, fault));
            self.add_wrong(&turn, name, fault)?;
        }
        for (name, remembered) in &state.volumes {
            let Some(made) = &remembered.made else { continue };
            if sections.has(name) {
                say!("{name}: warning: made by command once, and in the file now: the file counts");
                continue;
            }
            self.add(&turn, name, made.clone(), false)?;
        }
        Ok(())
    }

    /// True if a volume is to be served, as far as nobody says anything else.
    fn runs(&self, name: &str, volume: &VolumeConfig) -> bool {
        self.memory.of(name).run.unwrap_or(volume.autostart)
    }

    fn add(
        &self,
        turn: &Turn<'_>,
        name: &str,
        volume: VolumeConfig,
        from_file: bool,
    ) -> Result<Arc<Supervisor>> {
        let lost = self.memory.of(name).lost;
        let run = self.runs(name, &volume) && lost.is_none();
        let supervisor = turn.add(name, from_file, || {
            Supervisor::new(name, volume, run, self.memory.clone(), self.control.clone())
                .context("starting a thread")
        })?;
        if let Some(why) = lost {
            say!("{name}: not started, because it was lost to another controller: {why}");
            supervisor.is_lost(&why);
        }
        Ok(supervisor)
    }

    /// A volume of the file that is refused until its section is mended.
    fn add_wrong(&self, turn: &Turn<'_>, name: &str, fault: &Fault) -> Result<()> {
        let supervisor = turn.add(name, true, || {
            let readable = fault.readable.clone();
            Supervisor::new(name, readable, false, self.memory.clone(), self.control.clone())
                .context("starting a thread")
        })?;
        supervisor.is_wrong(fault.clone());
        Ok(())
    }

    /// A volume that something can be done to: one that leaves is past that.
    fn staying(&self, name: &str) -> Result<Member> {
        let known = self.volumes.find(name)?;
        ensure!(!known.leaving, "volume '{name}' is being stopped, and is none any more after that");
        Ok(known)
    }

    /// Makes a volume by command and starts it.
    ///
    /// # Errors
    /// An error says what is wrong with it, or why it cannot be remembered. A failed start is its status.
    pub(crate) fn create(&self, name: &str, volume: VolumeConfig, leave: Leave) -> Result<Arc<Supervisor>> {
        let (turn, looked) = self.turn_beside([&volume]);
        if let Ok(known) = self.volumes.find(name) {
            ensure!(
                known.leaving,
                "there is a volume '{name}' already: choose another name, or delete that one first"
            );
            ensure!(
                known.supervisor.ends_within(LEAVES),
                "volume '{name}' is still being stopped, and leaves then: try again after that ('loligo volume show {name}' says how it is)"
            );
        }
        self.refuse_taken(name, &volume, &looked, |_| true)?;
        self.memory
            // What is known of a cache by this name still counts.
            .change(name, |r| {
                let cache = r.cache.take();
                *r = Remembered { made: Some(volume.clone()), cache, ..Default::default() };
            })?;
        let first = VolumeConfig { autostart: false, ..volume.clone() };
        let supervisor = match self.add(&turn, name, first, false) {
            Ok(supervisor) => supervisor,
            Err(why) => {
                self.memory.change(name, |r| r.made = None)?;
                return Err(why);
            }
        };
        let autostart = volume.autostart;
        supervisor.define(volume);
        if autostart {
            supervisor.start(leave);
        }
        Ok(supervisor)
    }

    /// Forgets a volume that is stopped and was made by command. Its cache and core stay as they are. Of one that was refused, without `force`, the cache
    /// of that name stays known: it was served before, by another definition.
    ///
    /// # Errors
    /// If it is in the file, runs, or its cache holds what its core does not have.
    pub(crate) fn delete(&self, name: &str, force: bool) -> Result<()> {
        let turn = self.volumes.turn();
        let Member { supervisor, from_file, .. } = self.staying(name)?;
        ensure!(
            !from_file,
            "volume '{name}' is in {}: take it out of there and run 'loligo config reload'",
            self.config_path.display()
        );
        let status = supervisor.status();
        let idle = matches!(status, Status::Stopped | Status::Refused(_) | Status::Waiting(_));
        ensure!(idle, "volume '{name}' is {}: stop it first", status.word());
        let holds = || {
            let cache = self.memory.of(name).cache.filter(|_| !force)?;
            Some((cache.lost()?, cache.path))
        };
        if let Some((lost, cache)) = holds() {
            bail!(keyed!(
                "the cache of volume '{name}' ({}) holds {lost}: start it, 'loligo flush {name}', stop and delete it then; or add \
                 {FORCE}: the cache keeps that data, and its core is served without it by another {FORCE} only",
                cache.display()
            ));
        }
        // From here on no start of the daemon brings it back. What is known of its cache stays known until its thread has ended: one that
        // waited may come to be served at this moment.
        self.memory.change(name, |r| *r = Remembered { cache: r.cache.take(), ..Remembered::default() })?;
        turn.leave(name);
        let keeps = !force && matches!(status, Status::Refused(_));
        if supervisor.ends_within(LEAVES) && holds().is_none() && !keeps {
            self.memory.forget(name)?;
        }
        Ok(())
    }

    /// Forgets which cache a volume was served through that is stopped, or not there any more. The cache stays as it is, and is known by itself until its core
    /// is served without it.
    ///
    /// # Errors
    /// If the volume may be served, none is known, or it holds what its core does not have and nobody insists.
    pub(crate) fn forget(&self, name: &str, force: bool) -> Result<Forgotten> {
        let _turn = self.volumes.turn();
        let known = self.volumes.find(name).ok();
        if let Some(status) = known.as_ref().map(|known| known.supervisor.status()) {
            // One that waits may come to be served at this moment.
            let idle = matches!(status, Status::Stopped | Status::Refused(_));
            ensure!(idle, "volume '{name}' is {}: stop it first", status.word());
        }
        let Some(last) = self.memory.of(name).cache else {
            bail!("no cache is remembered of a volume '{name}': there is nothing to forget")
        };
        let lost = last.lost().filter(|_| !last.void);
        if let Some(lost) = lost.as_ref().filter(|_| !force) {
            bail!(keyed!(
                "the cache {} of volume '{name}', at {}, holds {lost}. Serve the volume through it and flush it; or add {FORCE}: the cache keeps \
                 that data, but nobody here remembers it",
                last.uuid,
                last.path.display()
            ));
        }
        match known {
            Some(_) => self.memory.forget_cache(name)?,
            None => self.memory.forget(name)?,
        }
        Ok(Forgotten { cache: last.path, uuid: last.uuid, lost })
    }

    /// Starts or stops a volume by command; that holds over restarts of the daemon.
    ///
    /// # Errors
    /// If there is no such volume, or that cannot be remembered.
    pub(crate) fn set_running(&self, name: &str, run: Run) -> Result<Arc<Supervisor>> {
        let turn = self.volumes.turn();
        let known = self.volumes.find(name)?;
        if known.leaving && matches!(run, Run::Stop { force: true, .. }) {
            known.supervisor.hurry();
            return Ok(known.supervisor);
        }
        let supervisor = self.staying(name)?.supervisor;
        self.note_running(&supervisor, matches!(run, Run::Start(_)))?;
        match run {
            Run::Start(leave) => {
                let supervisor = self.renewed(&turn, name)?;
                supervisor.start(leave);
                return Ok(supervisor);
            }
            Run::Stop { flush, force } => {
                supervisor.stop(flush);
                if force {
                    supervisor.hurry();
                }
            }
        }
        Ok(supervisor)
    }

    /// Ends a volume at once: nothing is written anywhere, not even what is remembered of it.
    ///
    /// # Errors
    /// If there is no such volume.
    pub(crate) fn end(&self, name: &str) -> Result<Arc<Supervisor>> {
        // No turn is waited for: others may hang at what this one hangs at.
        let supervisor = self.volumes.find(name)?.supervisor;
        supervisor.end_now();
        Ok(supervisor)
    }

    /// The volume `name`, with another thread where its own hangs and was left behind.
    fn renewed(&self, turn: &Turn<'_>, name: &str) -> Result<Arc<Supervisor>> {
        let Member { supervisor, from_file, .. } = self.staying(name)?;
        if !supervisor.is_left_behind() || supervisor.fault().is_some() {
            return Ok(supervisor);
        }
        turn.leave(name);
        turn.add(name, from_file, || {
            Supervisor::new(name, supervisor.config(), false, self.memory.clone(), self.control.clone())
                .context("starting a thread")
        })
    }

    fn note_running(&self, supervisor: &Supervisor, run: bool) -> Result<()> {
        let autostart = supervisor.config().autostart;
        self.memory.change(&supervisor.name, |r| r.run = Some(run).filter(|wanted| *wanted != autostart))
    }

    /// Stops a volume and starts it as it is defined by now; one that is not served is started.
    ///
    /// # Errors
    /// If it could not start again, as far as that is seen while it is served: then it is not stopped.
    pub(crate) fn restart(&self, name: &str) -> Result<Arc<Supervisor>> {
        // Devices are looked at for this, which may answer late: nobody else's turn is to wait for them.
        self.check_restart(name)?;
        let turn = self.volumes.turn();
        self.note_running(&self.staying(name)?.supervisor, true)?;
        let supervisor = self.renewed(&turn, name)?;
        supervisor.restart();
        Ok(supervisor)
    }

    /// On a thread of its own: it looks at devices, which may answer late, and systemd is told meanwhile that the daemon lives.
    pub(super) fn reload_aloud(self: &Arc<Daemon>) -> Result<()> {
        let daemon = self.clone();
        let reload = move || match daemon.reload() {
            Ok(Reloaded { done, refused }) => {
                done.iter().for_each(|line| say!("{line}"));
                refused.iter().for_each(|line| say!("error: {line}"));
            }
            Err(why) => say!("error: nothing is changed: {why:#}"),
        };
        std::thread::Builder::new().name("reload".into()).spawn(reload).context("starting a thread").map(drop)
    }

    /// Reads the file again: new volumes start, those that are gone stop, those that changed are as they were until they are
    /// started again. A section that is not right concerns its volume alone; but nobody is taken for gone before all are right.
    ///
    /// # Errors
    /// If the file cannot be read as a whole; nothing is changed then.
    pub(crate) fn reload(&self) -> Result<Reloaded> {
        let mut sections = Sections::load(&self.config_path)?;
        sections.be_distinct();
        let (turn, looked) = self.turn_beside(sections.right.volumes.values());
        let known: BTreeMap<String, Member> =
            self.volumes.all().into_iter().map(|known| (known.supervisor.name.clone(), known)).collect();
        let made =
            known.values().filter(|known| !known.from_file && !known.leaving).map(|known| &known.supervisor);
        let made = made.map(|e| (e.name.clone(), with_overrides(&e.config(), &self.memory.of(&e.name))));
        sections.yield_to(&made.collect(), Some(&looked));
        let (mut done, mut wrong) = (Vec::new(), Vec::new());
        for (name, volume) in &sections.right.volumes {
            match self.reload_one(&turn, known.get(name), name, volume) {
                Ok(line) => done.extend(line),
                // What was done of other sections stays done, and is to be heard of.
                Err(why) => wrong.push(format!("{name}: its section is not served: {why:#}")),
            }
        }
        for (name, fault) in &sections.wrong {
            wrong.push(match known.get(name) {
                Some(Member { from_file: true, leaving: false, supervisor }) => {
                    supervisor.is_wrong(fault.clone());
                    match supervisor.app() {
                        Some(_) => format!("{}; it is served on by what it was before", refused(name, fault)),
                        None => refused(name, fault),
                    }
                }
                Some(_) => refused(name, fault),
                None => match self.add_wrong(&turn, name, fault) {
                    Ok(()) => refused(name, fault),
                    Err(why) => format!("{}; nor is it listed: {why:#}", refused(name, fault)),
                },
            });
        }
        for (name, known) in known {
            if !known.from_file || known.leaving || sections.has(&name) {
                continue;
            }
            if wrong.is_empty() {
                turn.leave(&name);
                done.push(format!(
                    "{name}: no longer in the file: it is being stopped, and listed until it has"
                ));
            } else {
                done.push(format!("{name}: no longer in the file: it stays until every section is right"));
            }
        }
        // Files are read for this, which may hang.
        drop(turn);
        for supervisor in self.supervisors() {
            match (&supervisor.name, supervisor.app().map(|app| app.renew_tls())) {
                (name, Some(Ok(true))) => done.push(format!("{name}: its files for TLS are read again")),
                (name, Some(Err(why))) => {
                    wrong.push(format!("{name}: its TLS goes on with what it had: {why}"));
                }
                (_, Some(Ok(false)) | None) => {}
            }
        }
        Ok(Reloaded { done, refused: wrong })
    }

    /// Has a volume be as its section says, which is right; what was done.
    fn reload_one(
        &self,
        turn: &Turn<'_>,
        known: Option<&Member>,
        name: &str,
        volume: &VolumeConfig,
    ) -> Result<Option<String>> {
        Ok(match known {
            Some(Member { supervisor, leaving: true, .. }) if turn.stay(name) => {
                self.defines(supervisor, volume);
                if self.runs(name, volume) {
                    supervisor.restart();
                }
                Some(format!("{name}: is back before it had stopped: it is started after that"))
            }
            None | Some(Member { leaving: true, .. }) => {
                self.add(turn, name, volume.clone(), true)?;
                Some(format!("{name}: new"))
            }
            Some(Member { from_file: false, .. }) => {
                Some(format!("{name}: was made by command, and stays as it was made: delete it first"))
            }
            Some(Member { supervisor, .. }) if supervisor.fault().is_some() => {
                let (same, served) = (supervisor.config() == *volume, supervisor.app().is_some());
                self.defines(supervisor, volume);
                let runs = self.runs(name, volume);
                if runs && !served {
                    supervisor.start(Leave::default());
                }
                Some(match (served, runs) {
                    (true, _) if same => format!("{name}: its section is right again"),
                    (true, _) => format!("{name}: changed; 'loligo volume restart {name}' makes it so"),
                    (false, true) => format!("{name}: its section is right now: it is started"),
                    (false, false) => format!("{name}: its section is right now"),
                })
            }
            Some(Member { supervisor, .. }) if supervisor.config() != *volume => {
                self.defines(supervisor, volume);
                Some(format!("{name}: changed; 'loligo volume restart {name}' makes it so"))
            }
            Some(_) => None,
        })
    }

    fn defines(&self, supervisor: &Supervisor, volume: &VolumeConfig) {
        supervisor.define(volume.clone());
        // What is set from now on was set by somebody who had seen this.
        self.memory.is_defined(&supervisor.name, volume);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::ControlThread;
    use crate::registry::Registry;
    use crate::state::{State, StateFile};
    use crate::volumes::Volumes;
    use std::time::Instant;

    #[test]
    fn a_section_that_cannot_be_served_does_not_hide_what_was_done() {
        let dir = tempfile::tempdir().unwrap();
        let config_path = dir.path().join("loligod.toml");
        let section = |name: &str, mode: &str| {
            let more = "autostart = false\nlisten = [\"unix:/nowhere/";
            let cache = format!("cache = \"/nowhere/{name}.cache\"\nmode = \"{mode}\"\n");
            format!("[volume.{name}]\ncore = \"/nowhere/{name}\"\n{cache}{more}{name}.nbd\"]\n")
        };
        std::fs::write(&config_path, section("a", "wb") + &section("gone", "wb")).unwrap();
        let volumes = Arc::<Volumes>::default();
        let file = StateFile::at(dir.path()).unwrap();
        let memory = Registry::new(file, State::default(), volumes.clone(), None);
        let daemon = Daemon {
            config_path: config_path.clone(),
            state_dir: dir.path().to_owned(),
            started: Instant::now(),
            control: ControlThread::start().unwrap(),
            memory,
            volumes,
            pair: None,
            tune: None,
        };
        daemon.begin(&Sections::load(&config_path).unwrap()).unwrap();
        // Nobody comes from here on.
        daemon.volumes.close();
        std::fs::write(&config_path, section("a", "wt") + &section("b", "wb")).unwrap();
        let Reloaded { done, refused } = daemon.reload().expect("the file is right");
        assert!(done.len() == 2 && done[0].contains("a: changed") && done[1].contains("gone: "), "{done:?}");
        assert!(done[1].contains("it stays"), "{done:?}");
        assert!(refused.len() == 1 && refused[0].contains("b: its section is not served"), "{refused:?}");
    }
}
