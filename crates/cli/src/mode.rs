//! `loligo mode`.

use crate::values;
use anyhow::Result;
use loligo_cache::mode::Mode;
use loligo_service::client::Client;
use std::process::ExitCode;

/// Switch the cache mode of a running volume
///
/// New requests follow it at once. What is dirty stays readable and is written to the core by and by; with --flush the
/// command returns only when nothing is dirty any more.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The volume
    name: String,
    /// wt, wb, wa, wi, wo or pt
    #[arg(value_parser = values::mode)]
    mode: Mode,
    /// Wait until everything dirty is on the core
    #[arg(long)]
    flush: bool,
}

/// Switches.
pub(crate) fn run(a: &Args) -> Result<ExitCode> {
    Client::new(&a.name)?.set_mode(a.mode.name(), a.flush)?;
    Ok(ExitCode::SUCCESS)
}
