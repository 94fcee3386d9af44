//! Figure 1: no cliff. Uniform 4K random writes at depth 32 for much longer than it takes to fill the cache, against the
//! bare disk at the same depth, second by second: the disk model that `serve` itself offers, and a disk behind FUSE of
//! which it knows nothing.

use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::bed::{Bed, Place};
use crate::facts::Facts;
use crate::figure::Figure;
use crate::fio::{Job, Measured, Rw, Second, Target};
use crate::server::{bare_args, disk_model};
use crate::stats::median;
use crate::table::Table;
use crate::units;
use crate::unknown_disk::UnknownDisk;

/// Bytes of the core.
const CORE: u64 = 1 << 30;

/// The settings of the experiment.
#[derive(Debug, Clone)]
pub struct Options {
    /// Sizes of the cache in percent of the core, before the disk model; none: it is left out.
    pub percents: Vec<u32>,
    /// Sizes before the unknown disk; none: it is left out.
    pub unknown: Vec<u32>,
    /// Length of the load.
    pub time: Duration,
    /// The last part of it that counts as the steady state.
    pub steady: Duration,
}

impl Default for Options {
    /// Caches of 5, 25 and 50 %, of 25 % before the unknown disk, 140 s of load of which the last 60 s count.
    fn default() -> Options {
        Options {
            percents: vec![5, 25, 50],
            unknown: vec![25],
            time: Duration::from_secs(140),
            steady: Duration::from_secs(60),
        }
    }
}

/// One side's course.
#[derive(Serialize)]
struct Course {
    steady_iops: f64,
    /// Median of the steady seconds' 99th percentile latencies.
    steady_p99_ns: f64,
    /// Every second from an empty cache on.
    series: Vec<Second>,
}

/// One cache size against the bare disk.
#[derive(Serialize)]
struct Size {
    /// Of the core.
    percent: u32,
    course: Course,
    /// Steady requests per second over the bare disk's.
    ratio: f64,
    /// The slowest second of the whole run over the bare disk's steady rate: below 1 is a cliff.
    worst_second: f64,
    /// The highest 99th percentile of any second over the bare disk's own 99th percentile: above 1 is a latency step.
    worst_p99: f64,
}

/// One disk, bare and behind caches.
#[derive(Serialize)]
struct Disk {
    name: &'static str,
    bare: Course,
    /// Of the whole run.
    bare_p99_ns: u64,
    sizes: Vec<Size>,
}

#[derive(Serialize)]
struct Cliff {
    facts: Facts,
    disks: Vec<Disk>,
}

/// Runs each disk's bare side and then each cache size, every one with fresh files.
///
/// # Errors
/// A volume cannot be served, or a run fails.
pub fn run(place: &Place, opts: &Options) -> Result<impl Figure> {
    let largest = opts.percents.iter().chain(&opts.unknown).max().copied().unwrap_or(0);
    let bed = Bed::new(place, CORE + cache_bytes(CORE, largest) + (64 << 20))?;
    let content = bed.file("core", CORE)?;
    let mut disks = Vec::new();
    if !opts.percents.is_empty() {
        disks.push(disk(opts, &bed, "7,200 rpm model", &disk_model(&content), &opts.percents)?);
    }
    if !opts.unknown.is_empty() {
        let mount = bed.path("mount");
        std::fs::create_dir(&mount)?;
        match UnknownDisk::mount(&content, &mount) {
            Ok(unknown) => {
                let core = format!("file:{}", unknown.path().display());
                disks.push(disk(opts, &bed, "unknown disk (FUSE)", &core, &opts.unknown)?);
            }
            Err(why) => loligo_log::say!("SKIP: the unknown disk: {why:#}"),
        }
    }
    Ok(Cliff { facts: bed.facts(), disks })
}

fn disk(opts: &Options, bed: &Bed, name: &'static str, core: &str, percents: &[u32]) -> Result<Disk> {
    let load = |target: Target| Job::new(target, Rw::RandWrite, 4096, 32).lasting(opts.time);
    let server = bed.loligo("bare", &bare_args(core))?;
    let measured = bed.run(&load(server.target()))?;
    bed.end(server)?;
    let bare_p99_ns = measured.logged_p99_ns.context("fio logged nothing")?;
    let bare = course(measured, opts.steady)?;
    let mut sizes = Vec::new();
    for percent in percents {
        let bytes = cache_bytes(CORE, *percent);
        let volume = bed.volume(&format!("cache-{percent}"), bytes, core.to_owned());
        let server = bed.serve("cached", &volume)?;
        let measured = bed.run(&load(server.target()))?;
        bed.end(server)?;
        std::fs::remove_file(&volume.cache).context("removing the cache file")?;
        sizes.push(compare(*percent, course(measured, opts.steady)?, &bare, bare_p99_ns));
    }
    Ok(Disk { name, bare, bare_p99_ns, sizes })
}

/// Whole MiB, so that the size reads well.
fn cache_bytes(core: u64, percent: u32) -> u64 {
    let mib = 1 << 20;
    core * u64::from(percent) / 100 / mib * mib
}

fn course(measured: Measured, steady: Duration) -> Result<Course> {
    let (steady_iops, _) =
        measured.tail(steady.as_secs_f64()).context("the run was shorter than a second")?;
    let from = measured.series.last().map_or(0.0, |last| last.at) - steady.as_secs_f64();
    let p99: Vec<f64> =
        measured.series.iter().filter(|second| second.at > from).map(|second| second.p99_ns as f64).collect();
    Ok(Course { steady_iops, steady_p99_ns: median(&p99), series: measured.series })
}

fn compare(percent: u32, course: Course, bare: &Course, bare_p99_ns: u64) -> Size {
    let slowest = course.series.iter().map(|second| second.iops).fold(f64::MAX, f64::min);
    let longest = course.series.iter().map(|second| second.p99_ns).max().unwrap_or(0);
    Size {
        percent,
        ratio: course.steady_iops / bare.steady_iops,
        worst_second: slowest / bare.steady_iops,
        worst_p99: longest as f64 / bare_p99_ns as f64,
        course,
    }
}

impl Figure for Cliff {
    fn table(&self) -> Table {
        let heads = [
            "disk",
            "cache",
            "steady IOPS",
            "ratio to bare",
            "slowest second",
            "steady p99",
            "worst p99 / bare p99",
        ];
        let mut table = Table::new(heads);
        for disk in &self.disks {
            let bare = &disk.bare;
            table.row([
                disk.name.to_owned(),
                "none (bare)".to_owned(),
                units::number(bare.steady_iops),
                units::times(1.0),
                String::new(),
                units::time(bare.steady_p99_ns),
                String::new(),
            ]);
            for size in &disk.sizes {
                table.row([
                    disk.name.to_owned(),
                    format!("{} %", size.percent),
                    units::number(size.course.steady_iops),
                    units::times(size.ratio),
                    units::times(size.worst_second),
                    units::time(size.course.steady_p99_ns),
                    units::number(size.worst_p99),
                ]);
            }
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flat(iops: f64, p99_ns: u64) -> Course {
        let series = (1..=10).map(|at| Second { at: f64::from(at), iops, p50_ns: 1, p99_ns }).collect();
        Course { steady_iops: iops, steady_p99_ns: p99_ns as f64, series }
    }

    #[test]
    fn one_slow_second_shows_however_good_the_rest_is() {
        let bare = flat(200.0, 400);
        let mut cached = flat(10_000.0, 5);
        cached.series[3] = Second { at: 4.0, iops: 100.0, p50_ns: 1, p99_ns: 800 };
        let size = compare(25, cached, &bare, 400);
        assert_eq!((size.ratio, size.worst_second, size.worst_p99), (50.0, 0.5, 2.0));
    }

    #[test]
    fn caches_are_whole_mebibytes() {
        assert_eq!(cache_bytes(1 << 30, 5), 51 << 20);
        assert_eq!(cache_bytes(1 << 30, 25), 256 << 20);
    }
}
