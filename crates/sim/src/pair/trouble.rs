//! Faults as they begin and end.

use super::faults::FaultKind;
use super::world::{Happening, World};
use loligo_pair::machine::{Event, Order};
use loligo_pair::plan::{LunId, QUORUM, Side};

impl World {
    pub(super) fn fault(&mut self, kind: FaultKind) {
        self.note(format!("FAULT {kind:?}"));
        for side in kind.excuses() {
            self.excused[side.index()] += 1;
        }
        match kind {
            FaultKind::Crash(side) => self.cut_power(side),
            FaultKind::Freeze(side, stands) => {
                let now = self.now;
                let host = &mut self.hosts[side.index()];
                if host.up && !host.frozen {
                    (host.frozen, host.frozen_since, host.clock_stands) = (true, now, stands);
                }
            }
            FaultKind::Nic(side) => {
                self.hosts[side.index()].nic = false;
                self.monitors.cut_at[side.index()] = self.now;
            }
            FaultKind::Link(link) => self.links[link] = false,
            FaultKind::Links => self.links = [false, false],
            FaultKind::Agent(side) => {
                self.hosts[side.index()].machine = None;
                self.hosts[side.index()].fenced_at = None;
            }
            FaultKind::Unit(unit) => {
                for side in Side::BOTH {
                    if self.hosts[side.index()].process(unit).is_some() {
                        self.process_ends(side, unit, loligo_pair::machine::Cause::Other);
                    }
                }
            }
            FaultKind::Monitors => {
                (self.monitors.up, self.monitors.down_at) = (false, self.now);
                self.monitors.lease = [0, 1].map(|_| self.now + self.rng.below(2) * self.rng.below(5000));
            }
            FaultKind::Reach(side) => {
                self.monitors.reach[side.index()] = false;
                self.monitors.cut_at[side.index()] = self.now;
            }
            FaultKind::Array => self.array_fails = true,
            FaultKind::Path(side) => self.hosts[side.index()].path_lost = true,
            FaultKind::ArrayCycle => self.cycle_array(),
            FaultKind::Order(side, order) => {
                self.ordered |= order == Order::Takeover;
                let run = self.hosts[side.index()].run;
                self.later(0, Happening::Tell(side, run, Event::Wanted(order)));
            }
        }
    }

    fn cycle_array(&mut self) {
        for number in 0..self.luns.len() {
            // Callers of aborts get no answer: their calls run into their limit.
            let lost = self.luns[number].power_cycle();
            for abort in lost {
                if let Some(call) = self.waiting.remove(&(number as u32, abort)) {
                    self.lanes.remove(&(call.side.index(), call.run, LunId(number as u32)));
                    let answer =
                        loligo_pair::machine::Answer::Failed(loligo_pair::machine::Failure::TimedOut);
                    self.answer(&call, answer);
                }
            }
        }
        if self.luns[QUORUM.0 as usize].reservations().keys().1.is_empty() {
            self.keys_lost = true;
        }
    }

    pub(super) fn mend(&mut self, kind: FaultKind) {
        self.note(format!("MENDED {kind:?}"));
        for side in kind.excuses() {
            self.faulty_until[side.index()] = self.now;
            self.excused[side.index()] = self.excused[side.index()].saturating_sub(1);
        }
        match kind {
            FaultKind::Crash(side) => {
                self.hosts[side.index()].up = true;
                let host = &mut self.hosts[side.index()];
                (host.awake, host.crashed_until) = (self.now, Some(self.now));
                self.boot(side);
            }
            FaultKind::Freeze(side, _) => self.thaw(side),
            FaultKind::Nic(side) => {
                let host = &mut self.hosts[side.index()];
                (host.nic, host.nic_mended) = (true, self.now);
            }
            FaultKind::Link(link) => self.links[link] = true,
            FaultKind::Links => self.links = [true, true],
            FaultKind::Agent(side) => {
                if self.hosts[side.index()].up {
                    self.later(0, Happening::Boot(side));
                }
            }
            FaultKind::Monitors => (self.monitors.up, self.monitors.up_at) = (true, self.now),
            FaultKind::Reach(side) => self.monitors.reach[side.index()] = true,
            FaultKind::Array => self.array_fails = false,
            FaultKind::Path(side) => self.hosts[side.index()].path_lost = false,
            FaultKind::Unit(_) | FaultKind::ArrayCycle | FaultKind::Order(..) => {}
        }
    }

    /// What waited for the processors of a host comes at once, in any order that a scheduler may have.
    fn thaw(&mut self, side: Side) {
        let now = self.now;
        let host = &mut self.hosts[side.index()];
        if !host.frozen {
            return;
        }
        host.frozen = false;
        host.awake = now;
        if host.clock_stands {
            host.stood += now - host.frozen_since;
        }
        for held in std::mem::take(&mut self.held[side.index()]) {
            let after = self.rng.below(20);
            self.later(after, held);
        }
    }
}
