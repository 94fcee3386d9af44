//! Faults of the world.

use super::setting::Time;
use super::setting::UNITS;
use crate::rng::Rng;
use loligo_pair::machine::Order;
use loligo_pair::plan::{Side, UnitId};

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
    Unit(UnitId),
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
            13 => FaultKind::Unit(rng.pick(&UNITS)),
            14 => FaultKind::Monitors,
            15 => FaultKind::Reach(side),
            16 => FaultKind::Array,
            17 => FaultKind::Path(side),
            _ if rng.chance(1, 2) => FaultKind::ArrayCycle,
            _ => FaultKind::Order(side, Order::Takeover),
        }
    }

    /// The sides that a partner may take over for it.
    pub(super) fn excuses(self) -> &'static [Side] {
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
