//! `loligo mode`.

use crate::outcome::{Json, Patience};
use anyhow::{Context, Result};
use loligo_client::client::Client;
use loligo_format::mode::Mode;
use loligo_log::outln;
use serde_json::json;
use std::process::ExitCode;

/// Show or switch the cache mode of a running volume
///
/// Without a mode it prints the one in force, 'bare' where there is no cache.
/// New requests follow it at once. What is dirty stays readable and is written to the core by and by; with --flush the
/// command returns only when nothing is dirty any more.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The volume
    name: String,
    /// wt, wb, wa, wi, wo or pt; left out: show it
    mode: Option<Mode>,
    /// Wait until everything dirty is on the core
    #[arg(long, requires = "mode")]
    flush: bool,
    #[command(flatten)]
    patience: Patience,
    #[command(flatten)]
    json: Json,
}

/// Shows or switches.
pub(crate) fn run(a: Args) -> Result<ExitCode> {
    let volume = Client::new(&a.name)?.waiting(a.patience.until(), a.patience.limit());
    let Some(mode) = a.mode else {
        let stats = volume.stats()?;
        let now = stats["mode"].as_str().context("the service does not say its mode")?;
        a.json.done(json!({ "volume": a.name, "mode": now }), || outln!("{now}"))?;
        return Ok(ExitCode::SUCCESS);
    };
    let flush = volume.set_mode(mode.name(), a.flush)?;
    let what = json!({ "volume": a.name, "mode": mode.name(), "flush": flush });
    match flush.is_some_and(|flush| flush.running) {
        true => a.json.begun(what, || ())?,
        false => a.json.done(what, || ())?,
    }
    Ok(ExitCode::SUCCESS)
}
