//! What a side looks at all the time: the partner's sector, keys and holders, the monitors. One question of a sort at a time, but to the monitors.

use super::action::{Answer, Ask, Asked, Failure, View};
use super::{Machine, Purpose};
use crate::beat::Beat;
use crate::plan::{LunId, Millis, Plan, QUORUM};
use std::collections::BTreeMap;

/// Questions to the monitors at a time.
const QUESTIONS: u32 = 4;

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
    under_way: BTreeMap<Sort, u32>,
    due: BTreeMap<Sort, Millis>,
    views: BTreeMap<LunId, Seen>,
    luns: Vec<LunId>,
    /// When the last question that the monitors answered was put.
    monitor: Option<Millis>,
    /// Since when they have answered without a gap.
    monitor_steady: Option<Millis>,
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

impl Machine {
    /// True if a LUN was read after the present role began.
    pub(super) fn is_since(&self, seen: &Seen) -> bool {
        seen.asked.step >= self.since_step
    }

    /// Asks what is due.
    pub(super) fn look(&mut self) {
        let every = self.plan.timings.look;
        let sector = self.plan.timings.beat * 2;
        self.look_at(Sort::Sector, sector, Ask::ReadSector);
        self.look_at(Sort::Monitors, every, Ask::Monitors);
        for lun in self.looks.luns.clone() {
            self.look_at(Sort::Keys(lun), every, Ask::ReadKeys(lun));
        }
    }

    fn look_at(&mut self, sort: Sort, every: Millis, ask: Ask) {
        let is_due = self.looks.due.get(&sort).is_none_or(|due| self.now >= *due);
        // One question that gets lost must not look like monitors that are away.
        let most = if sort == Sort::Monitors { QUESTIONS } else { 1 };
        let under_way = self.looks.under_way.entry(sort).or_default();
        if is_due && *under_way < most {
            *under_way += 1;
            self.looks.due.insert(sort, self.now + every);
            self.ask(Purpose::Look(sort), ask);
        }
    }

    /// Writes this side's sector, unless the last writing is still under way.
    pub(super) fn write_sector(&mut self, beat: Beat) {
        let under_way = self.looks.under_way.entry(Sort::OwnSector).or_default();
        if *under_way == 0 {
            *under_way = 1;
            self.ask(Purpose::Look(Sort::OwnSector), Ask::WriteSector(beat));
        }
    }

    pub(super) fn looked(&mut self, sort: Sort, asked: Asked, answer: Answer) {
        if let Some(under_way) = self.looks.under_way.get_mut(&sort) {
            *under_way = under_way.saturating_sub(1);
        }
        match (sort, answer) {
            (Sort::Sector, Answer::Sector(beat)) => {
                let beat = beat.filter(|beat| beat.side != self.plan.me);
                self.partner.sector(self.now, asked.at, beat, &self.plan);
            }
            (Sort::Keys(lun), Answer::Keys(view)) => {
                self.looks.views.insert(lun, Seen { asked, view });
                self.judge(lun);
            }
            (Sort::Monitors, Answer::Done) => {
                let gap = self.plan.timings.monitor_fresh;
                if self.looks.monitor_age(asked.at).is_none_or(|age| age > gap) {
                    self.looks.monitor_steady = Some(asked.at);
                }
                self.looks.monitor = self.looks.monitor.max(Some(asked.at));
            }
            (Sort::OwnSector, Answer::Failed(Failure::NotMine(why))) if asked.step >= self.since_step => {
                self.fence(format!("the array refuses this side's sector: {why}"));
            }
            // It was written before the role began.
            (Sort::OwnSector, Answer::Failed(Failure::NotMine(_))) => {}
            (Sort::OwnSector | Sort::Sector, Answer::Failed(why)) => {
                self.alarm(format!("the quorum LUN cannot be reached ({why}): the pair is not protected"));
            }
            (Sort::Keys(lun), Answer::Failed(why)) => {
                let name = self.plan.lun_name(lun);
                self.alarm(format!("the keys of {name} cannot be read ({why})"));
            }
            // A monitor that does not answer shows by its age.
            _ => {}
        }
    }
}
