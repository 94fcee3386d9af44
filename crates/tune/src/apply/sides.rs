//! Sides of a comparison: what is there now, and what the first steps or all of them make of it. They are put in place again and again.

use super::journal::{Entry, Head, Journal, now};
use super::peers;
use super::places::wanted;
use super::rollback::before;
use super::run::{Apply, Watch, go_on, restart_all};
use super::scheduler;
use super::shared::{self, State};
use super::step::Step;
use crate::plan::Change;
use std::collections::BTreeSet;
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
            let value = if *is_back { step.before.clone() } else { wanted(&step.change) };
            let trial = (!is_back).then(|| peers::toward(apply.hands, apply.facts, &step.change));
            let put = apply.hands.put(&step.change, &value, !is_back, trial);
            put.map_err(|why| format!("{}: {why}", step.place()))?;
            if step.restarts.is_empty() {
                apply.act(step)?;
            }
        }
        let late = all.iter().map(|(step, ..)| step).filter(|step| !step.restarts.is_empty());
        let osds: BTreeSet<i64> = late.clone().flat_map(|step| step.restarts.iter().copied()).collect();
        // What was there is put back also after an interrupt.
        let watch = Steadfast(apply.watch);
        restart_all(apply.lock, &apply.restarts, apply.facts, &osds, &watch, &mut |entry| self.note(&entry))?;
        for step in late {
            apply.act(step)?;
        }
        Ok(())
    }

    fn note(&mut self, entry: &Entry) -> Result<(), String> {
        self.journal.add(entry).map_err(|why| why.to_string())?;
        shared::follow(self.apply.hands.client, &mut self.state, entry)
    }

    /// Puts back what was there, also after an interrupt.
    fn back(&mut self) -> Result<(), String> {
        self.change(0)?;
        for step in self.steps {
            self.note(&Entry::Undone(step.number, None))?;
        }
        self.note(&Entry::RolledBack { at: now() })
    }
}

impl Apply<'_> {
    /// Has `body` compare sides. All steps count as begun from the first moment, and what was there is put back in the end.
    ///
    /// # Errors
    /// If nothing was begun, `body` fails, or what was there cannot be put back.
    pub fn compare<T, E: std::fmt::Display>(
        &self,
        head: Head,
        steps: &[Step],
        path: &Path,
        body: impl FnOnce(&mut Sides<'_>) -> Result<T, E>,
    ) -> Result<T, Uncompared<E>> {
        let run = head.run.clone();
        let doing: Vec<Entry> = steps.iter().map(|step| Entry::Doing(step.number)).collect();
        let (journal, _, state) = self.begin(head, steps, &doing, path).map_err(Uncompared::NotBegun)?;
        let mut sides = Sides { apply: self, steps, journal, state, is: Some(0) };
        let said = body(&mut sides);
        if let Err(why) = sides.back() {
            let why = said.err().map_or(why.clone(), |first| format!("{first}. Then {why}"));
            return Err(Uncompared::NotBack(why, run));
        }
        sides.state.state = "rolled-back".to_owned();
        self.tell_end(&sides.state);
        said.map_err(Uncompared::Failed)
    }
}
