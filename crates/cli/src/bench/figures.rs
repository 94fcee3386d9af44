//! `loligo bench cliff|latency|nbd|fuse|block|ublk|foreground|restart|many`: the published figures, each both sides in one run.

use anyhow::Result;
use loligo_bench::bed::Place;
use loligo_bench::figure::Runs;
use loligo_bench::{cliff, foreground, fuse, latency, many, nbd_ab, overhead, restart};
use loligo_log::out;
use std::process::ExitCode;
use std::time::Duration;

/// Which of the figures.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Figure {
    /// 4 KiB random writes at depth 32 past a full cache, against the bare 7,200 rpm model and a disk unknown to it (six loads of 140 s)
    Cliff(Args),
    /// Write-back 4 KiB latency at depth 1 and rate at depth 32, against raw O_DIRECT writes
    Latency(Args),
    /// A pass-through volume beside nbdkit and qemu-nbd, alternated
    Nbd(Args),
    /// A modelled disk at depth 32 through a FUSE mount, against the same model in process, alternated
    Fuse(Args),
    /// What Loligo adds to a FUSE file and to a block device over one: requests and processor time against a target that answers at once (root)
    Block(Args),
    /// A ublk device over memory, bare and cached, beside one that answers at once: rate and processor time of a request
    Ublk(Args),
    /// Cached reads at a fixed rate, with and without destaging at full rate
    Foreground(Args),
    /// A full 64 GiB cache of 4 KiB lines (sparse, synthetic data) killed under load and started again: time, lines kept
    Restart(Args),
    /// 64 cores on one pool: 63 at a fixed rate beside one that is busy, how shares follow, what all reach together
    Many(Args),
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
pub(crate) fn run(which: Figure) -> Result<ExitCode> {
    let place = Place::here()?;
    match &which {
        Figure::Cliff(a) => show(a, &cliff::run(&place, &a.cliff())?),
        Figure::Latency(a) => show(a, &latency::run(&place, a.runs(latency::RUNS))?),
        Figure::Nbd(a) => show(a, &nbd_ab::run(&place, a.runs(nbd_ab::RUNS))?),
        Figure::Fuse(a) => show(a, &fuse::run(&place, a.runs(fuse::RUNS))?),
        Figure::Block(a) => show(a, &overhead::block(&place, a.runs(overhead::BLOCK))?),
        Figure::Ublk(a) => show(a, &overhead::ublk(&place, a.runs(overhead::UBLK))?),
        Figure::Foreground(a) => show(a, &foreground::run(&place, a.runs(foreground::RUNS))?),
        Figure::Many(a) => show(a, &many::run(&place, a.runs(many::RUNS))?),
        Figure::Restart(a) => show(a, &restart::run(&place, a.runs(restart::RUNS))?),
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
