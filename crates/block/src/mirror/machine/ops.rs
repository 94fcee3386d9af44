//! The operations of a mirrored device that are not over, by name.

use crate::IoError;
use crate::mirror::access::{Access, OpId, Time};
use crate::mirror::mark::Leg;
use std::collections::BTreeMap;
use std::ops::Range;

/// An operation.
#[derive(Debug, Clone)]
pub(super) struct Op {
    pub(super) access: Access,
    /// It began then.
    pub(super) since: Time,
    pub(super) sent: [bool; 2],
    pub(super) answers: [Option<Result<(), IoError>>; 2],
    /// Its client knows: a leg has still to answer.
    pub(super) is_answered: bool,
}

impl Op {
    pub(super) fn new(since: Time, access: Access) -> Op {
        Op { access, since, sent: [false; 2], answers: [None, None], is_answered: false }
    }

    fn is_under_way(&self) -> bool {
        Leg::BOTH.into_iter().any(|leg| self.is_on(leg))
    }

    fn is_on(&self, leg: Leg) -> bool {
        self.sent[leg.index()] && self.answers[leg.index()].is_none()
    }
}

/// All of them.
#[derive(Debug, Clone, Default)]
pub(super) struct Ops(BTreeMap<OpId, Op>);

impl Ops {
    pub(super) fn begin(&mut self, id: OpId, op: Op) {
        let before = self.0.insert(id, op);
        debug_assert!(before.is_none(), "operation {id} is under way");
    }

    pub(super) fn get(&self, id: OpId) -> Option<&Op> {
        self.0.get(&id)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn ids(&self) -> Vec<OpId> {
        self.0.keys().copied().collect()
    }

    pub(super) fn sent(&mut self, id: OpId, leg: Leg) {
        if let Some(op) = self.0.get_mut(&id) {
            op.sent[leg.index()] = true;
        }
    }

    pub(super) fn answered(&mut self, id: OpId, leg: Leg, result: Result<(), IoError>) {
        if let Some(op) = self.0.get_mut(&id) {
            op.answers[leg.index()] = Some(result);
        }
    }

    /// Its client knows. It stays until the legs have answered.
    pub(super) fn close(&mut self, id: OpId) {
        if let Some(op) = self.0.get_mut(&id) {
            op.is_answered = true;
        }
        self.forget(id);
    }

    /// Lets go of one that is answered and over.
    pub(super) fn forget(&mut self, id: OpId) {
        if self.0.get(&id).is_some_and(|op| op.is_answered && !op.is_under_way()) {
            self.0.remove(&id);
        }
    }

    /// Operations whose client waits, and that no leg was sent.
    pub(super) fn held(&self) -> Vec<OpId> {
        let held = self.0.iter().filter(|(_, op)| !op.is_answered && op.sent == [false; 2]);
        held.map(|(id, _)| *id).collect()
    }

    /// Operations whose client has waited for `limit`.
    pub(super) fn late(&self, now: Time, limit: Time) -> Vec<OpId> {
        let late = self.0.iter().filter(|(_, op)| !op.is_answered && now >= op.since + limit);
        late.map(|(id, _)| *id).collect()
    }

    /// True if a leg has still to answer one.
    pub(super) fn is_on(&self, leg: Leg) -> bool {
        self.0.values().any(|op| op.is_on(leg))
    }

    /// True if a write to `range` is under way on any leg; without `late` ones their clients must wait for it.
    pub(super) fn writes(&self, range: &Range<u64>, late: bool) -> bool {
        let counts = |op: &&Op| op.is_under_way() && (late || !op.is_answered);
        self.0.values().filter(counts).any(|op| match &op.access {
            Access::Write(at) => at.start < range.end && range.start < at.end,
            Access::Read | Access::Flush => false,
        })
    }
}
