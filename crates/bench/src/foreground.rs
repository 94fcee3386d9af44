//! Figure 7: cached reads at a fixed rate while the cache destages at full rate, against the same reads while it is idle.

use anyhow::Result;
use serde::Serialize;

use crate::bed::{Bed, Place};
use crate::facts::Facts;
use crate::figure::{Figure, Runs};
use crate::fio::{Job, Measured, Rw};
use crate::server::{Server, Volume, disk_model};
use crate::stats::{Ratio, median_of, ratio_of};
use crate::table::Table;
use crate::units;
use crate::watch::Watch;

/// Five pairs of 5 s runs: shorter than the dirty half of the cache takes to drain.
pub const RUNS: Runs = Runs::new(5, 5);

/// Bytes of the core.
const CORE: u64 = 4 << 30;
/// Bytes of the cache: a quarter of it is read, half of it is made dirty.
const CACHE: u64 = 512 << 20;

#[derive(Serialize)]
struct Foreground {
    facts: Facts,
    /// Requests per second at depth 32 on an idle cache.
    maximum_iops: f64,
    /// The fixed rate: half of it.
    rate_iops: u32,
    /// Median rate and 99th percentile (nanoseconds) of the idle runs.
    idle: (f64, f64),
    /// The same under destage.
    busy: (f64, f64),
    /// Rate under destage over the idle rate.
    rate: Ratio,
    /// 99th percentile under destage over the idle one.
    p99: Ratio,
    /// The lowest dirty share at the end of a run under destage: above 0 the destage lasted as long as the run.
    dirty_left: f64,
}

/// Runs it.
///
/// # Errors
/// The volume cannot be served, or a run fails.
pub fn run(place: &Place, runs: Runs) -> Result<impl Figure> {
    let bed = Bed::new(place, CORE + CACHE + (64 << 20))?;
    let core = disk_model(&bed.file("core", CORE)?);
    let stats = bed.path("stats.json");
    let volume = Volume { stats: Some(stats.clone()), ..bed.volume("cache", CACHE, core) };
    let server = bed.serve("volume", &volume)?;
    let mut cache = Cache { runs, bed: &bed, server: &server, watch: Watch::new(&stats) };
    // Large reads in core order, three times: the first two only make blocks candidates.
    for _ in 0..3 {
        bed.run(&Job::new(server.target(), Rw::Read, 64 << 10, 8).within(0, CACHE / 4))?;
    }
    let maximum_iops = bed.run(&cache.reads(None))?.iops;
    let rate_iops = (maximum_iops / 2.0) as u32;
    let mut all: Vec<(Measured, Measured)> = Vec::new();
    let mut dirty_left = f64::MAX;
    for round in 0..runs.rounds {
        let idle = cache.idle(rate_iops)?;
        let (busy, left) = cache.busy(rate_iops, round as u64)?;
        dirty_left = dirty_left.min(left);
        all.push((busy, idle));
    }
    bed.end(server)?;
    let p99 = |run: &Measured| run.latency.p99_ns as f64;
    Ok(Foreground {
        facts: bed.facts(),
        maximum_iops,
        rate_iops,
        idle: (median_of(&all, |run| run.1.iops), median_of(&all, |run| p99(&run.1))),
        busy: (median_of(&all, |run| run.0.iops), median_of(&all, |run| p99(&run.0))),
        rate: ratio_of(&all, |run| run.iops, 7),
        p99: ratio_of(&all, p99, 7),
        dirty_left,
    })
}

/// The volume under test.
struct Cache<'a> {
    runs: Runs,
    bed: &'a Bed,
    server: &'a Server,
    watch: Watch,
}

impl Cache<'_> {
    fn reads(&self, rate: Option<u32>) -> Job {
        let mut job = Job::new(self.server.target(), Rw::RandRead, 4096, 32);
        job = job.within(0, CACHE / 4).lasting(self.runs.time);
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
        let from = CACHE / 4;
        let mut fill = Job::new(self.server.target(), Rw::RandWrite, 4096, 32).within(from, CORE - from);
        fill = fill.seeded(seed + 100);
        fill.total = Some(CACHE / 2);
        self.bed.run(&fill)?;
        let read = self.bed.run(&self.reads(Some(rate)))?;
        Ok((read, self.bed.look(&mut self.watch)?.dirty()))
    }
}

impl Figure for Foreground {
    fn table(&self) -> Table {
        let mut table = Table::new(["cached 4K reads", "asked IOPS", "IOPS", "p99"]);
        let asked = units::number(f64::from(self.rate_iops));
        for (name, (iops, p99)) in [("cache idle", self.idle), ("destage at full rate", self.busy)] {
            table.row([name.to_owned(), asked.clone(), units::number(iops), units::time(p99)]);
        }
        table.row(["ratio".to_owned(), String::new(), self.rate.to_string(), self.p99.to_string()]);
        table
    }
}
