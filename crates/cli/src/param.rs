//! `loligo param get` and `loligo param set`.

use crate::outcome::{Json, show};
use anyhow::Result;
use clap::Subcommand;
use loligo_bench::table::Table;
use loligo_client::api::volume::Param;
use loligo_client::client::Client;
use loligo_client::outcome::Ended;
use loligo_log::{out, outln};
use serde_json::json;
use std::process::ExitCode;

/// Show or change the tunables of a running volume
///
/// Values set with 'loligo serve' hold until it ends. The daemon keeps them for the volume's next starts.
/// 'param get NAME' lists all tunables with their ranges and defaults.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Parameters:
  ack            a write is answered once the cache has taken it (written), or once
                 it is durable there, as if each write had asked for that (durable)
  large-writes   (RBD images) writes of 512 KiB and more go past the cache, or are
                 cached while it has room
  seq-cutoff     bypass of long sequential streams: always, full (once the cache is
                 full) or never
  seq-threshold  bytes from which a stream is long
  seq-promotion  requests after which neighbouring requests count as a stream
  replacement    policy that picks lines to evict: s3cm, lru or fifo
  admission      read misses that are kept: probation (second touch), nhit (third)
                 or always
  promote-run    bytes of a run of reads beyond which its misses are not kept, 0 for
                 no limit
  destage-low    percent dirty below which destaging waits until the core is idle
  destage-rate   most 4 KiB blocks destaged a second, 0 for no limit
  destage-age    seconds after which dirty data is in the core, if clients leave
                 the core pauses for that; 0 for no limit
  snapshot-deadline  (RBD images) seconds in which everything dirty should be in
                 the image when somebody takes a snapshot, 0 for no limit

Examples:
  loligo param get vol
  loligo param get vol seq-threshold --json
  loligo param set vol seq-threshold 2m")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Show one, or all with range and default
    Get {
        /// The volume
        name: String,
        /// The tunable
        key: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Change one, from the next request on
    Set {
        /// The volume
        name: String,
        /// The tunable
        key: String,
        /// To what
        value: String,
        #[command(flatten)]
        json: Json,
    },
}

/// Shows or changes.
pub(crate) fn run(a: Args) -> Result<ExitCode> {
    match a.what {
        What::Get { name, key: None, json } => {
            let rows = Client::new(&name)?.params()?;
            show(json, rows.iter().map(fields).collect::<Vec<_>>(), || {
                let cells = |r: &Param| [&r.key, &r.value, &r.range, &r.default].map(String::clone);
                let table = Table::of(["parameter", "value", "range", "default"], &rows, cells);
                out!("{}\n", table.text());
            })?;
        }
        What::Get { name, key: Some(key), json } => {
            let rows = Client::new(&name)?.params()?;
            let keys: Vec<&str> = rows.iter().map(|r| r.key.as_str()).collect();
            let unknown =
                || Ended::refused(format!("unknown parameter '{key}': use one of {}", keys.join(", ")));
            let row = rows.iter().find(|r| r.key == key).ok_or_else(unknown)?;
            show(json, fields(row), || outln!("{}", row.value))?;
        }
        What::Set { name, key, value, json } => {
            let rows = Client::new(&name)?.set_param(&key, &value)?;
            let now = rows.iter().find(|row| row.key == key).map(fields);
            json.done(json!({ "volume": name, "param": now }), || ())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn fields(p: &Param) -> serde_json::Value {
    json!({ "key": p.key, "value": p.value, "range": p.range, "default": p.default })
}
