//! The trials of a search.

use super::chooser::Chooser;
use super::record::{Record, Trial, are_tried};
use super::space::Space;
use crate::compare::{self, Arms, Field, Options, Outcome, Pulse};
use crate::stats::median;
use anyhow::{Result, anyhow, ensure};
use loligo_ceph::commands::CommandClient;
use loligo_tune::apply::Sides;
use loligo_tune::counted;
use serde::Serialize;

/// The share of trials that are looked at again, and the fewest and most of them.
const AGAIN: (usize, usize, usize) = (4, 2, 5);
/// Pairs of runs of each that is looked at again.
const PAIRS: usize = 3;

/// The bounds of a search.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Trials.
    pub trials: usize,
    /// The 99th percentile may be so many times that of the default.
    pub p99: f64,
    /// True: the mean latency is to be less, and not the rate more.
    pub by_latency: bool,
}

impl Limits {
    /// True if the tail of a trial is as long as is allowed, at most.
    fn keeps(&self, trial: &Trial) -> bool {
        trial.p99 <= self.p99
    }

    /// The reason why a trial counts for less, and is never the result; nothing: it may be, or it failed.
    fn beyond(&self, trial: &Trial) -> Option<String> {
        (trial.failed.is_none() && !self.keeps(trial)).then(|| {
            format!(
                "p99 is {:.2} times that of the default, and {} is the bound (--p99)",
                trial.p99, self.p99
            )
        })
    }

    /// A trial as it is printed.
    fn line(&self, number: usize, values: &str, trial: &Trial) -> String {
        if let Some(why) = &trial.failed {
            return format!("trial {number}: {values}: {why}");
        }
        let beyond =
            trial.beyond.as_ref().map_or_else(String::new, |why| format!(". It is never the result: {why}"));
        format!(
            "trial {number} of {}: {values}: IOPS {:.2}, mean {:.2}, p99 {:.2} of the default{beyond}",
            self.trials, trial.iops, trial.mean, trial.p99
        )
    }
}

/// The find of a search.
#[derive(Debug, Clone, Serialize)]
pub struct Found {
    /// Trials that count.
    pub trials: usize,
    /// The best values, in the order of the space's options.
    pub values: Vec<String>,
    /// They against the default.
    pub verified: Outcome,
}

/// Searches. `sides` has the places of the space's options, in their order.
///
/// # Errors
/// If a load fails, the cluster is gone, the record cannot be written, no trial keeps to the limits, or after an interrupt.
pub fn run(
    options: &Options,
    space: &Space,
    limits: Limits,
    client: &CommandClient,
    sides: &mut Sides<'_>,
    record: &mut Record,
    say: &dyn Fn(&str),
) -> Result<Found> {
    Pulse::over(client, &options.place.stop, |pulse| {
        search_on(&Field::new(options, client, pulse, say)?, options, space, limits, sides, record, say)
    })
}

fn search_on(
    field: &Field<'_>,
    options: &Options,
    space: &Space,
    limits: Limits,
    sides: &mut Sides<'_>,
    record: &mut Record,
    say: &dyn Fn(&str),
) -> Result<Found> {
    let mut search = Search { options, space, limits, field, sides, loads: 0, say };
    search.trials(record)?;
    let best = search.best_of(&record.trials)?;
    let names = ["default", "found"].map(str::to_owned);
    let mut arms = Values { sides: search.sides, values: &best, is: None };
    let verified = compare::on(field, options, &mut arms, &names, say)?;
    options.place.stop.check()?;
    let trials = record.trials.iter().filter(|it| it.failed.is_none()).count();
    Ok(Found { trials, values: best, verified })
}

struct Search<'a, 'b, 'c> {
    options: &'a Options,
    space: &'a Space,
    limits: Limits,
    field: &'a Field<'c>,
    sides: &'a mut Sides<'b>,
    loads: u64,
    say: &'a dyn Fn(&str),
}

impl Search<'_, '_, '_> {
    fn trials(&mut self, record: &mut Record) -> Result<()> {
        let chooser = Chooser::new(self.space, self.options.seed)?;
        for known in &record.trials {
            chooser.replay(&known.values, self.told(known))?;
        }
        if !record.trials.is_empty() {
            (self.say)(&format!("the record has {}", counted(record.trials.len(), "trial")));
        }
        while record.trials.len() < self.limits.trials {
            let is_tried = |values: &[String]| are_tried(&record.trials, values);
            let Some(choice) = chooser.next_untried(is_tried)? else {
                (self.say)(&format!(
                    "the space is used up after {} of {} trials: each of its {} was tried",
                    record.trials.len(),
                    self.limits.trials,
                    counted(usize::try_from(self.space.points()).unwrap_or(usize::MAX), "point")
                ));
                break;
            };
            let mut trial = self.pair(choice.values.clone())?;
            trial.beyond = self.limits.beyond(&trial);
            (self.say)(&self.limits.line(record.trials.len() + 1, &self.words(&trial.values), &trial));
            chooser.tell(choice, self.told(&trial));
            record.add(trial)?;
        }
        Ok(())
    }

    /// The figure that is to be great: less where the tail is beyond its limit.
    fn score(&self, trial: &Trial) -> f64 {
        let gain = if self.limits.by_latency { 1.0 / trial.mean } else { trial.iops };
        gain * (self.limits.p99 / trial.p99).min(1.0)
    }

    /// The score that the sampler hears; nothing: the trial says nothing of its values.
    fn told(&self, trial: &Trial) -> Option<f64> {
        match (&trial.failed, trial.by_values) {
            (None, _) => Some(self.score(trial)),
            (Some(_), true) => Some(0.0),
            (Some(_), false) => None,
        }
    }

    /// The default, and the values beside it.
    fn pair(&mut self, values: Vec<String>) -> Result<Trial> {
        let nothing = |values: Vec<String>, why: String| Trial {
            values,
            iops: 0.0,
            mean: 0.0,
            p99: 0.0,
            failed: Some(why),
            by_values: false,
            beyond: None,
        };
        let at_fault = |values: Vec<String>, why: String| Trial { by_values: true, ..nothing(values, why) };
        self.sides.put(0).map_err(|why| anyhow!(why))?;
        if let Some(why) = self.field.disturbed()? {
            return Ok(nothing(values, why));
        }
        self.loads += 1;
        let (first, why, _) = self.field.load(0, self.loads)?;
        if let Some(why) = why {
            return Ok(nothing(values, why));
        }
        if let Err(why) = self.sides.try_values(&values) {
            // After an interrupt nothing else is tried.
            self.options.place.stop.check()?;
            return Ok(at_fault(values, why));
        }
        self.loads += 1;
        let (second, why, _) = match self.field.load(1, self.loads) {
            Ok(ran) => ran,
            Err(failed) => {
                // A load that ends under values is their fault, as long as the cluster is there.
                self.options.place.stop.check()?;
                self.field.disturbed()?;
                return Ok(at_fault(values, format!("{failed:#}")));
            }
        };
        if let Some(why) = why {
            return Ok(nothing(values, why));
        }
        Ok(Trial {
            values,
            iops: second.iops / first.iops,
            mean: second.mean_ns / first.mean_ns,
            p99: second.p99_ns / first.p99_ns,
            failed: None,
            by_values: false,
            beyond: None,
        })
    }

    /// The best of those that are looked at again: a trial alone may be luck.
    fn best_of(&mut self, trials: &[Trial]) -> Result<Vec<String>> {
        let mut ranked: Vec<&Trial> =
            trials.iter().filter(|it| it.failed.is_none() && self.limits.keeps(it)).collect();
        ranked.sort_by(|one, two| self.score(two).total_cmp(&self.score(one)));
        ranked.dedup_by(|one, two| one.values == two.values);
        ensure!(
            !ranked.is_empty(),
            "of {} none counts and keeps p99 within {} times the default: the record says why of each",
            counted(trials.len(), "trial"),
            self.limits.p99
        );
        let (share, fewest, most) = AGAIN;
        let count = (trials.len() / share).clamp(fewest, most);
        let mut best: Option<(f64, Vec<String>)> = None;
        for trial in ranked.into_iter().take(count) {
            let mut scores = vec![self.score(trial)];
            for _ in 0..PAIRS {
                let again = self.pair(trial.values.clone())?;
                if again.failed.is_none() {
                    scores.push(self.score(&again));
                }
            }
            let score = median(&scores);
            (self.say)(&format!("again: {}: {score:.3}", self.words(&trial.values)));
            if best.as_ref().is_none_or(|(least, _)| score > *least) {
                best = Some((score, trial.values.clone()));
            }
        }
        best.map(|(_, values)| values).ok_or_else(|| anyhow!("nothing is left to compare"))
    }

    fn words(&self, values: &[String]) -> String {
        let all =
            self.space.options.iter().zip(values).map(|(option, value)| format!("{}={value}", option.name));
        all.collect::<Vec<_>>().join(" ")
    }
}

/// The default and the best values as the arms of a comparison.
struct Values<'a, 'b> {
    sides: &'a mut Sides<'b>,
    values: &'a [String],
    /// The arm that is in place.
    is: Option<usize>,
}

impl Arms for Values<'_, '_> {
    fn put(&mut self, arm: usize) -> Result<(), String> {
        if self.is == Some(arm) {
            return Ok(());
        }
        self.is = None;
        match arm {
            0 => self.sides.put(0)?,
            _ => self.sides.try_values(self.values)?,
        }
        self.is = Some(arm);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_beyond_the_bound_of_its_tail_says_so() {
        let limits = Limits { trials: 40, p99: 1.2, by_latency: false };
        let trial = |p99, failed: Option<&str>| {
            let (values, failed) = (vec!["1".to_owned()], failed.map(str::to_owned));
            let trial = Trial { values, iops: 1.5, mean: 0.9, p99, failed, by_values: false, beyond: None };
            Trial { beyond: limits.beyond(&trial), ..trial }
        };
        let line = |it: &Trial| limits.line(3, "a=1", it);
        let (good, bad) = (trial(1.2, None), trial(1.53, None));
        assert_eq!(line(&good), "trial 3 of 40: a=1: IOPS 1.50, mean 0.90, p99 1.20 of the default");
        assert_eq!(
            line(&bad),
            "trial 3 of 40: a=1: IOPS 1.50, mean 0.90, p99 1.53 of the default. It is never the result: p99 is 1.53 times that of the \
             default, and 1.2 is the bound (--p99)"
        );
        let text = serde_json::to_string(&bad).expect("JSON");
        assert!(text.contains("\"beyond\":\"p99 is 1.53 times"), "{text}");
        assert_eq!(line(&trial(0.0, Some("disturbed"))), "trial 3: a=1: disturbed");
        assert_eq!(trial(9.0, Some("disturbed")).beyond, None);
    }
}
