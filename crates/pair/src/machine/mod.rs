//! What one side of a pair decides. The machine does no I/O and reads no clock: events, answers and the time come in, actions go
//! out.
//!
//! | role | |
//! |---|---|
//! | `STARTING` | the array is read: it says whose everything is, never memory |
//! | `NORMAL` | this side runs its own units, and watches the partner |
//! | `RACE` | the partner seems dead: the race on the quorum LUN is under way |
//! | `DUAL` | this side has won, and runs all units |
//! | `GIVEBACK` | the partner's units are being given back |
//! | `FENCED` | this side has lost: everything here is ended, nothing is written anywhere |
//!
//! Only the array's answer to a race makes a side `DUAL`, and only one side gets it. Each LUN is fenced before its unit starts.

mod action;
mod handover;
mod look;
mod looks;
mod partner;
mod role;
mod roles;
mod tracks;
mod units;

pub use crate::omit::{Omitted, Step};
pub use crate::role::RoleName;
pub use action::{
    Action, Answer, Ask, Cause, DROPPED, Deed, Event, Failure, Job, Joining, Notice, Order, Proof, View,
};
pub use tracks::UnitState;

use crate::beat::Beat;
use crate::plan::{LunId, Millis, Plan, QUORUM, UnitId};
use action::Asked;
use looks::Looks;
use partner::Partner;
use role::Role;
use std::collections::{BTreeMap, BTreeSet};
use tracks::UnitTrack;

/// The purpose of an outstanding question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Look(looks::Sort),
    Speaks(UnitId),
    Race,
    PowerOff,
    Unit(UnitId, tracks::Work),
    OpenQuorum,
    Rejoin(LunId),
    JoinForeign(LunId),
}

/// One side of a pair.
#[derive(Debug, Clone)]
pub struct Machine {
    plan: Plan,
    now: Millis,
    born: Millis,
    run: u64,
    beats: u64,
    next_beat: Millis,
    role: Role,
    /// Events so far.
    steps: u64,
    /// The event with which the role began: what was asked before says nothing about it.
    since_step: u64,
    role_at: Millis,
    /// No race before, whatever the role.
    race_after: Millis,
    partner: Partner,
    looks: Looks,
    units: Vec<UnitTrack>,
    asked: BTreeMap<Job, (Purpose, Asked)>,
    next_job: u64,
    out: Vec<Action>,
    alarms: BTreeMap<String, Millis>,
    /// LUNs of the partner that are being joined.
    joining: BTreeSet<LunId>,
    /// LUNs of which a call has failed: none of that sort is made again before.
    again: BTreeMap<LunId, Millis>,
    /// When this side was last awake again after a time without events: silence before that proves nothing.
    awake: Millis,
}

/// Without an event for so long this side was asleep itself, milliseconds.
const ASLEEP: Millis = 400;

impl Machine {
    /// A side that knows nothing yet. `run` is greater than that of any run of this side before.
    pub fn new(plan: Plan, now: Millis, run: u64) -> Machine {
        let units = plan.units.iter().map(|_| UnitTrack::default()).collect();
        Machine {
            now,
            born: now,
            run,
            beats: 0,
            next_beat: now,
            role: Role::Starting,
            steps: 0,
            since_step: 0,
            role_at: now,
            race_after: now,
            partner: Partner::new(plan.links),
            looks: Looks::new(&plan),
            units,
            asked: BTreeMap::new(),
            next_job: 0,
            out: Vec::new(),
            alarms: BTreeMap::new(),
            joining: BTreeSet::new(),
            again: BTreeMap::new(),
            awake: now,
            plan,
        }
    }

    /// Takes an event at `now`, and gives what is to be done. A clock that goes back counts as one that stands.
    pub fn handle(&mut self, now: Millis, event: Event) -> Vec<Action> {
        if now.saturating_sub(self.now) > ASLEEP {
            self.awake = now;
        }
        self.now = self.now.max(now);
        self.steps += 1;
        match event {
            Event::Tick => {}
            Event::Heard(link, beat) => {
                if beat.side != self.plan.me {
                    self.partner.heard(self.now, link, beat, &self.plan);
                }
            }
            Event::Answered(job, answer) => {
                if let Some((purpose, asked)) = self.asked.remove(&job) {
                    self.answered(purpose, asked, answer);
                }
            }
            Event::Found(unit) => self.found(unit),
            Event::Ended(unit, cause) => self.ended(unit, cause),
            Event::Wanted(order) => self.ordered(order),
        }
        self.look();
        self.decide();
        self.tend_units();
        self.beat();
        std::mem::take(&mut self.out)
    }

    /// The role.
    pub fn role(&self) -> RoleName {
        self.role.name()
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The state of a unit on this side.
    pub fn unit(&self, id: UnitId) -> UnitState {
        self.units[id.0 as usize].state
    }

    /// The partner's newest beat, and whether a link brings its beats.
    pub fn partner(&self) -> (Option<Beat>, bool) {
        (self.partner.beat().copied(), self.partner.is_heard(self.now, &self.plan))
    }

    /// True if the partner's units can be given back to it now.
    pub fn may_give_back(&self) -> bool {
        matches!(self.role, Role::Dual { .. }) && self.is_partner_ready()
    }

    /// The LUN as it was last read.
    pub fn view(&self, lun: LunId) -> Option<&View> {
        self.looks.view(lun).map(|seen| &seen.view)
    }

    /// Milliseconds since a monitor has answered.
    pub fn monitor_age(&self) -> Option<Millis> {
        self.looks.monitor_age(self.now)
    }

    /// The words of the present role's reason.
    pub fn why(&self) -> &str {
        self.role.why()
    }

    fn ask(&mut self, purpose: Purpose, ask: Ask) -> Job {
        let job = Job(self.next_job);
        self.next_job += 1;
        self.asked.insert(job, (purpose, Asked { at: self.now, step: self.steps }));
        self.out.push(Action::Ask(job, ask));
        job
    }

    fn answered(&mut self, purpose: Purpose, asked: Asked, answer: Answer) {
        match purpose {
            Purpose::Look(sort) => self.looked(sort, asked, answer),
            Purpose::Speaks(unit) => self.spoke(unit, asked, &answer),
            Purpose::Race => self.raced(answer),
            Purpose::PowerOff => self.powered_off(asked, &answer),
            Purpose::Unit(unit, work) => self.worked(unit, work, answer),
            Purpose::OpenQuorum => self.opened(&answer),
            Purpose::Rejoin(lun) => self.rejoined(lun, &answer),
            Purpose::JoinForeign(lun) => self.joined_foreign(lun, &answer),
        }
    }

    fn beat(&mut self) {
        if self.now < self.next_beat {
            return;
        }
        self.next_beat = self.now + self.plan.timings.beat;
        self.beats += 1;
        let beat = self.own_beat();
        self.out.push(Action::Send(beat));
        // A side that has lost writes nothing anywhere.
        if !matches!(self.role, Role::Fenced { .. } | Role::Starting) {
            self.write_sector(beat);
        }
    }

    fn own_beat(&self) -> Beat {
        let running = self.plan.ids().filter(|id| self.unit(*id) == UnitState::Running);
        Beat {
            side: self.plan.me,
            run: self.run,
            number: self.beats,
            role: self.role(),
            monitor_age: self.looks.monitor_age(self.now),
            generation: self.looks.view(QUORUM).map_or(0, |seen| seen.view.generation),
            stopped: self.is_stopped(),
            reaches: self.reaches_own(),
            granted: self.has_granted(),
            running: running.fold(0, |bits, id| bits | 1u64 << (id.0 & 63)),
        }
    }

    /// Tells an alarm, once a minute each.
    fn alarm(&mut self, text: String) {
        let last = self.alarms.get(&text).copied();
        if last.is_none_or(|at| self.now.saturating_sub(at) >= 60_000) {
            self.alarms.insert(text.clone(), self.now);
            self.out.push(Action::Tell(Notice::Alarm(text)));
        }
    }

    /// Refuses an order. Unlike an alarm it is told each time: whoever gave the order waits.
    fn refuse(&mut self, why: String) {
        self.step(format!("an order is refused: {why}"));
        self.out.push(Action::Refuse(why));
    }

    fn step(&mut self, text: String) {
        self.out.push(Action::Tell(Notice::Step(text)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::omit::Omitted;
    use crate::plan::{Plan, Side, Timings, Unit, UnitKind};
    use crate::reservation::Key;

    fn machine() -> Machine {
        let plan = Plan {
            me: Side::A,
            keys: [Key(1), Key(2)],
            links: 1,
            units: Vec::new(),
            power: false,
            timings: Timings::default(),
            omitted: Omitted::default(),
        };
        Machine::new(plan, 0, 1)
    }

    /// The units would have no side: this one has left their LUNs by then, and the partner cannot join them.
    #[test]
    fn nothing_is_given_back_to_a_partner_without_its_luns() {
        let mut machine = machine();
        machine.role = Role::Dual { why: String::new(), won: 0, dead: false, well: None };
        machine.looks.monitor = Some(0);
        for (number, reaches) in [(1, false), (2, true)] {
            let beat = Beat {
                side: Side::B,
                run: 1,
                number,
                role: RoleName::Fenced,
                monitor_age: Some(0),
                generation: 0,
                stopped: true,
                reaches,
                granted: false,
                running: 0,
            };
            machine.handle(10 * number, Event::Heard(0, beat));
            let said = machine.handle(10 * number + 1, Event::Wanted(Order::Giveback));
            let is_refused = said.iter().any(|action| matches!(action, Action::Refuse(_)));
            assert_eq!(is_refused, !reaches, "{said:?}");
        }
    }

    /// The questions up to `end` that `counts`, each answered by `reply` a millisecond later. The partner's beats come if it `beats`.
    fn asked_by(
        end: Millis,
        (machine, beats): (&mut Machine, bool),
        counts: impl Fn(&Ask) -> bool,
        reply: impl Fn(&Ask) -> Answer,
    ) -> usize {
        let (mut asked, mut answers) = (0, Vec::new());
        for now in 1..end {
            let beat = Beat { side: Side::B, number: now, role: RoleName::Normal, ..machine.own_beat() };
            let event = if beats { Event::Heard(0, beat) } else { Event::Tick };
            let mut said = machine.handle(now, event);
            for (job, answer) in std::mem::take(&mut answers) {
                said.extend(machine.handle(now, Event::Answered(job, answer)));
            }
            for action in said {
                if let Action::Ask(job, ask) = action {
                    asked += usize::from(counts(&ask));
                    answers.push((job, reply(&ask)));
                }
            }
        }
        asked
    }

    fn volume_of_partner() -> Unit {
        Unit {
            name: "volume v".to_owned(),
            kind: UnitKind::Volume,
            home: Side::B,
            luns: vec![LunId(1)],
            uses: vec!["cache"],
        }
    }

    #[test]
    fn a_question_that_fails_is_no_silence() {
        for (answer, races) in [(Answer::Speaks(false), true), (Answer::Failed(Failure::TimedOut), false)] {
            let units = vec![volume_of_partner()];
            let mut machine = Machine::new(Plan { units, ..machine().plan }, 0, 1);
            machine.role = Role::normal(String::new(), 0, 0);
            let counts = |ask: &Ask| matches!(ask, Ask::Race(_));
            let asked = asked_by(30_000, (&mut machine, false), counts, |ask| match ask {
                Ask::Speaks(_) => answer.clone(),
                Ask::ReadSector => Answer::Sector(None),
                Ask::ReadKeys(_) => {
                    Answer::Keys(View { generation: 0, keys: vec![Key(1), Key(2)], holder: None })
                }
                Ask::Race(_) => Answer::Failed(Failure::Other("not now".to_owned())),
                _ => Answer::Done,
            });
            assert_eq!(asked > 0, races, "{answer:?}");
        }
    }

    #[test]
    fn an_array_that_refuses_at_once_is_asked_with_pauses() {
        let unit = volume_of_partner();
        let (mine, theirs) = (Key(1), Key(2));
        let giveback = || Role::Giveback { why: String::new(), won: 0, opening: false };
        let normal = Role::normal(String::new(), 0, 0);
        let cases = [
            ("leave", giveback(), vec![unit.clone()], [mine, mine]),
            ("open", giveback(), Vec::new(), [mine, mine]),
            ("join", normal, vec![unit], [mine, theirs]),
        ];
        for (name, role, units, keys) in cases {
            let mut machine = Machine::new(Plan { units, ..machine().plan }, 0, 1);
            machine.role = role;
            let counts = |ask: &Ask| matches!(ask, Ask::Leave(_) | Ask::Open(_) | Ask::Join(..));
            let asked = asked_by(1000, (&mut machine, true), counts, |ask| match ask {
                Ask::Leave(_) | Ask::Open(_) | Ask::Join(..) => {
                    Answer::Failed(Failure::Array("EIO".to_owned()))
                }
                Ask::ReadKeys(LunId(1)) => {
                    Answer::Keys(View { generation: 0, keys: vec![keys[1]], holder: Some(keys[1]) })
                }
                Ask::ReadKeys(_) => {
                    let holder = Some(mine).filter(|_| name != "join");
                    Answer::Keys(View { generation: 0, keys: vec![mine, theirs], holder })
                }
                _ => Answer::Done,
            });
            assert!((1..=2).contains(&asked), "{name}: {asked} times in a second");
        }
    }

    #[test]
    fn a_power_cut_of_before_a_giveback_says_nothing() {
        let mut machine = machine();
        let dual = || Role::Dual { why: String::new(), won: 0, dead: false, well: None };
        machine.become_role(dual());
        let job = machine.ask(Purpose::PowerOff, Ask::PowerOff);
        machine.handle(10, Event::Tick);
        machine.become_role(Role::Giveback { why: String::new(), won: 0, opening: true });
        machine.handle(20, Event::Tick);
        machine.become_role(dual());
        machine.handle(30, Event::Answered(job, Answer::Done));
        assert!(matches!(machine.role, Role::Dual { dead: false, .. }), "{:?}", machine.role);
    }

    /// An alarm is told once a minute: whoever gave the second order waited for words that did not come.
    #[test]
    fn an_order_that_makes_no_sense_is_refused_each_time() {
        let mut machine = machine();
        for at in [10, 20] {
            let said = machine.handle(at, Event::Wanted(Order::Giveback));
            let refused =
                said.iter().any(|action| matches!(action, Action::Refuse(why) if why.contains("DUAL")));
            assert!(refused, "{said:?}");
        }
    }
}
