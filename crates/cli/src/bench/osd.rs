//! `loligo bench osd`.

use super::{Form, check_report, ended, print_marks};
use anyhow::Result;
use loligo_bench::bed::Place;
use loligo_bench::osd::{Load, Options, run as measure_osds};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// OSDs on modelled disks, bare and behind caches, on real clusters: the published experiment, alternated
///
/// Brings up four labs with the same settings of BlueStore, which are printed: bare OSDs, OSDs behind caches
/// of a quarter of their data, OSDs behind caches that hold all of it, and OSDs on files, which show the most
/// that Ceph reaches on this machine. Clients are fio with librbd and rbd_cache=false. Missed marks are
/// printed as MISS and are no error. Takes about 70 minutes.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Loads:
  full        4K random write past a full cache, with the course of the dirty share
  sequential  512K sequential read and write through caches of a quarter of the data
  scans       hits of a hot part of the image after a deep scrub, a compaction and a backfill of
              everything, against its hits before
  room        4K random read that always hits, random write into a clean cache, 70/30; also on OSDs
              on files

Example:
  loligo bench osd --rounds 5 --seconds 10 --report osd.html --dir /data")]
pub(crate) struct Args {
    /// The loads to measure: full, sequential, scans, room [default: all]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    loads: Vec<Load>,
    /// Seconds of each run
    #[arg(long, value_name = "S", default_value_t = 20)]
    seconds: u64,
    /// Interleaved rounds
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: usize,
    /// Seconds that a full cache is written to before it is measured
    #[arg(long, value_name = "S", default_value_t = 60)]
    settle: u64,
    /// OSDs of each lab
    #[arg(long, value_name = "N", default_value_t = 2)]
    osds: u32,
    /// Copies of each object
    #[arg(long, value_name = "N", default_value_t = 2)]
    replicas: u32,
    /// Bytes of the image
    #[arg(long, value_name = "SIZE", default_value = "1g", value_parser = crate::values::size)]
    image_size: u64,
    /// Bytes of each OSD's cache where it is to become full
    #[arg(long, value_name = "SIZE", default_value = "256m", value_parser = crate::values::size)]
    cache_size: u64,
    /// The folder that the caches lie in [default: beside the disks]
    #[arg(long, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
    /// A tunable of the caches, as 'loligo param' names it; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = crate::values::param)]
    cache_set: Vec<(String, String)>,
    /// Parent of the scratch folder, which holds the labs [default: the system's temporary folder]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Write a page with tables and plots
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Print JSON
    #[arg(long, conflicts_with = "markdown")]
    json: bool,
    /// Print a Markdown table
    #[arg(long)]
    markdown: bool,
}

/// Measures.
pub(crate) fn run(a: &Args) -> Result<ExitCode> {
    ended(measure(a))
}

fn measure(a: &Args) -> Result<()> {
    check_report(a.report.as_ref())?;
    let mut place = Place::here()?;
    if let Some(dir) = &a.dir {
        place.dir.clone_from(dir);
    }
    let seconds = Duration::from_secs;
    let loads = if a.loads.is_empty() { Load::ALL.to_vec() } else { a.loads.clone() };
    let outcome = measure_osds(&Options {
        loads,
        osds: a.osds,
        replicas: a.replicas,
        image: a.image_size,
        cache: a.cache_size,
        rounds: a.rounds,
        time: seconds(a.seconds),
        settle: seconds(a.settle),
        cache_dir: a.cache_dir.clone(),
        cache_set: a.cache_set.clone(),
        ..Options::new(place)
    })?;
    if let Some(path) = &a.report {
        outcome.report().write(path)?;
    }
    let form = Form { json: a.json, markdown: a.markdown };
    print_marks(form, &outcome, &outcome.table(), outcome.notes(), &outcome.setup, outcome.missed())
}
