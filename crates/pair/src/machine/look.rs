//! Looks at the partner's sector, at keys and holders, and at the monitors. One question of a sort at a time, but to the monitors.

use super::action::{Answer, Ask, Asked, Failure};
use super::looks::{Seen, Sort};
use super::{Machine, Purpose};
use crate::beat::Beat;
use crate::plan::{Millis, QUORUM};

/// Questions to the monitors at a time.
const QUESTIONS: u32 = 4;
/// Keys are old after so many looks.
const OLD: Millis = 4;

impl Machine {
    /// True if a LUN was read after the present role began.
    pub(super) fn is_since(&self, seen: &Seen) -> bool {
        seen.asked.step >= self.since_step
    }

    /// True if the keys of all LUNs of this side's units were read just now: it can take them back.
    pub(super) fn reaches_own(&self) -> bool {
        let (me, oldest) = (self.plan.me, self.now.saturating_sub(OLD * self.plan.timings.look));
        let own = self.plan.luns().into_iter().filter(|(_, home)| *home == me);
        let is_fresh = |lun| self.looks.view(lun).is_some_and(|seen| seen.asked.at >= oldest);
        own.map(|(lun, _)| lun).chain([QUORUM]).all(is_fresh)
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

    /// Asks the monitors at once.
    pub(super) fn hurry_monitors(&mut self) {
        self.looks.due.remove(&Sort::Monitors);
        self.look_at(Sort::Monitors, self.plan.timings.look, Ask::Monitors);
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
                self.monitor_answered(asked.step);
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
