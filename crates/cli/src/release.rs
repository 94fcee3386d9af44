//! `loligo release`.

use crate::outcome::Json;
use anyhow::Result;
use loligo_log::say;
use loligo_volume::offline;
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;

/// Let go of a stopped cache: its core can be used alone from then on
///
/// Refused while the cache is served, or holds data that its core does not have: flush it and stop it first.
/// Afterwards no later start trusts the content of the device.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The cache: a file or block device
    path: PathBuf,
    #[command(flatten)]
    json: Json,
}

/// Lets go.
pub(crate) fn run(a: &Args) -> Result<ExitCode> {
    offline::release(&a.path)?;
    a.json.done(json!({ "cache": a.path }), || {
        say!("{} is no cache any more; its core has everything", a.path.display());
    })?;
    Ok(ExitCode::SUCCESS)
}
