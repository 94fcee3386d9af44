//! The units on this side as they are followed.

use crate::plan::{LunId, Millis};

/// Where a unit is, on this side.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum UnitState {
    /// Nothing of it runs here.
    #[default]
    Away,
    /// Its LUNs are being fenced or held.
    Securing,
    /// Its LUNs are this side's, and writes of the partner may be left in the array.
    Draining,
    /// The monitors are told that its old process is dead for certain, which comes before the new one.
    Telling,
    /// It is being started.
    Starting,
    /// It runs.
    Running,
    /// It is being stopped in peace.
    Stopping,
    /// It is being ended.
    Killing,
    /// Its LUNs are being given back.
    Leaving,
}

/// A question about a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    Secure(LunId),
    Down { dead: bool },
    Start,
    Out,
    In,
    Scrub,
    Kill,
    Stop,
    Leave(LunId),
}

/// A unit as it is followed.
#[derive(Debug, Clone, Default)]
pub(super) struct UnitTrack {
    pub(super) state: UnitState,
    /// LUNs still to be secured, or to be given back.
    pub(super) left: Vec<LunId>,
    /// The event after which its LUNs were secured: keys read after that must show it.
    pub(super) secured: Option<u64>,
    /// LUNs on which no write of the partner is left.
    pub(super) drained: Vec<LunId>,
    /// Nothing is begun before.
    pub(super) not_before: Millis,
    /// Starts that failed, one after the other.
    pub(super) failures: u32,
    pub(super) started: Millis,
    /// When the array failed it.
    pub(super) strikes: Vec<Millis>,
    /// The monitors have been told that it is down, and for certain dead, since it came here.
    pub(super) told_down: bool,
    pub(super) told_dead: bool,
    /// The monitors are to be told again that it is down, at that time.
    pub(super) tell_again: Option<Millis>,
    /// Its placement groups are to be scrubbed, at that time.
    pub(super) scrub: Option<Millis>,
    /// Scrubs that were refused.
    pub(super) scrubs_refused: u32,
    /// The monitors were told that it is out.
    pub(super) out: bool,
    /// The partner may have it: its LUNs are given back.
    pub(super) given: bool,
}

impl UnitTrack {
    /// The partner has it again.
    pub(super) fn forget(&mut self) {
        self.drained.clear();
        (self.told_down, self.told_dead, self.tell_again, self.scrub) = (false, false, None, None);
        (self.secured, self.failures) = (None, 0);
    }
}
