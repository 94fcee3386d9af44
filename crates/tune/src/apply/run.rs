//! A run of apply: what was there is durable first, then each step is made and its effect seen.

use super::effect::{self, Effect};
use super::gate::Health;
use super::journal::{Entry, Head, How, Journal, Run, now};
use super::lock::Lock;
use super::peers;
use super::places::{Hands, NotPut, has, meant, wanted};
use super::restart::Restarts;
use super::scheduler;
use super::shared::{self, State};
use super::step::{Chosen, Step, place};
use super::watch::Watch;
use crate::facts::Facts;
use crate::rules::Target;
use std::collections::BTreeSet;
use std::path::Path;

/// The steps of what was chosen, with what is there now.
///
/// # Errors
/// If something cannot be read or will not be writable: nothing is begun then.
pub fn steps(hands: Hands<'_>, chosen: &[Chosen]) -> Result<Vec<Step>, String> {
    let all = places(hands, chosen)?;
    let is_so =
        |it: &Step| has(&it.change, &it.before, &wanted(&it.change)) && it.change.target != Target::Daemon;
    // One that is so would not stay so.
    let is_lost = |it: &Step| all.iter().any(|by| !is_so(by) && scheduler::resets(&by.change, &it.change));
    let steps = all.iter().filter(|step| !is_so(step) || is_lost(step)).zip(1..);
    Ok(steps.map(|(step, number)| Step { number, ..step.clone() }).collect())
}

/// The same with places that have the value already.
///
/// # Errors
/// As [`steps`].
pub fn places(hands: Hands<'_>, chosen: &[Chosen]) -> Result<Vec<Step>, String> {
    let mut steps: Vec<Step> = Vec::new();
    for one in chosen {
        let found = hands.look(&one.change).map_err(|why| format!("{}: {why}", place(&one.change)))?;
        for (change, before) in found {
            if steps.iter().any(|it| it.change.is_at(&change)) {
                continue;
            }
            let (rule, restarts) = (one.rule.clone(), one.restarts.clone());
            steps.push(Step { number: 0, rule, change, before, restarts });
        }
    }
    let in_order = scheduler::in_order(steps).into_iter().zip(1..);
    Ok(in_order.map(|(step, number)| Step { number, ..step }).collect())
}

/// A run that is about to be made.
#[derive(Debug)]
pub struct Apply<'a> {
    /// The cluster and the hosts.
    pub hands: Hands<'a>,
    /// The lock.
    pub lock: &'a Lock,
    /// The facts that the plan was made of.
    pub facts: &'a Facts,
    /// The way to restart OSDs, and checks of health that were there before.
    pub restarts: Restarts<'a>,
    /// Whoever watches.
    pub watch: &'a dyn Watch,
}

/// The end of a run that was begun.
#[derive(Debug)]
pub struct Ended {
    /// The run.
    pub run: Run,
    /// The reason why it stopped; nothing: all is applied.
    pub why: Option<String>,
}

/// A run under way, with its journal.
#[derive(Debug)]
struct UnderWay<'a> {
    apply: &'a Apply<'a>,
    journal: Journal,
    /// What the journal has.
    entries: Vec<Entry>,
    /// The cluster's copy of its state.
    state: State,
    /// The step whose value was refused: its place is as it was.
    refused: Option<u32>,
    /// The step whose order had no answer: it may yet be carried out.
    lost: Option<u32>,
}

impl Apply<'_> {
    /// Makes all steps. Each is in the journal before it is made. Those that would not act ([`overridden`](super::overridden)) are left
    /// out by the caller.
    ///
    /// # Errors
    /// If nothing was begun: the journal or the cluster's copy cannot be written. A run that stops later has its reason in its end.
    pub fn run(&self, head: Head, steps: &[Step], path: &Path) -> Result<Ended, String> {
        let (journal, entries, state) = self.begin(head, steps, &[], path)?;
        let mut under_way = UnderWay { apply: self, journal, entries, state, refused: None, lost: None };
        let mut why = under_way.make(steps).err();
        if let Err(failed) = under_way.end(why.as_deref()) {
            why = why.or(Some(failed));
        }
        let run = Run::of(&under_way.entries).ok_or("the journal has no head")?;
        under_way.state.state = match (&why, run.rolled_back) {
            (None, _) => "applied",
            (Some(_), None) => "stopped",
            (Some(_), Some(_)) => "rolled-back",
        }
        .to_owned();
        self.tell_end(&under_way.state);
        Ok(Ended { run, why })
    }

    /// Makes what is there durable, with `more` entries, on this host and in the cluster. Nothing is changed before.
    ///
    /// # Errors
    /// If that cannot be.
    pub(super) fn begin(
        &self,
        head: Head,
        steps: &[Step],
        more: &[Entry],
        path: &Path,
    ) -> Result<(Journal, Vec<Entry>, State), String> {
        let mut entries = vec![Entry::Head(head.clone())];
        entries.extend(steps.iter().map(|step| Entry::Step(Box::new(step.clone()))));
        entries.extend_from_slice(more);
        let mut state = State::new(&head);
        let journal = Journal::create(path, &entries).map_err(|why| why.to_string())?;
        if let Err(why) = shared::write(self.hands.client, &entries, &mut state) {
            // Nothing was changed: a journal of nothing would only ask to be taken back.
            let _ = std::fs::remove_file(path);
            return Err(format!("the cluster takes no copy of what is there now: {why}"));
        }
        Ok((journal, entries, state))
    }

    /// Tells the cluster of a run's end. One that it was not told of is known by its journal.
    pub(super) fn tell_end(&self, state: &State) {
        if let Err(why) = shared::tell(self.hands.client, state) {
            self.watch.say(&format!("the cluster was not told that the run has ended: {why}"));
        }
    }

    /// Waits until a step acts.
    pub(super) fn act(&self, step: &Step) -> Result<Effect, String> {
        effect::wait(self.hands, self.facts, step)
            .map_err(|why| format!("{} has no effect: {why}", step.place()))
    }
}

impl UnderWay<'_> {
    fn make(&mut self, steps: &[Step]) -> Result<(), String> {
        let (late, live): (Vec<&Step>, Vec<&Step>) = steps.iter().partition(|step| !step.restarts.is_empty());
        for step in &live {
            let made = self.put(step, steps.len()).and_then(|()| self.apply.act(step));
            let effect = match made {
                Err(why) if step.change.target == Target::Nic => return Err(self.undo(step, why)),
                made => made?,
            };
            self.done(step, effect)?;
            self.is_healthy()?;
        }
        for step in &late {
            self.put(step, steps.len())?;
        }
        self.is_healthy()?;
        let osds: BTreeSet<i64> = late.iter().flat_map(|step| step.restarts.iter().copied()).collect();
        let apply = self.apply;
        restart_all(apply.lock, &apply.restarts, apply.facts, &osds, apply.watch, &mut |entry| {
            self.note(entry)
        })?;
        for step in &late {
            let effect = self.apply.act(step)?;
            self.done(step, effect)?;
        }
        Ok(())
    }

    fn put(&mut self, step: &Step, of: usize) -> Result<(), String> {
        go_on(self.apply.lock, self.apply.watch)?;
        let value = meant(step);
        self.note(Entry::Doing(step.number))?;
        self.apply.watch.say(&format!("step {} of {of}: {} ({})", step.number, step.words(), step.rule));
        let trial = peers::toward(self.apply.hands, self.apply.facts, &step.change);
        self.apply.hands.put(&step.change, &value, true, Some(trial)).map_err(|why| {
            self.refused = matches!(why, NotPut::Refused(_)).then_some(step.number);
            self.lost = matches!(why, NotPut::Lost(_)).then_some(step.number);
            format!("{}: {why}", step.place())
        })
    }

    /// Takes the value of an interface back that has no effect: the way to its host may depend on it. The reason with what came of it.
    fn undo(&mut self, step: &Step, why: String) -> String {
        let begun = |it: &Entry| matches!(it, Entry::Doing(number) if *number == step.number);
        if !self.entries.iter().any(begun) {
            return why;
        }
        let hands = self.apply.hands;
        let is_back = || hands.value(&step.change).map(|is| is.is_as(&step.before));
        let put = || hands.put(&step.change, &step.before, false, None).map_err(|why| why.to_string());
        let back = match is_back() {
            Ok(true) => Ok(true),
            _ => put().and_then(|()| is_back()),
        };
        let noted = match back {
            Ok(true) if self.lost == Some(step.number) => {
                Err("it is so now, and the order may still be carried out. \
                     'loligo tune rollback' looks at it again: give the host two minutes"
                    .to_owned())
            }
            Ok(true) => self.note(Entry::Undone(step.number, None)),
            Ok(false) => Err("it is another one afterwards".to_owned()),
            Err(why) => Err(why),
        };
        let before = step.before.words();
        match noted {
            Ok(()) => {
                self.refused = Some(step.number);
                format!("{why}. {} is {before}, as before", step.place())
            }
            Err(more) => format!("{why}. {} is not known to be back at {before}: {more}", step.place()),
        }
    }

    fn done(&mut self, step: &Step, effect: Effect) -> Result<(), String> {
        let words = match &effect {
            Effect::Acts(sight) => format!("step {} acts: {sight}", step.number),
            Effect::NotVisible(why) => format!("step {} is set: {why}", step.number),
        };
        self.apply.watch.say(&words);
        self.note(Entry::Done(step.number, effect))
    }

    /// Notes the end. A run whose first value was refused has changed nothing: nobody has to take it back.
    fn end(&mut self, why: Option<&str>) -> Result<(), String> {
        let how = if why.is_none() { How::Applied } else { How::Stopped };
        self.note(Entry::Ended { at: now(), how, why: why.unwrap_or_default().to_owned() })?;
        let mut begun = self.entries.iter().filter_map(|it| match it {
            Entry::Doing(number) => Some(*number),
            _ => None,
        });
        if begun.next() == self.refused
            && begun.next().is_none()
            && let Some(number) = self.refused
        {
            if !self.entries.contains(&Entry::Undone(number, None)) {
                self.note(Entry::Undone(number, None))?;
            }
            self.note(Entry::RolledBack { at: now() })?;
        }
        Ok(())
    }

    fn note(&mut self, entry: Entry) -> Result<(), String> {
        self.journal.add(&entry).map_err(|why| why.to_string())?;
        let told = shared::follow(self.apply.hands.client, &mut self.state, &entry);
        self.entries.push(entry);
        told
    }

    fn is_healthy(&self) -> Result<(), String> {
        let health = Health::ask(self.apply.hands.client)?;
        match health.complaint(self.apply.restarts.accepted) {
            Some(why) => Err(format!("the cluster complains: {why}")),
            None => Ok(()),
        }
    }
}

/// To be asked before each deed.
pub(super) fn go_on(lock: &Lock, watch: &dyn Watch) -> Result<(), String> {
    if watch.is_interrupted() {
        return Err("it was interrupted".to_owned());
    }
    lock.check()
}

/// Restarts OSDs one by one. Each deed is noted before it is done.
pub(super) fn restart_all(
    lock: &Lock,
    restarts: &Restarts<'_>,
    facts: &Facts,
    osds: &BTreeSet<i64>,
    watch: &dyn Watch,
    note: &mut dyn FnMut(Entry) -> Result<(), String>,
) -> Result<(), String> {
    for (count, osd) in osds.iter().enumerate() {
        go_on(lock, watch)?;
        let known = facts.osds.iter().find(|it| it.id == *osd);
        let host = known.map_or("", |it| it.host.as_str());
        let unit = known.and_then(|it| it.unit.as_deref());
        watch.say(&format!("osd.{osd} on {host}: restart {} of {}, once it may stop", count + 1, osds.len()));
        restarts.wait_until_ok(*osd, watch)?;
        // That may have been long.
        go_on(lock, watch)?;
        let seen = restarts.look(*osd)?;
        let is_ours = !seen.own_noout && !seen.all_noout;
        if is_ours {
            note(Entry::Noout(*osd))?;
            restarts.noout(*osd, true)?;
        }
        let restarted = note(Entry::Restarting(*osd))
            .and_then(|()| lock.check())
            .and_then(|()| restarts.restart(*osd, host, unit, watch))
            .and_then(|()| restarts.wait_until_clean(watch));
        let ended = if is_ours {
            restarts.end_noout(*osd).and_then(|()| note(Entry::NooutEnded(*osd)))
        } else {
            Ok(())
        };
        match (restarted, ended) {
            (Err(why), Err(more)) => return Err(format!("{why}. {more}")),
            (restarted, ended) => restarted.and(ended)?,
        }
        note(Entry::Restarted(*osd))?;
        watch.say(&format!("osd.{osd} is up, and all is clean"));
    }
    Ok(())
}
