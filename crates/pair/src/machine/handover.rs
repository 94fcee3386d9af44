//! Giving units back, and taking them back. The array carries the grant: the giver leaves each LUN, then opens the quorum LUN; the
//! taker joins LUNs that nobody has, and the quorum LUN last.

use super::action::{Answer, Ask, Failure, Joining};
use super::role::Role;
use super::tracks::{UnitState, Work};
use super::{Machine, Purpose};
use crate::omit::Step;
use crate::plan::{LunId, Millis, QUORUM, UnitId};
use crate::role::RoleName;

/// A partner that says nothing for so long while units are given back to it is dead again.
const PARTNER_LEFT: Millis = 3000;
/// A partner's word about itself counts for so long, milliseconds.
const WORD: Millis = 500;

impl Machine {
    /// True if the partner may have its units: this side has given them back, and the partner has not come yet.
    pub(super) fn has_granted(&self) -> bool {
        let Role::Normal { .. } = self.role else { return false };
        let quorum = self.looks.view(QUORUM).filter(|seen| self.is_since(seen));
        quorum.is_some_and(|seen| seen.view.holder.is_none() && !seen.view.keys.contains(&self.plan.theirs()))
    }

    /// True if the partner says that it is fenced, runs nothing, and reaches its LUNs and a monitor. Without its LUNs nobody would
    /// have them after a giveback.
    pub(super) fn is_partner_ready(&self) -> bool {
        let is_fresh = self.partner.last_link().is_some_and(|at| self.now.saturating_sub(at) <= WORD);
        let fresh = self.plan.timings.no_monitor;
        is_fresh
            && self.partner.beat().is_some_and(|beat| {
                beat.role == RoleName::Fenced
                    && beat.stopped
                    && beat.reaches
                    && beat.monitor_age.is_some_and(|age| age <= fresh)
            })
    }

    /// Learns of the partner's end by its own word, and gives its units back if that is to happen by itself.
    pub(super) fn consider_giveback(&mut self) {
        let is_ready = self.is_partner_ready();
        let after = self.plan.timings.giveback_after;
        let now = self.now;
        let Role::Dual { won, dead, well, .. } = &mut self.role else { return };
        // The word is newer than the race: a late one is of a generation before.
        let says_so = self
            .partner
            .beat()
            .is_some_and(|beat| beat.role == RoleName::Fenced && beat.stopped && beat.generation >= *won);
        *dead |= says_so;
        *well = if is_ready { well.or(Some(now)) } else { None };
        let is_due = after > 0 && well.is_some_and(|at| now.saturating_sub(at) >= after);
        if is_due {
            self.begin_giveback("the partner is well again");
        }
    }

    pub(super) fn begin_giveback(&mut self, why: &str) {
        let Role::Dual { won, .. } = self.role else { return };
        self.become_role(Role::Giveback { why: why.to_owned(), won, opening: false });
    }

    pub(super) fn give_back(&mut self) {
        let Role::Giveback { won, opening, .. } = self.role else { return };
        let silent = self.partner.last_link().map_or(Millis::MAX, |at| self.now.saturating_sub(at));
        if silent > PARTNER_LEFT && !opening {
            let why = "the partner left while its units were given back".to_owned();
            return self.become_role(Role::Dual { why, won, dead: false, well: None });
        }
        let foreign: Vec<UnitId> = self.plan.ids().filter(|id| self.is_foreign(*id)).collect();
        // A volume may lie on the OSDs that go with it: it could not write back what it has once they are gone.
        let has_volumes = foreign.iter().any(|id| {
            let is_here = !matches!(self.unit(*id), UnitState::Away | UnitState::Leaving);
            is_here && !self.plan.unit(*id).is_osd()
        });
        for id in &foreign {
            match self.unit(*id) {
                UnitState::Running if has_volumes && self.plan.unit(*id).is_osd() => {}
                UnitState::Running => {
                    self.units[id.0 as usize].state = UnitState::Stopping;
                    self.ask(Purpose::Unit(*id, Work::Stop), Ask::Stop(*id));
                }
                UnitState::Away if !self.units[id.0 as usize].given && self.may_leave(*id) => self.leave(*id),
                _ => {}
            }
        }
        let all_given = foreign.iter().all(|id| self.units[id.0 as usize].given);
        if all_given && !opening && self.may_try(QUORUM) {
            if let Role::Giveback { opening, .. } = &mut self.role {
                *opening = true;
            }
            self.ask(Purpose::OpenQuorum, Ask::Open(QUORUM));
        }
    }

    /// False for a while after a call of the LUN has failed: an array that refuses at once is not to be asked without a pause.
    fn may_try(&self, lun: LunId) -> bool {
        self.again.get(&lun).is_none_or(|at| self.now >= *at)
    }

    fn try_later(&mut self, lun: LunId) {
        self.again.insert(lun, self.now + self.plan.timings.restart);
    }

    fn may_leave(&self, id: UnitId) -> bool {
        self.plan.unit(id).luns.iter().all(|lun| self.may_try(*lun))
    }

    fn leave(&mut self, id: UnitId) {
        let luns = self.plan.unit(id).luns.clone();
        let track = &mut self.units[id.0 as usize];
        track.state = UnitState::Leaving;
        track.left = luns;
        self.leave_next(id);
    }

    fn leave_next(&mut self, id: UnitId) {
        match self.units[id.0 as usize].left.pop() {
            Some(lun) => {
                self.ask(Purpose::Unit(id, Work::Leave(lun)), Ask::Leave(lun));
            }
            None => {
                let track = &mut self.units[id.0 as usize];
                (track.state, track.given) = (UnitState::Away, true);
                track.forget();
            }
        }
    }

    pub(super) fn left(&mut self, id: UnitId, lun: LunId, answer: &Answer) {
        match answer {
            Answer::Done => self.leave_next(id),
            other => {
                self.units[id.0 as usize].state = UnitState::Away;
                self.try_later(lun);
                let name = self.plan.unit(id).name.clone();
                self.alarm(format!("the LUN of {name} is not given back: {}", Self::words(other)));
            }
        }
    }

    pub(super) fn opened(&mut self, answer: &Answer) {
        let Role::Giveback { opening, .. } = &mut self.role else { return };
        if *answer == Answer::Done {
            return self.become_role(Role::normal(
                "the partner's units are given back".to_owned(),
                self.now,
                0,
            ));
        }
        *opening = false;
        self.try_later(QUORUM);
        self.alarm(format!("the quorum LUN is not given back: {}", Self::words(answer)));
    }

    /// A fenced side comes back if the array says that it may.
    pub(super) fn come_back(&mut self) {
        let Role::Fenced { not_before, ref rejoin, .. } = self.role else { return };
        if rejoin.is_some() || !self.is_stopped() || self.now < not_before {
            return;
        }
        let (mine, theirs) = (self.plan.mine(), self.plan.theirs());
        let fresh = |lun| self.looks.view(lun).filter(|seen| self.is_since(seen)).map(|seen| &seen.view);
        let Some(quorum) = fresh(QUORUM) else { return };
        let has_mine = quorum.keys.contains(&mine);
        if has_mine && quorum.holder == Some(mine) {
            return self.become_role(Role::Starting);
        }
        let is_open = quorum.holder.is_none() && (quorum.keys.contains(&theirs) || has_mine);
        let is_heard = self.partner.is_heard(self.now, &self.plan);
        let is_granted = has_mine || (is_heard && self.partner.beat().is_some_and(|beat| beat.granted));
        let skips = self.plan.leaves_out(Step::Giveback);
        let may = skips || (is_open && is_granted);
        if !may {
            return;
        }
        let me = self.plan.me;
        let home = self.plan.luns().into_iter().filter(|(_, home)| *home == me).map(|(lun, _)| lun);
        let mut todo = if has_mine { Vec::new() } else { vec![QUORUM] };
        let mut kept = None;
        for lun in home {
            match fresh(lun) {
                Some(view) if view.keys.contains(&mine) && view.holder.is_none_or(|held| held == mine) => {}
                Some(view) if view.keys.is_empty() || skips => todo.push(lun),
                Some(_) => kept = Some(lun),
                None => return,
            }
        }
        if let Some(lun) = kept {
            // What was read before the partner left says nothing.
            let at = |lun| self.looks.view(lun).map(|seen| seen.asked.step);
            if at(lun) > at(QUORUM) {
                let name = self.plan.lun_name(lun);
                self.alarm(format!("{name} is not taken back: the partner is registered there"));
            }
            return;
        }
        if let Role::Fenced { rejoin, .. } = &mut self.role {
            *rejoin = Some(todo);
        }
        self.rejoin_next();
    }

    /// What an answer says of a failure.
    fn words(answer: &Answer) -> String {
        match answer {
            Answer::Failed(why) => why.to_string(),
            _ => "an answer that makes no sense".to_owned(),
        }
    }

    fn rejoin_next(&mut self) {
        let Role::Fenced { rejoin: Some(left), .. } = &mut self.role else { return };
        let lun = left.pop();
        let joining = match lun {
            Some(QUORUM) => Joining::BesidePartner,
            _ if self.plan.leaves_out(Step::Giveback) => Joining::UnderPartner,
            _ => Joining::Empty,
        };
        match lun {
            Some(lun) => {
                self.ask(Purpose::Rejoin(lun), Ask::Join(lun, joining));
            }
            None => self.become_role(Role::Starting),
        }
    }

    pub(super) fn rejoined(&mut self, lun: LunId, answer: &Answer) {
        if *answer == Answer::Done {
            return self.rejoin_next();
        }
        let again = self.now + self.plan.timings.backoff;
        if let Role::Fenced { rejoin, not_before, .. } = &mut self.role {
            (*rejoin, *not_before) = (None, again);
            let name = self.plan.lun_name(lun);
            self.alarm(format!("{name} is not joined: {}", Self::words(answer)));
        }
    }

    /// Registers on the partner's LUNs, so that they can be taken over: only where the partner holds them and both stand at the
    /// quorum LUN.
    pub(super) fn join_foreign(&mut self) {
        let (mine, theirs) = (self.plan.mine(), self.plan.theirs());
        let fresh = |lun| self.looks.view(lun).filter(|seen| self.is_since(seen)).map(|seen| &seen.view);
        let Some(quorum) = fresh(QUORUM) else { return };
        if quorum.holder.is_some() || !quorum.keys.contains(&mine) || !quorum.keys.contains(&theirs) {
            return;
        }
        let missing = |lun: &LunId| {
            fresh(*lun).is_some_and(|view| view.holder == Some(theirs) && !view.keys.contains(&mine))
        };
        let todo: Vec<LunId> = self
            .foreign_luns()
            .into_iter()
            .filter(missing)
            .filter(|lun| !self.joining.contains(lun) && self.may_try(*lun))
            .collect();
        for lun in todo {
            self.joining.insert(lun);
            self.ask(Purpose::JoinForeign(lun), Ask::Join(lun, Joining::UnderPartner));
        }
    }

    pub(super) fn joined_foreign(&mut self, lun: LunId, answer: &Answer) {
        self.joining.remove(&lun);
        let Answer::Failed(why) = answer else { return };
        self.try_later(lun);
        if !matches!(why, Failure::NotMine(_)) {
            let name = self.plan.lun_name(lun);
            self.alarm(format!("this side cannot register on {name}: {why}"));
        }
    }
}
