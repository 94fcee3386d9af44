//! `loligo stats`.

use anyhow::Result;
use loligo_service::client::Client;
use serde_json::Value;
use std::process::ExitCode;

/// Show the numbers of a running volume
///
/// Occupancy, hits and misses (in requests; one that hits only in part is a miss), why requests went past the cache,
/// errors, bytes moved on each side, and latencies as clients saw them without the network.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The volume
    name: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Shows them.
pub(crate) fn run(a: &Args) -> Result<ExitCode> {
    let stats = Client::new(&a.name)?.stats()?;
    if a.json {
        println!("{}", serde_json::to_string_pretty(&stats)?);
    } else {
        for (key, value) in stats.as_object().into_iter().flatten() {
            print(key, value);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// One line a number; what has parts, one line a part.
fn print(key: &str, value: &Value) {
    match value {
        Value::Object(parts) => parts.iter().for_each(|(part, v)| print(&format!("{key}.{part}"), v)),
        Value::String(text) => println!("{key:<36} {text}"),
        Value::Null => println!("{key:<36} -"),
        Value::Number(n) if n.is_f64() => println!("{key:<36} {:.1}", n.as_f64().unwrap_or_default()),
        other => println!("{key:<36} {other}"),
    }
}
