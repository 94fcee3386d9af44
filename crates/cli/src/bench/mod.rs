//! `loligo bench`: one file per experiment.

mod trace;

use anyhow::Result;
use clap::Subcommand;
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
}

/// Measures.
pub(crate) fn run(a: Args) -> Result<ExitCode> {
    match a.what {
        What::Trace(args) => trace::run(&args),
    }
}
