//! `loligo bench cliff|latency|nbd|fuse|block|ublk|foreground|restart|many`: the published figures, each both sides in one run.

use anyhow::Result;
use loligo_bench::bed::Place;
use loligo_bench::table::Table;
use loligo_bench::{block, cliff, foreground, fuse, latency, many, nbd_ab, restart, ublk};
use loligo_log::out;
use serde::Serialize;
use std::process::ExitCode;
use std::time::Duration;

/// Which of the figures.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Figure {
    /// Random writes past a full cache.
    Cliff,
    /// Write-back latency.
    Latency,
    /// The NBD server beside others.
    Nbd,
    /// A disk's queue through a mount.
    Fuse,
    /// What a volume adds to the kernel's transports.
    Block,
    /// A volume as a block device, and what its transport alone takes.
    Ublk,
    /// Cached reads while the destager runs.
    Foreground,
    /// A full cache killed and started.
    Restart,
    /// Many cores on one pool.
    Many,
}

/// Options that all figures share
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Seconds of each load (default: as the figure is defined)
    #[arg(long, value_name = "S")]
    seconds: Option<u64>,
    /// Interleaved rounds (default: as the figure is defined)
    #[arg(long, value_name = "N")]
    rounds: Option<usize>,
    /// Cache sizes in percent of the core (cliff only)
    #[arg(long, value_delimiter = ',', value_name = "PCT")]
    percents: Vec<u32>,
    /// Disks to run on (cliff only): the model, the unknown one behind FUSE, or both
    #[arg(long, default_value = "all", value_parser = ["all", "model", "unknown"])]
    disks: String,
    /// Print JSON
    #[arg(long, conflicts_with = "markdown")]
    json: bool,
    /// Print a Markdown table
    #[arg(long)]
    markdown: bool,
}

/// Measures one figure.
pub(crate) fn run(which: Figure, a: &Args) -> Result<ExitCode> {
    let place = Place::here()?;
    let time = a.seconds.map(Duration::from_secs);
    match which {
        Figure::Cliff => {
            let mut o = cliff::Options::new(place);
            if let Some(t) = time {
                (o.time, o.steady) = (t, t * 3 / 7);
            }
            if !a.percents.is_empty() {
                o.percents.clone_from(&a.percents);
                o.unknown.clone_from(&a.percents);
            }
            match a.disks.as_str() {
                "model" => o.unknown.clear(),
                "unknown" => o.percents.clear(),
                _ => {}
            }
            let r = cliff::run(&o)?;
            show(a, &r, &r.table())
        }
        Figure::Latency => {
            let mut o = latency::Options::new(place);
            (o.time, o.rounds) = (time.unwrap_or(o.time), a.rounds.unwrap_or(o.rounds));
            let r = latency::run(&o)?;
            show(a, &r, &r.table())
        }
        Figure::Nbd => {
            let mut o = nbd_ab::Options::new(place);
            (o.time, o.pairs) = (time.unwrap_or(o.time), a.rounds.unwrap_or(o.pairs));
            let r = nbd_ab::run(&o)?;
            show(a, &r, &r.table())
        }
        Figure::Fuse => {
            let mut o = fuse::Options::new(place);
            (o.time, o.pairs) = (time.unwrap_or(o.time), a.rounds.unwrap_or(o.pairs));
            let r = fuse::run(&o)?;
            show(a, &r, &r.table())
        }
        Figure::Block => {
            let mut o = block::Options::new(place);
            (o.time, o.pairs) = (time.unwrap_or(o.time), a.rounds.unwrap_or(o.pairs));
            let r = block::run(&o)?;
            show(a, &r, &r.table())
        }
        Figure::Ublk => {
            let mut o = ublk::Options::new(place);
            (o.time, o.pairs) = (time.unwrap_or(o.time), a.rounds.unwrap_or(o.pairs));
            let r = ublk::run(&o)?;
            show(a, &r, &r.table())
        }
        Figure::Foreground => {
            let mut o = foreground::Options::new(place);
            (o.time, o.pairs) = (time.unwrap_or(o.time), a.rounds.unwrap_or(o.pairs));
            let r = foreground::run(&o)?;
            show(a, &r, &r.table())
        }
        Figure::Many => {
            let mut o = many::Options::new(place);
            (o.time, o.pairs) = (time.unwrap_or(o.time), a.rounds.unwrap_or(o.pairs));
            let r = many::run(&o)?;
            show(a, &r, &r.table())
        }
        Figure::Restart => {
            let mut o = restart::Options::new(place);
            (o.load, o.rounds) = (time.unwrap_or(o.load), a.rounds.unwrap_or(o.rounds));
            let r = restart::run(&o)?;
            show(a, &r, &r.table())
        }
    }
}

fn show(a: &Args, result: &impl Serialize, table: &Table) -> Result<ExitCode> {
    if a.json {
        out!("{}\n", serde_json::to_string_pretty(result)?);
    } else if a.markdown {
        out!("{}\n", table.markdown());
    } else {
        out!("{}\n", table.text());
    }
    Ok(ExitCode::SUCCESS)
}
