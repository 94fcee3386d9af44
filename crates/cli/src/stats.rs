//! `loligo stats`.

use crate::outcome::show;
use anyhow::Result;
use loligo_bench::units::{bytes, number, time};
use loligo_client::client::Client;
use loligo_log::{one_line, out};
use serde_json::{Map, Value};
use std::fmt::Write;
use std::process::ExitCode;

/// Show the numbers of a running volume
///
/// Shows occupancy, hits and misses (in requests; a partial hit is a miss), the reasons for bypassing the
/// cache, errors, bytes moved on each side, and latencies as clients saw them without the network. All
/// numbers count since the volume is served. Some have the mean per second beside them; 'loligo top' shows
/// the present rates.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The volume
    name: String,
    /// Print JSON: every number, as it is
    #[arg(long)]
    json: bool,
}

/// Shows them.
pub(crate) fn run(a: &Args) -> Result<ExitCode> {
    let stats = Client::new(&a.name)?.stats()?;
    show(a.json, &stats, || out!("{}", text(&stats)))?;
    Ok(ExitCode::SUCCESS)
}

/// The way a number is written.
#[derive(Clone, Copy)]
enum As {
    /// The number, and its rate by the second.
    Count,
    /// Bytes moved, and by the second.
    Moved,
    /// Bytes that are there now.
    Size,
    /// As it is now.
    Plain,
    /// 4 KiB blocks a second.
    Blocks,
}

/// The key in the statistics, the words for it, how it is written.
type Line = (&'static str, &'static str, As);

/// Sections of lines.
const SECTIONS: [(&str, &[Line]); 5] = [
    (
        "cache",
        &[
            ("cache_bytes", "for data", As::Size),
            ("occupied_bytes", "in use", As::Size),
            ("dirty_bytes", "dirty", As::Size),
        ],
    ),
    (
        "requests",
        &[
            ("read_hits", "read hits", As::Count),
            ("read_misses", "read misses", As::Count),
            ("write_hits", "write hits", As::Count),
            ("write_misses", "write misses", As::Count),
            ("read_bytes", "read", As::Moved),
            ("write_bytes", "written", As::Moved),
        ],
    ),
    (
        "devices",
        &[
            ("cache_read_bytes", "cache read", As::Moved),
            ("cache_write_bytes", "cache written", As::Moved),
            ("cache_flushes", "cache flushes", As::Count),
            ("core_read_bytes", "core read", As::Moved),
            ("core_write_bytes", "core written", As::Moved),
            ("core_flushes", "core flushes", As::Count),
            ("core_groups", "core groups", As::Count),
            ("core_group_pieces", "writes in groups", As::Count),
            ("core_queue_max", "core queue, most", As::Plain),
            ("fuse_reads", "reads by mounts", As::Count),
            ("fuse_writes", "writes by mounts", As::Count),
            ("fuse_fsyncs", "fsyncs by mounts", As::Count),
            ("fuse_fallocates", "holes by mounts", As::Count),
            ("fuse_held_bytes_max", "held by a mount, most", As::Size),
        ],
    ),
    (
        "engine",
        &[
            ("destaged_blocks", "destaged blocks", As::Count),
            ("destage_rate", "destaging now", As::Blocks),
            ("fills", "promoted blocks", As::Count),
            ("evictions", "evicted lines", As::Count),
            ("paced", "slowed writes", As::Count),
            ("pinned_blocks", "pinned blocks", As::Count),
            ("checkpoints", "checkpoints", As::Count),
            ("journal_bytes", "journal to replay", As::Size),
        ],
    ),
    (
        "errors",
        &[
            ("crc_errors", "bad checksums", As::Count),
            ("crc_repaired", "of them repaired", As::Count),
            ("refused_blocks", "refused by the core", As::Plain),
            ("io_errors", "device errors", As::Count),
        ],
    ),
];

/// The numbers as people read them.
fn text(stats: &Value) -> String {
    let mut page = Page::default();
    let uptime = stats["uptime_s"].as_f64().unwrap_or(0.0);
    for key in ["name", "mode"] {
        page.line(key, stats[key].as_str().unwrap_or("-"));
    }
    page.line("served for", &age(uptime));
    page.line("connections", &stats["connections"].to_string());
    if let Some(why) = stats["poisoned"].as_str() {
        page.line("POISONED", why);
    }
    if let Some(why) = stats["cache_gone"].as_str() {
        page.line("CACHE GONE", &format!("{why}; the core alone serves"));
    }
    if let Some(why) = stats["core_refuses"].as_str() {
        page.line("BAD SECTORS", why);
    }
    if let Some(mirror) = stats["mirror"]["state"].as_str() {
        let leg = stats["mirror"]["leg"].as_str().map(|leg| format!(" ({leg} leg)")).unwrap_or_default();
        let part = stats["mirror"]["copied_bytes"].as_f64().zip(stats["mirror"]["bytes"].as_f64());
        let part =
            part.map(|(done, all)| format!(", {:.0} % copied", done * 100.0 / all)).unwrap_or_default();
        page.line("mirror", &format!("{mirror}{leg}{part}"));
    }
    for (title, lines) in SECTIONS {
        let shown: Vec<_> = lines
            .iter()
            .filter_map(|(key, words, as_)| Some((*key, *words, *as_, stats[*key].as_f64()?)))
            .collect();
        if shown.is_empty() {
            continue;
        }
        page.section(title);
        for (key, words, as_, value) in shown {
            let more = part(stats, key).map(|p| format!("  ({p:.1} %)")).unwrap_or_default();
            page.line(words, &format!("{}{more}", written(as_, value, uptime)));
        }
    }
    let bypass: Vec<_> = parts(&stats["bypass"]).filter(|(_, n)| n.as_u64() != Some(0)).collect();
    page.section("past the cache");
    if bypass.is_empty() {
        page.line("nothing", "");
    }
    for (why, n) in bypass {
        page.line(why, &written(As::Count, n.as_f64().unwrap_or(0.0), uptime));
    }
    latencies(&mut page, &stats["histograms"]);
    page.section("memory");
    parts(&stats["ram_bytes"]).for_each(|(what, n)| page.line(what, &bytes(n.as_f64().unwrap_or(0.0))));
    if let Some(image) = stats.get("rbd").and_then(Value::as_object) {
        page.section("rbd");
        page.tree("", image);
    }
    page.0
}

fn parts(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

/// The share of one number in another, in percent, for those where that is asked for.
fn part(stats: &Value, key: &str) -> Option<f64> {
    let other = match key {
        "occupied_bytes" | "dirty_bytes" => stats["cache_bytes"].as_f64()?,
        "read_hits" => stats["read_hits"].as_f64()? + stats["read_misses"].as_f64()?,
        "write_hits" => stats["write_hits"].as_f64()? + stats["write_misses"].as_f64()?,
        _ => return None,
    };
    (other > 0.0).then(|| stats[key].as_f64().unwrap_or(0.0) * 100.0 / other)
}

fn written(as_: As, value: f64, uptime: f64) -> String {
    let rate = value / uptime.max(0.001);
    match as_ {
        As::Count if value == 0.0 => "0".to_owned(),
        As::Count => format!("{:<18}{}/s", whole(value), number(rate)),
        As::Moved if value == 0.0 => "0".to_owned(),
        As::Moved => format!("{:<18}{} MB/s", bytes(value), number(rate / 1e6)),
        As::Size => bytes(value),
        As::Plain => whole(value),
        As::Blocks => format!("{} blocks/s, {} MB/s", whole(value), number(value * 4096.0 / 1e6)),
    }
}

/// A count, with nothing behind a point.
fn whole(value: f64) -> String {
    if value < 100.0 { format!("{value:.0}") } else { number(value) }
}

fn age(seconds: f64) -> String {
    let s = seconds as u64;
    match s {
        0..60 => format!("{seconds:.1} s"),
        60..3600 => format!("{} min {} s", s / 60, s % 60),
        3600..86_400 => format!("{} h {} min", s / 3600, s % 3600 / 60),
        _ => format!("{} d {} h", s / 86_400, s % 86_400 / 3600),
    }
}

fn latencies(page: &mut Page, histograms: &Value) {
    page.section("latencies");
    let columns = ["mean_us", "p50_us", "p90_us", "p99_us", "p999_us", "max_us"];
    let cells =
        |cells: &mut dyn Iterator<Item = String>| cells.map(|c| format!("{c:>10}")).collect::<String>();
    let heads = ["mean", "p50", "p90", "p99", "p99.9", "longest"].map(str::to_owned);
    page.line("", &cells(&mut heads.into_iter()));
    for (kind, h) in parts(histograms).filter(|(_, h)| h["count"].as_u64() != Some(0)) {
        let values = &mut columns.iter().map(|c| time(h[*c].as_f64().unwrap_or(0.0) * 1e3));
        page.line(kind, &cells(values));
    }
}

/// Lines under heads.
#[derive(Default)]
struct Page(String);

impl Page {
    fn section(&mut self, title: &str) {
        let _ = writeln!(self.0, "\n{title}");
    }

    fn line(&mut self, label: &str, value: &str) {
        // What stands before the first head is not below one.
        let indent = if self.0.contains("\n\n") { "  " } else { "" };
        let label = format!("{indent}{label}");
        let line = format!("{label:<19} {value}");
        let _ = writeln!(self.0, "{}", one_line(line.trim_end()));
    }

    /// Everything of `all`, one line each.
    fn tree(&mut self, before: &str, all: &Map<String, Value>) {
        for (key, value) in all {
            match value {
                Value::Object(below) => self.tree(&format!("{before}{key}."), below),
                Value::String(text) => self.line(&format!("{before}{key} "), text),
                Value::Null => self.line(&format!("{before}{key} "), "-"),
                other => self.line(&format!("{before}{key} "), &other.to_string()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn stats() -> Value {
        json!({
            "name": "vol", "mode": "wb", "uptime_s": 100.0, "poisoned": null, "connections": 2,
            "cache_bytes": 1 << 30, "dirty_bytes": 1 << 28, "read_hits": 900, "read_misses": 100, "cache_read_bytes": 1u64 << 30,
            "destage_rate": 250, "bypass": { "mode": 0, "sequential": 12_000 },
            "histograms": { "read": { "count": 9, "mean_us": 12.5, "p50_us": 10.0, "p90_us": 1.0, "p99_us": 1500.0, "p999_us": 1.0, "max_us": 2e6 },
                            "flush": { "count": 0 } },
            "ram_bytes": { "index": 1 << 20 },
        })
    }

    #[test]
    fn numbers_have_units_shares_and_means_by_the_second() {
        let text = text(&stats());
        let line = |start: &str| {
            text.lines().find(|l| l.trim_start().starts_with(start)).unwrap_or_default().to_owned()
        };
        assert_eq!(line("mode"), "mode                wb");
        assert_eq!(line("served for"), "served for          1 min 40 s");
        assert!(line("dirty").contains("256 MiB  (25.0 %)"), "{text}");
        let hits = line("read hits");
        assert!(hits.contains("900") && hits.contains("9.00/s  (90.0 %)"), "{hits}");
        assert!(line("cache read").contains("1 GiB") && line("cache read").contains("10.7 MB/s"), "{text}");
        assert!(line("sequential").contains("12,000"), "{text}");
        assert!(!text.contains("flush  "), "what never happened has no latency: {text}");
        let read = text.lines().find(|l| l.starts_with("  read ") && l.contains("µs")).unwrap();
        assert!(read.contains("12.5 µs") && read.contains("1.50 ms") && read.contains("2.00 s"), "{read}");
    }

    #[test]
    fn a_poisoned_cache_says_so_before_everything_else() {
        let mut poisoned = stats();
        poisoned["poisoned"] = json!("a write to the cache failed");
        let text = text(&poisoned);
        let at = text.find("POISONED").expect("it is said");
        assert!(at < text.find("\ncache\n").unwrap(), "{text}");
    }
}
