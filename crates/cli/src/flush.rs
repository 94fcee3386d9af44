//! `loligo flush`.

use crate::outcome::Named;
use anyhow::Result;
use std::process::ExitCode;

/// Write everything dirty to the core
///
/// Returns when the core has, durably, everything that was dirty at the call; progress goes to stderr. Data that does not
/// match its checksum is never written: the command then names its address, fails, and the data stays dirty.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    of: Named,
}

/// Flushes.
pub(crate) fn run(a: Args) -> Result<ExitCode> {
    let flush = a.of.client()?.flush()?;
    a.of.json.flushed(&a.of.name, &flush)?;
    Ok(ExitCode::SUCCESS)
}
