//! The monitors: who reaches them, and what they were told.

use super::setting::Time;
use loligo_pair::plan::{Side, UnitId};

/// The monitors as both hosts see them.
#[derive(Debug)]
pub(super) struct Monitors {
    /// They have a majority.
    pub(super) up: bool,
    pub(super) down_at: Time,
    /// When they had one again.
    pub(super) up_at: Time,
    /// Until when the monitor that each side speaks to answers without a majority.
    pub(super) lease: [Time; 2],
    /// A host reaches them.
    pub(super) reach: [bool; 2],
    pub(super) cut_at: [Time; 2],
    /// When each OSD was last said to be down.
    pub(super) down: [Option<Time>; 3],
    /// The side that each OSD was last seen on.
    pub(super) at: [Option<Side>; 3],
}

impl Monitors {
    pub(super) fn new() -> Monitors {
        Monitors {
            up: true,
            down_at: 0,
            up_at: 0,
            lease: [0; 2],
            reach: [true; 2],
            cut_at: [0; 2],
            down: [None; 3],
            at: [None; 3],
        }
    }

    pub(super) fn boots(&mut self, unit: UnitId, side: Side) {
        self.at[unit.0 as usize] = Some(side);
    }
}
