//! `loligo flush`.

use anyhow::Result;
use loligo_service::client::Client;
use std::process::ExitCode;

/// Write everything dirty to the core
///
/// Returns when the core has, durably, everything that was dirty at the call; progress goes to stderr. Data that does not
/// match its checksum is never written: the command then names its address, fails, and the data stays dirty.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The volume
    name: String,
}

/// Flushes.
pub(crate) fn run(a: &Args) -> Result<ExitCode> {
    Client::new(&a.name)?.flush()?;
    Ok(ExitCode::SUCCESS)
}
