//! A heartbeat: one side's word about itself, by the links and in its sector of the quorum LUN.

use crate::plan::{Millis, Side};
use crate::role::RoleName;
use serde::{Deserialize, Serialize};

/// A heartbeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beat {
    /// The side that sends it.
    pub side: Side,
    /// The number of the agent's run: that of a later run is greater.
    pub run: u64,
    /// It grows with each beat of a run.
    pub number: u64,
    /// The role of the side.
    pub role: RoleName,
    /// Milliseconds since a monitor answered; nothing: none has.
    pub monitor_age: Option<Millis>,
    /// The generation of the quorum LUN's registrations when the side last read them.
    pub generation: u32,
    /// No process of any unit is left on this side, and none is being started.
    pub stopped: bool,
    /// This side has just read the keys of all its own LUNs.
    pub reaches: bool,
    /// This side has given the partner's units back: it may take them.
    pub granted: bool,
    /// Units that run here, one bit each.
    pub running: u64,
}
