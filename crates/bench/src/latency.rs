//! Figure 4: what a write-back write costs over a raw write to the file system that holds the cache.

use std::path::Path;

use anyhow::Result;
use loligo_block::DeviceSpec;
use serde::Serialize;

use crate::bed::{Bed, DRAIN_LIMIT, MEMORY, Place, direct};
use crate::facts::Facts;
use crate::figure::{Figure, Runs};
use crate::fio::{FileEngine, Job, Measured, Rw, Target};
use crate::in_process::InProcess;
use crate::server::Volume;
use crate::stats::{Ratio, median_of, ratio};
use crate::table::Table;
use crate::units;
use crate::watch::Watch;

/// Seven rounds of 4 s runs.
pub const RUNS: Runs = Runs::new(7, 4);

/// Bytes of the cache files and of the raw file; cores are four times as long.
const CACHE: u64 = 512 << 20;

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

/// One run of a round.
enum Step {
    /// A run that leaves nothing to clear up.
    Raw(Job),
    /// A served volume, which then is drained.
    Cached(Job),
    /// This process's own, at this depth.
    InProcess(usize),
}

/// One side's medians over the rounds.
#[derive(Serialize)]
struct Side {
    /// The target, and the depth.
    name: &'static str,
    mean_ns: f64,
    p50_ns: f64,
    p99_ns: f64,
    iops: f64,
}

#[derive(Serialize)]
struct WriteLatency {
    facts: Facts,
    sides: Vec<Side>,
    /// Mean latency at depth 1 in process, over the raw io_uring write.
    qd1_in_process: Ratio,
    /// Mean latency at depth 1 through NBD, less the hop that nbdkit's memory plugin costs in the same round, over the raw
    /// io_uring write.
    qd1: Ratio,
    /// The same without taking the hop off.
    qd1_with_hop: Ratio,
    /// Requests per second at depth 32 in process over the raw io_uring writes'.
    qd32_in_process: Ratio,
    /// Requests per second at depth 32 through NBD over the raw io_uring writes'.
    qd32_iops: Ratio,
}

/// Runs it. Writes go to random blocks within half the cache, so that what is measured is the path of a write, not of a full
/// cache.
///
/// # Errors
/// Where nbdkit is missing, or a run fails.
pub fn run(place: &Place, runs: Runs) -> Result<impl Figure> {
    let bed = Bed::new(place, CACHE * 3 + (64 << 20))?;
    // The core is another device, as it is in service: in memory, behind the model, so that the raw writes and the cache have
    // the file system's disk to themselves alike.
    let memory = Bed::in_folder(place, Path::new(MEMORY), CACHE * 2)?;
    let core = |name: &str| memory.disk(name, CACHE * 4);
    let raw = bed.file("raw", CACHE)?;
    let stats = bed.path("stats.json");
    let mut watch = Watch::new(&stats);
    let volume = Volume { stats: Some(stats), ..bed.volume("cache", CACHE, core("core")?) };
    let cached = bed.serve("wb", &volume)?;
    let own_core: DeviceSpec = core("own-core")?.parse()?;
    let mut own = InProcess::new(&bed.file("own-cache", CACHE)?, &own_core)?;
    let hop = bed.nbdkit("memory", &["memory", &format!("size={CACHE}")])?;
    let uring = || direct(&raw, FileEngine::IoUring);
    let job = |target: Target, depth| {
        Job::new(target, Rw::RandWrite, 4096, depth).within(0, CACHE / 2).lasting(runs.time)
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
    let mut measured: [Vec<Measured>; SIDES.len()] = Default::default();
    for round in 0..runs.rounds {
        for step in 0..steps.len() {
            let side = if round % 2 == 0 { step } else { steps.len() - 1 - step };
            measured[side].push(match &steps[side] {
                Step::Raw(job) => bed.run(job)?,
                Step::Cached(job) => {
                    let run = bed.run(job)?;
                    bed.drained(&mut watch)?;
                    run
                }
                Step::InProcess(depth) => {
                    loligo_log::say!("{} at depth {depth}", SIDES[side]);
                    let run = own.write(*depth, CACHE / 2, runs.time, bed.stop())?;
                    own.drain(DRAIN_LIMIT, bed.stop())?;
                    run
                }
            });
        }
    }
    bed.end(cached)?;
    bed.end(hop)?;
    Ok(result(bed.facts(), &measured))
}

fn result(facts: Facts, runs: &[Vec<Measured>; SIDES.len()]) -> WriteLatency {
    let sides = SIDES
        .iter()
        .zip(runs)
        .map(|(name, side)| Side {
            name,
            mean_ns: median_of(side, |run| run.latency.mean_ns),
            p50_ns: median_of(side, |run| run.latency.p50_ns as f64),
            p99_ns: median_of(side, |run| run.latency.p99_ns as f64),
            iops: median_of(side, |run| run.iops),
        })
        .collect();
    let [raw, _, hop, own, ours, raw32, _, own32, ours32] = runs;
    let mean = |run: &Measured| run.latency.mean_ns;
    let zipped = |a: &[Measured], b: &[Measured], pick: fn(&Measured) -> f64| -> Vec<(f64, f64)> {
        a.iter().zip(b).map(|(a, b)| (pick(a), pick(b))).collect()
    };
    let with = zipped(ours, raw, mean);
    let without: Vec<_> = with.iter().zip(hop).map(|((ours, raw), hop)| (ours - mean(hop), *raw)).collect();
    WriteLatency {
        facts,
        sides,
        qd1: ratio(&without, 4),
        qd1_with_hop: ratio(&with, 4),
        qd1_in_process: ratio(&zipped(own, raw, mean), 4),
        qd32_in_process: ratio(&zipped(own32, raw32, |run| run.iops), 4),
        qd32_iops: ratio(&zipped(ours32, raw32, |run| run.iops), 4),
    }
}

impl Figure for WriteLatency {
    fn table(&self) -> Table {
        let mut table = Table::new(["4K random write", "mean", "p50", "p99", "IOPS"]);
        for side in &self.sides {
            let [mean, p50, p99] = [side.mean_ns, side.p50_ns, side.p99_ns].map(units::time);
            table.row([side.name.to_owned(), mean, p50, p99, units::number(side.iops)]);
        }
        for (name, ratio) in [
            ("qd1 latency / raw, in process", &self.qd1_in_process),
            ("qd1 latency / raw, NBD less its hop", &self.qd1),
            ("qd1 latency / raw, NBD, hop included", &self.qd1_with_hop),
            ("qd32 IOPS / raw, in process", &self.qd32_in_process),
            ("qd32 IOPS / raw, NBD", &self.qd32_iops),
        ] {
            let ([times, interval], empty) = (ratio.cells(), String::new);
            table.row([name.to_owned(), times, interval, empty(), empty()]);
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
