//! The numbers of volumes and of a pair as Prometheus text.

mod families;
pub(crate) mod pair;
pub(crate) mod tune;

use crate::tune::TuneNumbers;
use anyhow::{Context, Result};
use families::{Families, Labels, Value};
use hdrhistogram::Histogram;
use loligo_block::keyed;
use loligo_block::keys::METRICS;
use loligo_block::mirror::MirrorState;
use loligo_client::api::status::Status;
use loligo_engine::FallbackState;
use loligo_engine::stats::Bypass;
use loligo_volume::rbd;
use loligo_volume::stats::{ANSWER, core_queue_max, latencies_of, merged};
use loligo_volume::volume_state::VolumeState;
use pair::PairNumbers;
use prometheus_client::metrics::MetricType;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

/// Counters of the engine that go up and down.
const GAUGES: [&str; 7] = [
    "cache_bytes",
    "occupied_bytes",
    "dirty_bytes",
    "journal_bytes",
    "destage_rate",
    "refused_blocks",
    "fuse_held_bytes_max",
];

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
    pub(crate) app: Option<Arc<VolumeState>>,
}

/// All that a scrape tells of.
#[derive(Default)]
pub(crate) struct Scrape {
    pub(crate) volumes: Vec<Scraped>,
    /// On a controller of a pair whose agent answers.
    pub(crate) pair: Option<PairNumbers>,
    /// On a daemon that watches applied values.
    pub(crate) tune: Option<TuneNumbers>,
}

/// The way a scrape asks.
pub(crate) type Served = Arc<dyn Fn() -> Scrape + Send + Sync>;

/// Listens for scrapers, on whatever address of this host is said.
///
/// # Errors
/// If the address cannot be had.
pub(crate) fn bind(addr: SocketAddr) -> Result<TcpListener> {
    let listener = TcpListener::bind(addr).with_context(|| {
        keyed!("{METRICS:#} {addr} cannot be listened on: give an address of this host and a free port")
    })?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// The type of the text, for who reads it.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The text of a scrape.
pub(crate) fn text(scrape: &Scrape) -> String {
    let mut all = Families::default();
    let build = (vec![("version", env!("CARGO_PKG_VERSION").to_owned())], Value::Number(1.0));
    all.put("build_info", MetricType::Gauge, "always 1; the version is a label", [build]);
    for Scraped { name, state, app } in &scrape.volumes {
        let rows = Status::WORDS.map(|word| {
            let labels = vec![("volume", name.clone()), ("state", word.to_owned())];
            (labels, Value::Number(f64::from(u8::from(word == state.word()))))
        });
        all.put("volume_state", MetricType::Gauge, "1: the volume is in this state", rows);
        if let Some(app) = app {
            add(&mut all, app);
        }
    }
    if let Some(pair) = &scrape.pair {
        pair::add(&mut all, pair);
    }
    if let Some(numbers) = &scrape.tune {
        tune::add(&mut all, numbers);
    }
    all.text()
}

fn add(all: &mut Families, app: &VolumeState) {
    // One volume that hangs is not to keep what is said of the others.
    let Some(snapshots) = app.handle.snapshots_within(ANSWER) else { return };
    let stats = merged(&snapshots);
    let labels: Labels = vec![("volume", app.name.clone())];
    let with = |key: &'static str, value: &str| {
        let mut labels = labels.clone();
        labels.push((key, value.to_owned()));
        labels
    };
    for (name, value) in stats.counters().into_iter().chain(app.fuse.all()) {
        all.plain(name, !GAUGES.contains(&name), &labels, value as f64);
    }
    let bypass = Bypass::ALL
        .iter()
        .map(|(b, why)| (with("reason", why), Value::Number(stats.bypass[*b as usize] as f64)));
    all.put("bypass", MetricType::Counter, "requests that went past the cache, by reason", bypass);
    let connections: usize = snapshots.iter().map(|s| s.connections).sum();
    let mut gauge = |name: &str, help: &str, value: f64| {
        all.put(name, MetricType::Gauge, help, [(labels.clone(), Value::Number(value))]);
    };
    gauge("connections", "open NBD connections", connections as f64);
    gauge(
        "core_queue_max",
        "most operations in flight at the core so far",
        core_queue_max(&snapshots) as f64,
    );
    gauge("poisoned", "1: the cache no longer acknowledges anything", f64::from(u8::from(stats.poisoned)));
    let gone = snapshots.iter().any(|s| s.fallback == Some(FallbackState::Serving));
    gauge("cache_gone", "1: the cache failed, and the core alone serves", f64::from(u8::from(gone)));
    if let Some(mirror) = app.mirror() {
        let in_step = mirror.state == MirrorState::InStep;
        gauge("mirror_in_step", "1: both legs of the cache hold the same", f64::from(u8::from(in_step)));
        gauge("mirror_left", "how often a leg of the cache was left", mirror.left as f64);
        let copied = mirror.copied.unwrap_or(0);
        gauge("mirror_copied_bytes", "bytes copied to a leg of the cache that joins", copied as f64);
    }
    gauge("uptime_seconds", "since the volume is served", app.started.elapsed().as_secs_f64());
    for (name, grows, value) in app.with_image(|kept| rbd::numbers(kept).metrics()).into_iter().flatten() {
        all.plain(name, grows, &labels, value);
    }
    let rows = latencies_of(&stats).map(|(op, h)| (with("op", op), histogram(h)));
    all.put("latency_seconds", MetricType::Histogram, "from accepting a request to its answer", rows);
}

/// Nanoseconds as a scrape tells of them.
fn histogram(h: &Histogram<u64>) -> Value {
    let mut below = 0;
    let mut buckets: Vec<(f64, u64)> = BUCKETS
        .iter()
        .map(|us| {
            let all = h.count_between(0, us * 1000);
            let own = all - below;
            below = all;
            (*us as f64 / 1e6, own)
        })
        .collect();
    buckets.push((f64::INFINITY, h.len() - below));
    Value::Histogram { sum: h.mean() * h.len() as f64 / 1e9, count: h.len(), buckets }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loligo_agent::history::Told;
    use loligo_agent::status::{Status as PairStatus, UnitStatus};
    use loligo_pair::machine::RoleName;
    use loligo_pair::plan::Side;

    #[test]
    fn volumes_that_are_not_served_are_told_of_with_their_state() {
        let waiting = Status::Waiting("its core is not there".to_owned());
        let volumes = [("a", waiting), ("b", Status::Stopped)].map(|(name, state)| Scraped {
            name: name.to_owned(),
            state,
            app: None,
        });
        let text = text(&Scrape { volumes: volumes.into(), ..Scrape::default() });
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
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn a_histogram_counts_each_request_once() {
        let mut h = Histogram::<u64>::new(3).unwrap();
        // 5 and 60 microseconds, and a minute.
        [5_000, 60_000, 60_000, 60_000_000_000].into_iter().for_each(|ns| h.record(ns).unwrap());
        let mut all = Families::default();
        all.put("x", MetricType::Histogram, "x", [(vec![("op", "read".to_owned())], histogram(&h))]);
        let text = all.text();
        for (le, count) in [("0.0001", 3), ("10.0", 3), ("+Inf", 4)] {
            let row = format!("loligo_x_bucket{{le=\"{le}\",op=\"read\"}} {count}");
            let other = format!("loligo_x_bucket{{op=\"read\",le=\"{le}\"}} {count}");
            assert!(text.lines().any(|l| l == row || l == other), "no '{row}' in {text}");
        }
        assert!(text.contains("loligo_x_count{op=\"read\"} 4\n"), "{text}");
    }

    #[test]
    fn a_pair_is_told_of_with_role_and_units() {
        let units = vec![UnitStatus { name: "osd.1".to_owned(), home: Side::B, state: "running".to_owned() }];
        let status = PairStatus {
            pair: "n0".to_owned(),
            side: Side::A,
            role: RoleName::Dual,
            why: "ordered".to_owned(),
            monitor_age_ms: Some(250),
            partner: None,
            may_give_back: false,
            units,
            luns: Vec::new(),
        };
        let told = Told { roles: [(RoleName::Dual, 2)].into(), alarms: 1 };
        let text = text(&Scrape { pair: Some(PairNumbers { status, told }), ..Scrape::default() });
        for row in [
            "loligo_pair_role{pair=\"n0\",side=\"a\",role=\"DUAL\"} 1",
            "loligo_pair_role{pair=\"n0\",side=\"a\",role=\"NORMAL\"} 0",
            "loligo_pair_transitions_total{pair=\"n0\",side=\"a\",role=\"DUAL\"} 2",
            "loligo_pair_alarms_total{pair=\"n0\",side=\"a\"} 1",
            "loligo_pair_partner_heard{pair=\"n0\",side=\"a\"} 0",
            "loligo_pair_monitor_age_seconds{pair=\"n0\",side=\"a\"} 0.25",
            "loligo_pair_unit_running{pair=\"n0\",side=\"a\",unit=\"osd.1\"} 1",
        ] {
            assert!(text.lines().any(|l| l == row), "no '{row}' in {text}");
        }
    }
}
