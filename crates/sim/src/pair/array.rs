//! Calls to the array, stage by stage: a host may freeze or die between two of them, and others may come between.

use super::call::{Call, LIMIT, Pid, Stage};
use super::setting::{KEYS, Time, home_of, luns_of, name_of, unit_of};
use super::world::{Happening, World};
use loligo_pair::lun::{Command, Reply};
use loligo_pair::machine::{Answer, Ask, Deed, Failure, Joining, Proof, Step, View};
use loligo_pair::plan::{LunId, QUORUM, Side, UnitId};
use loligo_pair::reservation::{Key, Kind, Port, Refusal};
use loligo_pair::writes::Ticket;

/// A race that begins so long after it was decided is not begun.
const STALE: Time = 1000;
/// A command to the monitors that could not be sent for so long is not sent.
const LATE: Time = 1000;
/// The time that a partner which holds the quorum LUN has to end its race.
const SETTLE: Time = 250;
/// The longest that an array keeps a write.
const KEPT: Time = 6000;
/// The time in which an agent that is awake again has ended what its array does not let it have.
const AWAKE: Time = 1000;
const KIND: Kind = Kind::WriteExclusiveRegistrants;

fn not_mine(why: &str) -> Stage {
    Stage::Over(Answer::Failed(Failure::NotMine(why.to_owned())))
}

impl World {
    fn port(side: Side) -> Port {
        Port(side.index() as u32)
    }

    fn command(&mut self, side: Side, lun: LunId, command: Command) -> Reply {
        loop {
            match self.luns[lun.0 as usize].command(Self::port(side), command) {
                // A unit attention says that the same may be tried again.
                Reply::Now(Err(Refusal::Attention(_))) => {}
                reply => return reply,
            }
        }
    }

    fn view(&self, lun: LunId) -> View {
        let reservations = self.luns[lun.0 as usize].reservations();
        let (generation, keys) = reservations.keys();
        View {
            generation,
            keys: keys.into_iter().map(|(_, key)| key).collect(),
            holder: reservations.held().1.map(|(_, key)| key),
        }
    }

    /// The next stage of a call.
    pub(super) fn call(&mut self, mut call: Call) {
        if !self.hosts[call.side.index()].is_run(call.run) {
            return;
        }
        let lane = call.changes().map(|lun| (call.side.index(), call.run, lun));
        if let Some(lane) = lane
            && *self.lanes.entry(lane).or_insert(call.job) != call.job
        {
            self.mark("a call beside one that hangs");
            return self.answer(&call, Answer::Failed(Failure::TimedOut));
        }
        if self.needs_array(&call.ask) && (self.array_fails || self.hosts[call.side.index()].path_lost) {
            if call.hangs || (self.hangs && call.may_hang() && self.rng.chance(1, 2)) {
                if !call.hangs {
                    self.mark("a call hangs");
                    let told =
                        loligo_pair::machine::Event::Answered(call.job, Answer::Failed(Failure::TimedOut));
                    self.later(LIMIT, Happening::Tell(call.side, call.run, told));
                }
                call.hangs = true;
                let after = self.rng.range(100..3000);
                return self.later(after, Happening::Call(call));
            }
            if let Some(lane) = lane {
                self.lanes.remove(&lane);
            }
            let failure =
                if self.rng.chance(1, 3) { Failure::TimedOut } else { Failure::Array("EIO".to_owned()) };
            let after = if failure == Failure::TimedOut { LIMIT } else { 0 };
            let told = loligo_pair::machine::Event::Answered(call.job, Answer::Failed(failure));
            return self.later(after, Happening::Tell(call.side, call.run, told));
        }
        match self.stage(&mut call) {
            Stage::Next => {
                call.stage += 1;
                let after = self.rng.skewed(0..20);
                self.later(after, Happening::Call(call));
            }
            Stage::Later(after) => {
                call.stage += 1;
                self.later(after, Happening::Call(call));
            }
            Stage::Wait(abort) => {
                call.stage += 1;
                let lun = match call.ask {
                    Ask::Race(lun) | Ask::Take(lun) => lun,
                    _ => QUORUM,
                };
                self.waiting.insert((lun.0, abort), call);
            }
            Stage::Over(answer) => {
                if let Some(lane) = lane {
                    self.lanes.remove(&lane);
                }
                self.answer(&call, answer);
            }
            Stage::Elsewhere => {}
        }
    }

    fn needs_array(&self, ask: &Ask) -> bool {
        !matches!(ask, Ask::Monitors | Ask::Speaks(_) | Ask::PowerOff | Ask::Kill(_) | Ask::Stop(_))
    }

    fn stage(&mut self, call: &mut Call) -> Stage {
        let side = call.side;
        match &call.ask.clone() {
            Ask::WriteSector(beat) => self.write_sector(side, *beat),
            Ask::ReadSector => Stage::Over(Answer::Sector(self.sectors[side.other().index()])),
            Ask::ReadKeys(lun) => Stage::Over(Answer::Keys(self.view(*lun))),
            Ask::Monitors => self.ask_monitors(call),
            Ask::Speaks(unit) => Stage::Over(Answer::Speaks(self.speaks(side, *unit))),
            // Evidence from before the host stood still is none.
            Ask::Race(lun)
                if call.stage <= 1
                    && self.view(*lun).holder != Some(KEYS[side.index()])
                    && self.clock(side) - call.asked > STALE =>
            {
                Stage::Over(Answer::Failed(Failure::Other("the host stood still".to_owned())))
            }
            Ask::Race(lun) => self.take(call, *lun, call.stage),
            Ask::Take(lun) if call.stage == 0 => self.register(side, *lun),
            Ask::Take(lun) => self.take(call, *lun, call.stage - 1),
            Ask::Hold(lun) => self.hold(side, *lun, call.stage),
            Ask::Join(lun, joining) => self.join(side, *lun, *joining, call.stage),
            Ask::Leave(lun) => {
                let (old, new) = (KEYS[side.index()], Key::NONE);
                self.command(side, *lun, Command::Register { old, new, ignore: true, persistent: true });
                Stage::Over(Answer::Done)
            }
            Ask::Open(lun) => {
                self.command(side, *lun, Command::Release { key: KEYS[side.index()], kind: KIND });
                Stage::Over(Answer::Done)
            }
            Ask::PowerOff => self.power_off(side),
            Ask::Owned(_, deed)
                if !matches!(deed, Deed::Start(_))
                    && self.clock(side) - call.asked > LATE
                    && !self.leaves_out(Step::InTime) =>
            {
                Stage::Over(Answer::Failed(Failure::TimedOut))
            }
            Ask::Owned(_, deed) if call.stage > 0 => self.tell_monitors(call, *deed),
            Ask::Owned(needs, deed) => self.owned(call, needs, *deed),
            Ask::Kill(unit) if self.hosts[side.index()].end(*unit) => Stage::Over(Answer::Done),
            Ask::Kill(_) => Stage::Next,
            Ask::Stop(unit) if call.stage == 0 => {
                self.hosts[side.index()].stop_writing(*unit);
                Stage::Next
            }
            Ask::Stop(unit) if self.hosts[side.index()].end(*unit) => Stage::Over(Answer::Done),
            Ask::Stop(_) => Stage::Next,
        }
    }

    fn write_sector(&mut self, side: Side, beat: loligo_pair::beat::Beat) -> Stage {
        let lun = &mut self.luns[QUORUM.0 as usize];
        match lun.take_write(Self::port(side)) {
            Err(_) => not_mine("EBADE"),
            Ok(ticket) => {
                let _ = lun.begin_write(ticket);
                let over = lun.end_write(ticket).unwrap_or_default();
                self.sectors[side.index()] = Some(beat);
                self.aborts_over(QUORUM, over);
                Stage::Over(Answer::Done)
            }
        }
    }

    fn register(&mut self, side: Side, lun: LunId) -> Stage {
        let (old, new) = (Key::NONE, KEYS[side.index()]);
        self.command(side, lun, Command::Register { old, new, ignore: true, persistent: true });
        Stage::Next
    }

    /// As [`loligo_pair::fence::race`] and [`loligo_pair::fence::take`]: whoever reserves preempts, and reads back.
    fn take(&mut self, call: &mut Call, lun: LunId, stage: u32) -> Stage {
        let side = call.side;
        let (mine, theirs) = (KEYS[side.index()], KEYS[side.other().index()]);
        let preempt =
            Command::Preempt { key: mine, victim: theirs, kind: KIND, abort: !self.leaves_out(Step::Abort) };
        let view = self.view(lun);
        let is_theirs = view.holder == Some(theirs);
        match stage {
            0 if lun == QUORUM && is_theirs => Stage::Later(SETTLE),
            0 => Stage::Next,
            1 if view.holder == Some(mine) => Stage::Next,
            1 if is_theirs => {
                if lun == QUORUM {
                    self.begins_race(side);
                }
                Stage::Next
            }
            1 => match self.command(side, lun, Command::Reserve { key: mine, kind: KIND }) {
                Reply::Now(Err(_)) => not_mine("the race is lost"),
                _ => {
                    if lun == QUORUM {
                        self.begins_race(side);
                    }
                    Stage::Next
                }
            },
            2 if !view.keys.contains(&theirs) => Stage::Next,
            2 => {
                let reply = self.command(side, lun, preempt);
                call.drained = is_theirs && !matches!(reply, Reply::Now(Err(_)));
                match reply {
                    Reply::After(abort) => Stage::Wait(abort),
                    Reply::Now(_) if self.leaves_out(Step::ReadBack) => {
                        Stage::Over(Answer::Taken { generation: 0, drained: true })
                    }
                    // A conflict: the victim's key is gone already, or this side's is, which the keys say.
                    Reply::Now(_) => Stage::Next,
                }
            }
            // A target that does nothing if the holder preempts.
            3 if view.holder == Some(mine) && view.keys.contains(&theirs) => {
                self.command(side, lun, Command::Release { key: mine, kind: KIND });
                self.command(side, lun, preempt);
                self.command(side, lun, Command::Reserve { key: mine, kind: KIND });
                Stage::Next
            }
            3 => Stage::Next,
            _ if view.keys == [mine] && view.holder == Some(mine) => {
                if lun == QUORUM {
                    self.won_race(side);
                }
                Stage::Over(Answer::Taken { generation: view.generation, drained: call.drained })
            }
            _ if view.keys.contains(&mine) => {
                Stage::Over(Answer::Failed(Failure::Other("it reads back otherwise".to_owned())))
            }
            _ => not_mine("this side's key is gone"),
        }
    }

    fn hold(&mut self, side: Side, lun: LunId, stage: u32) -> Stage {
        let mine = KEYS[side.index()];
        if stage == 0 {
            self.count_start(side);
            return match self.command(side, lun, Command::Reserve { key: mine, kind: KIND }) {
                Reply::Now(Err(_)) => not_mine("it cannot be reserved"),
                _ => Stage::Next,
            };
        }
        let view = self.view(lun);
        match view.holder == Some(mine) && view.keys.contains(&mine) {
            true => Stage::Over(Answer::Done),
            false => not_mine("another holds it"),
        }
    }

    fn join(&mut self, side: Side, lun: LunId, joining: Joining, stage: u32) -> Stage {
        let (mine, theirs) = (KEYS[side.index()], KEYS[side.other().index()]);
        if stage > 0 {
            let home = unit_of(lun).map(home_of);
            let held_by_partner = self.view(lun).holder == Some(theirs);
            if home == Some(side) && held_by_partner && joining != Joining::Empty {
                self.violate(format!("{side} registers on its LUN {} while the partner holds it", lun.0));
            }
            self.register(side, lun);
            return Stage::Over(Answer::Done);
        }
        let view = self.view(lun);
        let fits = match joining {
            Joining::Empty => view.holder.is_none() && view.keys.iter().all(|key| *key == mine),
            Joining::BesidePartner => view.holder.is_none() && view.keys.contains(&theirs),
            Joining::UnderPartner => view.holder == Some(theirs),
        };
        if fits || self.leaves_out(Step::Giveback) { Stage::Next } else { not_mine("it is not free") }
    }

    /// A deed, with the look at keys right before it.
    fn owned(&mut self, call: &Call, needs: &[(LunId, Proof)], deed: Deed) -> Stage {
        let mine = KEYS[call.side.index()];
        for (lun, proof) in needs {
            let view = self.view(*lun);
            let is_held = view.holder == Some(mine) && view.keys.contains(&mine);
            let is_sole = view.keys.iter().all(|key| *key == mine);
            if !is_held || (*proof == Proof::Sole && !is_sole) {
                return not_mine("keys and holder say otherwise");
            }
        }
        // The monitors are told a moment after the look, in which a host may stand still.
        if self.hangs && call.stage == 0 && !matches!(deed, Deed::Start(_)) {
            return Stage::Next;
        }
        match deed {
            Deed::Start(unit) => {
                if self.spawn(call, unit) {
                    return Stage::Elsewhere;
                }
                Stage::Over(Answer::Failed(Failure::Other("one runs here already".to_owned())))
            }
            Deed::Down { .. } | Deed::Out(_) | Deed::In(_) | Deed::Scrub(_) => self.tell_monitors(call, deed),
        }
    }

    /// Aborts of a LUN are over: who waited for them goes on.
    pub(super) fn aborts_over(&mut self, lun: LunId, over: Vec<loligo_pair::writes::AbortId>) {
        for abort in over {
            if let Some(call) = self.waiting.remove(&(lun.0, abort)) {
                self.later(1, Happening::Call(call));
            }
        }
    }

    /// A process writes: the array takes it, begins it and ends it, whatever becomes of the host.
    pub(super) fn writes(&mut self, side: Side, unit: UnitId, pid: Pid) {
        let is_live = self.hosts[side.index()].process(unit).is_some_and(|p| p.pid == pid && p.writes);
        if !is_live {
            return;
        }
        if self.array_fails || self.hosts[side.index()].path_lost {
            return self.process_ends(side, unit, loligo_pair::machine::Cause::Array);
        }
        let lun = self.rng.pick(luns_of(unit));
        match self.luns[lun.0 as usize].take_write(Self::port(side)) {
            Err(_) => {
                self.mark("a late write refused");
                self.process_ends(side, unit, loligo_pair::machine::Cause::Fenced);
            }
            Ok(ticket) => {
                self.hosts[side.index()].wrote(unit);
                let after = self.rng.skewed(0..40);
                self.later(after, Happening::Begins(lun, ticket, pid));
                let next = self.rng.range(20..120);
                self.later(next, Happening::Writes(side, unit, pid));
            }
        }
    }

    pub(super) fn begins(&mut self, lun: LunId, ticket: Ticket, pid: Pid) {
        match self.luns[lun.0 as usize].begin_write(ticket) {
            Ok(()) => {
                // An array under load keeps some for seconds.
                let after =
                    if self.rng.chance(1, 40) { self.rng.range(500..6000) } else { self.rng.skewed(1..600) };
                self.later(after, Happening::Lands(lun, ticket, pid));
            }
            Err((_, over)) => {
                self.write_answered(lun, pid);
                self.aborts_over(lun, over);
            }
        }
    }

    fn write_answered(&mut self, lun: LunId, pid: Pid) {
        let Some(unit) = unit_of(lun) else { return };
        for host in &mut self.hosts {
            host.answered(unit, pid);
        }
    }

    pub(super) fn lands(&mut self, lun: LunId, ticket: Ticket, pid: Pid) {
        let Some(unit) = unit_of(lun) else { return };
        self.write_answered(lun, pid);
        let port = self.luns[lun.0 as usize].port(ticket);
        // After a loss of power the array knows nothing of it, and nobody hears of it.
        let Some(over) = self.luns[lun.0 as usize].end_write(ticket) else { return };
        let stored = &self.stored[unit.0 as usize];
        let by = stored.opened_by;
        if by != pid && !port.is_some_and(|port| self.is_beyond(port, stored.side)) {
            let name = name_of(unit);
            self.violate(format!("a write of process {pid} lands on {name}, which process {by} has"));
        }
        self.stored[unit.0 as usize].landed += 1;
        self.aborts_over(lun, over);
    }

    /// True if no agent can keep a write of `port` from a LUN that `owner` has: a write that its own host sent before it crashed and
    /// was back at once, or one that a host sends as it thaws, to an array that has forgotten its keys.
    fn is_beyond(&self, port: Port, owner: Option<Side>) -> bool {
        let host = &self.hosts[port.0 as usize];
        let is_own = owner.is_some_and(|owner| Self::port(owner) == port);
        match is_own {
            true => host.crashed_until.is_some_and(|at| self.now < at + KEPT),
            false => self.keys_lost && self.now < host.awake + AWAKE,
        }
    }
}
