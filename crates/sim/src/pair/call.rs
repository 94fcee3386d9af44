//! A call of an agent, and what a LUN holds.

use super::setting::Time;
use loligo_pair::machine::{Answer, Ask, Deed, Job};
use loligo_pair::plan::{LunId, Side};
use loligo_pair::writes::AbortId;

/// The limit of a call that gets no answer.
pub(super) const LIMIT: Time = 4000;

/// The number of a process that ran a unit.
pub(super) type Pid = u64;

/// A call of an agent with the stage that it is in.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) side: Side,
    pub(super) run: u64,
    pub(super) job: Job,
    pub(super) ask: Ask,
    pub(super) stage: u32,
    /// It has taken the LUN from a partner that held it, and was answered.
    pub(super) drained: bool,
    /// When it was asked for, by the host's clock.
    pub(super) asked: Time,
    /// It hangs: its agent is told that its time is over, and it goes on once the array answers.
    pub(super) hangs: bool,
}

impl Call {
    /// The LUN whose keys or holder it changes: an agent has one such call of a LUN under way.
    pub(super) fn changes(&self) -> Option<LunId> {
        match self.ask {
            Ask::Race(lun)
            | Ask::Take(lun)
            | Ask::Hold(lun)
            | Ask::Join(lun, _)
            | Ask::Leave(lun)
            | Ask::Open(lun) => Some(lun),
            _ => None,
        }
    }

    /// True if nothing but its time limit ends it.
    pub(super) fn may_hang(&self) -> bool {
        let is_start = matches!(self.ask, Ask::Owned(_, Deed::Start(_)));
        self.changes().is_some() || (matches!(self.ask, Ask::Owned(..)) && !is_start)
    }
}

/// What the LUN of a unit holds.
#[derive(Debug, Clone, Default)]
pub(super) struct Stored {
    /// The process that opened it last.
    pub(super) opened_by: Pid,
    /// When it did.
    pub(super) opened_at: Time,
    /// On which side.
    pub(super) side: Option<Side>,
    /// Writes that landed.
    pub(super) landed: u64,
}

/// The end of a stage.
pub(super) enum Stage {
    Next,
    Later(Time),
    Wait(AbortId),
    Over(Answer),
    /// The answer comes by itself.
    Elsewhere,
}
