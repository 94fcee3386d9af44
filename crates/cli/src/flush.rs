//! `loligo flush`.

use crate::outcome::{Json, Patience};
use anyhow::Result;
use loligo_client::client::Client;
use std::process::ExitCode;

/// Write everything dirty to the core
///
/// Returns when the core durably has everything that was dirty at the call. Progress goes to stderr. Data
/// that does not match its checksum is never written: the command then names its address and fails, and the
/// data stays dirty.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The volume
    name: String,
    #[command(flatten)]
    patience: Patience,
    #[command(flatten)]
    json: Json,
}

/// Flushes.
pub(crate) fn run(a: Args) -> Result<ExitCode> {
    let volume = Client::new(&a.name)?.waiting(a.patience.until(), a.patience.limit());
    a.json.flushed(&a.name, &volume.flush()?)?;
    Ok(ExitCode::SUCCESS)
}
