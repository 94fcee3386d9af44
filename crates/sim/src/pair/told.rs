//! What the monitors are asked and told: by the owner alone, and only what is true.

use super::call::{Call, LIMIT, Stage};
use super::faults::FaultKind;
use super::world::{Happening, World};
use loligo_pair::machine::{Answer, Deed, Event, Failure, RoleName};
use loligo_pair::plan::Side;

impl World {
    fn reaches(&self, side: Side) -> bool {
        // A monitor answers for a while after its majority is gone, by its lease.
        let up = self.monitors.up || self.now < self.monitors.lease[side.index()];
        up && self.monitors.reach[side.index()] && self.hosts[side.index()].nic
    }

    pub(super) fn ask_monitors(&mut self, call: &Call) -> Stage {
        self.monitors_answer(call, Answer::Done)
    }

    fn monitors_answer(&mut self, call: &Call, answer: Answer) -> Stage {
        if self.reaches(call.side) {
            return Stage::Over(answer);
        }
        let told = Event::Answered(call.job, Answer::Failed(Failure::TimedOut));
        self.later(LIMIT, Happening::Tell(call.side, call.run, told));
        Stage::Elsewhere
    }

    /// Cuts the partner's power, if there is a way and it works.
    pub(super) fn power_off(&mut self, side: Side) -> Stage {
        if self.rng.chance(1, 4) {
            return Stage::Over(Answer::Failed(Failure::Other(
                "the controller of the power does not answer".to_owned(),
            )));
        }
        let other = side.other();
        self.note(format!("{side} cuts the power of {other}"));
        self.mark("power cut");
        self.cut_power(other);
        let after = self.rng.range(7_000..20_000);
        self.later(after, Happening::Mend(FaultKind::Crash(other)));
        Stage::Over(Answer::Done)
    }

    /// A command of a side: it must be of the owner, and true.
    pub(super) fn tell_monitors(&mut self, call: &Call, deed: Deed) -> Stage {
        let side = call.side;
        if self.reaches(side) {
            let role = self.hosts[side.index()].machine.as_ref().map(|m| m.role());
            if self.deed_is_foreign(side, deed) && !self.clock_stood(side) {
                self.violate(format!("{side} tells the monitors {deed:?} and does not own it"));
            }
            if role == Some(RoleName::Fenced)
                && self.hosts[side.index()].fenced_at.is_some_and(|at| self.now > at + 100)
            {
                self.violate(format!("{side} tells the monitors {deed:?} and is fenced"));
            }
            if let Deed::Down { unit, dead } = deed {
                self.mark(if dead { "down, definitely dead" } else { "down" });
                self.monitors.down[unit.0 as usize] = Some(self.now);
                let lives = Side::BOTH.into_iter().any(|s| self.hosts[s.index()].process(unit).is_some());
                if dead && lives {
                    self.violate(format!("osd.{} is called definitely dead and lives", unit.0));
                }
            }
            if let Deed::Out(_) = deed {
                self.mark("out");
            }
        }
        self.monitors_answer(call, Answer::Done)
    }
}
