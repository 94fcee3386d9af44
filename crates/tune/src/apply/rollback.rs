//! A run is taken back: each step that was begun, the last first, to what was there before.

use super::by_copy::forbidden;
use super::effect;
use super::journal::{Entry, Journal, Run, now};
use super::lock::Lock;
use super::masks::Masks;
use super::places::{Hands, has, is_irq, wanted};
use super::restart::{Restarts, Way};
use super::rps::Steering;
use super::run::{go_on, restart_all};
use super::scheduler;
use super::shared::{self, State};
use super::step::{SEARCH, Step};
use super::value::Value;
use super::watch::Watch;
use crate::facts::Facts;
use crate::plan::{Change, is_same};
use crate::rules::Target;
use serde::Serialize;
use std::collections::BTreeSet;

/// Takes a run back.
#[derive(Debug)]
pub struct Rollback<'a> {
    /// The cluster and the hosts.
    pub hands: Hands<'a>,
    /// The lock.
    pub lock: &'a Lock,
    /// The cluster as it is.
    pub facts: &'a Facts,
    /// The way to restart OSDs.
    pub restarts: Restarts<'a>,
    /// Values that somebody changed since are put back as well, and the run is closed though places of it are gone.
    pub force: bool,
    /// Whoever watches.
    pub watch: &'a dyn Watch,
}

/// What became of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Back {
    /// Places that are as they were.
    pub restored: Vec<String>,
    /// Places that were left, with the reason.
    pub left: Vec<(String, String)>,
    /// Places that could not be put back, with the reason. The run stays open for them, unless it is forced.
    pub failed: Vec<(String, String)>,
    /// Places that are as they were, and do not act yet; the reason.
    pub late: Vec<(String, String)>,
}

impl Rollback<'_> {
    /// Takes it back. It may be called again after it was cut anywhere.
    ///
    /// # Errors
    /// If the journal cannot be written, the lock is lost, or after an interrupt: the rest is left for the next call.
    pub fn run(&self, run: &Run, journal: &mut Journal, mut state: State) -> Result<Back, String> {
        let client = self.hands.client;
        state.state = "rolling-back".to_owned();
        shared::tell(client, &state)?;
        // One that took this run back on another host may have set some as well.
        let noout: BTreeSet<i64> = run.noout.union(&state.noout).copied().collect();
        let mut note = |entry: Entry| {
            journal.add(&entry).map_err(|why| why.to_string())?;
            shared::follow(client, &mut state, &entry)
        };
        let mut back = Back::default();
        let mut down = Vec::new();
        for osd in noout {
            if self.restarts.look(osd).is_ok_and(|seen| seen.keeps_noout()) {
                down.push(osd);
                continue;
            }
            match self.restarts.end_noout(osd) {
                Ok(()) => note(Entry::NooutEnded(osd))?,
                Err(why) => back.failed.push((format!("noout of osd.{osd}"), why)),
            }
        }
        let begun = scheduler::first(run.steps.iter().rev().filter(|step| run.begun.contains(&step.number)));
        let mut undone = Vec::new();
        for step in begun {
            // What an earlier call has put back somebody may have changed since.
            if run.undone.get(&step.number) != Some(&None) {
                go_on(self.lock, self.watch)?;
                note(Entry::Undoing(step.number))?;
                let said = self.undo(run, step);
                // A place that is gone keeps no other from being taken back.
                let left = said.as_ref().map_or_else(|why| Some(why.clone()), Clone::clone);
                note(Entry::Undone(step.number, left.clone()))?;
                if let Some(why) = left {
                    let all = if said.is_err() { &mut back.failed } else { &mut back.left };
                    all.push((step.place(), why));
                    continue;
                }
            }
            back.restored.push(step.place());
            undone.push(step);
        }
        // What was restarted took the values of the run.
        let osds: BTreeSet<i64> = undone
            .iter()
            .flat_map(|step| step.restarts.iter().copied())
            .filter(|osd| run.restarted.contains(osd))
            .collect();
        let (osds, lost): (BTreeSet<i64>, BTreeSet<i64>) =
            osds.into_iter().partition(|osd| self.reaches(*osd));
        let words = "its host is not reached: it runs with values of the run until it starts anew".to_owned();
        back.failed.extend(lost.iter().map(|osd| (format!("osd.{osd}"), words.clone())));
        if let Err(why) = restart_all(self.lock, &self.restarts, self.facts, &osds, self.watch, &mut note) {
            go_on(self.lock, self.watch)?;
            back.failed.push(("restarts of OSDs".to_owned(), why));
        }
        for osd in down {
            match self.restarts.end_noout(osd) {
                Ok(()) => note(Entry::NooutEnded(osd))?,
                Err(why) => back.failed.push((format!("noout of osd.{osd}"), why)),
            }
        }
        for step in undone {
            let before = before(step);
            if let Err(why) = effect::wait(self.hands, self.facts, &before) {
                back.late.push((step.place(), why));
            }
        }
        if !back.failed.is_empty() && !self.force {
            return Ok(back);
        }
        note(Entry::RolledBack { at: now() })?;
        state.state = "rolled-back".to_owned();
        shared::tell(client, &state)?;
        Ok(back)
    }

    /// True if there is a way to restart an OSD.
    fn reaches(&self, id: i64) -> bool {
        let osd = self.facts.osds.iter().find(|osd| osd.id == id);
        !matches!(self.restarts.way, Way::Systemd)
            || osd.is_some_and(|it| self.restarts.hosts.reaches(&it.host))
    }

    /// Puts back what was there; the reason why it was left, if it was.
    fn undo(&self, run: &Run, step: &Step) -> Result<Option<String>, String> {
        let place = step.place();
        if let Some(why) = forbidden(&step.change, &step.before).filter(|_| run.by_copy) {
            // Not even by force.
            self.watch.say(&format!("{place} is left: {why}"));
            return Ok(Some(why));
        }
        let failed = |why: String| format!("{place} cannot be put back to {}: {why}", step.before.words());
        let is = self.hands.value(&step.change).map_err(failed)?;
        if let Some(why) = is.is_another(&step.before) {
            // Not even by force: what was there was the other one's.
            self.watch.say(&format!("{place} is left: {why}"));
            return Ok(Some(why));
        }
        if has(&step.change, &is, &step.before) {
            self.watch.say(&format!("{place} is {}, as before", is.words()));
            return Ok(None);
        }
        // A copy has no values that a search tried: any may be its own.
        // The cluster keeps a value in its own words: 0.3 as 0.300000.
        let is_one = |(number, value): &(u32, Option<String>)| *number == step.number && same(&is.now, value);
        let is_tried = run.tried.iter().any(is_one) || (run.by_copy && step.rule == SEARCH);
        if !is_ours(&is, step) && !is_tried && !self.force {
            let mend = match &step.before.now {
                Some(_) => format!("--force puts {} back", step.before.words()),
                None => "--force takes it away: it was not set".to_owned(),
            };
            let words = format!(
                "it is {} now, and the run had set {}: somebody changed it since. {mend}",
                is.words(),
                wanted(&step.change).words(),
            );
            self.watch.say(&format!("{place} is left: {words}"));
            return Ok(Some(words));
        }
        self.watch.say(&format!("{place}: back from {} to {}", is.words(), step.before.words()));
        self.hands.put(&step.change, &step.before, false, None).map_err(|why| failed(why.to_string()))?;
        if step.change.target == Target::Affinity {
            // Each thread was looked at there. Some of those that had sets of their own may have ended.
            return Ok(None);
        }
        let is = self.hands.value(&step.change).map_err(failed)?;
        if is.is_as(&step.before) {
            return Ok(None);
        }
        Err(failed(format!("it is {} afterwards", is.words())))
    }
}

/// The value is the one that the run set. What is kept for the next boot is written before the value, so that a run that was cut may
/// have set the one alone.
pub(super) fn is_ours(is: &Value, step: &Step) -> bool {
    let want = wanted(&step.change);
    if step.change.target == Target::Affinity {
        let masks = |value: &Value| value.now.as_deref().and_then(Masks::parse);
        return match (masks(is), masks(&want), masks(&step.before)) {
            (Some(is), Some(want), Some(before)) if is_irq(&step.change) => {
                is.are_of(&want.renamed_as(&is), &before.renamed_as(&is))
            }
            (Some(is), Some(want), Some(before)) => is.are_of(&want, &before),
            // Nothing of it runs: the line that keeps it is left.
            (is, _, _) => is.is_none(),
        };
    }
    if step.change.target == Target::Nic && step.change.key.ends_with("/rps_cpus") {
        let steering = |value: &Value| value.now.as_deref().and_then(Steering::parse);
        return match (steering(is), steering(&want), steering(&step.before)) {
            (Some(is), Some(want), Some(before)) => is.is_of(&want, &before),
            _ => false,
        };
    }
    same(&is.now, &want.now) || (same(&is.now, &step.before.now) && same(&is.kept, &want.kept))
}

/// True if two values are one, in whichever words.
pub(super) fn same(one: &Option<String>, two: &Option<String>) -> bool {
    match (one, two) {
        (Some(one), Some(two)) => is_same(one, two),
        (one, two) => one == two,
    }
}

/// The step whose value is what was there before.
pub(super) fn before(step: &Step) -> Step {
    let change = Change { value: step.before.now.clone(), ..step.change.clone() };
    Step { change, ..step.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Now;
    use crate::rules::Observe;

    fn step(before: Value) -> Step {
        let change = Change {
            target: Target::Sysctl,
            who: "n1".into(),
            key: "vm.swappiness".into(),
            now: Now::default(),
            value: Some("10".into()),
            observe: Observe::Sysctl,
        };
        Step { number: 1, rule: "MEM-08".into(), change, before, restarts: Vec::new() }
    }

    #[test]
    fn a_value_that_somebody_changed_since_is_not_ours() {
        let of = |now: &str, kept: Option<&str>| Value {
            now: Some(now.into()),
            kept: kept.map(str::to_owned),
            ..Value::default()
        };
        let step = step(of("60", None));
        assert!(is_ours(&of("10", Some("10")), &step));
        assert!(is_ours(&of("60", Some("10")), &step), "a run that was cut had kept it, and not put it yet");
        assert!(!is_ours(&of("30", Some("10")), &step));
    }
    #[test]
    fn interrupts_with_new_numbers_after_a_boot_are_still_ours() {
        let of = |now: &str| Value::plain(Some(now.into()));
        let mut step = step(of("36=0-3 37=2"));
        step.change.target = Target::Affinity;
        step.change.key = "e0/irq".into();
        step.change.value = Some("36=0 37=1".into());
        assert!(is_ours(&of("90=0 91=1"), &step) && !is_ours(&of("90=1 91=0"), &step));
        let is_back = |now: &str| has(&step.change, &of(now), &step.before);
        assert!(is_back("90=0-3 91=2") && !is_back("90=2 91=0-3"));
        step.change.key = "osd.1/all".into();
        assert!(!is_ours(&of("90=0 91=3"), &step), "threads keep their names");
    }
}
