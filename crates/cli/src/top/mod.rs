//! `loligo top`.

mod batch;
mod cells;
mod screen;
mod sort;
mod terminal;

use anyhow::Result;
use clap::ArgAction;
use sort::Sort;
use std::io::{IsTerminal, stdout};
use std::process::ExitCode;
use std::time::Duration;

/// Watch all volumes of this host
///
/// Shows the volumes of the daemon and those of 'loligo serve', with the changes since the last look:
/// requests and megabytes a second, hits, dirty data, latencies (median and 99th percentile), destage rate,
/// and the most frequent reason to bypass the cache. A volume that does not answer within 2 s is shown as
/// silent.
///
/// On a terminal it fills the screen. Elsewhere, and with --batch, it prints text.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Keys:
  q, Esc, Ctrl-C     leave
  up, down, j, k     choose a volume
  Enter, d           more about it, or less
  s, S               sort by the next column, or the one before
  r                  turn the order around
  +, -               look less often, or more often

Columns: R/s and W/s are requests, RMB/s and WMB/s their bytes. HIT% is of reads and writes
together. DIRT% is the part of the cache that its core does not have. DESTG is written to the core, MB/s.
BYPASS is the most frequent reason to go past the cache, with requests a second.

States: ok (serving), start, wait, refus, stop, fail, silen; POIS: the cache acknowledges nothing any
more; LOST: somebody else has taken the image.")]
pub(crate) struct Args {
    /// Seconds between two looks
    #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    interval: Duration,
    /// Print text instead of a screen
    #[arg(short, long)]
    batch: bool,
    /// Print so many times and end (with --batch or --json; default: until Ctrl-C)
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Print once and end: the same as --batch -n 1
    #[arg(long, conflicts_with = "count")]
    once: bool,
    /// Print a line of JSON for each look; implies --batch
    #[arg(long)]
    json: bool,
    /// The key to sort by
    #[arg(long, value_enum, default_value_t = Sort::Name)]
    sort: Sort,
    /// The other way round
    #[arg(long, action = ArgAction::SetTrue)]
    reverse: bool,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let given: f64 = text.parse().map_err(|_| "give seconds, as 1 or 0.5".to_owned())?;
    if !(0.1..=3600.0).contains(&given) {
        return Err("0.1 to 3600 seconds".to_owned());
    }
    Ok(Duration::from_secs_f64(given))
}

/// Watches.
pub(crate) fn run(a: &Args) -> Result<ExitCode> {
    let order = sort::Order { by: a.sort, reverse: a.reverse };
    if a.batch || a.once || a.json || !stdout().is_terminal() {
        let count = if a.once { Some(1) } else { a.count };
        batch::run(a.interval, count, a.json, order)?;
    } else {
        terminal::run(a.interval, order)?;
    }
    Ok(ExitCode::SUCCESS)
}
