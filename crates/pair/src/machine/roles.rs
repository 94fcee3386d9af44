//! The roles of a side, and what leads from one to the next.

use super::action::{Action, Answer, Ask, Asked, DROPPED, Failure, Notice, Order};
use super::partner::Verdict;
use super::role::{Asking, Role};
use super::{Machine, Purpose};
use crate::omit::Step;
use crate::plan::{LunId, QUORUM, UnitId};
use crate::role::RoleName;

/// The most that a backoff grows.
const LONGEST_BACKOFF: u32 = 4;

/// The reasons why an order is refused.
const NO_MONITOR: &str = "no monitor has answered within a second: see that this controller reaches them, and give the order again";
const NO_MONITOR_YET: &str = "and no monitor answers: neither controller serves before one does";
const NOT_READY: &str = "the partner does not say that it is fenced, runs nothing and reaches a monitor and its LUNs: see 'loligo pair status' there, \
                         and give the order again";

impl Machine {
    pub(super) fn become_role(&mut self, role: Role) {
        let (from, to) = (self.role.name(), role.name());
        let why = role.why().to_owned();
        self.role = role;
        self.since_step = self.steps;
        self.role_at = self.now;
        self.looks.hurry();
        if from != to {
            self.out.push(Action::Tell(Notice::Role { from, to, why }));
        }
    }

    /// This side has lost: everything here ends.
    pub(super) fn fence(&mut self, why: String) {
        if matches!(self.role, Role::Fenced { .. }) {
            return;
        }
        self.become_role(Role::Fenced { why, not_before: self.now, rejoin: None });
        self.kill_units();
    }

    /// Judges a LUN that was just read. What was asked before the present role began says nothing about it.
    pub(super) fn judge(&mut self, lun: LunId) {
        let Some(seen) = self.looks.view(lun).filter(|seen| self.is_since(seen)) else { return };
        let (mine, theirs) = (self.plan.mine(), self.plan.theirs());
        let has_mine = seen.view.keys.contains(&mine);
        let holder = seen.view.holder;
        if matches!(self.role, Role::Starting | Role::Fenced { .. })
            || self.plan.leaves_out(Step::EndWhenFenced)
        {
            return;
        }
        if lun != QUORUM {
            if !has_mine && self.unit_of(lun).is_some_and(|unit| self.has_secured(unit, seen.asked.step)) {
                let name = self.plan.lun_name(lun);
                self.fence(format!("this side's key is gone from {name}"));
            }
            return;
        }
        let lost = match self.role {
            _ if !has_mine && seen.view.keys.is_empty() => {
                Some("the array has no keys any more: run 'loligo pair setup' once both sides are stopped")
            }
            _ if !has_mine => Some("the partner has taken over: this side's key is gone"),
            Role::Normal { .. } if holder == Some(theirs) => Some("the partner holds the quorum LUN"),
            Role::Dual { .. } if holder != Some(mine) => {
                Some("this side does not hold the quorum LUN any more")
            }
            _ => None,
        };
        if let Some(why) = lost {
            return self.fence(why.to_owned());
        }
        // A race whose answer was lost: the array says how far it came.
        if matches!(self.role, Role::Normal { .. }) && holder == Some(mine) {
            self.become_role(Role::Starting);
        }
    }

    /// Decides what the present role does next.
    pub(super) fn decide(&mut self) {
        match self.role {
            Role::Starting => self.start(),
            Role::Normal { .. } => {
                self.join_foreign();
                self.watch();
            }
            Role::Race { .. } => {}
            Role::Dual { .. } => self.consider_giveback(),
            Role::Giveback { .. } => self.give_back(),
            Role::Fenced { .. } => self.come_back(),
        }
    }

    /// Reads from the array what this side is.
    fn start(&mut self) {
        let since = self.since_step;
        let fresh = |lun| self.looks.view(lun).filter(|seen| seen.asked.step >= since).map(|seen| &seen.view);
        let (mine, theirs) = (self.plan.mine(), self.plan.theirs());
        let Some(quorum) = fresh(QUORUM) else { return };
        let (has_mine, has_theirs) = (quorum.keys.contains(&mine), quorum.keys.contains(&theirs));
        let (holder, generation) = (quorum.holder, quorum.generation);
        let foreign = self.foreign_luns();
        let views: Vec<_> = foreign.iter().map(|lun| fresh(*lun)).collect();
        if views.iter().any(Option::is_none) {
            return;
        }
        // A grant leaves LUNs that nobody holds.
        let is_half_taken = views.iter().flatten().any(|view| view.holder.is_some());
        let start = |why: &str| why.to_owned();
        let role = if self.plan.leaves_out(Step::FencedAtStart) {
            Role::normal(start("started"), self.now, 0)
        } else if !has_mine {
            let why = match quorum.keys.is_empty() {
                true => "the array has no keys: run 'loligo pair setup'",
                false => "the partner has taken over",
            };
            Role::Fenced { why: start(why), not_before: self.now, rejoin: None }
        } else if holder == Some(mine) && has_theirs {
            // The race was won, and the partner's key not yet taken away.
            if !self.has_monitor() {
                self.alarm(format!("a race is begun and not ended, {NO_MONITOR_YET}"));
            } else if self.now >= self.race_after {
                self.race("a race is ended".to_owned(), 0);
            }
            return;
        } else if holder == Some(mine) {
            Role::Dual {
                why: start("this side holds the quorum LUN"),
                won: generation,
                dead: false,
                well: None,
            }
        } else if holder.is_some() {
            let why = start("another holds the quorum LUN");
            Role::Fenced { why, not_before: self.now + self.plan.timings.backoff, rejoin: None }
        } else if is_half_taken && !has_theirs {
            // A takeover was under way when the agent before this one ended.
            if !self.has_monitor() {
                return self.alarm(format!("a takeover is begun and not ended, {NO_MONITOR_YET}"));
            }
            self.race("a takeover is gone on with".to_owned(), 0);
            return;
        } else {
            Role::normal(start("both are registered and nobody holds the quorum LUN"), self.now, 0)
        };
        let is_fenced = matches!(role, Role::Fenced { .. });
        self.become_role(role);
        if is_fenced {
            self.kill_units();
        }
    }

    /// Watches the partner, and begins a takeover if the evidence is whole.
    fn watch(&mut self) {
        let Role::Normal { not_before, failed, ref asking, ordered, .. } = self.role else { return };
        if let Some((_, Asking::Monitor { at, .. })) = asking
            && self.now.saturating_sub(*at) > self.plan.timings.monitor_fresh
        {
            return self.asks_nothing();
        }
        if asking.is_some() || (self.now < not_before && !self.plan.leaves_out(Step::Backoff)) {
            return;
        }
        let has_monitor = self.has_monitor();
        let waited = self.now.saturating_sub(self.role_at) > self.plan.timings.first_contact;
        if waited && has_monitor && self.has_granted() {
            return self.race("the partner has not taken its units back".to_owned(), failed);
        }
        if ordered && has_monitor {
            return self.race_for("ordered".to_owned(), failed, true);
        }
        if let Role::Normal { ordered: ordered @ true, .. } = &mut self.role {
            // It is not to be carried out hours later.
            *ordered = false;
            self.step(format!("{DROPPED}: {NO_MONITOR}"));
        }
        match self.verdict() {
            Verdict::Alive => {}
            Verdict::Silent if !has_monitor => {
                self.alarm("the partner is silent, and no monitor answers: nothing is taken over".to_owned());
            }
            Verdict::Silent => self.ask_whether_they_speak(),
            Verdict::CutOff => {
                // Monitors that were away for both are back for one of them first.
                let steady = self.plan.timings.no_monitor + 2 * self.plan.timings.monitor_fresh;
                // Links that are silent are evidence beside that: the monitors choose a leader since one of them died with its network.
                let is_heard = self.partner.is_heard(self.now, &self.plan);
                let is_steady = !is_heard || self.looks.monitor_steady(self.now) > steady;
                if has_monitor && (is_steady || self.plan.leaves_out(Step::SteadyMonitor)) {
                    self.ask_monitor(Verdict::CutOff);
                }
            }
        }
    }

    fn has_monitor(&self) -> bool {
        let fresh = self.plan.timings.monitor_fresh;
        self.plan.leaves_out(Step::Monitor)
            || self.looks.monitor_age(self.now).is_some_and(|age| age <= fresh)
    }

    /// Silence may be the death of the agent alone: its units speak then.
    fn ask_whether_they_speak(&mut self) {
        let other = self.plan.me.other();
        let units: Vec<UnitId> = self.plan.ids().filter(|id| self.plan.unit(*id).home == other).collect();
        if units.is_empty() || self.plan.leaves_out(Step::Speaks) {
            return self.ask_monitor(Verdict::Silent);
        }
        for unit in &units {
            self.ask(Purpose::Speaks(*unit), Ask::Speaks(*unit));
        }
        let step = self.steps;
        if let Role::Normal { asking, .. } = &mut self.role {
            *asking = Some((step, Asking::Units(units)));
        }
    }

    /// All evidence is there, and this side may be the one that is cut off: a monitor that answers from here on says that it is
    /// not.
    fn ask_monitor(&mut self, verdict: Verdict) {
        let (step, at) = (self.steps, self.now);
        if self.plan.leaves_out(Step::Monitor) {
            return self.race_by(verdict);
        }
        self.hurry_monitors();
        if let Role::Normal { asking, .. } = &mut self.role {
            *asking = Some((step, Asking::Monitor { at, verdict }));
        }
    }

    /// A monitor has answered a question that was put with the event `step`.
    pub(super) fn monitor_answered(&mut self, step: u64) {
        let Role::Normal { asking: Some((since, Asking::Monitor { verdict, .. })), .. } = self.role else {
            return;
        };
        if step < since {
            return;
        }
        self.asks_nothing();
        if self.verdict() == verdict {
            self.race_by(verdict);
        }
    }

    fn race_by(&mut self, verdict: Verdict) {
        let Role::Normal { failed, .. } = self.role else { return };
        let why = match verdict {
            Verdict::Alive => return,
            Verdict::Silent => "the partner is silent",
            Verdict::CutOff => "the partner has no monitor",
        };
        self.race(why.to_owned(), failed);
    }

    fn asks_nothing(&mut self) {
        if let Role::Normal { asking, .. } = &mut self.role {
            *asking = None;
        }
    }

    fn verdict(&self) -> Verdict {
        self.partner.verdict(self.now, self.born.max(self.awake), &self.plan)
    }

    pub(super) fn spoke(&mut self, unit: UnitId, asked: Asked, answer: &Answer) {
        let Role::Normal { asking: Some((since, Asking::Units(left))), not_before, .. } = &mut self.role
        else {
            return;
        };
        // The answer to an earlier question says nothing about now.
        if asked.step < *since {
            return;
        }
        left.retain(|id| *id != unit);
        match answer {
            Answer::Speaks(false) => {}
            Answer::Speaks(true) => {
                *not_before = self.now + self.plan.timings.backoff;
                self.asks_nothing();
                let name = self.plan.unit(unit).name.clone();
                return self.alarm(format!(
                    "the partner's agent is silent, but {name} speaks: nothing is taken over"
                ));
            }
            // Nobody has looked: a host that is short of threads or of time proves nothing.
            _ => {
                *not_before = self.now + self.plan.timings.look;
                return self.asks_nothing();
            }
        }
        if !left.is_empty() {
            return;
        }
        self.asks_nothing();
        // The answers took their time.
        if self.verdict() == Verdict::Silent && self.has_monitor() {
            self.ask_monitor(Verdict::Silent);
        }
    }

    fn race(&mut self, why: String, failed: u32) {
        self.race_for(why, failed, false);
    }

    fn race_for(&mut self, why: String, failed: u32, ordered: bool) {
        self.become_role(Role::Race { why: why.clone(), failed, ordered });
        if self.plan.leaves_out(Step::Race) {
            let role = Role::Dual { why, won: 0, dead: false, well: None };
            return self.become_role(role);
        }
        self.ask(Purpose::Race, Ask::Race(QUORUM));
    }

    pub(super) fn raced(&mut self, answer: Answer) {
        let Role::Race { ref why, failed, ordered } = self.role else { return };
        let why = why.clone();
        match answer {
            Answer::Taken { generation: won, .. } => {
                self.become_role(Role::Dual { why, won, dead: false, well: None });
                if self.plan.power && !ordered {
                    self.ask(Purpose::PowerOff, Ask::PowerOff);
                }
            }
            Answer::Failed(Failure::NotMine(why)) => self.fence(format!("the race is lost: {why}")),
            other => {
                let wait = self.plan.timings.backoff << failed.min(LONGEST_BACKOFF);
                let failure = match other {
                    Answer::Failed(failure) => failure.to_string(),
                    _ => "no answer that makes sense".to_owned(),
                };
                let why = format!("the quorum LUN is not fenced ({failure}): nothing is taken over");
                self.alarm(why.clone());
                self.race_after = self.now + wait;
                // Told each time, for whoever waits for it.
                self.become_role(Role::normal(why, self.race_after, failed + 1));
            }
        }
    }

    pub(super) fn powered_off(&mut self, asked: Asked, answer: &Answer) {
        // The partner may have been given everything back since, and live.
        if asked.step < self.since_step {
            return;
        }
        match answer {
            Answer::Done => {
                if let Role::Dual { dead, .. } = &mut self.role {
                    *dead = true;
                }
                self.step("the partner's power is off".to_owned());
            }
            _ => self
                .alarm("the partner's power is not known to be off: the reservation alone holds".to_owned()),
        }
    }

    pub(super) fn ordered(&mut self, order: Order) {
        let (has_monitor, is_ready) = (self.has_monitor(), self.is_partner_ready());
        match (order, &mut self.role) {
            (Order::Takeover, Role::Normal { .. }) if !has_monitor => self.refuse(NO_MONITOR.to_owned()),
            (Order::Takeover, Role::Normal { ordered, .. }) => *ordered = true,
            (Order::Giveback, Role::Dual { .. }) if is_ready => self.begin_giveback("ordered"),
            (Order::Giveback, Role::Dual { .. }) => self.refuse(NOT_READY.to_owned()),
            _ => {
                let needs = match order {
                    Order::Takeover => RoleName::Normal,
                    Order::Giveback => RoleName::Dual,
                };
                let role = self.role.name();
                self.refuse(format!(
                    "the role is {role}, and the order needs {needs}: see 'loligo pair status'"
                ));
            }
        }
    }
}
