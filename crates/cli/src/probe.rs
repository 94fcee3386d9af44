//! `loligo probe`.

use anyhow::Result;
use loligo_log::{out, outln, say};
use loligo_volume::probe::{Found, probe};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::ExitCode;

/// Say what of Loligo's lies on devices, without touching them
///
/// For a cache it prints the volume, the mode, how it was stopped and how much its core lacks. For a core
/// with a label (data-offset) it prints the cache that it belongs to. For a pool it prints the cores that
/// share it, and the same facts of each cache. A core without a label holds nothing of Loligo's by itself.
/// Devices in use can be asked, too: nothing is written, locked or waited for.
///
/// The exit status is 0 if all devices could be read, whatever was found, and 1 otherwise.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "For udev, --export prints KEY=VALUE, and nothing for a device that is not ours:

  ID_FS_TYPE          loligo_cache, loligo_core or loligo_pool
  ID_FS_USAGE         raid: no file system, and part of something larger
  ID_FS_UUID          the cache, or the pool
  ID_FS_LABEL         the volume, as LOLIGO_VOLUME
  UDISKS_IGNORE       1
  LOLIGO_KIND         cache, core or pool
  LOLIGO_DIRTY_BYTES  bytes that the core lacks (all cores of a pool together), or 'unknown'")]
pub(crate) struct Args {
    /// Devices or files
    #[arg(required = true, value_name = "DEVICE")]
    paths: Vec<PathBuf>,
    /// Print JSON, a list
    #[arg(long, conflicts_with = "export")]
    json: bool,
    /// Print KEY=VALUE for udev
    #[arg(long)]
    export: bool,
}

/// Looks.
pub(crate) fn run(a: &Args) -> Result<ExitCode> {
    let mut all = Vec::new();
    let mut failed = false;
    for path in &a.paths {
        match probe(path) {
            Ok(found) if a.json => all.push(found.json(path)),
            Ok(found) if a.export => export(&found),
            Ok(found) => {
                outln!("{}: {}", path.display(), found.sentence());
                found.members().iter().for_each(|member| outln!("  {member}"));
            }
            Err(why) => {
                failed = true;
                say!("error: {why:#}");
                all.push(json!({ "path": path, "error": format!("{why:#}") }));
            }
        }
    }
    if a.json {
        out!("{}\n", serde_json::to_string_pretty(&Value::Array(all))?);
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn export(found: &Found) {
    found.export().iter().for_each(|(key, value)| outln!("{key}={value}"));
}
