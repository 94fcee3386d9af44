//! A call of an agent, and what a LUN holds.

use super::setting::Time;
use loligo_pair::machine::{Answer, Ask, Job};
use loligo_pair::plan::Side;
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
