//! The numbers of volumes as Prometheus text.

use crate::app::App;
use crate::daemon::entry::Status;
use crate::rbd;
use crate::stats::{core_queue_max, histograms, merged};
use anyhow::{Context, Result};
use loligo_cache::Alone;
use loligo_cache::stats::Bypass;
use std::collections::BTreeMap;
use std::fmt;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

/// Counters of the engine that go up and down.
const GAUGES: [&str; 6] =
    ["cache_bytes", "occupied_bytes", "dirty_bytes", "journal_bytes", "destage_rate", "fuse_held_bytes_max"];

/// Upper ends of the buckets of latencies, in microseconds.
const BUCKETS: [u64; 19] = [
    10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 5_000_000, 10_000_000,
];

/// A volume as a scrape tells of it.
pub(crate) struct Scraped {
    pub(crate) name: String,
    pub(crate) state: Status,
    /// While it is served.
    pub(crate) app: Option<Arc<App>>,
}

/// Listens for scrapers, on whatever address of this host is said.
///
/// # Errors
/// Where the address cannot be had.
pub(crate) fn bind(addr: SocketAddr) -> Result<TcpListener> {
    let listener = TcpListener::bind(addr).with_context(|| {
        format!("--metrics {addr} cannot be listened on: give an address of this host and a free port")
    })?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// One metric: what it is, and its value for each volume.
struct Family {
    kind: &'static str,
    help: String,
    rows: Vec<(String, f64)>,
}

/// The metrics of a scrape by name: the format wants the rows of one together.
#[derive(Default)]
struct Families(BTreeMap<String, Family>);

impl Families {
    fn put(
        &mut self,
        name: &str,
        kind: &'static str,
        help: &str,
        rows: impl IntoIterator<Item = (String, f64)>,
    ) {
        let family = || Family { kind, help: help.to_owned(), rows: Vec::new() };
        self.0.entry(name.to_owned()).or_insert_with(family).rows.extend(rows);
    }

    /// A number that has no text of its own: its name says what it is.
    fn plain(&mut self, name: &str, grows: bool, label: &str, value: f64) {
        let (full, kind) = named(name, grows);
        self.put(&full, kind, &name.replace('_', " "), [(format!("{full}{{{label}}}"), value)]);
    }
}

impl fmt::Display for Families {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, family) in &self.0 {
            writeln!(f, "# HELP loligo_{name} {}", family.help)?;
            writeln!(f, "# TYPE loligo_{name} {}", family.kind)?;
            for (row, value) in &family.rows {
                writeln!(f, "loligo_{row} {value}")?;
            }
        }
        Ok(())
    }
}

/// The text of a scrape.
pub(crate) fn text(volumes: &[Scraped]) -> String {
    let mut all = Families::default();
    let build = format!("build_info{{version=\"{}\"}}", env!("CARGO_PKG_VERSION"));
    all.put("build_info", "gauge", "always 1; the version is a label", [(build, 1.0)]);
    for Scraped { name, state, app } in volumes {
        let rows = Status::WORDS.map(|word| {
            let is = f64::from(u8::from(word == state.word()));
            (format!("volume_state{{volume=\"{name}\",state=\"{word}\"}}"), is)
        });
        all.put("volume_state", "gauge", "1: the volume is in this state", rows);
        if let Some(app) = app {
            add(&mut all, app);
        }
    }
    all.to_string()
}

fn add(all: &mut Families, app: &App) {
    let snapshots = app.handle.snapshots();
    let stats = merged(&snapshots);
    let label = format!("volume=\"{}\"", app.name);
    for (name, value) in stats.counters().into_iter().chain(app.fuse.all()) {
        all.plain(name, !GAUGES.contains(&name), &label, value as f64);
    }
    let bypass = Bypass::ALL.iter().map(|(b, why)| {
        (format!("bypass_total{{{label},reason=\"{why}\"}}"), stats.bypass[*b as usize] as f64)
    });
    all.put("bypass_total", "counter", "requests that went past the cache, by reason", bypass);
    let connections: usize = snapshots.iter().map(|s| s.connections).sum();
    let mut gauge = |name: &str, help: &str, value: f64| {
        all.put(name, "gauge", help, [(format!("{name}{{{label}}}"), value)]);
    };
    gauge("connections", "open NBD connections", connections as f64);
    gauge(
        "core_queue_max",
        "most operations in flight at the core so far",
        core_queue_max(&snapshots) as f64,
    );
    gauge("poisoned", "1: the cache no longer acknowledges anything", f64::from(u8::from(stats.poisoned)));
    let gone = snapshots.iter().any(|s| s.alone == Some(Alone::Serving));
    gauge("cache_gone", "1: the cache failed, and the core alone serves", f64::from(u8::from(gone)));
    gauge("uptime_seconds", "since the volume is served", app.started.elapsed().as_secs_f64());
    for (name, grows, value) in app.with_image(|kept| rbd::numbers(kept).metrics()).into_iter().flatten() {
        all.plain(name, grows, &label, value);
    }
    let mut rows = Vec::new();
    for (op, h) in histograms!(stats) {
        for us in BUCKETS {
            let le = us as f64 / 1e6;
            let value = h.count_between(0, us * 1000) as f64;
            rows.push((format!("latency_seconds_bucket{{{label},op=\"{op}\",le=\"{le}\"}}"), value));
        }
        rows.push((format!("latency_seconds_bucket{{{label},op=\"{op}\",le=\"+Inf\"}}"), h.len() as f64));
        let sum = h.mean() * h.len() as f64 / 1e9;
        rows.push((format!("latency_seconds_sum{{{label},op=\"{op}\"}}"), sum));
        rows.push((format!("latency_seconds_count{{{label},op=\"{op}\"}}"), h.len() as f64));
    }
    all.put("latency_seconds", "histogram", "from accepting a request to its answer", rows);
}

/// What a number is called there, and what kind it is: some only grow.
fn named(name: &str, grows: bool) -> (String, &'static str) {
    if grows { (format!("{name}_total"), "counter") } else { (name.to_owned(), "gauge") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_that_are_not_served_are_told_of_with_their_state() {
        let waiting = Status::Waiting("its core is not there".to_owned());
        let volumes = [("a", waiting), ("b", Status::Stopped)].map(|(name, state)| Scraped {
            name: name.to_owned(),
            state,
            app: None,
        });
        let text = text(&volumes);
        for row in [
            "# TYPE loligo_volume_state gauge",
            "loligo_volume_state{volume=\"a\",state=\"waiting\"} 1",
            "loligo_volume_state{volume=\"a\",state=\"serving\"} 0",
            "loligo_volume_state{volume=\"b\",state=\"stopped\"} 1",
            concat!("loligo_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"} 1"),
        ] {
            assert!(text.lines().any(|l| l == row), "no '{row}' in {text}");
        }
        assert_eq!(text.matches("# TYPE loligo_volume_state").count(), 1);
    }
}
