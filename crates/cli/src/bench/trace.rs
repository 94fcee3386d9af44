//! `loligo bench trace`.

use crate::outcome::show;
use anyhow::Result;
use loligo_bench::table::Table;
use loligo_bench::trace;
use loligo_engine::policy::Kind;
use loligo_log::{out, say};
use std::path::PathBuf;
use std::process::ExitCode;

/// Miss ratios of the engine's replacement policies on recorded block traces
///
/// Lines are 4 KiB; reads and writes both allocate; a cache's size is a fraction of the trace's footprint. Runs the very code
/// that the engine runs.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Traces
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Which policies
    #[arg(long, value_delimiter = ',', default_value = "s3cm,lru")]
    policies: Vec<Kind>,
    /// Cache sizes, as fractions of the footprint
    #[arg(long, value_delimiter = ',', default_value = "0.01,0.03,0.1,0.3")]
    fractions: Vec<f64>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Replays.
pub(crate) fn run(a: &Args) -> Result<ExitCode> {
    let rows = trace::run(&a.files, &a.policies, &a.fractions, |done, all| say!("{done} of {all}"))?;
    show(a.json, &rows, || {
        let mut table = Table::new(["trace", "policy", "fraction", "miss ratio"]);
        for r in &rows {
            table.row([
                r.trace.clone(),
                r.policy.to_string(),
                r.fraction.to_string(),
                format!("{:.4}", r.miss_ratio),
            ]);
        }
        out!("{}\n", table.text());
    })?;
    Ok(ExitCode::SUCCESS)
}
