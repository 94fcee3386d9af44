//! The runs of a comparison.

use super::field::Field;
use super::judge::{Effect, FEWEST, blocks_for};
use super::options::Options;
use super::outcome::{Block, Metric, Outcome, Power, Rejected, Run};
use super::pulse::Pulse;
use crate::rng::SplitMix64;
use crate::stats::median;
use anyhow::{Result, anyhow, ensure};
use loligo_ceph::commands::CommandClient;
use loligo_tune::apply::{Side, Sides};
use std::time::{Duration, Instant};

/// Blocks by whose spread the number of all is planned.
const PILOT: usize = 4;
/// The most runs of warm-up.
const WARM_UPS: usize = 6;
/// Two runs are alike if they differ by less than this share.
const ALIKE: f64 = 0.1;
/// The arms of a comparison.
pub trait Arms {
    /// Puts one in place, and waits until it acts.
    ///
    /// # Errors
    /// If a value is refused or does not act, or after an interrupt.
    fn put(&mut self, is_second: bool) -> Result<(), String>;
}

impl Arms for Sides<'_> {
    fn put(&mut self, is_second: bool) -> Result<(), String> {
        self.side(if is_second { Side::After } else { Side::Before })
    }
}

/// Compares both arms. `say` hears what is done.
///
/// # Errors
/// If a load or a change of arms fails, the cluster is gone, or after an interrupt, or if no number of blocks would be steady.
pub fn run(
    options: &Options,
    client: &CommandClient,
    arms: &mut dyn Arms,
    names: [String; 2],
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
    names: [String; 2],
    say: &dyn Fn(&str),
) -> Result<Outcome> {
    let mut compare = Compare {
        options,
        arms,
        field,
        loads: 0,
        lots: SplitMix64::new(options.seed),
        outcome: Outcome::new(options, names, field.facts()),
        say,
    };
    compare.warm_up()?;
    compare.blocks()?;
    compare.judge();
    Ok(compare.outcome)
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
            self.put(false)?;
            let (run, _) = self.load(false)?;
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
        let mut number = 0;
        let mut wanted = PILOT;
        let mut is_planned = false;
        while self.outcome.blocks.len() < wanted {
            number += 1;
            match self.block()? {
                Ok(block) => self.outcome.blocks.push(block),
                Err(why) => {
                    (self.say)(&format!("block {number} does not count: {why}"));
                    self.outcome.rejected.push(Rejected { block: number, why });
                    let rejected = self.outcome.rejected.len();
                    ensure!(
                        rejected <= FEWEST + wanted / 2,
                        "{rejected} of {number} blocks do not count, the last because {}: compare at a calmer time",
                        self.outcome.rejected.last().map_or("", |it| it.why.as_str())
                    );
                }
            }
            if !is_planned && self.outcome.blocks.len() == PILOT {
                is_planned = true;
                wanted = self.plan(begun.elapsed().div_f64(number as f64));
            }
            if is_planned {
                let [iops, ..] = self.effects();
                (self.say)(&format!(
                    "block {} of {wanted}: {} is {:.3} of {} so far ({:.3}-{:.3})",
                    self.outcome.blocks.len(),
                    self.outcome.arms[1],
                    iops.ratio,
                    self.outcome.arms[0],
                    iops.low,
                    iops.high
                ));
            }
        }
        Ok(())
    }

    /// Says how many pairs the change needs that is to be seen, before they are run.
    fn plan(&mut self, each: Duration) -> usize {
        let pilot: Vec<f64> =
            self.outcome.blocks.iter().map(|block| block.log_ratio(|run| run.iops)).collect();
        let needed = blocks_for(self.options.detect, &pilot);
        let affordable = (self.options.budget.as_secs_f64() / each.as_secs_f64().max(0.001)) as usize;
        let wanted = needed.min(affordable.max(FEWEST));
        self.outcome.power = Power {
            wanted: self.options.detect,
            pairs_needed: needed * 2,
            minutes: each.as_secs_f64() * needed as f64 / 60.0,
            pairs: wanted * 2,
        };
        (self.say)(&self.outcome.power.words());
        wanted
    }

    /// Four runs in the order that the lot says; the reason why they do not count.
    fn block(&mut self) -> Result<Result<Block, String>> {
        let order = match self.lots.below(2) {
            0 => [false, true, true, false],
            _ => [true, false, false, true],
        };
        let mut runs = Vec::new();
        for is_second in order {
            self.put(is_second)?;
            if let Some(why) = self.field.disturbed()? {
                return Ok(Err(why));
            }
            let (run, why) = self.load(is_second)?;
            if let Some(why) = why {
                return Ok(Err(why));
            }
            runs.push(run);
        }
        Ok(match self.field.disturbed()? {
            Some(why) => Err(why),
            None => Ok(Block { runs }),
        })
    }

    fn put(&mut self, is_second: bool) -> Result<()> {
        self.arms.put(is_second).map_err(|why| anyhow!(why))
    }

    /// One run, and the reason why it does not count.
    fn load(&mut self, is_second: bool) -> Result<(Run, Option<String>)> {
        self.loads += 1;
        let (run, why, measured) = self.field.load(is_second, self.loads)?;
        self.outcome.last[usize::from(is_second)] = Some(measured);
        Ok((run, why))
    }

    fn effects(&self) -> [Effect; 3] {
        let of = |pick: fn(&Run) -> f64| {
            let blocks: Vec<f64> = self.outcome.blocks.iter().map(|block| block.log_ratio(pick)).collect();
            Effect::of(&blocks, self.options.seed)
        };
        [of(|run| run.iops), of(|run| run.mean_ns), of(|run| run.p99_ns)]
    }

    fn judge(&mut self) {
        let [iops, mean, p99] = self.effects();
        let runs: Vec<&Run> = self.outcome.blocks.iter().flat_map(|block| &block.runs).collect();
        let metric = |name: &str, effect, is_rate, pick: fn(&Run) -> f64| {
            let of = |is_second| {
                let these = runs.iter().filter(|run| run.is_second == is_second);
                median(&these.map(|run| pick(run)).collect::<Vec<_>>())
            };
            Metric { name: name.to_owned(), first: of(false), second: of(true), effect, is_rate }
        };
        self.outcome.metrics = vec![
            metric("IOPS", iops, true, |run| run.iops),
            metric("mean latency", mean, false, |run| run.mean_ns),
            metric("p99", p99, false, |run| run.p99_ns),
        ];
    }
}
