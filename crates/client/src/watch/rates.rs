//! Rates between two looks, by the second.

use super::latency::{Distribution, Quantiles};
use super::look::{Look, Numbers, Seen};
use loligo_format::units::BLOCK;
use serde::Serialize;
use std::collections::BTreeMap;

/// Rates between two looks.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Rates {
    /// Reads a second.
    pub read_iops: f64,
    /// Writes, zeroes and discards a second.
    pub write_iops: f64,
    /// Flushes a second.
    pub flush_iops: f64,
    /// Bytes that reads asked for, a second.
    pub read_bytes_s: f64,
    /// Bytes that writes carried, a second.
    pub write_bytes_s: f64,
    /// Percent of reads and writes that hit; nothing where there were none.
    pub hit_percent: Option<f64>,
    /// Of reads alone.
    pub read_hit_percent: Option<f64>,
    /// Of writes alone.
    pub write_hit_percent: Option<f64>,
    /// Latencies of reads and writes.
    pub latency: Option<Quantiles>,
    /// Of reads.
    pub read: Option<Quantiles>,
    /// Of writes.
    pub write: Option<Quantiles>,
    /// Of flushes.
    pub flush: Option<Quantiles>,
    /// Bytes destaged a second.
    pub destage_bytes_s: f64,
    /// Bytes read from the cache device a second.
    pub cache_read_bytes_s: f64,
    /// Bytes written to it.
    pub cache_write_bytes_s: f64,
    /// Bytes read from the core.
    pub core_read_bytes_s: f64,
    /// Bytes written to it.
    pub core_write_bytes_s: f64,
    /// Blocks promoted a second.
    pub fills_s: f64,
    /// Lines evicted a second.
    pub evictions_s: f64,
    /// Writes slowed down, a second.
    pub paced_s: f64,
    /// Requests a second that went past the cache, by reason, the most frequent first.
    pub bypass: Vec<(String, f64)>,
    /// Checksums that did not match in that time.
    pub crc_errors: u64,
    /// Device operations that failed in that time.
    pub io_errors: u64,
}

/// A volume as it is shown.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// In a word.
    pub state: String,
    /// The reason why it is in that state, or what it was poisoned by.
    pub why: Option<String>,
    /// wt, wb, ... or bare.
    pub mode: Option<String>,
    /// Its cache acknowledges nothing any more.
    pub poisoned: bool,
    /// Its cache failed, and the core alone serves.
    pub cache_gone: bool,
    /// Its image was taken by another client.
    pub lost: bool,
    /// NBD connections.
    pub connections: u64,
    /// Bytes of cache for data.
    pub cache_bytes: u64,
    /// Of them in use.
    pub occupied_bytes: u64,
    /// Of them newer than the core.
    pub dirty_bytes: u64,
    /// Percent of the cache; nothing where there is none.
    pub dirty_percent: Option<f64>,
    /// The rates since the look before; nothing if it was not served then.
    pub rates: Option<Rates>,
}

/// Every volume of `after`, with what happened since `before`.
pub fn rows(before: Option<&Look>, after: &Look) -> Vec<Row> {
    let row = |(name, seen): (&String, &Seen)| {
        let earlier = before.and_then(|b| Some((b.volumes.get(name)?, after.at.duration_since(b.at))));
        let rates = earlier.and_then(|(b, passed)| rates(b, seen, passed.as_secs_f64()));
        row(name, seen, rates)
    };
    after.volumes.iter().map(row).collect()
}

fn row(name: &str, seen: &Seen, rates: Option<Rates>) -> Row {
    let none = Numbers::default();
    let n = seen.numbers.as_ref().unwrap_or(&none);
    Row {
        name: name.to_owned(),
        state: seen.state.clone(),
        why: seen.why.clone().or_else(|| n.poisoned.clone()).or_else(|| n.cache_gone.clone()),
        mode: Some(n.mode.clone()).filter(|m| !m.is_empty()),
        poisoned: n.poisoned.is_some(),
        cache_gone: n.cache_gone.is_some(),
        lost: n.is_lost(),
        connections: n.connections,
        cache_bytes: n.cache_bytes,
        occupied_bytes: n.occupied_bytes,
        dirty_bytes: n.dirty_bytes,
        dirty_percent: percent(n.dirty_bytes, n.cache_bytes),
        rates,
    }
}

fn percent(part: u64, all: u64) -> Option<f64> {
    (all > 0).then(|| part as f64 * 100.0 / all as f64)
}

/// The rates in `seconds`; nothing if they cannot be told, because it was not served or has been started again since.
fn rates(before: &Seen, after: &Seen, seconds: f64) -> Option<Rates> {
    let (b, a) = (before.numbers.as_ref()?, after.numbers.as_ref()?);
    if seconds <= 0.0 || a.uptime_s < b.uptime_s {
        return None;
    }
    let grown = |of: fn(&Numbers) -> u64| of(a).saturating_sub(of(b));
    let per_second = |n: u64| n as f64 / seconds;
    let count = |kind: &str| per_second(a.count(kind).saturating_sub(b.count(kind)));
    let (rh, rm) = (grown(|n| n.read_hits), grown(|n| n.read_misses));
    let (wh, wm) = (grown(|n| n.write_hits), grown(|n| n.write_misses));
    let none = Distribution::default();
    let took = |kind: &str| {
        let of = |s: &Seen| s.latencies.get(kind).cloned().unwrap_or_else(|| none.clone());
        of(after).since(&of(before))
    };
    let (read, write) = (took("read"), took("write"));
    Some(Rates {
        read_iops: count("read"),
        write_iops: count("write"),
        flush_iops: count("flush"),
        read_bytes_s: per_second(grown(|n| n.read_bytes)),
        write_bytes_s: per_second(grown(|n| n.write_bytes)),
        hit_percent: percent(rh + wh, rh + rm + wh + wm),
        read_hit_percent: percent(rh, rh + rm),
        write_hit_percent: percent(wh, wh + wm),
        latency: read.clone().with(&write).quantiles(),
        read: read.quantiles(),
        write: write.quantiles(),
        flush: took("flush").quantiles(),
        destage_bytes_s: per_second(grown(|n| n.destaged_blocks) * BLOCK),
        cache_read_bytes_s: per_second(grown(|n| n.cache_read_bytes)),
        cache_write_bytes_s: per_second(grown(|n| n.cache_write_bytes)),
        core_read_bytes_s: per_second(grown(|n| n.core_read_bytes)),
        core_write_bytes_s: per_second(grown(|n| n.core_write_bytes)),
        fills_s: per_second(grown(|n| n.fills)),
        evictions_s: per_second(grown(|n| n.evictions)),
        paced_s: per_second(grown(|n| n.paced)),
        bypass: reasons(&b.bypass, &a.bypass, seconds),
        crc_errors: grown(|n| n.crc_errors),
        io_errors: grown(|n| n.io_errors),
    })
}

fn reasons(
    before: &BTreeMap<String, u64>,
    after: &BTreeMap<String, u64>,
    seconds: f64,
) -> Vec<(String, f64)> {
    let grown = |(why, n): (&String, &u64)| {
        let new = n.saturating_sub(before.get(why).copied().unwrap_or(0));
        (new > 0).then(|| (why.clone(), new as f64 / seconds))
    };
    let mut all: Vec<(String, f64)> = after.iter().filter_map(grown).collect();
    all.sort_by(|x, y| y.1.total_cmp(&x.1));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::time::{Duration, Instant};

    fn seen(numbers: serde_json::Value, reads: &[(u64, u64)]) -> Seen {
        Seen {
            state: "serving".into(),
            numbers: Some(serde_json::from_value(numbers).unwrap()),
            latencies: [("read".to_owned(), Distribution::new(reads))].into(),
            ..Seen::default()
        }
    }

    fn early() -> Seen {
        seen(
            json!({ "mode": "wb", "uptime_s": 10.0, "cache_bytes": 1000, "dirty_bytes": 100, "read_hits": 50, "read_misses": 50,
                    "read_bytes": 4096, "destaged_blocks": 7, "bypass": { "mode": 5, "raced": 1 },
                    "histograms": { "read": { "count": 100 } } }),
            &[(5_000, 100)],
        )
    }

    fn late(more: serde_json::Value) -> Seen {
        let mut all = json!({ "mode": "wb", "uptime_s": 12.0, "cache_bytes": 1000, "dirty_bytes": 250, "read_hits": 140,
            "read_misses": 60, "write_misses": 100, "read_bytes": 8192, "destaged_blocks": 17,
            "bypass": { "mode": 7, "raced": 1, "sequential": 40 }, "histograms": { "read": { "count": 200 } } });
        for (key, value) in more.as_object().unwrap() {
            all[key] = value.clone();
        }
        seen(all, &[(5_000, 150), (9_000, 50)])
    }

    fn shown(before: Option<Seen>, after: Seen) -> Row {
        let at = Instant::now();
        let look = |s, at| Look { at, volumes: [("v".to_owned(), s)].into() };
        let before = before.map(|b| look(b, at));
        rows(before.as_ref(), &look(after, at + Duration::from_secs(2))).remove(0)
    }

    #[test]
    fn rates_are_what_grew_by_the_second() {
        let row = shown(Some(early()), late(json!({})));
        assert_eq!((row.dirty_percent, row.mode.as_deref()), (Some(25.0), Some("wb")));
        let r = row.rates.unwrap();
        assert_eq!((r.read_iops, r.read_bytes_s, r.destage_bytes_s), (50.0, 2048.0, 5.0 * 4096.0));
        assert_eq!((r.read_hit_percent, r.hit_percent), (Some(90.0), Some(45.0)));
        assert_eq!((r.write_hit_percent, r.flush), (Some(0.0), None));
        let read = r.read.unwrap();
        assert_eq!((read.count, read.p50_us, read.p99_us), (100, 5.0, 9.0));
        assert_eq!(r.bypass, [("sequential".to_owned(), 20.0), ("mode".to_owned(), 1.0)]);
    }

    #[test]
    fn rates_of_a_restarted_volume_are_absent_and_its_marks_shown() {
        let lost = json!({ "uptime_s": 1.0, "poisoned": "the cache is gone", "rbd": { "lease": "lost" } });
        let row = shown(Some(early()), late(lost));
        assert_eq!(row.rates, None);
        assert!(row.poisoned && row.lost && row.why.as_deref() == Some("the cache is gone"), "{row:?}");
        assert_eq!(shown(None, early()).rates, None);
        let refused = Seen { state: "refused".into(), why: Some("no".into()), ..Seen::default() };
        let row = shown(Some(early()), refused);
        assert_eq!((row.state.as_str(), row.dirty_percent, row.rates), ("refused", None, None));
    }
}
