//! `loligo bench`: one file per experiment.

mod engine;
mod figures;
mod null;
mod osd;
mod rbd;
mod trace;

use anyhow::{Result, bail};
use clap::Subcommand;
use figures::Figure;
use loligo_bench::interrupt::exit_code;
use loligo_bench::table::Table;
use loligo_log::{out, outln, say};
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;

/// Measure
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Trace(trace::Args),
    Engine(engine::Args),
    Model(engine::ModelArgs),
    /// 4 KiB random writes at depth 32 past a full cache, against the bare 7,200 rpm model and a disk unknown to it (six loads of 140 s)
    Cliff(figures::Args),
    /// Write-back 4 KiB latency at depth 1 and rate at depth 32, against raw O_DIRECT writes
    Latency(figures::Args),
    /// A pass-through volume beside nbdkit and qemu-nbd, alternated
    Nbd(figures::Args),
    /// A modelled disk at depth 32 through a FUSE mount, against the same model in process, alternated
    Fuse(figures::Args),
    /// The cost that Loligo adds to a FUSE file and to a block device over one: requests and processor time
    /// against a target that answers at once (root)
    Block(figures::Args),
    #[command(hide = true)]
    Null(null::Args),
    /// A ublk device over memory, bare and cached, beside one that answers at once: rate and processor time of a request
    Ublk(figures::Args),
    /// Cached reads at a fixed rate, with and without destaging at full rate
    Foreground(figures::Args),
    /// A full 64 GiB cache of 4 KiB lines (sparse, synthetic data) killed under load and started again: time, lines kept
    Restart(figures::Args),
    /// 64 cores on one pool: 63 at a fixed rate beside one that is busy, how shares follow, what all reach together
    Many(figures::Args),
    Rbd(Box<rbd::Args>),
    Osd(osd::Args),
}

/// Measures.
pub(crate) fn run(a: Args) -> Result<ExitCode> {
    match a.what {
        What::Trace(args) => trace::run(&args),
        What::Engine(args) => engine::run(&args),
        What::Model(args) => engine::run_model(&args),
        What::Cliff(args) => figures::run(Figure::Cliff, &args),
        What::Latency(args) => figures::run(Figure::Latency, &args),
        What::Nbd(args) => figures::run(Figure::Nbd, &args),
        What::Fuse(args) => figures::run(Figure::Fuse, &args),
        What::Block(args) => figures::run(Figure::Block, &args),
        What::Null(args) => null::run(&args),
        What::Ublk(args) => figures::run(Figure::Ublk, &args),
        What::Foreground(args) => figures::run(Figure::Foreground, &args),
        What::Restart(args) => figures::run(Figure::Restart, &args),
        What::Many(args) => figures::run(Figure::Many, &args),
        What::Rbd(args) => rbd::run(*args),
        What::Osd(args) => osd::run(&args),
    }
}

/// Ends a long experiment: an interrupt has an exit status of its own.
fn ended(done: Result<()>) -> Result<ExitCode> {
    match done {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => {
            say!("error: {error:#}");
            Ok(ExitCode::from(exit_code(&error) as u8))
        }
    }
}

/// The form in which measurements against marks are printed.
#[derive(Debug, Clone, Copy)]
struct Form {
    json: bool,
    markdown: bool,
}

/// Prints an experiment's table, what it is to be read with and how many marks were missed.
fn print_marks(
    form: Form,
    outcome: &impl Serialize,
    table: &Table,
    notes: impl IntoIterator<Item = String>,
    setup: &[(String, String)],
    missed: usize,
) -> Result<()> {
    if form.json {
        out!("{}\n", serde_json::to_string_pretty(outcome)?);
        return Ok(());
    }
    out!("{}\n", if form.markdown { table.markdown() } else { table.text() });
    let lines = setup.iter().map(|(name, value)| format!("{name}: {value}"));
    for line in notes.into_iter().chain(lines) {
        outln!("{}{line}", if form.markdown { "* " } else { "" });
    }
    match missed {
        0 => outln!("No mark missed."),
        n => outln!("{n} marks MISSED."),
    }
    Ok(())
}

/// Refuses a report that could not be written when all is measured.
fn check_report(path: Option<&PathBuf>) -> Result<()> {
    if let Some(folder) = path.and_then(|p| p.parent()).filter(|p| !p.as_os_str().is_empty() && !p.is_dir()) {
        bail!("the report's folder {} is not there: make it, or give another --report", folder.display());
    }
    Ok(())
}
