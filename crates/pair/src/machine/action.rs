//! The words between the machine and whoever carries out what it decides.

use crate::beat::Beat;
use crate::plan::{LunId, Millis, UnitId};
use crate::reservation::Key;
use crate::role::RoleName;
use serde::{Deserialize, Serialize};

/// A question that is answered once. The answer may be late, but it comes: a call that hangs is answered by its time limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Job(pub u64);

/// What the machine wants done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// To be sent by every link. No answer.
    Send(Beat),
    /// A question or a deed, with the number of its answer.
    Ask(Job, Ask),
    /// A change of role, or something that an operator must know. No answer.
    Tell(Notice),
    /// The order that came with the event is not carried out, for this reason.
    Refuse(String),
}

/// A question or a deed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ask {
    /// Writes this side's sector of the quorum LUN.
    WriteSector(Beat),
    /// Reads the partner's sector. Answer: [`Answer::Sector`].
    ReadSector,
    /// Reads keys and holder. Answer: [`Answer::Keys`].
    ReadKeys(LunId),
    /// Asks the monitors something that only a majority of them answers. Answer: done.
    Monitors,
    /// Asks whether the partner's process of a unit speaks: an OSD its banner, a volume its greeting. Answer: [`Answer::Speaks`].
    Speaks(UnitId),
    /// On a LUN where this side is registered: preempts and aborts the partner's key, reserves, and reads back that this side is
    /// alone. Answer: [`Answer::Taken`].
    Race(LunId),
    /// The same, and registers first: the winner of the race on the quorum LUN takes the partner's LUNs so.
    Take(LunId),
    /// Reserves a LUN where this side is registered, and reads back that it holds it; the partner may be registered.
    Hold(LunId),
    /// Throws away what this host's page cache has of the LUN, and registers where nobody holds it or the partner does.
    Join(LunId, Joining),
    /// Gives reservation and registration back.
    Leave(LunId),
    /// Gives the reservation back, and stays registered.
    Open(LunId),
    /// Cuts the partner's power. Answer: done, once a status says that it is off.
    PowerOff,
    /// A deed that needs these LUNs: it is done if they read back as this side's right before it.
    Owned(Vec<(LunId, Proof)>, Deed),
    /// Ends the unit's process and returns once it is gone; one that is being started is ended then.
    Kill(UnitId),
    /// Ends the unit's process in peace.
    Stop(UnitId),
}

/// The state in which a LUN may be joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Joining {
    /// Nobody is registered: the partner gave it back.
    Empty,
    /// The partner is registered, and nobody holds it: the quorum LUN in normal times.
    BesidePartner,
    /// The partner holds it: its own LUN in normal times.
    UnderPartner,
}

/// What a LUN must read back as before a deed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// This side holds it, and nobody else is registered.
    Sole,
    /// This side holds it.
    Held,
}

/// A deed of an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deed {
    /// Starts the unit. Answer: done once its process has begun.
    Start(UnitId),
    /// Tells the monitors that the OSD is down; `dead`: that it will never answer a read again.
    Down {
        /// The OSD.
        unit: UnitId,
        /// `--definitely-dead`.
        dead: bool,
    },
    /// Tells the monitors that the OSD's data is lost to them.
    Out(UnitId),
    /// Tells them that it is there again.
    In(UnitId),
    /// Has the OSD's placement groups scrubbed.
    Scrub(UnitId),
}

/// The answer to an [`Ask`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It is done.
    Done,
    /// The partner's sector; nothing: it holds no beat.
    Sector(Option<Beat>),
    /// Keys and holder.
    Keys(View),
    /// True if the process speaks.
    Speaks(bool),
    /// The LUN is this side's alone.
    Taken {
        /// The generation of its registrations.
        generation: u32,
        /// No write of the partner can land any more. Otherwise one that the array had taken may.
        drained: bool,
    },
    /// It is not done.
    Failed(Failure),
}

/// The reason why something is not done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Failure {
    /// This side's key is gone, or the LUN is another's: `EBADE`, a reservation conflict, or keys that say so.
    NotMine(String),
    /// The array failed: `EIO`.
    Array(String),
    /// Another reason.
    Other(String),
    /// No answer in time. It may have had its effect, or have it later.
    TimedOut,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::NotMine(why) | Failure::Array(why) | Failure::Other(why) => f.write_str(why),
            Failure::TimedOut => f.write_str("no answer in time"),
        }
    }
}

/// Keys and holder of a LUN.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// The generation.
    pub generation: u32,
    /// The registered keys.
    pub keys: Vec<Key>,
    /// The holder's key.
    pub holder: Option<Key>,
}

/// What the machine is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Time has passed.
    Tick,
    /// A beat came by this link.
    Heard(usize, Beat),
    /// An answer came.
    Answered(Job, Answer),
    /// The unit's process was found running when the agent started.
    Found(UnitId),
    /// The unit's process has ended by itself.
    Ended(UnitId, Cause),
    /// An operator wants something.
    Wanted(Order),
}

/// The reason why a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The array refused its writes: `EBADE`.
    Fenced,
    /// The array failed.
    Array,
    /// Another.
    Other,
}

/// An operator's order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// Take the partner's units over, although it may be well.
    Takeover,
    /// Give the partner's units back.
    Giveback,
}

/// Begins the step that tells of an order that was taken, and is not carried out.
pub const DROPPED: &str = "an order is dropped";

/// Something for the log, the history and the metrics.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Notice {
    /// The role changes.
    Role {
        /// The role before.
        from: RoleName,
        /// The role now.
        to: RoleName,
        /// The reason.
        why: String,
    },
    /// Somebody should look.
    Alarm(String),
    /// A step was done.
    Step(String),
}

/// The time at which something was asked, with its answer outstanding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) at: Millis,
    /// The number of the event that led to it: what was asked before another event says nothing about that.
    pub(super) step: u64,
}
