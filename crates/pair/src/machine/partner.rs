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
        }
    }

    /// Takes a beat that came by `link`. One that is doubled or late says nothing.
    pub(super) fn heard(&mut self, now: Millis, link: usize, beat: Beat, plan: &Plan) {
        let mark = (beat.run, beat.number);
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
        if self.sector.replace(mark).is_some_and(|before| before != mark) {
            self.sector_changed = Some(now);
            self.take(now, beat, plan);
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
        let cut_off = self.cut_off.is_some_and(|at| now.saturating_sub(at) > patience);
        // The last word of an agent that has died is none of a partner which lives.
        let lives = is_heard || self.sector_changed > self.last_link().map(|at| at + times.links_silent / 2);
        if cut_off && lives { Verdict::CutOff } else { Verdict::Alive }
    }
}
