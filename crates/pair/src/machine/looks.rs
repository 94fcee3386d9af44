//! What a side has seen: keys and holders, and when the monitors answered.

use super::action::{Asked, View};
use crate::plan::{LunId, Millis, Plan, QUORUM};
use std::collections::BTreeMap;

/// The sort of a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Sort {
    Sector,
    OwnSector,
    Keys(LunId),
    Monitors,
}

/// A LUN as it was read.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    /// When it was asked for: it says nothing about what came later.
    pub(super) asked: Asked,
    pub(super) view: View,
}

/// The looks and what they saw.
#[derive(Debug, Clone)]
pub(super) struct Looks {
    pub(super) under_way: BTreeMap<Sort, u32>,
    pub(super) due: BTreeMap<Sort, Millis>,
    pub(super) views: BTreeMap<LunId, Seen>,
    pub(super) luns: Vec<LunId>,
    /// When the last question that the monitors answered was put.
    pub(super) monitor: Option<Millis>,
    /// Since when they have answered without a gap.
    pub(super) monitor_steady: Option<Millis>,
}

impl Looks {
    pub(super) fn new(plan: &Plan) -> Looks {
        let luns = std::iter::once(QUORUM).chain(plan.luns().into_iter().map(|(lun, _)| lun)).collect();
        Looks {
            under_way: BTreeMap::new(),
            due: BTreeMap::new(),
            views: BTreeMap::new(),
            luns,
            monitor: None,
            monitor_steady: None,
        }
    }

    pub(super) fn view(&self, lun: LunId) -> Option<&Seen> {
        self.views.get(&lun)
    }

    pub(super) fn monitor_age(&self, now: Millis) -> Option<Millis> {
        self.monitor.map(|at| now.saturating_sub(at))
    }

    /// For how long the monitors have answered without a gap.
    pub(super) fn monitor_steady(&self, now: Millis) -> Millis {
        self.monitor_steady.map_or(0, |at| now.saturating_sub(at))
    }

    /// Everything is to be looked at again at once.
    pub(super) fn hurry(&mut self) {
        self.due.clear();
    }
}
