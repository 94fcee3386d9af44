//! The units on this side: each is brought to where the role wants it, one step after the other, and again after a failure.

use super::action::{Answer, Ask, Cause, Deed, Failure, Proof};
use super::role::Role;
use super::tracks::{UnitState, UnitTrack, Work};
use super::{Machine, Purpose};
use crate::omit::Step;
use crate::plan::{LunId, Millis, UnitId};

/// A unit that ran for so long has started well.
const STEADY: Millis = 60_000;
/// The most that the pause between two starts grows, as a power of two.
const LONGEST_PAUSE: u32 = 4;
/// After that the monitors are told again what they did not hear.
const RETELL: Millis = 500;
/// An OSD is known to the monitors so long after its start.
const SCRUB_AFTER: Millis = 5000;
/// Scrubs that may be refused before somebody is told.
const SCRUBS: u32 = 6;

impl Machine {
    fn track(&mut self, id: UnitId) -> &mut UnitTrack {
        &mut self.units[id.0 as usize]
    }

    pub(super) fn is_foreign(&self, id: UnitId) -> bool {
        self.plan.unit(id).home != self.plan.me
    }

    pub(super) fn foreign_luns(&self) -> Vec<LunId> {
        let me = self.plan.me;
        self.plan.luns().into_iter().filter(|(_, home)| *home != me).map(|(lun, _)| lun).collect()
    }

    pub(super) fn unit_of(&self, lun: LunId) -> Option<UnitId> {
        self.plan.ids().find(|id| self.plan.unit(*id).luns.contains(&lun))
    }

    /// True if keys that were asked for at `asked` must show the unit's LUNs as this side's.
    pub(super) fn has_secured(&self, id: UnitId, asked: u64) -> bool {
        let track = &self.units[id.0 as usize];
        let holds = matches!(track.state, UnitState::Telling | UnitState::Starting | UnitState::Running);
        holds && track.secured.is_some_and(|at| asked >= at)
    }

    /// True if nothing runs here, or is being started.
    pub(super) fn is_stopped(&self) -> bool {
        matches!(self.role, Role::Fenced { .. }) && self.units.iter().all(|u| u.state == UnitState::Away)
    }

    fn is_wanted(&self, id: UnitId) -> bool {
        match self.role {
            Role::Starting | Role::Fenced { .. } => false,
            Role::Normal { .. } | Role::Race { .. } | Role::Giveback { .. } => !self.is_foreign(id),
            Role::Dual { .. } => true,
        }
    }

    /// A process of the unit was there before the agent.
    pub(super) fn found(&mut self, id: UnitId) {
        if self.plan.leaves_out(Step::Adopt) {
            return;
        }
        let (now, step) = (self.now, self.steps);
        let track = self.track(id);
        if track.state == UnitState::Away {
            *track = UnitTrack {
                state: UnitState::Running,
                secured: Some(step),
                started: now,
                ..UnitTrack::default()
            };
        }
        if matches!(self.role, Role::Fenced { .. }) {
            self.kill(id);
        }
    }

    /// The unit's process has ended by itself.
    pub(super) fn ended(&mut self, id: UnitId, cause: Cause) {
        let name = self.plan.unit(id).name.clone();
        if !matches!(self.unit(id), UnitState::Running | UnitState::Starting) {
            return;
        }
        let was_steady = self.now.saturating_sub(self.units[id.0 as usize].started) > STEADY;
        self.track(id).state = UnitState::Away;
        match cause {
            Cause::Fenced => self.fence(format!("the array refuses the writes of {name}")),
            Cause::Array => self.strike(id, "it has ended for errors"),
            Cause::Other if was_steady => {
                self.track(id).failures = 0;
                self.step(format!("{name} has ended and is started again"));
            }
            Cause::Other => self.pause(id, &format!("{name} has ended soon after its start")),
        }
    }

    /// The array failed the unit. That is no reason for a takeover.
    fn strike(&mut self, id: UnitId, why: &str) {
        let skips = self.plan.leaves_out(Step::Backoff);
        let (now, times) = (self.now, self.plan.timings.clone());
        let track = self.track(id);
        track.strikes.push(now);
        track.strikes.retain(|at| now.saturating_sub(*at) <= times.array_window);
        track.not_before = now;
        if track.strikes.len() < 2 {
            return;
        }
        track.strikes.clear();
        track.not_before = now + if skips { 0 } else { times.array_pause };
        let name = self.plan.unit(id).name.clone();
        self.alarm(format!("the array fails {name}: it is out for now ({why})"));
        if self.plan.unit(id).is_osd() {
            self.track(id).out = true;
            self.owned(id, Work::Out, Deed::Out(id));
        }
    }

    fn pause(&mut self, id: UnitId, why: &str) {
        let skips = self.plan.leaves_out(Step::Backoff);
        let (now, restart) = (self.now, if skips { 0 } else { self.plan.timings.restart });
        let track = self.track(id);
        // The first try comes at once.
        let wait = if track.failures == 0 { 0 } else { restart << (track.failures - 1).min(LONGEST_PAUSE) };
        track.not_before = now + wait;
        track.failures += 1;
        self.alarm(format!("{why}; the next try is in {wait} ms"));
    }

    /// Brings units to where they should be.
    pub(super) fn tend_units(&mut self) {
        for id in self.plan.ids() {
            self.tell_late(id);
            let (state, not_before) = (self.unit(id), self.units[id.0 as usize].not_before);
            match state {
                UnitState::Away if self.is_wanted(id) && self.now >= not_before => self.secure(id),
                UnitState::Running if !self.is_wanted(id) && matches!(self.role, Role::Normal { .. }) => {
                    let name = self.plan.unit(id).name.clone();
                    self.alarm(format!("{name} runs here and is the partner's: it is ended"));
                    self.kill(id);
                }
                UnitState::Draining if !self.is_wanted(id) => self.track(id).state = UnitState::Away,
                UnitState::Draining if self.now >= not_before => self.drained(id),
                UnitState::Killing if self.now >= not_before => self.kill(id),
                _ => {}
            }
        }
    }

    /// Tells the monitors what they did not hear, or could not do yet.
    fn tell_late(&mut self, id: UnitId) {
        let now = self.now;
        let is_due = |at: Option<Millis>| at.is_some_and(|at| now >= at);
        let track = &mut self.units[id.0 as usize];
        let (state, down, scrub) = (track.state, is_due(track.tell_again), is_due(track.scrub));
        if down {
            track.tell_again = None;
        }
        if scrub {
            track.scrub = None;
        }
        // One that is up again is not told to be down.
        if down && state == UnitState::Starting {
            self.owned(id, Work::Down { dead: false }, Deed::Down { unit: id, dead: false });
        }
        if scrub && state == UnitState::Running {
            self.owned(id, Work::Scrub, Deed::Scrub(id));
        }
    }

    fn secure(&mut self, id: UnitId) {
        let left = self.plan.unit(id).luns.clone();
        let track = self.track(id);
        track.state = UnitState::Securing;
        track.left = left;
        track.given = false;
        self.secure_next(id);
    }

    fn secure_next(&mut self, id: UnitId) {
        let is_foreign = self.is_foreign(id);
        let skips = self.plan.leaves_out(Step::Fence);
        match self.track(id).left.pop().filter(|_| !(is_foreign && skips)) {
            Some(lun) => {
                let ask = if is_foreign { Ask::Take(lun) } else { Ask::Hold(lun) };
                self.ask(Purpose::Unit(id, Work::Secure(lun)), ask);
            }
            None => self.begin(id),
        }
    }

    /// A LUN is taken. An earlier call may have taken it, and its answer may be lost: then nobody has waited for the partner's writes.
    fn taken(&mut self, id: UnitId, lun: LunId, drained: bool) {
        let until = self.now + self.plan.timings.drain;
        let track = self.track(id);
        if drained || track.drained.contains(&lun) {
            track.drained.push(lun);
            return self.secure_next(id);
        }
        track.left.push(lun);
        (track.state, track.not_before) = (UnitState::Draining, until);
        let name = self.plan.unit(id).name.clone();
        self.step(format!("{name} waits: writes of the partner may be left in the array"));
    }

    /// The time is over in which they may land.
    fn drained(&mut self, id: UnitId) {
        let track = self.track(id);
        track.drained = track.left.last().copied().into_iter().chain(track.drained.drain(..)).collect();
        track.state = UnitState::Securing;
        self.secure_next(id);
    }

    /// The unit's LUNs are this side's.
    fn begin(&mut self, id: UnitId) {
        let step = self.steps;
        self.track(id).secured = Some(step);
        if !self.is_wanted(id) {
            self.track(id).state = UnitState::Away;
            return;
        }
        let is_dead = matches!(self.role, Role::Dual { dead: true, .. }) || self.plan.leaves_out(Step::Death);
        let tells = self.is_foreign(id) && self.plan.unit(id).is_osd() && !self.plan.leaves_out(Step::Down);
        if tells && is_dead && !self.units[id.0 as usize].told_dead {
            // Never beside a start: the monitors would take the new process for the dead one.
            let track = self.track(id);
            (track.told_down, track.told_dead, track.state) = (true, true, UnitState::Telling);
            return self.owned(id, Work::Down { dead: true }, Deed::Down { unit: id, dead: true });
        }
        if tells && !self.units[id.0 as usize].told_down {
            self.track(id).told_down = true;
            self.owned(id, Work::Down { dead: false }, Deed::Down { unit: id, dead: false });
        }
        self.start_unit(id);
    }

    fn start_unit(&mut self, id: UnitId) {
        self.track(id).state = UnitState::Starting;
        self.owned(id, Work::Start, Deed::Start(id));
    }

    /// Asks for a deed of the unit's owner.
    fn owned(&mut self, id: UnitId, work: Work, deed: Deed) {
        let proof = if self.is_foreign(id) { Proof::Sole } else { Proof::Held };
        let needs = match self.plan.leaves_out(Step::Owner) {
            true => Vec::new(),
            false => self.plan.unit(id).luns.iter().map(|lun| (*lun, proof)).collect(),
        };
        self.ask(Purpose::Unit(id, work), Ask::Owned(needs, deed));
    }

    pub(super) fn kill(&mut self, id: UnitId) {
        let again = self.now + self.plan.timings.backoff;
        let track = self.track(id);
        track.state = UnitState::Killing;
        track.not_before = again;
        // One that takes long is not asked again beside itself: a start would stand behind all of them.
        if !self.asked.values().any(|(purpose, _)| *purpose == Purpose::Unit(id, Work::Kill)) {
            self.ask(Purpose::Unit(id, Work::Kill), Ask::Kill(id));
        }
    }

    /// Ends all units. One that ended by itself may have left writes to the kernel, which its end waits for.
    pub(super) fn kill_units(&mut self) {
        if self.plan.leaves_out(Step::EndWhenFenced) {
            return;
        }
        for id in self.plan.ids() {
            self.kill(id);
        }
    }

    pub(super) fn worked(&mut self, id: UnitId, work: Work, answer: Answer) {
        let (name, now) = (self.plan.unit(id).name.clone(), self.now);
        match (work, self.unit(id), answer) {
            (Work::Kill, UnitState::Killing, Answer::Done) => {
                let track = self.track(id);
                (track.state, track.not_before) = (UnitState::Away, 0);
                track.forget();
            }
            (Work::Stop, UnitState::Stopping, Answer::Done) => {
                self.track(id).state = UnitState::Away;
                self.step(format!("{name} has stopped"));
            }
            (Work::Stop, UnitState::Stopping, _) => self.kill(id),
            (Work::Secure(lun), UnitState::Securing, Answer::Taken { drained, .. }) => {
                self.taken(id, lun, drained)
            }
            (Work::Secure(_), UnitState::Securing, Answer::Done) => self.secure_next(id),
            (Work::Secure(lun), UnitState::Securing, Answer::Failed(why)) => {
                self.track(id).state = UnitState::Away;
                let lun = self.plan.lun_name(lun);
                self.pause(id, &format!("{lun} is not this side's: {why}"));
            }
            (Work::Down { dead: true }, UnitState::Telling, answer) => {
                // Its peers are to hear at least that it is down.
                self.track(id).tell_again = Some(now).filter(|_| answer != Answer::Done);
                self.start_unit(id);
            }
            (Work::Start, UnitState::Starting, Answer::Done) => self.has_started(id),
            (Work::Start, UnitState::Starting, Answer::Failed(why)) => self.failed_to_start(id, &name, &why),
            (Work::Leave(lun), UnitState::Leaving, answer) => self.left(id, lun, &answer),
            (Work::Down { dead: false }, UnitState::Starting, Answer::Failed(_)) => {
                let again = self.now + RETELL;
                self.track(id).tell_again = Some(again);
            }
            (Work::Scrub, UnitState::Running, Answer::Failed(_))
                if self.units[id.0 as usize].scrubs_refused < SCRUBS =>
            {
                let again = self.now + SCRUB_AFTER;
                let track = self.track(id);
                (track.scrub, track.scrubs_refused) = (Some(again), track.scrubs_refused + 1);
            }
            (Work::Down { .. } | Work::Out | Work::In | Work::Scrub, _, Answer::Failed(why)) => {
                self.alarm(format!("the monitors were not told about {name}: {why}"));
            }
            // What was asked before the unit was ended says nothing any more.
            _ => {}
        }
    }

    fn has_started(&mut self, id: UnitId) {
        let now = self.now;
        let track = self.track(id);
        (track.state, track.started) = (UnitState::Running, now);
        let name = self.plan.unit(id).name.clone();
        self.step(format!("{name} runs here"));
        if self.is_foreign(id) && self.plan.unit(id).is_osd() {
            // It has its folder now, and is known to the monitors later.
            let track = self.track(id);
            (track.scrub, track.scrubs_refused) = (Some(now + SCRUB_AFTER), 0);
        }
        if std::mem::take(&mut self.track(id).out) {
            self.owned(id, Work::In, Deed::In(id));
        }
    }

    fn failed_to_start(&mut self, id: UnitId, name: &str, why: &Failure) {
        match why {
            Failure::Array(why) => {
                self.track(id).state = UnitState::Away;
                self.strike(id, why);
            }
            // It may begin later.
            Failure::TimedOut => {
                self.pause(id, &format!("{name} did not start in time"));
                self.kill(id);
            }
            Failure::NotMine(_) | Failure::Other(_) => {
                self.track(id).state = UnitState::Away;
                self.looks.hurry();
                self.pause(id, &format!("{name} cannot be started: {why}"));
            }
        }
    }
}
