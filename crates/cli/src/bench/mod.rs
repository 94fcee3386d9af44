//! `loligo bench`: one file per experiment.

mod crc;
mod engine;
mod figures;
mod null;
mod osd;
mod pair;
mod rbd;
mod trace;

use anyhow::{Result, bail};
use clap::Subcommand;
use figures::Figure;
use loligo_bench::bed::Place;
use loligo_bench::interrupt::exit_code;
use loligo_bench::marks::Outcome;
use loligo_log::{out, outln, say};
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
    Crc(crc::Args),
    Engine(engine::Args),
    Model(engine::ModelArgs),
    #[command(flatten)]
    Figure(Figure),
    #[command(hide = true)]
    Null(null::Args),
    Rbd(Box<rbd::Args>),
    Osd(osd::Args),
    Pair(Box<pair::Args>),
    #[command(hide = true)]
    PairClient(pair::ClientArgs),
}

/// Measures.
pub(crate) fn run(a: Args) -> Result<ExitCode> {
    match a.what {
        What::Trace(args) => trace::run(&args),
        What::Crc(args) => crc::run(&args),
        What::Engine(args) => engine::run(&args),
        What::Model(args) => engine::run_model(&args),
        What::Figure(figure) => figures::run(figure),
        What::Null(args) => null::run(&args),
        What::Rbd(args) => rbd::run(*args),
        What::Osd(args) => osd::run(&args),
        What::Pair(args) => pair::run(&args),
        What::PairClient(args) => pair::run_client(&args),
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

/// The place of an experiment with marks, and the form in which it is shown
#[derive(Debug, clap::Args)]
struct Shown {
    /// Parent of the scratch folder, which holds caches and labs [default: the system's temporary folder]
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

impl Shown {
    /// The folder in which it runs. A report that could not be written when all is measured is refused.
    fn place(&self) -> Result<Place> {
        let folder = self.report.as_ref().and_then(|path| path.parent());
        if let Some(folder) = folder.filter(|p| !p.as_os_str().is_empty() && !p.is_dir()) {
            bail!("the report's folder {} is not there: make it, or give another --report", folder.display());
        }
        let here = Place::here()?;
        Ok(Place { dir: self.dir.clone().unwrap_or_else(|| here.dir.clone()), ..here })
    }

    /// Prints the table, what it is to be read with and how many marks were missed.
    fn show(&self, outcome: &Outcome) -> Result<()> {
        if let Some(path) = &self.report {
            outcome.report().write(path)?;
        }
        if self.json {
            out!("{}\n", serde_json::to_string_pretty(outcome)?);
            return Ok(());
        }
        let table = outcome.table();
        out!("{}\n", if self.markdown { table.markdown() } else { table.text() });
        let lines = outcome.setup.iter().map(|(name, value)| format!("{name}: {value}"));
        for line in outcome.notes().into_iter().chain(lines) {
            outln!("{}{line}", if self.markdown { "* " } else { "" });
        }
        match outcome.missed() {
            0 => outln!("No mark missed."),
            n => outln!("{n} marks MISSED."),
        }
        Ok(())
    }
}
