//! The numbers of a volume as Prometheus text.

use crate::app::App;
use crate::rbd;
use crate::stats::{core_queue_max, histograms, merged};
use anyhow::{Context, Result, bail};
use loligo_cache::stats::Bypass;
use std::fmt::Write;
use std::net::{SocketAddr, TcpListener};
use std::sync::PoisonError;

/// Counters of the engine that go up and down.
const GAUGES: [&str; 5] = ["cache_bytes", "occupied_bytes", "dirty_bytes", "journal_bytes", "destage_rate"];

/// Listens for scrapers. Only loopback, or all addresses where that is said.
///
/// # Errors
/// Where the address is another, or cannot be had.
pub(crate) fn bind(addr: SocketAddr) -> Result<TcpListener> {
    if !addr.ip().is_loopback() && !addr.ip().is_unspecified() {
        bail!("--metrics {addr}: give an address of this host's loopback, or 0.0.0.0 to serve everybody");
    }
    let listener =
        TcpListener::bind(addr).with_context(|| format!("--metrics {addr} cannot be listened on"))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// The text of a scrape.
pub(crate) fn text(app: &App) -> String {
    let snapshots = app.handle.snapshots();
    let stats = merged(&snapshots);
    let label = format!("volume=\"{}\"", app.info.name);
    let mut out = String::new();
    let mut put = |name: &str, kind: &str, rows: &[(String, f64)]| {
        let _ = writeln!(out, "# TYPE loligo_{name} {kind}");
        for (row, value) in rows {
            let _ = writeln!(out, "loligo_{row} {value}");
        }
    };
    for (name, value) in stats.counters().into_iter().chain(app.fuse.all()) {
        let (full, kind) = named(name, !GAUGES.contains(&name));
        put(&full, kind, &[(format!("{full}{{{label}}}"), value as f64)]);
    }
    let bypass: Vec<(String, f64)> = Bypass::ALL
        .iter()
        .map(|(b, why)| {
            (format!("bypass_total{{{label},reason=\"{why}\"}}"), stats.bypass[*b as usize] as f64)
        })
        .collect();
    put("bypass_total", "counter", &bypass);
    let connections: usize = snapshots.iter().map(|s| s.connections).sum();
    put("connections", "gauge", &[(format!("connections{{{label}}}"), connections as f64)]);
    let queue = core_queue_max(&snapshots) as f64;
    put("core_queue_max", "gauge", &[(format!("core_queue_max{{{label}}}"), queue)]);
    put("poisoned", "gauge", &[(format!("poisoned{{{label}}}"), f64::from(u8::from(stats.poisoned)))]);
    put(
        "uptime_seconds",
        "gauge",
        &[(format!("uptime_seconds{{{label}}}"), app.started.elapsed().as_secs_f64())],
    );
    if let Some(kept) = &*app.rbd.lock().unwrap_or_else(PoisonError::into_inner) {
        for (name, grows, value) in rbd::numbers(kept).metrics() {
            let (full, kind) = named(name, grows);
            put(&full, kind, &[(format!("{full}{{{label}}}"), value)]);
        }
    }
    let mut rows = Vec::new();
    for (op, h) in histograms!(stats) {
        for q in [0.5, 0.9, 0.99, 0.999] {
            let value = h.value_at_quantile(q) as f64 / 1e9;
            rows.push((format!("latency_seconds{{{label},op=\"{op}\",quantile=\"{q}\"}}"), value));
        }
        let sum = h.mean() * h.len() as f64 / 1e9;
        rows.push((format!("latency_seconds_sum{{{label},op=\"{op}\"}}"), sum));
        rows.push((format!("latency_seconds_count{{{label},op=\"{op}\"}}"), h.len() as f64));
    }
    put("latency_seconds", "summary", &rows);
    out
}

/// What a number is called there, and what kind it is: some only grow.
fn named(name: &str, grows: bool) -> (String, &'static str) {
    if grows { (format!("{name}_total"), "counter") } else { (name.to_owned(), "gauge") }
}
