//! Faults of the world.

use super::Time;
use super::world::{Happening, World};
use crate::rng::Rng;
use loligo_pair::machine::{Event, Order};
use loligo_pair::plan::{QUORUM, Side, UnitId};

/// A fault with when it begins and ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// Milliseconds.
    pub at: Time,
    /// Milliseconds.
    pub lasts: Time,
    /// The kind.
    pub kind: FaultKind,
}

/// The kind of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// A host dies with everything on it.
    Crash(Side),
    /// A host stands still; `true`: its clock too, as that of a paused virtual machine.
    Freeze(Side, bool),
    /// The network of a host is gone.
    Nic(Side),
    /// One link between the two.
    Link(usize),
    /// Both links between the two, while both reach the monitors.
    Links,
    /// The agent of a side dies alone.
    Agent(Side),
    /// The process of an OSD dies alone.
    Osd(UnitId),
    /// The monitors have no majority.
    Monitors,
    /// A side does not reach the monitors.
    Reach(Side),
    /// The array fails.
    Array,
    /// The path of a side to the array fails.
    Path(Side),
    /// The array loses its power.
    ArrayCycle,
    /// An operator gives an order to a side.
    Order(Side, Order),
}

impl FaultKind {
    /// A fault drawn from `rng`.
    pub(super) fn draw(rng: &mut Rng) -> FaultKind {
        let side = rng.pick(&Side::BOTH);
        match rng.below(19) {
            0..=3 => FaultKind::Crash(side),
            4..=6 => FaultKind::Freeze(side, rng.chance(1, 3)),
            7..=8 => FaultKind::Nic(side),
            9 => FaultKind::Link(rng.below(2) as usize),
            10 => FaultKind::Links,
            11..=12 => FaultKind::Agent(side),
            13 => FaultKind::Osd(UnitId(rng.below(2) as u32)),
            14 => FaultKind::Monitors,
            15 => FaultKind::Reach(side),
            16 => FaultKind::Array,
            17 => FaultKind::Path(side),
            _ if rng.chance(1, 2) => FaultKind::ArrayCycle,
            _ => FaultKind::Order(side, Order::Takeover),
        }
    }

    /// The sides that a partner may take over for it.
    fn excuses(self) -> &'static [Side] {
        match self {
            FaultKind::Crash(Side::A)
            | FaultKind::Freeze(Side::A, _)
            | FaultKind::Nic(Side::A)
            | FaultKind::Reach(Side::A) => &[Side::A],
            FaultKind::Crash(Side::B)
            | FaultKind::Freeze(Side::B, _)
            | FaultKind::Nic(Side::B)
            | FaultKind::Reach(Side::B) => &[Side::B],
            FaultKind::ArrayCycle | FaultKind::Array | FaultKind::Order(..) | FaultKind::Path(_) => {
                &Side::BOTH
            }
            _ => &[],
        }
    }
}

impl World {
    pub(super) fn fault(&mut self, kind: FaultKind) {
        self.note(format!("FAULT {kind:?}"));
        for side in kind.excuses() {
            self.faulty_until[side.index()] = Time::MAX;
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
            FaultKind::Osd(unit) => {
                for side in Side::BOTH {
                    if self.hosts[side.index()].process(unit).is_some() {
                        self.process_ends(side, unit, loligo_pair::machine::Cause::Other);
                    }
                }
            }
            FaultKind::Monitors => (self.monitors.up, self.monitors.down_at) = (false, self.now),
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
        }
        match kind {
            FaultKind::Crash(side) => {
                self.hosts[side.index()].up = true;
                self.hosts[side.index()].awake = self.now;
                self.boot(side);
            }
            FaultKind::Freeze(side, _) => self.thaw(side),
            FaultKind::Nic(side) => self.hosts[side.index()].nic = true,
            FaultKind::Link(link) => self.links[link] = true,
            FaultKind::Links => self.links = [true, true],
            FaultKind::Agent(side) => {
                if self.hosts[side.index()].up {
                    self.later(0, Happening::Boot(side));
                }
            }
            FaultKind::Monitors => self.monitors.up = true,
            FaultKind::Reach(side) => self.monitors.reach[side.index()] = true,
            FaultKind::Array => self.array_fails = false,
            FaultKind::Path(side) => self.hosts[side.index()].path_lost = false,
            FaultKind::Osd(_) | FaultKind::ArrayCycle | FaultKind::Order(..) => {}
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
        for held in std::mem::take(&mut host.held) {
            let after = self.rng.below(20);
            self.later(after, held);
        }
    }
}
