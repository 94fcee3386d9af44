//! Figure 4: what a write-back write costs over a raw write to the file system that holds the cache.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use loligo_block::DeviceSpec;
use serde::{Deserialize, Serialize};

use crate::bed::{Bed, DRAIN_LIMIT, Place, direct};
use crate::facts::Facts;
use crate::fio::{FileEngine, Job, Measured, Rw, Target};
use crate::in_process::InProcess;
use crate::server::{Volume, disk_model};
use crate::stats::{Ratio, median, ratio};
use crate::table::Table;
use crate::units;
use crate::watch::Watch;

/// How the experiment runs.
#[derive(Debug, Clone)]
pub struct Options {
    /// Program, folder, interrupt.
    pub place: Place,
    /// Size of the cache files and of the raw file, bytes; cores are four times as long.
    pub cache: u64,
    /// Rounds; each runs every side once.
    pub rounds: usize,
    /// Length of a run.
    pub time: Duration,
}

impl Options {
    /// 512 MiB, seven rounds of 4 s runs.
    pub fn new(place: Place) -> Options {
        Options { place, cache: 512 << 20, rounds: 7, time: Duration::from_secs(4) }
    }
}

/// The sides of one round, in the order in which they run (odd rounds run backwards).
const SIDES: [&str; 9] = [
    "raw io_uring qd1",
    "raw pwrite qd1",
    "nbdkit memory qd1",
    "loligo wb qd1, in process",
    "loligo wb qd1, NBD",
    "raw io_uring qd32",
    "nbdkit memory qd32",
    "loligo wb qd32, in process",
    "loligo wb qd32, NBD",
];

/// A file system in memory.
const MEMORY: &str = "/dev/shm";

/// One run of a round.
enum Step {
    /// What leaves nothing to clear up.
    Raw(Job),
    /// A served volume, which then is drained.
    Cached(Job),
    /// This process's own, at this depth.
    InProcess(usize),
}

/// One side's medians over the rounds.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Side {
    /// What was written to, and how deep.
    pub name: String,
    /// Median of the runs' mean latencies, nanoseconds.
    pub mean_ns: f64,
    /// Median of the runs' median latencies, nanoseconds.
    pub p50_ns: f64,
    /// Median of the runs' 99th percentiles, nanoseconds.
    pub p99_ns: f64,
    /// Median requests per second.
    pub iops: f64,
}

/// The experiment's result.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WriteLatency {
    /// The machine and the file system.
    pub facts: Facts,
    /// Every side.
    pub sides: Vec<Side>,
    /// Mean latency at depth 1 in process, over the raw io_uring write.
    pub qd1_in_process: Ratio,
    /// Mean latency at depth 1 through NBD, less the hop that nbdkit's memory plugin costs in the same round, over the raw
    /// io_uring write.
    pub qd1: Ratio,
    /// The same without taking the hop off.
    pub qd1_with_hop: Ratio,
    /// Requests per second at depth 32 in process over the raw io_uring writes'.
    pub qd32_in_process: Ratio,
    /// Requests per second at depth 32 through NBD over the raw io_uring writes'.
    pub qd32_iops: Ratio,
}

/// Runs it. Writes go to random blocks within half the cache, so that what is measured is the path of a write, not of a full
/// cache.
pub fn run(opts: &Options) -> Result<WriteLatency> {
    let bed = Bed::new(&opts.place, opts.cache * 3 + (64 << 20))?;
    // The core is another device, as it is in service: in memory, behind the model, so that the raw writes and the cache have
    // the file system's disk to themselves alike.
    let memory = Bed::in_folder(&opts.place, Path::new(MEMORY), opts.cache * 2)?;
    let core = |name: &str| -> Result<String> {
        let path = memory.path(name);
        File::create_new(&path)?.set_len(opts.cache * 4).context("a sparse core")?;
        Ok(disk_model(&path))
    };
    let raw = bed.file("raw", opts.cache)?;
    let cache = bed.path("cache");
    let stats = bed.path("stats.json");
    let mut watch = Watch::new(&stats);
    let cached = bed.serve(
        "wb",
        &Volume {
            cache,
            cache_bytes: opts.cache,
            core: core("core")?,
            mode: "wb",
            stats: Some(stats.clone()),
            flush_on_stop: false,
        },
    )?;
    let own_core: DeviceSpec = core("own-core")?.parse()?;
    let mut own = InProcess::new(&bed.file("own-cache", opts.cache)?, &own_core)?;
    let hop = bed.nbdkit("memory", &["memory", &format!("size={}", opts.cache)])?;
    let uring = || direct(&raw, FileEngine::IoUring);
    let job = |target: Target, depth| {
        Job::new(target, Rw::RandWrite, 4096, depth).within(0, opts.cache / 2).lasting(opts.time)
    };
    let steps = [
        Step::Raw(job(uring(), 1)),
        Step::Raw(job(direct(&raw, FileEngine::Psync), 1)),
        Step::Raw(job(hop.target(), 1)),
        Step::InProcess(1),
        Step::Cached(job(cached.target(), 1)),
        Step::Raw(job(uring(), 32)),
        Step::Raw(job(hop.target(), 32)),
        Step::InProcess(32),
        Step::Cached(job(cached.target(), 32)),
    ];
    let mut runs: [Vec<Measured>; SIDES.len()] = Default::default();
    for round in 0..opts.rounds {
        for step in 0..steps.len() {
            let side = if round % 2 == 0 { step } else { steps.len() - 1 - step };
            runs[side].push(match &steps[side] {
                Step::Raw(job) => bed.run(job)?,
                Step::Cached(job) => {
                    let run = bed.run(job)?;
                    bed.drained(&mut watch)?;
                    run
                }
                Step::InProcess(depth) => {
                    loligo_log::say!("{} at depth {depth}", SIDES[side]);
                    let run = own.write(*depth, opts.cache / 2, opts.time, bed.stop())?;
                    own.drain(DRAIN_LIMIT, bed.stop())?;
                    run
                }
            });
        }
    }
    bed.end(cached)?;
    bed.end(hop)?;
    Ok(result(bed.facts(), &runs))
}

fn result(facts: Facts, runs: &[Vec<Measured>; SIDES.len()]) -> WriteLatency {
    let over = |side: &[Measured], pick: &dyn Fn(&Measured) -> f64| {
        median(&side.iter().map(pick).collect::<Vec<_>>())
    };
    let sides = SIDES
        .iter()
        .zip(runs)
        .map(|(name, side)| Side {
            name: (*name).to_owned(),
            mean_ns: over(side, &|run| run.latency.mean_ns),
            p50_ns: over(side, &|run| run.latency.p50_ns as f64),
            p99_ns: over(side, &|run| run.latency.p99_ns as f64),
            iops: over(side, &|run| run.iops),
        })
        .collect();
    let [raw, _, hop, own, ours, raw32, _, own32, ours32] = runs;
    let rounds = 0..raw.len();
    let mean = |side: &[Measured], i: usize| side[i].latency.mean_ns;
    let with: Vec<(f64, f64)> = rounds.clone().map(|i| (mean(ours, i), mean(raw, i))).collect();
    let without: Vec<(f64, f64)> =
        rounds.clone().map(|i| (mean(ours, i) - mean(hop, i), mean(raw, i))).collect();
    let alone: Vec<(f64, f64)> = rounds.clone().map(|i| (mean(own, i), mean(raw, i))).collect();
    let deep = |side: &[Measured]| -> Vec<(f64, f64)> {
        rounds.clone().map(|i| (side[i].iops, raw32[i].iops)).collect()
    };
    WriteLatency {
        facts,
        sides,
        qd1: ratio(&without, 4),
        qd1_with_hop: ratio(&with, 4),
        qd1_in_process: ratio(&alone, 4),
        qd32_in_process: ratio(&deep(own32), 4),
        qd32_iops: ratio(&deep(ours32), 4),
    }
}

impl WriteLatency {
    /// The sides, and the ratios under them.
    pub fn table(&self) -> Table {
        let mut table = Table::new(["4K random write", "mean", "p50", "p99", "IOPS"]);
        for side in &self.sides {
            let [mean, p50, p99] = [side.mean_ns, side.p50_ns, side.p99_ns].map(units::time);
            table.row([side.name.clone(), mean, p50, p99, units::number(side.iops)]);
        }
        for (name, ratio) in [
            ("qd1 latency / raw, in process", &self.qd1_in_process),
            ("qd1 latency / raw, NBD less its hop", &self.qd1),
            ("qd1 latency / raw, NBD, hop included", &self.qd1_with_hop),
            ("qd32 IOPS / raw, in process", &self.qd32_in_process),
            ("qd32 IOPS / raw, NBD", &self.qd32_iops),
        ] {
            let empty = String::new;
            table.row([name.to_owned(), units::times(ratio.value), ratio.interval(), empty(), empty()]);
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fio::Latency;

    fn measured(mean_ns: f64) -> Measured {
        let ns = mean_ns as u64;
        let latency = Latency { mean_ns, p50_ns: ns, p90_ns: ns, p99_ns: ns, p999_ns: ns, max_ns: ns };
        Measured {
            command: String::new(),
            requests: 1,
            seconds: 1.0,
            iops: 1e9 / mean_ns,
            bytes_per_second: 1.0,
            latency,
            series: Vec::new(),
            logged_p99_ns: None,
            reads: None,
            writes: None,
        }
    }

    #[test]
    fn the_hop_is_taken_off_once_and_depth_32_compares_rates() {
        let runs = [100.0, 110.0, 40.0, 115.0, 160.0, 10.0, 5.0, 16.0, 20.0]
            .map(|ns| vec![measured(ns), measured(ns)]);
        let result = result(Facts::of(std::path::Path::new("/")), &runs);
        assert_eq!((result.qd1.value, result.qd1_with_hop.value, result.qd32_iops.value), (1.2, 1.6, 0.5));
        assert_eq!((result.qd1_in_process.value, result.qd32_in_process.value), (1.15, 0.625));
        assert!(result.table().markdown().contains("less its hop | 1.20x"));
    }
}
