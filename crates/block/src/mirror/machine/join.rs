//! The way of a leg back into step: it is noted as stale, copied to region by region, then both are noted as in step.

use super::{Action, Change, Machine, Phase, State};
use crate::IoError;
use crate::mirror::access::Time;
use crate::mirror::flaw::Flaw;
use crate::mirror::mark::{Leg, Mark, MarkState};
use std::ops::Range;

impl Machine {
    /// True if nothing is under way on a leg that was left: nothing of it can land on what is copied there.
    pub(super) fn may_try(&self, leg: Leg) -> bool {
        let quiet = !self.ops.is_on(leg) || self.settings.flaws.has(Flaw::JoinBesideLate);
        self.there[leg.index()] && self.jobs[leg.index()] == 0 && quiet
    }

    /// Tries a leg that was left, once its time has come.
    pub(super) fn try_again(&mut self, now: Time, out: &mut Vec<Action>) {
        let State::Alone { on } = &self.state else { return };
        let leg = on.other();
        if now >= self.retry_at && self.may_try(leg) {
            self.jobs[leg.index()] += 1;
            out.push(Action::Try(leg));
        }
    }

    /// A leg that was left has answered, or has not.
    pub fn tried(&mut self, now: Time, leg: Leg, result: Result<(), IoError>, out: &mut Vec<Action>) {
        self.jobs[leg.index()] -= 1;
        let State::Alone { on } = &self.state else { return };
        if *on == leg {
            return;
        }
        if let Err(why) = result {
            self.retry_at = now + self.settings.retry;
            if self.must_wait() {
                self.stop(leg, &why.to_string(), out);
            }
            return;
        }
        out.push(Action::Say(Change::Joining(leg)));
        self.state = State::Joining { to: leg, phase: Phase::Stale };
        if self.settings.flaws.has(Flaw::NoStaleNote) {
            return self.begin_copy(leg, out);
        }
        self.note(leg, Mark { state: MarkState::Stale, ..self.mark }, out);
    }

    /// Everything is copied from the start on.
    fn begin_copy(&mut self, to: Leg, out: &mut Vec<Action>) {
        self.state = State::Joining { to, phase: Phase::Copying { at: 0, under_way: false } };
        for id in self.ops.held() {
            self.send(id, out);
        }
        self.copy_next(out);
    }

    /// The region that is copied from `at` on.
    fn region(&self, at: u64) -> Range<u64> {
        at..(at + self.settings.region).min(self.size)
    }

    /// True if `range` lies in the region at `at`, whole or in part.
    pub(super) fn is_in_copy(&self, at: u64, range: &Range<u64>) -> bool {
        let region = self.region(at);
        let held = !self.settings.flaws.has(Flaw::CopyUnderWrites);
        held && range.start < region.end && region.start < range.end
    }

    /// Copies the next region, once no write to it is under way.
    pub(super) fn copy_next(&mut self, out: &mut Vec<Action>) {
        let State::Joining { to, phase: Phase::Copying { at, under_way: false } } = &self.state else {
            return;
        };
        let (to, region) = (*to, self.region(*at));
        let late = !self.settings.flaws.has(Flaw::JoinBesideLate);
        if self.ops.writes(&region, late) && !self.settings.flaws.has(Flaw::CopyUnderWrites) {
            return;
        }
        self.state = State::Joining { to, phase: Phase::Copying { at: region.start, under_way: true } };
        self.jobs[to.index()] += 1;
        out.push(Action::Copy(to.other(), region));
    }

    /// The copy of a region to `to` has ended; an error says which leg failed.
    pub fn copied(
        &mut self,
        now: Time,
        to: Leg,
        range: Range<u64>,
        result: Result<(), (Leg, IoError)>,
        out: &mut Vec<Action>,
    ) {
        self.jobs[to.index()] -= 1;
        let here = matches!(&self.state, State::Joining { to: leg, phase: Phase::Copying { at, under_way: true } }
            if *leg == to && *at == range.start);
        if !here {
            return;
        }
        if let Err((leg, why)) = result {
            if why.kind == crate::IoKind::Fenced && !self.settings.flaws.has(Flaw::FenceIsLoss) {
                return self.fail(why, out);
            }
            return self.leave(now, to, format!("the {leg} leg fails the copy: {why}"), out);
        }
        if range.end < self.size {
            self.state = State::Joining { to, phase: Phase::Copying { at: range.end, under_way: false } };
        } else {
            let joined_first = self.settings.flaws.has(Flaw::JoinedLegFirst);
            let (first, phase) = match joined_first {
                true => (to, Phase::JoinedNoted),
                false => (to.other(), Phase::SoundNoted),
            };
            self.state = State::Joining { to, phase };
            self.mark = self.mark.in_step(self.top, false);
            self.top = self.mark.generation;
            self.note(first, self.mark, out);
        }
        for id in self.ops.held() {
            self.send(id, out);
        }
        self.copy_next(out);
    }

    /// A note of a leg that joins, or of its sound one, is written or is not.
    pub(super) fn join_noted(
        &mut self,
        now: Time,
        (leg, mark): (Leg, Mark),
        result: Result<(), IoError>,
        out: &mut Vec<Action>,
    ) {
        let State::Joining { to, phase } = self.state.clone() else { return };
        let ours = match phase {
            Phase::Stale => leg == to && mark.state == MarkState::Stale,
            Phase::SoundNoted => leg == to.other() && mark == self.mark,
            Phase::JoinedNoted => leg == to && mark == self.mark,
            Phase::Copying { .. } => false,
        };
        if !ours {
            return;
        }
        if let Err(why) = result {
            return self.leave(now, to, format!("the note on the {leg} leg: {why}"), out);
        }
        match phase {
            Phase::Stale => self.begin_copy(to, out),
            Phase::SoundNoted => {
                self.state = State::Joining { to, phase: Phase::JoinedNoted };
                self.note(to, self.mark, out);
            }
            Phase::JoinedNoted | Phase::Copying { .. } => {
                if self.settings.flaws.has(Flaw::JoinedLegFirst) {
                    self.note(to.other(), self.mark, out);
                }
                self.state = State::InStep;
                out.push(Action::Say(Change::InStep(to)));
                self.settle_all(now, out);
            }
        }
    }
}
