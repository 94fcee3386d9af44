//! `loligo demo`.

use anyhow::Result;
use loligo_bench::demo::{self, DemoOptions};
use loligo_bench::interrupt;
use std::path::PathBuf;
use std::process::ExitCode;

/// Show before and after on this machine, in a few minutes
///
/// Makes a 1 GiB core behind the model of a 7,200 rpm disk and a 256 MiB cache file in a scratch folder, serves both the
/// bare core and the cached volume over NBD, and drives each with fio. Ends with the data verified, a table and a report.
/// Ctrl-C at any moment leaves nothing behind.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
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

/// Shows it.
pub(crate) fn run(a: Args) -> Result<ExitCode> {
    let options = DemoOptions { dir: a.dir, report: a.report, json: a.json, ..DemoOptions::default() };
    match demo::run(options) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => {
            eprintln!("error: {error:#}");
            Ok(ExitCode::from(interrupt::exit_code(&error) as u8))
        }
    }
}
