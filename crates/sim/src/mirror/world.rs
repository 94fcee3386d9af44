//! The world of a mirrored device.

use super::disk::{BLOCKS, Disk, Reach};
use super::oracle::Oracle;
use super::scenario::{Outcome, Scenario};
use super::work::{ClientOp, Deed, Flight, Job};
use crate::rng::Rng;
use loligo_block::IoError;
use loligo_block::mirror::{
    Access, Action, Change, Flaw, Flaws, Leg, Machine, Mark, MarkState, MirrorState, OpId, Opening, Policy,
    Seen, Settings, Time, decide,
};
use std::collections::BTreeMap;

const MS: Time = 1_000_000;
/// Steps of a run.
const STEPS: usize = 500;
/// Operations of clients at once.
const CLIENTS: usize = 6;
/// `EBADE`: the array refuses this controller's writes.
const FENCED: i32 = 52;
const EIO: i32 = 5;

struct World {
    rng: Rng,
    flaws: Flaws,
    now: Time,
    disks: [Disk; 2],
    machine: Option<Machine>,
    ops: BTreeMap<OpId, ClientOp>,
    flights: Vec<Flight>,
    jobs: Vec<Job>,
    oracle: Oracle,
    next: u64,
    /// A leg was destroyed: the other may be believed when an operator says so.
    destroyed: bool,
    /// An operator has had this leg believed without the other.
    said_alone: Option<Leg>,
    /// The controller has heard that it is fenced.
    hears_fence: bool,
    /// It had left a leg before.
    left_before: bool,
    outcome: Outcome,
}

/// Runs a scenario.
pub fn run(scenario: &Scenario) -> Outcome {
    let outcome = Outcome { violation: None, marks: BTreeMap::new(), log: Vec::new() };
    let mut world = World {
        rng: Rng::new(scenario.seed),
        flaws: Flaws::of(&scenario.flaws),
        now: 0,
        disks: [Disk::blank(), Disk::blank()],
        machine: None,
        ops: BTreeMap::new(),
        flights: Vec::new(),
        jobs: Vec::new(),
        oracle: Oracle::new(),
        next: 1,
        destroyed: false,
        said_alone: None,
        hears_fence: false,
        left_before: false,
        outcome,
    };
    world.open(false, false);
    for _ in 0..STEPS {
        if world.outcome.violation.is_some() {
            break;
        }
        world.step();
    }
    world.end();
    world.outcome
}

impl World {
    fn mark(&mut self, what: &'static str) {
        *self.outcome.marks.entry(what).or_default() += 1;
        self.say(what.to_owned());
    }

    fn say(&mut self, what: String) {
        self.outcome.log.push(format!("{:>8} ms: {what}", self.now / MS));
    }

    fn violated(&mut self, what: String) {
        self.say(format!("VIOLATION: {what}"));
        self.outcome.violation.get_or_insert(what);
    }

    fn disk(&mut self, leg: Leg) -> &mut Disk {
        &mut self.disks[leg.index()]
    }

    fn step(&mut self) {
        match self.rng.below(100) {
            0..30 => self.begin(),
            30..70 => self.answer_one(),
            70..82 => self.do_job(),
            82..92 => self.pass(),
            92..96 => self.trouble(),
            96..98 => self.mend(),
            98 => self.crash(),
            _ => self.rare(),
        }
    }

    /// A client begins something. None writes where another does.
    fn begin(&mut self) {
        let waits = self.ops.values().filter(|op| !op.answered).count();
        if self.machine.is_none() || waits >= CLIENTS {
            return;
        }
        let block = self.rng.below(BLOCKS);
        let is_written = |op: &ClientOp| !op.answered && matches!(op.deed, Deed::Write(b, _) if b == block);
        let busy = self.ops.values().any(is_written);
        let (deed, access) = match self.rng.below(10) {
            0..5 if busy => return,
            0..5 => (Deed::Write(block, self.next), Access::Write(block..block + 1)),
            5..8 => (Deed::Read(block, self.oracle.kept[block as usize]), Access::Read),
            _ => (Deed::Flush(self.oracle.kept.clone()), Access::Flush),
        };
        let id = self.next;
        self.next += 1;
        self.say(format!("{id}: {access:?}"));
        self.ops.insert(id, ClientOp { deed, since: self.now, answered: false, read: [None; 2] });
        let now = self.now;
        self.ask(|machine, out| machine.start(now, id, access, out));
    }

    /// Has the machine do something, and carries out what it says.
    fn ask(&mut self, what: impl FnOnce(&mut Machine, &mut Vec<Action>)) {
        let Some(machine) = &mut self.machine else { return };
        let mut out = Vec::new();
        what(machine, &mut out);
        for action in out {
            match action {
                Action::Send(id, leg) => {
                    let before = self.disk(leg).last;
                    self.flights.push(Flight { id, leg, before });
                }
                Action::Answer(id, result) => self.answered(id, result),
                Action::Note(leg, mark) => self.jobs.push(Job::Note(leg, mark)),
                Action::Copy(leg, range) => self.jobs.push(Job::Copy(leg, range, None)),
                Action::Try(leg) => self.jobs.push(Job::Try(leg)),
                Action::Say(change) => {
                    match change {
                        Change::InStep(leg) => self.disk(leg).mixed = false,
                        Change::Left(..) => self.left_before |= !self.hears_fence,
                        _ => {}
                    }
                    self.mark(match change {
                        Change::Left(..) => "left",
                        Change::Alone(_) => "alone",
                        Change::Joining(_) => "joining",
                        Change::JoinFailed(..) => "join failed",
                        Change::InStep(_) => "in step again",
                        Change::Stopped(..) => "stopped",
                        Change::Failed(_) => "failed",
                    });
                }
            }
        }
    }

    /// A client is answered.
    fn answered(&mut self, id: OpId, result: Result<Leg, IoError>) {
        let Some(op) = self.ops.get_mut(&id) else { return };
        op.answered = true;
        let (deed, read, since) = (op.deed.clone(), op.read, op.since);
        self.say(format!("{id}: {result:?} after {} ms", (self.now - since) / MS));
        let Ok(leg) = result else { return };
        match deed {
            Deed::Write(block, write) => self.oracle.keep(block, write),
            Deed::Flush(before) => self.oracle.flush(&before),
            Deed::Read(block, floor) => match read[leg.index()] {
                Some(found) if found >= floor => {}
                found => self.violated(format!("block {block} reads as {found:?}, and was {floor}")),
            },
        }
    }

    /// A leg answers one of the operations that it was sent, if it answers at all.
    fn answer_one(&mut self) {
        if self.flights.is_empty() {
            return;
        }
        let n = self.rng.below(self.flights.len() as u64) as usize;
        let Flight { id, leg, before } = self.flights[n];
        // Nobody waits for some of them: these come late.
        let is_late = self.ops.get(&id).is_some_and(|op| op.answered);
        if is_late && self.rng.chance(7, 8) {
            return;
        }
        if self.disk(leg).reach == Reach::Silent && !self.disk(leg).fenced {
            return;
        }
        self.flights.swap_remove(n);
        let result = self.carry_out(id, leg, before);
        let now = self.now;
        self.ask(|machine, out| machine.answered(now, id, leg, result, out));
    }

    fn carry_out(&mut self, id: OpId, leg: Leg, before: u64) -> Result<(), IoError> {
        self.refuses(leg)?;
        let failing = self.disk(leg).reach == Reach::Failing;
        if failing && self.rng.chance(1, 2) {
            return Err(IoError::from_errno(EIO, "failing"));
        }
        let disk = &mut self.disks[leg.index()];
        match self.ops.get_mut(&id) {
            Some(ClientOp { deed: Deed::Read(block, _), read, .. }) => {
                read[leg.index()] = Some(disk.read(*block));
            }
            Some(ClientOp { deed: Deed::Write(block, write), .. }) => disk.write(*block, *write),
            Some(ClientOp { deed: Deed::Flush(_), .. }) if failing => {}
            Some(ClientOp { deed: Deed::Flush(_), .. }) => disk.flush(before),
            None => {}
        }
        // What failed may be there all the same.
        if failing { Err(IoError::from_errno(EIO, "failing")) } else { Ok(()) }
    }

    fn refuses(&mut self, leg: Leg) -> Result<(), IoError> {
        if !self.disk(leg).fenced {
            return Ok(());
        }
        self.hears_fence = true;
        Err(IoError::from_errno(FENCED, "fenced"))
    }

    /// One of the notes, copies and tries comes a step further.
    fn do_job(&mut self) {
        if self.jobs.is_empty() {
            return;
        }
        let n = self.rng.below(self.jobs.len() as u64) as usize;
        let now = self.now;
        let on = match &self.jobs[n] {
            Job::Note(leg, _) | Job::Try(leg) | Job::Copy(leg, _, None) => *leg,
            Job::Copy(leg, _, Some(_)) => leg.other(),
        };
        if self.disk(on).reach == Reach::Silent && !self.disk(on).fenced {
            return;
        }
        let failing = self.disk(on).reach == Reach::Failing;
        let result = match self.refuses(on) {
            Ok(()) if failing => Err(IoError::from_errno(EIO, "failing")),
            other => other,
        };
        match self.jobs.swap_remove(n) {
            Job::Note(leg, mark) => {
                if result.is_ok() {
                    self.note(leg, mark);
                }
                self.ask(|machine, out| machine.noted(now, leg, mark, result, out));
            }
            Job::Try(leg) => self.ask(|machine, out| machine.tried(now, leg, result, out)),
            Job::Copy(from, range, None) if result.is_ok() => {
                let read = range.clone().map(|block| self.disk(from).read(block)).collect();
                self.jobs.push(Job::Copy(from, range, Some(read)));
            }
            Job::Copy(from, range, read) => {
                if let (Some(read), Ok(())) = (&read, &result) {
                    self.copy(from.other(), range.clone(), read);
                }
                let result = result.map_err(|why| (on, why));
                self.ask(|machine, out| machine.copied(now, from.other(), range, result, out));
            }
        }
    }

    fn note(&mut self, leg: Leg, mark: Mark) {
        self.say(format!("note on {leg}: {mark:?}"));
        let unflushed = self.flaws.has(Flaw::NoteUnflushed);
        let disk = self.disk(leg);
        if !unflushed {
            disk.flush(u64::MAX);
        }
        disk.mark = Some(mark);
        // It is whole then, whether or not its controller hears of the note.
        disk.mixed &= !matches!(mark.state, MarkState::InStep { .. });
    }

    fn copy(&mut self, to: Leg, range: std::ops::Range<u64>, read: &[u64]) {
        let disk = self.disk(to);
        disk.mixed = true;
        for (block, content) in range.zip(read) {
            disk.write(block, *content);
        }
    }

    /// Time passes.
    fn pass(&mut self) {
        self.now += match self.rng.below(4) {
            0 => self.rng.range(500..4000) * MS,
            _ => self.rng.range(1..100) * MS,
        };
        let now = self.now;
        self.ask(|machine, out| machine.tick(now, out));
    }

    fn is_in_step(&self) -> bool {
        self.machine.as_ref().is_some_and(|m| m.state() == MirrorState::InStep)
    }

    /// A leg falls silent or fails. One at a time does.
    fn trouble(&mut self) {
        let well = self.disks.iter().all(|disk| disk.reach == Reach::Up);
        if !well || self.rng.chance(1, 2) {
            return;
        }
        let leg = self.rng.pick(&Leg::BOTH);
        self.disk(leg).reach = self.rng.pick(&[Reach::Silent, Reach::Failing]);
        self.mark("a leg is in trouble");
    }

    fn mend(&mut self) {
        for disk in self.disks.iter_mut().filter(|disk| !disk.dead) {
            disk.reach = Reach::Up;
        }
        self.say("mended".to_owned());
    }

    /// The program ends. What was under way is on its leg or not.
    fn kill(&mut self) {
        for Flight { id, leg, before } in std::mem::take(&mut self.flights) {
            if self.rng.chance(1, 2) {
                // Nobody hears of it.
                let _ = self.carry_out(id, leg, before);
            }
        }
        for job in std::mem::take(&mut self.jobs) {
            let goes_on = self.rng.chance(1, 2);
            match job {
                Job::Note(leg, mark) if goes_on && self.refuses(leg).is_ok() => self.note(leg, mark),
                Job::Copy(leg, range, Some(read)) if goes_on && self.refuses(leg.other()).is_ok() => {
                    self.copy(leg.other(), range, &read);
                }
                _ => {}
            }
        }
        self.ops.clear();
        self.machine = None;
        for disk in &mut self.disks {
            disk.fenced = false;
            if std::mem::take(&mut disk.dead) {
                disk.reach = Reach::Up;
            }
        }
    }

    fn crash(&mut self) {
        self.kill();
        if self.rng.chance(1, 2) {
            self.mark("a power cut");
            let Self { disks, rng, .. } = self;
            disks.iter_mut().for_each(|disk| disk.lose_power(rng));
            self.oracle.power_cut();
        } else {
            self.mark("a crash");
        }
        self.open(true, false);
    }

    fn rare(&mut self) {
        match self.rng.below(4) {
            0 => self.stop(),
            1 => self.destroy(),
            2 => self.take_over(),
            _ => self.destroy_the_sound_one(),
        }
    }

    /// A clean stop, and a start.
    fn stop(&mut self) {
        if self.ops.values().any(|op| !op.answered) || !self.flights.is_empty() || !self.jobs.is_empty() {
            return;
        }
        let notes = self.machine.as_mut().map(Machine::close).unwrap_or_default();
        if !notes.is_empty() {
            self.mark("a clean stop");
        }
        for (leg, mark) in notes {
            if self.disk(leg).reach != Reach::Up || self.rng.chance(1, 8) {
                break;
            }
            self.note(leg, mark);
        }
        self.kill();
        self.open(true, false);
    }

    /// A leg that is not needed is lost, with all that is on it.
    fn destroy(&mut self) {
        if !self.is_in_step() || self.disks.iter().any(|disk| disk.reach != Reach::Up) {
            return;
        }
        let leg = self.rng.pick(&Leg::BOTH);
        *self.disk(leg) = Disk::blank();
        self.disk(leg).reach = Reach::Failing;
        self.disk(leg).dead = true;
        self.destroyed = true;
        self.mark("a leg is destroyed");
    }

    /// The only sound leg is lost while the other joins. That one must not be believed, whatever an operator says.
    fn destroy_the_sound_one(&mut self) {
        let Some(MirrorState::Joining(to)) = self.machine.as_ref().map(Machine::state) else { return };
        if !self.disk(to).mixed {
            return;
        }
        self.kill();
        self.mark("the sound leg is destroyed");
        let mut seen = [Seen::Missing; 2];
        seen[to.index()] = self.disk(to).mark.map_or(Seen::Blank, Seen::Marked);
        let half_noted = self.disk(to).mark.is_some_and(|mark| {
            // Its last note was cut off: it is whole.
            Some(mark.generation) >= self.disk(to.other()).mark.map(|m| m.generation)
                && matches!(mark.state, MarkState::InStep { .. })
        });
        if !half_noted && let Ok(opening) = decide(seen, true, &self.flaws) {
            self.violated(format!("a leg that was being copied to is believed: {opening:?}"));
        }
        self.open(true, false);
    }

    /// The partner fences a leg, reaches only that one, and an operator says that it may be believed.
    fn take_over(&mut self) {
        if !self.is_in_step() || self.disks.iter().any(|disk| disk.reach != Reach::Up) {
            return;
        }
        let leg = self.rng.pick(&Leg::BOTH);
        self.disk(leg).fenced = true;
        (self.hears_fence, self.left_before) = (false, false);
        self.mark("a takeover");
        for _ in 0..60 {
            match self.rng.below(10) {
                0..3 => self.begin(),
                3..7 => self.answer_one(),
                7..9 => self.do_job(),
                _ => self.now += 5 * MS,
            }
        }
        self.kill();
        if self.left_before {
            // It goes on with the other since then: an operator must not say so.
            return self.open(false, false);
        }
        self.disk(leg.other()).reach = Reach::Silent;
        self.said_alone = Some(leg);
        self.open(false, true);
        self.mend();
    }

    /// Opens the device, with each leg out of reach by chance where `hides`.
    fn open(&mut self, hides: bool, alone: bool) {
        let mut hidden = [false; 2];
        if hides && self.rng.chance(1, 3) {
            hidden[self.rng.below(2) as usize] = true;
        }
        if let Err(why) = self.try_open(hidden, alone) {
            self.mark("refused");
            self.say(why);
            self.mend();
            let mut again = self.try_open([false; 2], self.destroyed);
            if let (Err(why), Some(leg)) = (&again, self.said_alone)
                && why == "SplitBrain"
            {
                // The other had been noted as alone when it was cut off: the operator gives it up.
                *self.disk(leg.other()) = Disk::blank();
                self.mark("given up");
                again = self.try_open([false; 2], true);
            }
            if let Err(why) = again {
                self.violated(format!("both legs are there, and none is believed: {why}"));
            }
        }
    }

    fn try_open(&mut self, hidden: [bool; 2], alone: bool) -> Result<(), String> {
        let seen = Leg::BOTH.map(|leg| match &self.disks[leg.index()] {
            disk if hidden[leg.index()] || disk.reach != Reach::Up => Seen::Missing,
            Disk { mark: Some(mark), .. } => Seen::Marked(*mark),
            Disk { mark: None, .. } => Seen::Blank,
        });
        self.say(format!("open of {seen:?}"));
        let opening = decide(seen, alone, &self.flaws).map_err(|why| format!("{why:?}"))?;
        let settings = Settings {
            policy: Policy::Preferred,
            limit: 2000 * MS,
            retry: 5000 * MS,
            region: 4,
            seed: self.rng.draw(),
            flaws: self.flaws.clone(),
        };
        let top = seen.iter().map(|s| if let Seen::Marked(m) = s { m.generation } else { 0 }).max();
        let (machine, notes) = Machine::open(settings, opening, ([1; 16], BLOCKS, top.unwrap_or(0)));
        for (leg, mark) in notes {
            self.note(leg, mark);
            if self.rng.chance(1, 12) {
                self.say("a crash while it is opened".to_owned());
                return self.try_open([false; 2], self.destroyed);
            }
        }
        if let Opening::On { .. } = opening {
            self.mark("opened on one leg");
        }
        self.look(&machine, opening);
        self.machine = Some(machine);
        Ok(())
    }

    /// Holds what the legs have against what clients rely on.
    fn look(&mut self, machine: &Machine, opening: Opening) {
        let leg = machine.primary();
        if self.disk(leg).mixed && opening != Opening::New {
            let whole = self.disk(leg).mark.is_some_and(|m| m.state != MarkState::Stale);
            if !whole {
                self.violated(format!("the {leg} leg was being copied to, and is believed"));
            }
        }
        self.disk(leg).mixed = false;
        for block in 0..BLOCKS {
            let (found, kept) = (self.disk(leg).read(block), self.oracle.kept[block as usize]);
            if found < kept {
                self.violated(format!("after an open of {leg}, block {block} is {found}, and was {kept}"));
            }
            self.oracle.keep(block, found);
            let other = self.disk(leg.other()).read(block);
            if matches!(opening, Opening::InStep(_)) && other != found {
                self.violated(format!("in step, block {block} is {found} on {leg} and {other} on the other"));
            }
        }
    }

    /// All is well from now on: everything is answered, and both legs come into step.
    fn end(&mut self) {
        if self.outcome.violation.is_some() {
            return;
        }
        self.mend();
        let failed = |m: &Machine| matches!(m.state(), MirrorState::Failed);
        if self.machine.as_ref().is_none_or(failed) || self.disks.iter().any(|disk| disk.dead) {
            self.kill();
        }
        if let Some(machine) = &self.machine
            && matches!(machine.state(), MirrorState::Alone(_))
        {
            // It may have been opened without the other leg, which it then never sees.
            self.kill();
        }
        if self.machine.is_none() {
            self.open(false, false);
        }
        for _ in 0..400 {
            (0..20).for_each(|_| self.answer_one());
            (0..6).for_each(|_| self.do_job());
            self.now += 100 * MS;
            let now = self.now;
            self.ask(|machine, out| machine.tick(now, out));
        }
        if let Some((id, op)) = self.ops.iter().find(|(_, op)| !op.answered) {
            self.violated(format!("{id} is never answered: {op:?}"));
        }
        if self.outcome.violation.is_none() && !self.is_in_step() {
            let state = self.machine.as_ref().map(Machine::state);
            self.violated(format!("the legs never come into step: {state:?}"));
        }
    }
}
