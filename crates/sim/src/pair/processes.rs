//! Processes of units on a host, and what must hold of a host.

use super::call::{Call, Pid};
use super::host::Process;
use super::setting::{UNITS, home_of, luns_of, name_of};
use super::world::{Happening, World};
use loligo_pair::machine::{Answer, Cause, Deed, Event, Failure, Job, RoleName, Step};
use loligo_pair::plan::{LunId, Side, UnitId};
use loligo_pair::reservation::Port;

impl World {
    /// Spawns a process of the unit; false: one is there.
    pub(super) fn spawn(&mut self, call: &Call, unit: UnitId) -> bool {
        let side = call.side;
        if self.hosts[side.index()].process(unit).is_some() {
            if self.leaves_out(Step::Adopt) {
                self.violate(format!("{side} starts {} a second time", name_of(unit)));
            }
            return false;
        }
        self.last_pid += 1;
        let pid = self.last_pid;
        self.hosts[side.index()]
            .processes
            .insert(unit, Process { pid, writes: false, ends: false, under_way: 0 });
        let after = self.rng.range(300..1800);
        self.later(after, Happening::Opens(side, unit, pid, call.job, call.run));
        true
    }

    /// A spawned process opens its LUN.
    pub(super) fn opens(&mut self, side: Side, unit: UnitId, pid: Pid, job: Job, run: u64) {
        if self.hosts[side.index()].process(unit).is_none_or(|p| p.pid != pid) {
            return;
        }
        if self.array_fails || self.hosts[side.index()].path_lost {
            self.hosts[side.index()].end(unit);
            let answer = Answer::Failed(Failure::Array("EIO".to_owned()));
            return self.later(0, Happening::Tell(side, run, Event::Answered(job, answer)));
        }
        // It writes at once: where it may not, it has opened nothing.
        if !self.may_write_all(side, unit) {
            self.mark("a start refused by the array");
            self.hosts[side.index()].end(unit);
            let answer = Answer::Failed(Failure::NotMine("EBADE".to_owned()));
            return self.later(0, Happening::Tell(side, run, Event::Answered(job, answer)));
        }
        let other = side.other();
        let rival = self.hosts[other.index()].process(unit).is_some_and(|p| p.writes)
            && self.may_write_any(other, unit);
        let rival_host = &self.hosts[other.index()];
        // Of a frozen one on an array that has forgotten its keys nobody knows.
        if rival && rival_host.up && !(self.keys_lost && rival_host.frozen) {
            let name = name_of(unit);
            self.violate(format!("two processes may write {name}: {side} opens it beside {other}"));
        }
        // Of volumes the monitors know nothing.
        let is_foreign = home_of(unit) != side && unit != UNITS[2];
        let since = self.stored[unit.0 as usize].opened_at;
        let was_told = self.monitors.down[unit.0 as usize].is_some_and(|at| at >= since);
        let asked = self.hosts[side.index()].told[unit.0 as usize].is_some_and(|at| at >= since);
        if is_foreign && since > 0 && !was_told && !asked && self.stored[unit.0 as usize].side != Some(side) {
            let name = name_of(unit);
            self.violate(format!("the monitors do not hear that {name} is down before {side} starts it"));
        }
        let now = self.now;
        let stored = &mut self.stored[unit.0 as usize];
        (stored.opened_by, stored.opened_at, stored.side) = (pid, now, Some(side));
        if let Some(process) = self.hosts[side.index()].processes.get_mut(&unit) {
            process.writes = true;
        }
        self.note(format!("{side} has opened {} as process {pid}", name_of(unit)));
        self.monitors.boots(unit, side);
        self.later(0, Happening::Writes(side, unit, pid));
        self.later(0, Happening::Tell(side, run, Event::Answered(job, Answer::Done)));
    }

    fn may_write(&self, side: Side, lun: LunId) -> bool {
        self.luns[lun.0 as usize].reservations().may_write(Port(side.index() as u32))
    }

    fn may_write_all(&self, side: Side, unit: UnitId) -> bool {
        luns_of(unit).iter().all(|lun| self.may_write(side, *lun))
    }

    fn may_write_any(&self, side: Side, unit: UnitId) -> bool {
        luns_of(unit).iter().any(|lun| self.may_write(side, *lun))
    }

    /// A process ends by itself.
    pub(super) fn process_ends(&mut self, side: Side, unit: UnitId, cause: Cause) {
        if !self.hosts[side.index()].end(unit) {
            return self.later(5, Happening::Ends(side, unit, cause));
        }
        self.note(format!("the process of {} on {side} ends: {cause:?}", name_of(unit)));
        let run = self.hosts[side.index()].run;
        self.later(1, Happening::Tell(side, run, Event::Ended(unit, cause)));
    }

    /// What must hold of a side after each tick of its agent.
    pub(super) fn check_side(&mut self, side: Side) {
        let host = &self.hosts[side.index()];
        let is_late = host.fenced_at.is_some_and(|at| self.now > at.max(host.awake) + 3000);
        if is_late && host.has_any() {
            self.violate(format!("{side} is fenced, and a process runs on"));
        }
    }

    /// A side has won the race on the quorum LUN.
    pub(super) fn won_race(&mut self, side: Side) {
        self.mark("a race won");
        let can_reach = self.monitors.reach[side.index()] && self.monitors.up;
        if !can_reach
            && !self.clock_stood(side)
            && self.now > self.monitors.cut_at[side.index()].max(self.monitors.down_at) + 8000
        {
            self.violate(format!("{side} takes over without a monitor"));
        }
    }

    /// A host whose clock stood does not know how old its evidence is.
    pub(super) fn clock_stood(&self, side: Side) -> bool {
        let host = &self.hosts[side.index()];
        host.clock_stands && self.now < host.awake + 2000
    }

    /// A side begins a race on the quorum LUN: its partner hears of it.
    pub(super) fn begins_race(&mut self, side: Side) {
        let other = side.other();
        let quiet = self.excused[other.index()] == 0
            && self.now.saturating_sub(10_000) > self.faulty_until[other.index()];
        // Whoever has no monitor, and says so by its sector alone, is cut off, whatever it is that it does not reach.
        let monitors_away = !self.monitors.up || self.now < self.monitors.up_at + 2000;
        let is_cut_off = self.links == [false; 2] && monitors_away;
        // A cut that ends between two questions is not seen.
        let flapped = self.now < self.hosts[side.index()].nic_mended + 1000;
        // A volume greets nobody while its daemon is being started again.
        let has_processes = UNITS[..2].iter().any(|unit| {
            home_of(*unit) == other && self.hosts[other.index()].process(*unit).is_some_and(|p| p.writes)
        });
        let has_agent =
            self.hosts[other.index()].machine.as_ref().is_some_and(|it| it.role() == RoleName::Normal);
        let excused = is_cut_off || flapped || self.clock_stood(side) || self.ordered || self.now <= 7_000;
        if quiet && (has_processes || has_agent) && !excused {
            self.violate(format!("{side} takes over from {other}, which is well"));
        }
    }

    /// True if the partner's process of a unit says its banner.
    pub(super) fn speaks(&self, side: Side, unit: UnitId) -> bool {
        let other = &self.hosts[side.other().index()];
        let reach = self.hosts[side.index()].nic && other.nic;
        reach && other.up && !other.frozen && other.process(unit).is_some_and(|p| p.writes)
    }

    /// A unit is being started: not again and again.
    pub(super) fn count_start(&mut self, side: Side) {
        let now = self.now;
        let starts = &mut self.hosts[side.index()].starts;
        starts.push(now);
        starts.retain(|at| now - at < 10_000);
        if starts.len() > 40 {
            self.violate(format!("{side} starts units {} times in 10 s", 40));
        }
    }

    /// Cuts the partner's power.
    pub(super) fn cut_power(&mut self, side: Side) {
        self.held[side.index()].clear();
        let host = &mut self.hosts[side.index()];
        host.up = false;
        host.frozen = false;
        host.machine = None;
        host.end_all();
        host.fenced_at = None;
    }

    /// True if a deed is one of a side that does not own the unit.
    pub(super) fn deed_is_foreign(&self, side: Side, deed: Deed) -> bool {
        let unit = match deed {
            Deed::Start(unit)
            | Deed::Out(unit)
            | Deed::In(unit)
            | Deed::Scrub(unit)
            | Deed::Down { unit, .. } => unit,
        };
        self.holder(unit) != Some(side)
    }
}
