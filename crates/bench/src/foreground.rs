//! Figure 7: cached reads at a fixed rate while the cache destages at full rate, against the same reads while it is idle.

use std::time::Duration;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::bed::{Bed, Place};
use crate::facts::Facts;
use crate::fio::{Job, Measured, Rw};
use crate::server::{Server, Volume, disk_model};
use crate::stats::{Ratio, median, ratio};
use crate::table::Table;
use crate::units;
use crate::watch::Watch;

/// How the experiment runs.
#[derive(Debug, Clone)]
pub struct Options {
    /// Program, folder, interrupt.
    pub place: Place,
    /// Size of the core, bytes.
    pub core: u64,
    /// Size of the cache, bytes: a quarter of it is read, half of it is made dirty.
    pub cache: u64,
    /// Pairs of an idle run and one under destage.
    pub pairs: usize,
    /// Length of a run: shorter than the dirty half takes to drain.
    pub time: Duration,
}

impl Options {
    /// A 4 GiB core, a 512 MiB cache, five pairs of 5 s runs.
    pub fn new(place: Place) -> Options {
        Options { place, core: 4 << 30, cache: 512 << 20, pairs: 5, time: Duration::from_secs(5) }
    }
}

/// The experiment's result.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Foreground {
    /// The machine.
    pub facts: Facts,
    /// Requests per second at depth 32 on an idle cache.
    pub maximum_iops: f64,
    /// The fixed rate: half of it.
    pub rate_iops: u32,
    /// Median rate and 99th percentile (nanoseconds) of the idle runs.
    pub idle: (f64, f64),
    /// The same under destage.
    pub busy: (f64, f64),
    /// Rate under destage over the idle rate.
    pub rate: Ratio,
    /// 99th percentile under destage over the idle one.
    pub p99: Ratio,
    /// The lowest dirty share at the end of a run under destage: above 0 the destage lasted as long as the run.
    pub dirty_left: f64,
}

/// Runs it.
pub fn run(opts: &Options) -> Result<Foreground> {
    let bed = Bed::new(&opts.place, opts.core + opts.cache + (64 << 20))?;
    let core = bed.file("core", opts.core)?;
    let stats = bed.path("stats.json");
    let volume = Volume {
        cache: bed.path("cache"),
        cache_bytes: opts.cache,
        core: disk_model(&core),
        mode: "wb",
        stats: Some(stats.clone()),
        flush_on_stop: false,
    };
    let server = bed.serve("volume", &volume)?;
    let mut cache = Cache { opts, bed: &bed, server: &server, watch: Watch::new(&stats) };
    // Large reads in core order, three times: the first two only make blocks candidates.
    for _ in 0..3 {
        bed.run(&Job::new(server.target(), Rw::Read, 64 << 10, 8).within(0, opts.cache / 4))?;
    }
    let maximum_iops = bed.run(&cache.reads(None))?.iops;
    let rate_iops = (maximum_iops / 2.0) as u32;
    let mut runs = Vec::new();
    let mut dirty_left = f64::MAX;
    for pair in 0..opts.pairs {
        let idle = cache.idle(rate_iops)?;
        let (busy, left) = cache.busy(rate_iops, pair as u64)?;
        dirty_left = dirty_left.min(left);
        runs.push((busy, idle));
    }
    bed.end(server)?;
    let middle =
        |pick: &dyn Fn(&(Measured, Measured)) -> f64| median(&runs.iter().map(pick).collect::<Vec<_>>());
    let each = |pick: &dyn Fn(&Measured) -> f64| -> Vec<(f64, f64)> {
        runs.iter().map(|(busy, idle)| (pick(busy), pick(idle))).collect()
    };
    Ok(Foreground {
        facts: bed.facts(),
        maximum_iops,
        rate_iops,
        idle: (middle(&|run| run.1.iops), middle(&|run| run.1.latency.p99_ns as f64)),
        busy: (middle(&|run| run.0.iops), middle(&|run| run.0.latency.p99_ns as f64)),
        rate: ratio(&each(&|side| side.iops), 7),
        p99: ratio(&each(&|side| side.latency.p99_ns as f64), 7),
        dirty_left,
    })
}

/// The volume under test.
struct Cache<'a> {
    opts: &'a Options,
    bed: &'a Bed,
    server: &'a Server,
    watch: Watch,
}

impl Cache<'_> {
    fn reads(&self, rate: Option<u32>) -> Job {
        let mut job = Job::new(self.server.target(), Rw::RandRead, 4096, 32);
        job = job.within(0, self.opts.cache / 4).lasting(self.opts.time);
        job.rate_iops = rate;
        job
    }

    /// Reads on a drained cache.
    fn idle(&mut self, rate: u32) -> Result<Measured> {
        self.bed.drained(&mut self.watch)?;
        self.bed.run(&self.reads(Some(rate)))
    }

    /// Makes half the cache dirty outside the range that is read, then reads while it drains. Also returns the dirty share
    /// that is left at the end.
    fn busy(&mut self, rate: u32, seed: u64) -> Result<(Measured, f64)> {
        let from = self.opts.cache / 4;
        let mut fill =
            Job::new(self.server.target(), Rw::RandWrite, 4096, 32).within(from, self.opts.core - from);
        fill.seed = seed + 100;
        fill.total = Some(self.opts.cache / 2);
        self.bed.run(&fill)?;
        let read = self.bed.run(&self.reads(Some(rate)))?;
        Ok((read, self.bed.look(&mut self.watch)?.dirty()))
    }
}

impl Foreground {
    /// Both sides and their ratios.
    pub fn table(&self) -> Table {
        let mut table = Table::new(["cached 4K reads", "asked IOPS", "IOPS", "p99"]);
        let asked = units::number(f64::from(self.rate_iops));
        for (name, (iops, p99)) in [("cache idle", self.idle), ("destage at full rate", self.busy)] {
            table.row([name.to_owned(), asked.clone(), units::number(iops), units::time(p99)]);
        }
        let [rate, p99] = [&self.rate, &self.p99]
            .map(|ratio| format!("{} ({})", units::times(ratio.value), ratio.interval()));
        table.row(["ratio".to_owned(), String::new(), rate, p99]);
        table
    }
}
