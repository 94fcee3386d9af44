//! `loligo mode`.

use crate::outcome::{Json, Patience};
use crate::values;
use anyhow::Result;
use loligo_cache::mode::Mode;
use loligo_service::client::Client;
use serde_json::json;
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
    #[command(flatten)]
    patience: Patience,
    #[command(flatten)]
    json: Json,
}

/// Switches.
pub(crate) fn run(a: Args) -> Result<ExitCode> {
    let volume = Client::new(&a.name)?.waiting(a.patience.until(), a.patience.limit());
    let flush = volume.set_mode(a.mode.name(), a.flush)?;
    let what = json!({ "volume": a.name, "mode": a.mode.name(), "flush": flush });
    match flush.is_some_and(|flush| flush.running) {
        true => a.json.begun(what, || ())?,
        false => a.json.done(what, || ())?,
    }
    Ok(ExitCode::SUCCESS)
}
