//! Two sides of a comparison: what is there now, and what steps make of it. Both are put in place again and again.

use super::journal::{Entry, Head, Journal, now};
use super::places::wanted;
use super::rollback::before;
use super::run::{Apply, Watch, go_on, restart_all};
use super::scheduler;
use super::shared::{self, State};
use super::step::Step;
use crate::plan::Change;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::Path;

/// A side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    /// What was there.
    Before,
    /// What the steps make of it.
    After,
}

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
    /// The side that is in place; nothing: a change of sides was cut.
    is: Option<Side>,
}

impl Sides<'_> {
    /// Puts a side in place, and waits until it acts.
    ///
    /// # Errors
    /// If a value is refused or does not act, the lock is lost, or after an interrupt.
    pub fn side(&mut self, side: Side) -> Result<(), String> {
        go_on(self.apply.lock, self.apply.watch)?;
        self.change(side)
    }

    /// Puts other values at the places of the steps, in their order.
    ///
    /// # Errors
    /// As [`Sides::side`].
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
        self.make(&steps, false)
    }

    fn change(&mut self, side: Side) -> Result<(), String> {
        if self.is == Some(side) {
            return Ok(());
        }
        self.is = None;
        match side {
            Side::After => self.make(self.steps, false)?,
            Side::Before => {
                let back: Vec<Step> =
                    scheduler::first(self.steps.iter().rev()).into_iter().map(before).collect();
                self.make(&back, true)?;
            }
        }
        self.is = Some(side);
        Ok(())
    }

    /// Puts the values of steps; `back` if they are what was there.
    fn make(&mut self, steps: &[Step], back: bool) -> Result<(), String> {
        let apply = self.apply;
        for step in steps {
            let value = if back { step.before.clone() } else { wanted(&step.change) };
            let put = apply.hands.put(&step.change, &value, !back);
            put.map_err(|why| format!("{}: {why}", step.place()))?;
            if step.restarts.is_empty() {
                apply.act(step)?;
            }
        }
        let late = steps.iter().filter(|step| !step.restarts.is_empty());
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
        self.change(Side::Before)?;
        for step in self.steps {
            self.note(&Entry::Undone(step.number, None))?;
        }
        self.note(&Entry::RolledBack { at: now() })
    }
}

impl Apply<'_> {
    /// Has `body` compare both sides. All steps count as begun from the first moment, and what was there is put back in the end.
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
        let mut sides = Sides { apply: self, steps, journal, state, is: Some(Side::Before) };
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
