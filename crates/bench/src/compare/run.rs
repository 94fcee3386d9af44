//! The runs of a comparison.

use super::judge::{Effect, FEWEST, blocks_for, steady};
use super::options::Options;
use super::outcome::{Block, Metric, Outcome, Power, Rejected, Run};
use crate::bed::Bed;
use crate::fio::{Job, Measured};
use crate::rbd::{Cluster, Librbd};
use crate::rng::SplitMix64;
use crate::stats::median;
use anyhow::{Result, anyhow, ensure};
use loligo_block::host_files::HostFiles;
use loligo_ceph::commands::CommandClient;
use loligo_tune::apply::{Health, Side, Sides};
use std::path::Path;
use std::time::{Duration, Instant};

/// Blocks by whose spread the number of all is planned.
const PILOT: usize = 4;
/// The most runs of warm-up.
const WARM_UPS: usize = 6;
/// Two runs are alike if they differ by less than this share.
const ALIKE: f64 = 0.1;
/// Share of processor time that the host may take away from a run.
const STEAL: f64 = 0.1;
/// Bytes of the scratch folder.
const SCRATCH: u64 = 64 << 20;

/// Compares both sides. `say` hears what is done.
///
/// # Errors
/// If a load or a change of sides fails, or after an interrupt, or if no number of blocks would be steady.
pub fn run(
    options: &Options,
    client: &CommandClient,
    sides: &mut Sides<'_>,
    arms: [String; 2],
    say: &dyn Fn(&str),
) -> Result<Outcome> {
    let bed = Bed::new(&options.place, SCRATCH)?;
    let mut cluster = Cluster::new(&bed, &options.place, "cluster", &options.source, say)?;
    say(&format!("writing an image of {} bytes", options.size));
    let image = cluster.image(&bed, "verify", options.size)?;
    let facts = bed.facts().with(cluster.facts.clone());
    let outcome = Outcome::new(options, arms, facts);
    let mut compare = Compare {
        options,
        client,
        sides,
        bed: &bed,
        target: Job::new(
            cluster.native(&image, Librbd::Shipped),
            options.load.rw,
            options.load.block,
            options.load.depth,
        )
        .lasting(options.time)
        .after(options.ramp),
        lots: SplitMix64::new(options.seed),
        outcome,
        say,
    };
    compare.warm_up()?;
    compare.blocks()?;
    compare.judge();
    Ok(compare.outcome)
}

struct Compare<'a, 'b> {
    options: &'a Options,
    client: &'a CommandClient,
    sides: &'a mut Sides<'b>,
    bed: &'a Bed,
    target: Job,
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
            if let Some(why) = self.disturbed()? {
                return Ok(Err(why));
            }
            let (run, why) = self.load(is_second)?;
            if let Some(why) = why {
                return Ok(Err(why));
            }
            runs.push(run);
        }
        Ok(match self.disturbed()? {
            Some(why) => Err(why),
            None => Ok(Block { runs }),
        })
    }

    fn put(&mut self, is_second: bool) -> Result<()> {
        let side = if is_second { Side::After } else { Side::Before };
        self.sides.put(side).map_err(|why| anyhow!(why))
    }

    /// The cluster is at work for itself.
    fn disturbed(&self) -> Result<Option<String>> {
        let health = Health::ask(self.client).map_err(|why| anyhow!(why))?;
        Ok(health.busy.map(|state| format!("placement groups are {state}")))
    }

    /// One run, and the reason why it does not count.
    fn load(&mut self, is_second: bool) -> Result<(Run, Option<String>)> {
        self.target.seed += 1;
        let before = processor();
        let measured = self.bed.run(&self.target)?;
        let steal = before.zip(processor()).map_or(0.0, |(before, after)| {
            let (all, stolen) = (after.0.saturating_sub(before.0), after.1.saturating_sub(before.1));
            stolen as f64 / all.max(1) as f64
        });
        let (run, mut why) = of(&measured, is_second, steal);
        if steal > STEAL {
            why = Some(format!("the host took {:.0} % of the processor time away", steal * 100.0));
        }
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

/// The figures of a run, and the reason why it is not steady.
fn of(measured: &Measured, is_second: bool, steal: f64) -> (Run, Option<String>) {
    let series: Vec<f64> = measured.series.iter().map(|second| second.iops).collect();
    let cut = steady(&series);
    let why = cut.is_none().then(|| "its rate had not become even after half of the run".to_owned());
    let cut = cut.unwrap_or(0);
    let rest = &series[cut..];
    // Where nothing was cut fio's own figure has the last, unfinished second as well.
    let iops = if cut == 0 { measured.iops } else { rest.iter().sum::<f64>() / rest.len() as f64 };
    let latency = measured.latency;
    let run = Run { is_second, iops, mean_ns: latency.mean_ns, p99_ns: latency.p99_ns as f64, steal, cut };
    (run, why)
}

/// Ticks of all processors since boot: all, and those that the host took away.
fn processor() -> Option<(u64, u64)> {
    let text = HostFiles::new(Path::new("/")).read("/proc/stat")?;
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u64> = line.split_whitespace().filter_map(|it| it.parse().ok()).collect();
    // Guests' time is in that of users already (proc_stat(5)).
    Some((ticks.iter().take(8).sum(), *ticks.get(7)?))
}
