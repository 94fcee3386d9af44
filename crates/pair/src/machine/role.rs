//! A role of a side, with what it needs.

use super::partner::Verdict;
use crate::plan::{LunId, Millis, UnitId};
use crate::role::RoleName;

/// A question before a takeover.
#[derive(Debug, Clone)]
pub(super) enum Asking {
    /// The partner's units, whether they speak. These have not answered yet.
    Units(Vec<UnitId>),
    /// A monitor, whether this side is the one that is cut off. Asked last: an answer from before says nothing of that.
    Monitor {
        /// When it was asked.
        at: Millis,
        /// The verdict on the partner by then.
        verdict: Verdict,
    },
}

/// A role with what it needs.
#[derive(Debug, Clone)]
pub(super) enum Role {
    Starting,
    Normal {
        why: String,
        /// No takeover before.
        not_before: Millis,
        /// Takeovers that failed, one after the other.
        failed: u32,
        /// What is asked before a takeover, and the event with which that began.
        asking: Option<(u64, Asking)>,
        /// The operator wants the partner's units here.
        ordered: bool,
    },
    Race {
        why: String,
        failed: u32,
        /// The operator wants it: the partner may be well, and keeps its power.
        ordered: bool,
    },
    Dual {
        why: String,
        /// The generation of the quorum LUN when the race was won.
        won: u32,
        /// The partner is dead for certain, or has said after the race that nothing of it runs.
        dead: bool,
        /// Since when the partner has been well.
        well: Option<Millis>,
    },
    Giveback {
        why: String,
        won: u32,
        /// The quorum LUN is being opened.
        opening: bool,
    },
    Fenced {
        why: String,
        /// No attempt to come back before.
        not_before: Millis,
        /// The LUNs that are still to be joined, and that one is being joined.
        rejoin: Option<Vec<LunId>>,
    },
}

impl Role {
    pub(super) fn name(&self) -> RoleName {
        match self {
            Role::Starting => RoleName::Starting,
            Role::Normal { .. } => RoleName::Normal,
            Role::Race { .. } => RoleName::Race,
            Role::Dual { .. } => RoleName::Dual,
            Role::Giveback { .. } => RoleName::Giveback,
            Role::Fenced { .. } => RoleName::Fenced,
        }
    }

    pub(super) fn why(&self) -> &str {
        match self {
            Role::Starting => "the array is being read",
            Role::Normal { why, .. }
            | Role::Race { why, .. }
            | Role::Dual { why, .. }
            | Role::Giveback { why, .. }
            | Role::Fenced { why, .. } => why,
        }
    }

    pub(super) fn normal(why: String, not_before: Millis, failed: u32) -> Role {
        Role::Normal { why, not_before, failed, asking: None, ordered: false }
    }
}
