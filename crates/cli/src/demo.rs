//! `loligo demo`.

use anyhow::Result;
use loligo_bench::bed::Place;
use loligo_bench::demo::ceph;
use loligo_bench::demo::{self, DemoOptions};
use loligo_bench::interrupt;
use loligo_log::say;
use std::path::PathBuf;
use std::process::ExitCode;

/// Show before and after on this machine, in a few minutes
///
/// Makes a 1 GiB core behind the model of a 7,200 rpm disk and a 256 MiB cache file in a scratch folder, serves both the
/// bare core and the cached volume over NBD, and drives each with fio. Ends with the data verified, a table and a report.
/// Ctrl-C at any moment leaves nothing behind.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: Option<What>,
    /// Parent of the scratch folder (default: the system's temporary folder)
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Where the report goes
    #[arg(long, value_name = "FILE", default_value = "loligo-demo.html")]
    report: PathBuf,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    Ceph(Ceph),
}

/// Show an RBD image with and without a cache, on a real cluster of modelled disks (about 6 minutes)
///
/// Brings up a lab of three OSDs on models of 7,200 rpm disks and drives two images on it with fio: one through librbd without
/// its cache, one through a cached volume, write-through and write-back: random reads while the cache warms, random writes, a
/// mix, and random writes past a full cache. Ends with a table and a report. Ctrl-C at any moment leaves nothing behind.
#[derive(Debug, clap::Args)]
struct Ceph {
    /// Parent of the scratch folder, which holds the lab and the caches [default: the system's temporary folder]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Where the report goes
    #[arg(long, value_name = "FILE", default_value = "loligo-demo-ceph.html")]
    report: PathBuf,
    /// Copies of each object, 1 to 3
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=3))]
    replicas: u32,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// Shows it.
pub(crate) fn run(a: Args) -> Result<ExitCode> {
    let done = match a.what {
        Some(What::Ceph(a)) => on_ceph(a),
        None => on_a_disk(a.dir, a.report, a.json),
    };
    match done {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => {
            say!("error: {error:#}");
            Ok(ExitCode::from(interrupt::exit_code(&error) as u8))
        }
    }
}

fn on_a_disk(dir: Option<PathBuf>, report: PathBuf, json: bool) -> Result<()> {
    demo::run(&DemoOptions { place: place(dir)?, report, json })
}

/// Where a demo runs.
fn place(dir: Option<PathBuf>) -> Result<Place> {
    let mut place = Place::here()?;
    place.dir = dir.unwrap_or(place.dir);
    Ok(place)
}

fn on_ceph(a: Ceph) -> Result<()> {
    let place = place(a.dir)?;
    ceph::run(&DemoOptions { place, report: a.report, json: a.json }, a.replicas)
}
