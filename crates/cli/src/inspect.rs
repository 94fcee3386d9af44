//! `loligo inspect`.

use crate::outcome::show;
use anyhow::Result;
use loligo_log::outln;
use loligo_volume::offline::{inspect, inspection_json, inspection_rows};
use std::path::PathBuf;
use std::process::ExitCode;

/// Check every checksum of a stopped cache
///
/// Shows the superblock, what is occupied and what is dirty, and reads everything: both superblocks, checkpoints, the
/// journal, all data. Changes nothing. Exit status 1 where something is damaged.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The cache: a file or block device
    path: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Checks.
pub(crate) fn run(a: &Args) -> Result<ExitCode> {
    let found = inspect(&a.path)?;
    show(a.json, inspection_json(&found), || {
        for (label, value) in inspection_rows(&found) {
            outln!("{label:<14} {value}");
        }
        for damage in &found.damage {
            let whose = if damage.dirty { "DAMAGED, not on the core" } else { "damaged" };
            outln!("{whose}: {}", damage.what);
        }
    })?;
    Ok(if found.damage.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
