//! The numbers of a volume as JSON.

use crate::options::ServeOptions;
use crate::volume_state::VolumeState;
use crate::{mirror, rbd, refusals};
use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use loligo_block::lease::Hold;
use loligo_engine::FallbackState;
use loligo_engine::stats::{Bypass, Stats};
use loligo_shard::Snapshot;
use serde_json::{Map, Value, json};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// All threads' numbers as one.
pub fn merged(snapshots: &[Snapshot]) -> Stats {
    let mut all = Stats::default();
    for s in snapshots {
        all.merge(&s.stats);
    }
    all
}

/// The most operations that a thread had in flight at the core.
pub fn core_queue_max(snapshots: &[Snapshot]) -> usize {
    snapshots.iter().map(|s| s.core_queue_max).max().unwrap_or(0)
}

/// The time that whoever asks for several volumes waits for the threads of one.
pub const ANSWER: Duration = Duration::from_secs(2);

/// The worst fault of a volume's devices; `snapshots`: what its threads say, within [`ANSWER`].
pub fn trouble(app: &VolumeState, snapshots: Option<&[Snapshot]>) -> Option<String> {
    // Before its threads, which may wait for just this.
    if let Some(why) = app.with_image(|kept| no_lease(kept.image.lease.now(), kept.image.lacks())).flatten() {
        return Some(why);
    }
    if app.array_lease() == Some(Hold::Expired) {
        return Some(
            "its array has not said for a second that this controller holds it: requests wait until it does, look at the array and its paths"
                .to_owned(),
        );
    }
    let Some(snapshots) = snapshots else {
        return Some(format!("a thread of it has not answered for {} s: a device hangs", ANSWER.as_secs()));
    };
    if let Some((alone, why)) = snapshots.iter().find_map(|s| Some((s.fallback, s.poisoned.as_ref()?))) {
        return Some(match alone {
            Some(FallbackState::Serving) => format!("its cache is gone, and its core serves alone: {why}"),
            _ => format!("it acknowledges nothing any more: {why}"),
        });
    }
    if let Some(why) = snapshots.iter().find_map(|s| s.core_failing.as_ref()) {
        return Some(format!(
            "its core takes no writes, and what is dirty stays on the cache until it does: {why}"
        ));
    }
    if let Some(why) = refusals::told(snapshots, app.core_start()) {
        return Some(why);
    }
    if let Some(why) = app.mirror().and_then(mirror::trouble) {
        return Some(why);
    }
    let errors: u64 = snapshots.iter().map(|s| s.stats.io_errors).sum();
    (errors > 0).then(|| {
        format!("{errors} operations on its devices have failed since it was started: see the kernel's log")
    })
}

/// True if a volume acknowledges nothing any more, and its core does not serve alone.
pub fn is_stuck(snapshots: &[Snapshot]) -> bool {
    snapshots.iter().any(|s| s.poisoned.is_some() && s.fallback != Some(FallbackState::Serving))
}

/// The reason why answers do not leave; `lacks`: what they wait for.
fn no_lease(hold: Hold, lacks: Option<&str>) -> Option<String> {
    match hold {
        Hold::Valid => None,
        Hold::Expired => Some(format!(
            "the lease of its image is over: requests wait until the cluster says that the image is still its own ({})",
            match lacks {
                Some("watch") => "the cluster answers, and the watch is not back yet",
                Some("lock") => "the cluster answers, and the lock is not seen yet",
                _ => "nothing is heard of the cluster: look at the network, the monitors and the OSDs",
            }
        )),
        Hold::Lost => Some(
            "its image is another client's now, and every request fails: stop it; what is dirty stays on the cache".to_owned(),
        ),
    }
}

/// The time that requests took, by kind; values in nanoseconds.
pub fn latencies_of(stats: &Stats) -> [(&'static str, &Histogram<u64>); 3] {
    [("read", &stats.read_ns), ("write", &stats.write_ns), ("flush", &stats.flush_ns)]
}

/// The answer to `GET /v1/stats`.
pub fn json(app: &VolumeState) -> Value {
    let snapshots = app.handle.snapshots();
    let stats = merged(&snapshots);
    let mut out = Map::new();
    out.insert("name".into(), json!(app.name));
    out.insert("mode".into(), json!(snapshots.first().and_then(|s| s.mode).map_or("bare", |m| m.name())));
    out.insert("uptime_s".into(), json!(app.started.elapsed().as_secs_f64()));
    let why = |gone: bool| {
        let mut of = snapshots.iter().filter(|s| (s.fallback == Some(FallbackState::Serving)) == gone);
        of.find_map(|s| s.poisoned.clone())
    };
    out.insert("poisoned".into(), json!(why(false)));
    // Served by the core alone, because of this.
    out.insert("cache_gone".into(), json!(why(true)));
    // Sectors that cannot be written, and what to do about them.
    out.insert("core_refuses".into(), json!(refusals::told(&snapshots, app.core_start())));
    out.insert("connections".into(), json!(snapshots.iter().map(|s| s.connections).sum::<usize>()));
    for (name, value) in stats.counters().into_iter().chain(app.fuse.all()) {
        out.insert(name.into(), json!(value));
    }
    out.insert("core_queue_max".into(), json!(core_queue_max(&snapshots)));
    let bypass: Map<String, Value> =
        Bypass::ALL.iter().map(|(b, name)| ((*name).to_owned(), json!(stats.bypass[*b as usize]))).collect();
    out.insert("bypass".into(), Value::Object(bypass));
    let us = |ns: u64| ns as f64 / 1000.0;
    let histograms: Map<String, Value> = latencies_of(&stats)
        .into_iter()
        .map(|(name, h)| {
            let value = json!({
                "count": h.len(),
                "mean_us": h.mean() / 1000.0,
                "p50_us": us(h.value_at_quantile(0.5)),
                "p90_us": us(h.value_at_quantile(0.9)),
                "p99_us": us(h.value_at_quantile(0.99)),
                "p999_us": us(h.value_at_quantile(0.999)),
                "max_us": us(h.max()),
            });
            (name.to_owned(), value)
        })
        .collect();
    out.insert("histograms".into(), Value::Object(histograms));
    let mut ram: Map<String, Value> = Map::new();
    for (part, bytes) in snapshots.iter().flat_map(|s| s.ram.iter()) {
        let sum = ram.get(*part).and_then(Value::as_u64).unwrap_or(0) + *bytes as u64;
        ram.insert((*part).to_owned(), json!(sum));
    }
    out.insert("ram_bytes".into(), Value::Object(ram));
    if let Some(view) = app.mirror() {
        out.insert("mirror".into(), mirror::json(view));
    }
    if let Some(numbers) = app.with_image(rbd::numbers) {
        out.insert("rbd".into(), json!(numbers));
    }
    Value::Object(out)
}

/// The answer to `GET /v1/latencies`: for each kind of request, how many took how many nanoseconds since the start. Two answers
/// give the distribution of the time between.
pub fn latencies(app: &VolumeState) -> Value {
    let stats = merged(&app.handle.snapshots());
    let of = |h: &Histogram<u64>| -> Vec<[u64; 2]> {
        h.iter_recorded().map(|v| [v.value_iterated_to(), v.count_at_value()]).collect()
    };
    latencies_of(&stats)
        .into_iter()
        .map(|(name, h)| (name.to_owned(), json!(of(h))))
        .collect::<Map<_, _>>()
        .into()
}

/// Replaces `path` by the numbers of now, all at once, with the time and whether clients are still served.
///
/// # Errors
/// If its folder cannot be written to.
pub(crate) fn write_file(path: &Path, app: &VolumeState, serving: bool) -> Result<()> {
    let mut all = json(app);
    all["serving"] = json!(serving);
    all["unix_time"] = json!(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_secs()));
    let mut text = serde_json::to_string_pretty(&all)?;
    text.push('\n');
    let beside = beside(path);
    replace(&beside, text.as_bytes())
        .and_then(|()| std::fs::rename(&beside, path))
        .with_context(|| format!("cannot write the statistics to {}: check --stats-json", path.display()))
}

/// Rewrites the file that the options name, if they do. A failure is only said: the volume goes on.
pub(crate) fn rewrite(options: &ServeOptions, app: &VolumeState, serving: bool) {
    if let Some(path) = &options.stats_json
        && let Err(e) = write_file(path, app, serving)
    {
        tracing::warn!(error = %e, "cannot rewrite the statistics");
    }
}

/// The path where the next content of `path` grows: hidden beside it, under a name that nobody else gives. It is always the same,
/// so that a killed service leaves no heap of them.
fn beside(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".loligo-tmp");
    path.with_file_name(name)
}

/// Writes `path` anew; links are not followed.
fn replace(path: &Path, text: &[u8]) -> std::io::Result<()> {
    let _ = std::fs::remove_file(path);
    std::fs::File::create_new(path)?.write_all(text)
}

/// Tries whether [`write_file`] will be able to, leaving `path` alone.
///
/// # Errors
/// If its folder is not there or cannot be written to, or `path` is a folder itself.
pub(crate) fn can_write(path: &Path) -> Result<()> {
    let beside = beside(path);
    let named = path.file_name().is_some() && !path.is_dir();
    anyhow::ensure!(named, "--stats-json {} is a folder: give a file's name", path.display());
    replace(&beside, b"")
        .and_then(|()| std::fs::remove_file(&beside))
        .with_context(|| format!("cannot write the statistics to {}: check --stats-json", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_that_is_over_is_told_with_what_it_waits_for() {
        assert_eq!(no_lease(Hold::Valid, None), None);
        let told = |lacks: &str| no_lease(Hold::Expired, Some(lacks)).expect("it is over");
        assert!(told("network").contains("look at the network"), "{}", told("network"));
        assert!(told("watch").contains("the watch is not back yet"), "{}", told("watch"));
        assert!(no_lease(Hold::Lost, None).expect("it is lost").contains("another client's"));
    }
}
