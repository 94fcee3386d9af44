//! Sides of a comparison: what is there now, and what the first steps or all of them make of it. They are put in place again and again.

use super::journal::{Entry, Head, Journal, now};
use super::overridden::overridden;
use super::peers;
use super::places::{NotPut, has, meant};
use super::rollback::{before, is_ours, same};
use super::run::{Apply, go_on, restart_all};
use super::scheduler;
use super::shared::{self, State};
use super::step::Step;
use super::watch::Watch;
use crate::plan::Change;
use crate::rules::Target;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;

/// Whoever watches, and does not interrupt.
#[derive(Debug)]
struct Steadfast<'a>(&'a dyn Watch);

impl Watch for Steadfast<'_> {
    fn say(&self, words: &str) {
        self.0.say(words);
    }

    fn is_interrupted(&self) -> bool {
        false
    }
}

/// The end of a comparison.
#[derive(Debug, thiserror::Error)]
pub enum Uncompared<E> {
    /// Nothing was changed.
    #[error("nothing was changed: {0}")]
    NotBegun(String),
    /// It failed, and all is as before.
    #[error(transparent)]
    Failed(E),
    /// What was there could not be put back.
    #[error("{0}. What was there is put back by 'loligo tune rollback {1}'")]
    NotBack(String, String),
}

/// The sides of a comparison that is under way.
#[derive(Debug)]
pub struct Sides<'a> {
    apply: &'a Apply<'a>,
    steps: &'a [Step],
    journal: Journal,
    /// The cluster's copy of the run's state.
    state: State,
    /// The number of steps that are in place; nothing: a change was cut, or other values are there.
    is: Option<usize>,
    /// Values that a search put at places of steps.
    tried: BTreeSet<(u32, Option<String>)>,
    /// Steps at whose places somebody else put a value, with the reason why it is left.
    theirs: BTreeMap<u32, String>,
    /// A place of an interface whose host has not answered an order: it may yet be carried out.
    lost: Option<String>,
}

impl Sides<'_> {
    /// Puts the first `count` steps in place and none of the others, and waits until that acts. None of them: what was there.
    ///
    /// # Errors
    /// If a value is refused or does not act, the lock is lost, or after an interrupt.
    ///
    /// # Panics
    /// If there are fewer steps.
    pub fn put(&mut self, count: usize) -> Result<(), String> {
        go_on(self.apply.lock, self.apply.watch)?;
        self.change(count)
    }

    /// Puts other values at the places of the steps, in their order.
    ///
    /// # Errors
    /// As [`Sides::put`].
    pub fn try_values(&mut self, values: &[String]) -> Result<(), String> {
        go_on(self.apply.lock, self.apply.watch)?;
        let with = |(step, value): (&Step, &String)| {
            let change = Change { value: Some(value.clone()), ..step.change.clone() };
            Step { change, ..step.clone() }
        };
        let steps: Vec<Step> = self.steps.iter().zip(values).map(with).collect();
        // A run that is cut knows by this that the value is its own.
        for step in &steps {
            self.note(&Entry::Trying(step.number, step.change.value.clone()))?;
            self.tried.insert((step.number, step.change.value.clone()));
        }
        self.is = None;
        self.make(&steps.into_iter().map(|step| (step, false)).collect::<Vec<_>>())
    }

    fn change(&mut self, count: usize) -> Result<(), String> {
        if self.is == Some(count) {
            return Ok(());
        }
        // Of a change that was cut nothing is known: each step is made or taken back.
        let (made, undone) = match self.is {
            Some(is) if is <= count => (&self.steps[is..count], &self.steps[..0]),
            Some(is) => (&self.steps[..0], &self.steps[count..is]),
            None => (&self.steps[..count], &self.steps[count..]),
        };
        self.is = None;
        let undone = scheduler::first(undone.iter().rev()).into_iter().map(|step| (before(step), true));
        let made = made.iter().map(|step| (step.clone(), false));
        self.make(&undone.chain(made).collect::<Vec<_>>())?;
        self.is = Some(count);
        Ok(())
    }

    /// Puts values of steps; true: it is what was there.
    fn make(&mut self, all: &[(Step, bool)]) -> Result<(), String> {
        let apply = self.apply;
        for (step, is_back) in all {
            // One that slept may come back beside another tuner.
            apply.lock.check()?;
            if let Some(why) = self.by_another(step)? {
                apply.watch.say(&why);
                if *is_back {
                    continue;
                }
                return Err(why);
            }
            let value = if *is_back { step.before.clone() } else { meant(step) };
            let trial = (!is_back).then(|| peers::toward(apply.hands, apply.facts, &step.change));
            let put = apply.hands.put(&step.change, &value, !is_back, trial);
            put.map_err(|why| {
                if step.change.target == Target::Nic && matches!(why, NotPut::Lost(_)) {
                    self.lost = Some(step.place());
                }
                format!("{}: {why}", step.place())
            })?;
            if step.restarts.is_empty() {
                apply.act(step)?;
            }
        }
        let is_ours = |step: &&Step| !self.theirs.contains_key(&step.number);
        let late: Vec<&Step> = all
            .iter()
            .map(|(step, ..)| step)
            .filter(|step| !step.restarts.is_empty())
            .filter(is_ours)
            .collect();
        let osds: BTreeSet<i64> = late.iter().flat_map(|step| step.restarts.iter().copied()).collect();
        // What was there is put back also after an interrupt.
        let watch = Steadfast(apply.watch);
        restart_all(apply.lock, &apply.restarts, apply.facts, &osds, &watch, &mut |entry| self.note(&entry))?;
        for step in late {
            apply.act(step)?;
        }
        Ok(())
    }

    /// The reason why the value of a place is left: it is neither what was there nor one that this comparison puts there. One that is
    /// known by many threads or devices is not looked at.
    fn by_another(&mut self, step: &Step) -> Result<Option<String>, String> {
        if let Some(why) = self.theirs.get(&step.number) {
            return Ok(Some(why.clone()));
        }
        if !matches!(step.change.target, Target::Config | Target::Mgr | Target::Pool) {
            return Ok(None);
        }
        let known = self.steps.iter().find(|it| it.number == step.number).unwrap_or(step);
        let is = self.apply.hands.value(&step.change)?;
        let is_tried =
            self.tried.iter().any(|(number, value)| *number == step.number && same(&is.now, value));
        if is_tried || is_ours(&is, known) || has(&step.change, &is, &known.before) {
            return Ok(None);
        }
        let why = format!(
            "{} is {} now, which this comparison has not put there: it is left to whoever changed it",
            step.place(),
            is.words()
        );
        self.theirs.insert(step.number, why.clone());
        Ok(Some(why))
    }

    fn note(&mut self, entry: &Entry) -> Result<(), String> {
        self.journal.add(entry).map_err(|why| why.to_string())?;
        shared::follow(self.apply.hands.client, &mut self.state, entry)
    }

    /// Puts back what was there, also after an interrupt.
    fn back(&mut self) -> Result<(), String> {
        self.change(0)?;
        if let Some(place) = &self.lost {
            return Err(format!("an order for {place} had no answer, and may still be carried out"));
        }
        for step in self.steps {
            self.note(&Entry::Undone(step.number, self.theirs.get(&step.number).cloned()))?;
        }
        self.note(&Entry::RolledBack { at: now() })
    }
}

impl Apply<'_> {
    /// Has `body` compare sides. All steps count as begun from the first moment, and what was there is put back in the end.
    ///
    /// # Errors
    /// If nothing was begun, since that cannot be or an OSD has a value that goes before one of a step; if `body` fails, or what was there
    /// cannot be put back.
    pub fn compare<T, E: std::fmt::Display>(
        &self,
        head: Head,
        steps: &[Step],
        path: &Path,
        body: impl FnOnce(&mut Sides<'_>) -> Result<T, E>,
    ) -> Result<T, Uncompared<E>> {
        let vain = overridden(self.hands, self.facts, steps).map_err(Uncompared::NotBegun)?;
        if let Some(why) = vain.into_values().next() {
            return Err(Uncompared::NotBegun(why));
        }
        let run = head.run.clone();
        let doing: Vec<Entry> = steps.iter().map(|step| Entry::Doing(step.number)).collect();
        let (journal, _, state) = self.begin(head, steps, &doing, path).map_err(Uncompared::NotBegun)?;
        let (tried, theirs) = (BTreeSet::new(), BTreeMap::new());
        let mut sides = Sides { apply: self, steps, journal, state, is: Some(0), tried, theirs, lost: None };
        // A fault of the program takes no way past what was there.
        let said = catch_unwind(AssertUnwindSafe(|| body(&mut sides)));
        let back = sides.back();
        let said = said.unwrap_or_else(|fault| resume_unwind(fault));
        if let Err(why) = back {
            let why = said.err().map_or(why.clone(), |first| format!("{first}. Then {why}"));
            return Err(Uncompared::NotBack(why, run));
        }
        sides.state.state = "rolled-back".to_owned();
        self.tell_end(&sides.state);
        said.map_err(Uncompared::Failed)
    }
}
