//! `loligo bench cliff|latency|nbd|fuse|block|ublk|foreground|restart|many`: the published figures, each both sides in one run.

use anyhow::Result;
use loligo_bench::bed::Place;
use loligo_bench::figure::Runs;
use loligo_bench::{cliff, foreground, fuse, latency, many, nbd_ab, overhead, restart};
use loligo_log::out;
use std::process::ExitCode;
use std::time::Duration;

/// One of the figures.
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
    /// The time that a volume adds to the kernel's transports.
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

impl Args {
    /// As the figure is defined, but for what was asked for.
    fn runs(&self, figure: Runs) -> Runs {
        Runs {
            rounds: self.rounds.unwrap_or(figure.rounds),
            time: self.seconds.map_or(figure.time, Duration::from_secs),
        }
    }

    fn cliff(&self) -> cliff::Options {
        let mut o = cliff::Options::default();
        if let Some(time) = self.seconds.map(Duration::from_secs) {
            (o.time, o.steady) = (time, time * 3 / 7);
        }
        if !self.percents.is_empty() {
            o.percents.clone_from(&self.percents);
            o.unknown.clone_from(&self.percents);
        }
        match self.disks.as_str() {
            "model" => o.unknown.clear(),
            "unknown" => o.percents.clear(),
            _ => {}
        }
        o
    }
}

/// Measures one figure.
pub(crate) fn run(which: Figure, a: &Args) -> Result<ExitCode> {
    let place = Place::here()?;
    match which {
        Figure::Cliff => show(a, &cliff::run(&place, &a.cliff())?),
        Figure::Latency => show(a, &latency::run(&place, a.runs(latency::RUNS))?),
        Figure::Nbd => show(a, &nbd_ab::run(&place, a.runs(nbd_ab::RUNS))?),
        Figure::Fuse => show(a, &fuse::run(&place, a.runs(fuse::RUNS))?),
        Figure::Block => show(a, &overhead::block(&place, a.runs(overhead::BLOCK))?),
        Figure::Ublk => show(a, &overhead::ublk(&place, a.runs(overhead::UBLK))?),
        Figure::Foreground => show(a, &foreground::run(&place, a.runs(foreground::RUNS))?),
        Figure::Many => show(a, &many::run(&place, a.runs(many::RUNS))?),
        Figure::Restart => show(a, &restart::run(&place, a.runs(restart::RUNS))?),
    }
}

fn show(a: &Args, result: &impl loligo_bench::figure::Figure) -> Result<ExitCode> {
    if a.json {
        out!("{}\n", serde_json::to_string_pretty(result)?);
    } else if a.markdown {
        out!("{}\n", result.table().markdown());
    } else {
        out!("{}\n", result.table().text());
    }
    Ok(ExitCode::SUCCESS)
}
