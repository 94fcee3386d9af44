//! The runs of a comparison.

use super::arms::Arms;
use super::field::{Field, STEAL};
use super::judge::{Effect, FEWEST, blocks_for};
use super::options::Options;
use super::outcome::{Block, Metric, Outcome, Power, Rejected, Run, Rung};
use super::pulse::Pulse;
use crate::rng::SplitMix64;
use crate::units;
use anyhow::{Result, anyhow, ensure};
use loligo_ceph::commands::CommandClient;
use std::time::{Duration, Instant};

/// Blocks by whose spread the number of all is planned.
const PILOT: usize = 4;
/// The most runs of warm-up.
const WARM_UPS: usize = 6;
/// Two runs are alike if they differ by less than this share.
const ALIKE: f64 = 0.1;
/// The time that the cluster has to finish work of its own before a run.
const CALM: Duration = Duration::from_secs(120);
/// The time between two looks at it.
const BETWEEN: Duration = Duration::from_secs(1);
/// Blocks of which an interrupted comparison shows what was measured: one has no spread.
const LEAST: usize = 2;
/// Of so many runs one may not count.
const ONE_OF: usize = 3;

/// Compares arms of these names, two at least. `say` hears what is done.
///
/// # Errors
/// If a load or a change of arms fails, the cluster is gone, or if too many runs do not count; after an interrupt if fewer than two blocks
/// count: the outcome has what was measured otherwise, and no verdict.
pub fn run(
    options: &Options,
    client: &CommandClient,
    arms: &mut dyn Arms,
    names: &[String],
    say: &dyn Fn(&str),
) -> Result<Outcome> {
    Pulse::over(client, &options.place.stop, |pulse| {
        let field = Field::new(options, client, pulse, say)?;
        on(&field, options, arms, names, say)
    })
}

/// The same on a field that is there.
pub(crate) fn on(
    field: &Field<'_>,
    options: &Options,
    arms: &mut dyn Arms,
    names: &[String],
    say: &dyn Fn(&str),
) -> Result<Outcome> {
    let mut compare = Compare {
        options,
        arms,
        field,
        loads: 0,
        lots: SplitMix64::new(options.seed),
        outcome: Outcome::new(options, names.to_vec(), field.facts()),
        say,
    };
    compare.warm_up()?;
    if let Err(why) = compare.blocks() {
        let is_cut = options.place.stop.check().is_err() && compare.outcome.counting() >= LEAST;
        if !is_cut {
            return Err(why);
        }
        compare.outcome.is_cut = true;
    }
    compare.judge();
    Ok(compare.outcome)
}

/// Blocks that are to count. They are planned by the pilot, and once more when they are there: the pilot knows their spread badly.
#[derive(Debug, Default, Clone, Copy)]
struct Length {
    /// Nothing: the pilot's are not run yet.
    wanted: Option<usize>,
    is_final: bool,
}

impl Length {
    fn wanted(self) -> usize {
        self.wanted.unwrap_or(PILOT)
    }

    /// Blocks that were left out may all count at once: a number may be passed by.
    fn is_to_be_planned(self, done: usize) -> bool {
        !self.is_final && done >= self.wanted()
    }

    fn is_reached(self, done: usize) -> bool {
        self.is_final && done >= self.wanted()
    }

    fn planned(self, wanted: usize) -> Length {
        Length { wanted: Some(wanted.max(self.wanted.unwrap_or(0))), is_final: self.wanted.is_some() }
    }
}

struct Compare<'a, 'b> {
    options: &'a Options,
    arms: &'a mut dyn Arms,
    field: &'a Field<'b>,
    /// Loads that were run: no two write the same addresses.
    loads: u64,
    lots: SplitMix64,
    outcome: Outcome,
    say: &'a dyn Fn(&str),
}

impl Compare<'_, '_> {
    /// Runs until two after each other are alike: caches and logs of the cluster are as this load has them.
    fn warm_up(&mut self) -> Result<()> {
        let mut last: Option<f64> = None;
        for count in 1..=WARM_UPS {
            self.put(0)?;
            let (run, _) = self.load(0)?;
            self.outcome.warm_up = count;
            (self.say)(&format!("warm-up {count}: {:.0} IOPS", run.iops));
            let is_alike = last.is_some_and(|last| (run.iops / last - 1.0).abs() < ALIKE);
            if is_alike {
                return Ok(());
            }
            last = Some(run.iops);
        }
        (self.say)("the load did not become even within the warm-up; more pairs make up for that");
        Ok(())
    }

    fn blocks(&mut self) -> Result<()> {
        let begun = Instant::now();
        let mut length = Length::default();
        while !length.is_reached(self.outcome.counting()) {
            let block = self.block()?;
            self.outcome.blocks.push(block);
            let (all, done) = (self.outcome.blocks.len(), self.outcome.counting());
            for it in self.outcome.unlike().iter().filter(|it| it.block == all) {
                (self.say)(&format!("block {all}: {} does not count: {}", self.outcome.arms[it.arm], it.why));
            }
            ensure!(
                all - done <= FEWEST + length.wanted() / 2,
                "{} of {all} blocks do not count, since runs of one arm differ too much: compare at a calmer time",
                all - done
            );
            if length.is_to_be_planned(done) {
                length = length.planned(self.plan(begun.elapsed().div_f64(all as f64), length.wanted));
            }
            if let Some(wanted) = length.wanted {
                let iops = self.effect(self.outcome.arms.len() - 1, 0, 1, |run| run.iops);
                (self.say)(&format!(
                    "block {done} of {wanted}: {} is {:.3} of {} so far ({:.3}-{:.3})",
                    self.outcome.last_arm(),
                    iops.ratio,
                    self.outcome.arms[0],
                    iops.low,
                    iops.high
                ));
            }
        }
        Ok(())
    }

    /// Says how many pairs the change needs that is to be seen, before they are run; the second time, if these are more than before. The
    /// arm whose effect is least certain decides.
    fn plan(&mut self, each: Duration, before: Option<usize>) -> usize {
        let needed = (1..self.outcome.arms.len()).map(|arm| {
            let pilot = self.outcome.log_ratios(arm, arm - 1, |run| run.iops);
            blocks_for(self.options.detect, &pilot)
        });
        let needed = needed.max().unwrap_or(FEWEST);
        let affordable = (self.options.budget.as_secs_f64() / each.as_secs_f64().max(0.001)) as usize;
        let wanted = needed.min(affordable.max(FEWEST));
        if let Some(before) = before.filter(|before| wanted <= *before) {
            return before;
        }
        self.outcome.power = Power {
            wanted: self.options.detect,
            pairs_needed: needed * 2,
            minutes: each.as_secs_f64() * needed as f64 / 60.0,
            pairs: wanted * 2,
        };
        (self.say)(&self.outcome.power.words());
        wanted
    }

    /// Each arm twice, up and down again or down and up again, as the lot says: ABBA and BAAB, where there are two. A drift that is even
    /// within a block is the same for all arms.
    fn block(&mut self) -> Result<Block> {
        let up = 0..self.outcome.arms.len();
        let order: Vec<usize> = match self.lots.below(2) {
            0 => up.clone().chain(up.rev()).collect(),
            _ => up.clone().rev().chain(up).collect(),
        };
        let mut runs = Vec::new();
        for (at, arm) in order.iter().enumerate() {
            let run = self.one(*arm)?;
            if self.outcome.arms.len() > 2 {
                (self.say)(&format!(
                    "block {}, run {} of {}: {}: {} IOPS",
                    self.outcome.blocks.len() + 1,
                    at + 1,
                    order.len(),
                    self.outcome.arms[*arm],
                    units::number(run.iops)
                ));
            }
            runs.push(run);
        }
        Ok(Block { runs })
    }

    /// A run that counts. One that does not is said, and run again.
    fn one(&mut self, arm: usize) -> Result<Run> {
        loop {
            self.put(arm)?;
            self.calm()?;
            let (run, why) = self.load(arm)?;
            let by_host = run.steal > STEAL;
            let Some(why) = why.or(self.field.disturbed()?) else { return Ok(run) };
            let block = self.outcome.blocks.len() + 1;
            (self.say)(&format!("a run of block {block} does not count: {why}"));
            self.outcome.rejected.push(Rejected { block, arm, why, by_host });
            let (rejected, all) = (self.outcome.rejected.len(), self.loads as usize);
            ensure!(
                rejected <= FEWEST + all / ONE_OF,
                "{rejected} of {all} runs do not count, the last because {}: compare at a calmer time",
                self.outcome.rejected.last().map_or("", |it| it.why.as_str())
            );
        }
    }

    /// Waits until the cluster does nothing for itself.
    fn calm(&mut self) -> Result<()> {
        let deadline = Instant::now() + CALM;
        let mut is_said = false;
        while let Some(why) = self.field.disturbed()? {
            ensure!(
                Instant::now() < deadline,
                "{why} for {} s: compare at a calmer time ('ceph osd set noscrub' keeps scrubs away)",
                CALM.as_secs()
            );
            if !is_said {
                (self.say)(&format!("waiting: {why}"));
                is_said = true;
            }
            self.options.place.stop.sleep(BETWEEN)?;
        }
        Ok(())
    }

    fn put(&mut self, arm: usize) -> Result<()> {
        self.arms.put(arm).map_err(|why| anyhow!(why))
    }

    /// One run, and the reason why it does not count.
    fn load(&mut self, arm: usize) -> Result<(Run, Option<String>)> {
        self.loads += 1;
        let (run, why, measured) = self.field.load(arm, self.loads)?;
        self.outcome.last[arm] = Some(measured);
        Ok((run, why))
    }

    /// A figure of one arm over that of another, as one of `count` comparisons.
    fn effect(&self, arm: usize, over: usize, count: usize, pick: fn(&Run) -> f64) -> Effect {
        Effect::one_of(&self.outcome.log_ratios(arm, over, pick), self.options.seed, count)
    }

    fn metrics(&self, arm: usize, over: usize, count: usize) -> Vec<Metric> {
        let unjudged = self.outcome.unjudged([arm, over]);
        let metric = |name: &str, is_rate, pick: fn(&Run) -> f64| {
            let effect = self.effect(arm, over, count, pick);
            let effect = Effect { is_seen: effect.is_seen && unjudged.is_none(), ..effect };
            let [second, first] = self.outcome.means([arm, over], pick);
            Metric { name: name.to_owned(), first, second, effect, is_rate, unjudged: unjudged.clone() }
        };
        vec![
            metric("IOPS", true, |run| run.iops),
            metric("mean latency", false, |run| run.mean_ns),
            metric("p99", false, |run| run.p99_ns),
        ]
    }

    fn judge(&mut self) {
        let last = self.outcome.arms.len() - 1;
        self.outcome.metrics = self.metrics(last, 0, 1);
        let rung = |arm: usize| {
            let total = self.effect(arm, 0, last, |run| run.iops);
            Rung { name: self.outcome.arms[arm].clone(), own: self.metrics(arm, arm - 1, last), total }
        };
        if last > 1 {
            self.outcome.rungs = (1..=last).map(rung).collect();
        }
        // Those that were made again have had their word.
        let unlike = self.outcome.unlike();
        self.outcome.rejected.extend(unlike);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_comparison_ends_before_it_is_planned() {
        let pilot = Length::default();
        assert!(!pilot.is_to_be_planned(PILOT - 1) && !pilot.is_reached(PILOT - 1));
        // Of five blocks three counted, and then all.
        assert!(pilot.is_to_be_planned(PILOT + 1) && !pilot.is_reached(PILOT + 1));
        let planned = pilot.planned(FEWEST);
        assert!(!planned.is_to_be_planned(FEWEST - 1) && !planned.is_reached(FEWEST));
        assert!(planned.is_to_be_planned(FEWEST), "it is planned once more");
        let more = planned.planned(FEWEST + 3);
        assert!(
            !more.is_to_be_planned(FEWEST + 3) && !more.is_reached(FEWEST + 2) && more.is_reached(FEWEST + 3)
        );
        assert!(planned.planned(FEWEST - 1).is_reached(FEWEST), "no more are needed");
    }
}
