//! The world: hosts, LUNs, links and monitors, and the queue of what happens next.

use super::call::{Call, Pid, Stored};
use super::faults::FaultKind;
use super::host::Host;
use super::monitors::Monitors;
use super::setting::{KEYS, LUNS, Time, UNITS, home_of, luns_of, plan, unit_of};
use crate::rng::Rng;
use loligo_pair::lun::{Defects, Lun};
use loligo_pair::machine::{Answer, Ask, Deed, Event, Job, Machine, Notice, RoleName, Step};
use loligo_pair::plan::{LunId, QUORUM, Side, UnitId};
use loligo_pair::reservation::{Kind, Port};
use loligo_pair::writes::{AbortId, Ticket};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// Something that must never happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// When, milliseconds.
    pub at: Time,
    /// What.
    pub what: String,
}

/// What happens at a moment.
#[derive(Debug, Clone)]
pub(super) enum Happening {
    /// The agent of this run hears something.
    Tell(Side, u64, Event),
    /// A call goes on.
    Call(Call),
    /// A beat arrives by a link.
    Arrive(Side, usize, loligo_pair::beat::Beat),
    /// A process that was spawned opens its LUN.
    Opens(Side, UnitId, Pid, Job, u64),
    /// A process writes.
    Writes(Side, UnitId, Pid),
    /// A process that has ended is waited for.
    Ends(Side, UnitId, loligo_pair::machine::Cause),
    /// A write that the array has taken begins.
    Begins(LunId, Ticket, Pid),
    /// A write that the array has begun is on the medium.
    Lands(LunId, Ticket, Pid),
    /// A fault begins.
    Fault(FaultKind),
    /// A fault ends.
    Mend(FaultKind),
    /// The agent is started.
    Boot(Side),
    /// The end state is checked.
    Check,
}

impl Happening {
    /// The host whose processors it needs.
    fn host(&self) -> Option<Side> {
        match self {
            Happening::Tell(side, ..)
            | Happening::Arrive(side, ..)
            | Happening::Opens(side, ..)
            | Happening::Writes(side, ..)
            | Happening::Ends(side, ..)
            | Happening::Boot(side) => Some(*side),
            Happening::Call(call) => Some(call.side),
            _ => None,
        }
    }
}

#[derive(Debug, Clone)]
struct Entry {
    at: Time,
    order: u64,
    what: Happening,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}
impl Eq for Entry {}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Entry {
    fn cmp(&self, other: &Entry) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

/// The world.
#[derive(Debug)]
pub(super) struct World {
    pub(super) now: Time,
    pub(super) rng: Rng,
    pub(super) omitted: Vec<Step>,
    pub(super) power: bool,
    queue: BinaryHeap<Reverse<Entry>>,
    order: u64,
    pub(super) hosts: [Host; 2],
    /// What waits for the processors of a host that stands still.
    pub(super) held: [Vec<Happening>; 2],
    pub(super) luns: Vec<Lun>,
    pub(super) sectors: [Option<loligo_pair::beat::Beat>; 2],
    /// What each unit's LUN holds.
    pub(super) stored: Vec<Stored>,
    /// Calls that wait for an abort, by LUN.
    pub(super) waiting: BTreeMap<(u32, AbortId), Call>,
    /// Calls that change a LUN and are not over, by side, run and LUN.
    pub(super) lanes: BTreeMap<(usize, u64, LunId), Job>,
    pub(super) monitors: Monitors,
    /// The links between the two hosts.
    pub(super) links: [bool; 2],
    /// The array answers with errors, or not at all.
    pub(super) array_fails: bool,
    pub(super) keys_lost: bool,
    pub(super) last_pid: Pid,
    pub(super) runs: u64,
    pub(super) violations: Vec<Violation>,
    pub(super) log: Vec<String>,
    pub(super) marks: BTreeMap<&'static str, u64>,
    pub(super) ordered: bool,
    /// When each side last had a fault that may make it be taken over.
    pub(super) faulty_until: [Time; 2],
    /// Such faults that last.
    pub(super) excused: [u32; 2],
    pub(super) races: Vec<(Time, Side)>,
    pub(super) checked: bool,
    /// Until when hosts get into trouble while they change something.
    pub(super) troubles_until: Time,
    /// Calls to an array that fails may hang.
    pub(super) hangs: bool,
}

impl World {
    pub(super) fn new(seed: u64, omitted: &[Step], power: bool, defects: Defects) -> World {
        let mut world = World {
            now: 0,
            rng: Rng::new(seed),
            omitted: omitted.to_vec(),
            power,
            queue: BinaryHeap::new(),
            order: 0,
            hosts: [Host::new(), Host::new()],
            held: [Vec::new(), Vec::new()],
            luns: vec![Lun::new(Default::default(), defects); LUNS],
            sectors: [None, None],
            stored: vec![Stored::default(); UNITS.len()],
            waiting: BTreeMap::new(),
            lanes: BTreeMap::new(),
            monitors: Monitors::new(),
            links: [true, true],
            array_fails: false,
            keys_lost: false,
            last_pid: 0,
            runs: 0,
            violations: Vec::new(),
            log: Vec::new(),
            marks: BTreeMap::new(),
            ordered: false,
            faulty_until: [0, 0],
            excused: [0, 0],
            races: Vec::new(),
            checked: false,
            troubles_until: 0,
            hangs: false,
        };
        world.install();
        for side in Side::BOTH {
            let after = world.rng.range(0..2000);
            world.later(after, Happening::Boot(side));
        }
        world
    }

    /// `loligo pair setup`: both keys on every LUN; owners hold theirs.
    fn install(&mut self) {
        use loligo_pair::lun::Command::{Register, Reserve};
        for (number, lun) in self.luns.iter_mut().enumerate() {
            for side in Side::BOTH {
                let (port, key) = (Port(side.index() as u32), KEYS[side.index()]);
                let old = loligo_pair::reservation::Key::NONE;
                lun.command(port, Register { old, new: key, ignore: true, persistent: true });
                if unit_of(LunId(number as u32)).is_some_and(|unit| home_of(unit) == side) {
                    lun.command(port, Reserve { key, kind: Kind::WriteExclusiveRegistrants });
                }
            }
        }
    }

    pub(super) fn leaves_out(&self, step: Step) -> bool {
        self.omitted.contains(&step)
    }

    pub(super) fn later(&mut self, after: Time, what: Happening) {
        self.order += 1;
        self.queue.push(Reverse(Entry { at: self.now + after, order: self.order, what }));
    }

    pub(super) fn mark(&mut self, name: &'static str) {
        *self.marks.entry(name).or_default() += 1;
    }

    pub(super) fn note(&mut self, text: String) {
        self.log.push(format!("{:>7} {text}", self.now));
    }

    pub(super) fn violate(&mut self, what: String) {
        self.note(format!("VIOLATION {what}"));
        self.violations.push(Violation { at: self.now, what });
    }

    /// Carries everything out up to `end`.
    pub(super) fn run(&mut self, end: Time) {
        while let Some(Reverse(entry)) = self.queue.pop() {
            if entry.at > end || !self.violations.is_empty() {
                break;
            }
            self.now = entry.at;
            match entry.what.host() {
                Some(side) if self.hosts[side.index()].frozen => {
                    self.held[side.index()].push(entry.what);
                }
                Some(side) if !self.hosts[side.index()].up => {}
                _ => self.happen(entry.what),
            }
        }
        self.now = end;
    }

    fn happen(&mut self, what: Happening) {
        match what {
            Happening::Tell(side, run, event) => self.tell(side, run, event),
            Happening::Call(call) => self.call(call),
            Happening::Arrive(side, link, beat) => {
                let run = self.hosts[side.index()].run;
                self.tell(side, run, Event::Heard(link, beat));
            }
            Happening::Opens(side, unit, pid, job, run) => self.opens(side, unit, pid, job, run),
            Happening::Writes(side, unit, pid) => self.writes(side, unit, pid),
            Happening::Ends(side, unit, cause) => {
                if self.hosts[side.index()].process(unit).is_none_or(|p| p.ends) {
                    self.process_ends(side, unit, cause);
                }
            }
            Happening::Begins(lun, ticket, pid) => self.begins(lun, ticket, pid),
            Happening::Lands(lun, ticket, pid) => self.lands(lun, ticket, pid),
            Happening::Fault(kind) => self.fault(kind),
            Happening::Mend(kind) => self.mend(kind),
            Happening::Boot(side) => self.boot(side),
            Happening::Check => self.check(),
        }
    }

    /// Starts the agent of a side; processes that run already are found.
    pub(super) fn boot(&mut self, side: Side) {
        if self.hosts[side.index()].machine.is_some() {
            return;
        }
        self.runs += 1;
        let run = self.runs;
        let clock = self.clock(side);
        let plan = plan(side, &self.omitted, self.power);
        let host = &mut self.hosts[side.index()];
        host.machine = Some(Machine::new(plan, clock, run));
        host.run = run;
        let found: Vec<UnitId> = UNITS.into_iter().filter(|id| host.process(*id).is_some()).collect();
        self.note(format!("{side} boots, run {run}, finds {found:?}"));
        for unit in found {
            self.tell(side, run, Event::Found(unit));
        }
        self.later(0, Happening::Tell(side, run, Event::Tick));
    }

    /// The clock of a host: that of a virtual machine stands while it is paused.
    pub(super) fn clock(&self, side: Side) -> Time {
        self.now - self.hosts[side.index()].stood
    }

    pub(super) fn tell(&mut self, side: Side, run: u64, event: Event) {
        let clock = self.clock(side);
        let is_tick = event == Event::Tick;
        let host = &mut self.hosts[side.index()];
        let Some(machine) = host.machine.as_mut().filter(|_| host.run == run) else { return };
        let before = machine.role();
        let actions = machine.handle(clock, event);
        let after = machine.role();
        if after == RoleName::Fenced && before != RoleName::Fenced {
            host.fenced_at = Some(self.now);
        }
        if after != RoleName::Fenced {
            host.fenced_at = None;
        }
        if is_tick {
            let jitter = self.rng.below(10);
            self.later(45 + jitter, Happening::Tell(side, run, Event::Tick));
        }
        for action in actions {
            self.act(side, run, action);
        }
        if is_tick {
            self.check_side(side);
        }
    }

    fn act(&mut self, side: Side, run: u64, action: loligo_pair::machine::Action) {
        use loligo_pair::machine::Action;
        match action {
            Action::Send(beat) => self.send(side, beat),
            Action::Ask(job, ask) => {
                self.trouble(side, &ask);
                if let Ask::Owned(_, Deed::Down { unit, .. }) = ask {
                    self.hosts[side.index()].told[unit.0 as usize] = Some(self.now);
                }
                let clock = self.clock(side);
                let after = self.rng.skewed(0..8);
                let call = Call { side, run, job, ask, stage: 0, drained: false, asked: clock, hangs: false };
                self.later(after, Happening::Call(call));
            }
            Action::Tell(Notice::Role { from, to, why }) => {
                self.note(format!("{side} {from} -> {to}: {why}"));
                match to {
                    RoleName::Dual => self.mark("taken over"),
                    RoleName::Giveback => self.mark("given back"),
                    RoleName::Fenced => self.mark("fenced"),
                    _ => {}
                }
                if to == RoleName::Race {
                    self.races.push((self.now, side));
                }
            }
            Action::Tell(Notice::Alarm(text)) => self.note(format!("{side} ALARM {text}")),
            Action::Tell(Notice::Step(text)) => self.note(format!("{side} {text}")),
            // A step tells it as well.
            Action::Refuse(_) => {}
        }
    }

    /// A host that is in trouble at the worst moment: when it is about to change something.
    fn trouble(&mut self, side: Side, ask: &Ask) {
        let changes = match ask {
            Ask::Race(_) | Ask::Take(_) | Ask::Join(..) | Ask::Leave(_) | Ask::Open(_) => true,
            Ask::Owned(
                _,
                Deed::Start(unit) | Deed::Down { unit, .. } | Deed::Scrub(unit) | Deed::Out(unit),
            ) => home_of(*unit) != side,
            _ => false,
        };
        let is_out = matches!(ask, Ask::Owned(_, Deed::Out(_)));
        let may = changes && self.now <= self.troubles_until && self.rng.chance(1, 6);
        let happens = may || (is_out && self.rng.chance(1, 2));
        if !happens {
            return;
        }
        self.mark("trouble within a change");
        let kind = match self.rng.below(3) {
            _ if is_out => FaultKind::Freeze(side, false),
            _ if self.hangs && self.rng.chance(1, 2) => FaultKind::Path(side),
            0 => FaultKind::Agent(side),
            1 => FaultKind::Freeze(side, self.rng.chance(1, 3)),
            _ => FaultKind::Crash(side),
        };
        let (after, lasts) = (self.rng.below(5), self.rng.range(7_000..15_000));
        self.later(after, Happening::Fault(kind));
        self.later(after + lasts, Happening::Mend(kind));
    }

    /// Beats may be lost, late or doubled.
    fn send(&mut self, side: Side, beat: loligo_pair::beat::Beat) {
        let other = side.other();
        for link in 0..2 {
            let host_up = self.hosts[side.index()].nic && self.hosts[other.index()].nic;
            if !self.links[link] || !host_up || self.rng.chance(1, 50) {
                continue;
            }
            let late = if self.rng.chance(1, 100) { self.rng.range(100..8000) } else { self.rng.below(3) };
            self.later(late, Happening::Arrive(other, link, beat));
            if self.rng.chance(1, 100) {
                let again = self.rng.range(1..10_000);
                self.later(again, Happening::Arrive(other, link, beat));
            }
        }
    }

    pub(super) fn answer(&mut self, call: &Call, answer: Answer) {
        let after = self.rng.skewed(0..6);
        self.later(after, Happening::Tell(call.side, call.run, Event::Answered(call.job, answer)));
    }

    /// The side that holds the first LUN of a unit.
    pub(super) fn holder(&self, unit: UnitId) -> Option<Side> {
        let lun = &self.luns[luns_of(unit)[0].0 as usize];
        lun.reservations().held().1.map(|(held, _)| if held.holder == Port(0) { Side::A } else { Side::B })
    }

    pub(super) fn quorum_keys(&self) -> usize {
        self.luns[QUORUM.0 as usize].reservations().keys().1.len()
    }
}
