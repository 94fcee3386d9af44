//! The partner as this side sees it: what it says, by which way, and for how long it has said nothing.

use crate::beat::Beat;
use crate::omit::Step;
use crate::plan::{Millis, Plan};

/// What the evidence says of the partner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is well, or nothing can be said.
    Alive,
    /// Links and sector are silent.
    Silent,
    /// It lives, and has no monitor.
    CutOff,
}

/// A beat's place among all of them: a later run is greater.
type Mark = (u64, u64);

/// The evidence.
#[derive(Debug, Clone)]
pub(super) struct Partner {
    newest: Option<Beat>,
    /// For each link the newest beat that it brought, and when.
    links: Vec<Option<(Mark, Millis)>>,
    /// The beat that the sector held when it was last read.
    sector: Option<Mark>,
    /// When the sector was last seen to have changed.
    sector_changed: Option<Millis>,
    /// When the last reading that came back was asked for.
    sector_read: Option<Millis>,
    /// Since when it has said that it has no monitor.
    cut_off: Option<Millis>,
    /// The beat that the sector held at first. Whoever has noted down beats from before it may send them once more.
    floor: Option<Mark>,
}

impl Partner {
    pub(super) fn new(links: usize) -> Partner {
        Partner {
            newest: None,
            links: vec![None; links],
            sector: None,
            sector_changed: None,
            sector_read: None,
            cut_off: None,
            floor: None,
        }
    }

    /// Takes a beat that came by `link`. One that is doubled or late says nothing.
    pub(super) fn heard(&mut self, now: Millis, link: usize, beat: Beat, plan: &Plan) {
        let mark = (beat.run, beat.number);
        if self.floor.is_some_and(|floor| mark <= floor) {
            return;
        }
        let is_of_old_run = self.newest.is_some_and(|known| beat.run < known.run);
        if let Some(last) = self.links.get_mut(link)
            && last.is_none_or(|(before, _)| before < mark)
            && !is_of_old_run
        {
            *last = Some((mark, now));
        }
        self.take(now, beat, plan);
    }

    /// Takes what the sector held; the question was put at `asked`. The first reading may be of a beat that was written long ago.
    pub(super) fn sector(&mut self, now: Millis, asked: Millis, beat: Option<Beat>, plan: &Plan) {
        self.sector_read = Some(asked);
        let Some(beat) = beat else { return };
        let mark = (beat.run, beat.number);
        if self.sector.is_none() || self.floor.is_some_and(|floor| mark < floor) {
            self.forget_before(mark);
        }
        if self.sector.replace(mark).is_some_and(|before| before != mark) {
            self.sector_changed = Some(now);
            self.take(now, beat, plan);
        }
    }

    /// What was heard of it up to the beat that its sector holds was said before that was written.
    fn forget_before(&mut self, floor: Mark) {
        let is_old = |mark: Mark| mark <= floor;
        self.floor = Some(floor);
        self.newest = self.newest.filter(|beat| !is_old((beat.run, beat.number)));
        for link in &mut self.links {
            *link = link.filter(|(mark, _)| !is_old(*mark));
        }
        if self.newest.is_none() {
            self.cut_off = None;
        }
    }

    fn take(&mut self, now: Millis, beat: Beat, plan: &Plan) {
        if self.newest.is_some_and(|known| (beat.run, beat.number) <= (known.run, known.number)) {
            return;
        }
        if self.newest.is_some_and(|known| known.run != beat.run) {
            self.cut_off = None;
        }
        self.newest = Some(beat);
        let has_none = beat.monitor_age.is_none_or(|age| age > plan.timings.no_monitor);
        // A run that has only begun has not had the time to reach one.
        let grace = if beat.monitor_age.is_none() { plan.timings.no_monitor } else { 0 };
        self.cut_off = if has_none { self.cut_off.or(Some(now + grace)) } else { None };
    }

    /// Its newest beat.
    pub(super) fn beat(&self) -> Option<&Beat> {
        self.newest.as_ref()
    }

    /// When a link brought something new.
    pub(super) fn last_link(&self) -> Option<Millis> {
        self.links.iter().flatten().map(|(_, at)| *at).max()
    }

    /// True if a link brought a beat within the time that silence takes.
    pub(super) fn is_heard(&self, now: Millis, plan: &Plan) -> bool {
        self.last_link().is_some_and(|at| now.saturating_sub(at) <= plan.timings.links_silent)
    }

    /// The verdict at `now`, of an agent that was born at `born`.
    pub(super) fn verdict(&self, now: Millis, born: Millis, plan: &Plan) -> Verdict {
        let times = &plan.timings;
        let since = |at: Option<Millis>| now.saturating_sub(at.unwrap_or(born).max(born));
        // Whoever was never heard may be starting as this side is.
        let never = self.last_link().is_none() && self.sector_changed.is_none();
        let patience = |limit: Millis| if never { times.first_contact } else { limit };
        let links = since(self.last_link()) > patience(times.links_silent);
        // A sector that this side cannot read proves nothing.
        let can_read = self.sector_read.is_some_and(|at| now.saturating_sub(at) <= times.sector_silent / 2);
        let sector = can_read && since(self.sector_changed) > patience(times.sector_silent);
        let sector = sector || plan.leaves_out(Step::SecondEvidence);
        if links && sector {
            return Verdict::Silent;
        }
        let is_heard = self.is_heard(now, plan);
        let patience = if is_heard { times.no_monitor_heard } else { times.look };
        // It may have had one since this host stood still.
        let cut_off = self.cut_off.is_some_and(|at| now.saturating_sub(at.max(born)) > patience);
        // The last word of an agent that has died is none of a partner which lives.
        let lives = is_heard || self.sector_changed > self.last_link().map(|at| at + times.links_silent / 2);
        if cut_off && lives { Verdict::CutOff } else { Verdict::Alive }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::omit::Omitted;
    use crate::plan::{Side, Timings};
    use crate::reservation::Key;
    use crate::role::RoleName;

    fn plan() -> Plan {
        Plan {
            me: Side::A,
            keys: [Key(1), Key(2)],
            links: 1,
            units: Vec::new(),
            power: false,
            timings: Timings::default(),
            omitted: Omitted::default(),
        }
    }

    fn beat(number: u64, monitor_age: Option<Millis>) -> Beat {
        Beat {
            side: Side::B,
            run: 1,
            number,
            role: RoleName::Normal,
            monitor_age,
            generation: 0,
            stopped: false,
            reaches: true,
            granted: false,
            running: 0,
        }
    }

    #[test]
    fn a_host_that_stood_still_calls_nobody_cut_off() {
        let (plan, mut partner) = (plan(), Partner::new(1));
        for number in 0..20 {
            let at = 5000 + number * 200;
            partner.sector(at, at - 1, Some(beat(number, Some(9000))), &plan);
        }
        assert_eq!(partner.verdict(8900, 0, &plan), Verdict::CutOff);
        assert_eq!(
            partner.verdict(60_000, 60_000, &plan),
            Verdict::Alive,
            "what it says now is not read yet"
        );
    }

    #[test]
    fn old_beats_keep_no_dead_partner_alive() {
        let (plan, mut partner) = (plan(), Partner::new(1));
        // Heard before its sector is read, and after.
        partner.heard(10, 0, beat(300, Some(0)), &plan);
        for at in (100..30_000).step_by(100) {
            partner.sector(at, at - 1, Some(beat(1000, Some(0))), &plan);
            partner.heard(at, 0, beat(300 + at / 100, Some(0)), &plan);
        }
        assert_eq!(partner.verdict(30_000, 0, &plan), Verdict::Silent);
        assert_eq!(partner.beat(), None);
        partner.heard(30_000, 0, beat(1001, Some(0)), &plan);
        assert_eq!(partner.verdict(30_000, 0, &plan), Verdict::Alive);
    }
}
