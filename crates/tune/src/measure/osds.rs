//! The capacity of OSDs, by the benchmark that mClock itself makes at an OSD's first start.

use crate::apply::Health;
use crate::facts::Measured;
use loligo_ceph::commands::{CommandClient, Recipient};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::{SystemTime, UNIX_EPOCH};

/// The benchmark is made so many times; the median counts.
const TIMES: usize = 3;
/// Bytes of an object of it.
const OBJECT: u64 = 4 << 20;

/// One benchmark of an OSD.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bench {
    /// Bytes that are written.
    pub bytes: u64,
    /// Bytes of one write.
    pub block: u64,
    /// Objects that are made before it, and written to at random places; 0: each write is an object.
    pub objects: u64,
}

impl Bench {
    /// Small writes, with the numbers of Ceph's page on mClock. More is refused by the OSD (`osd_bench_small_size_max_iops`).
    pub const SMALL: Bench = Bench { bytes: 12_288_000, block: 4096, objects: 100 };
    /// Large writes.
    pub const LARGE: Bench = Bench { bytes: 256 << 20, block: OBJECT, objects: 0 };

    /// GiB that one OSD writes in all.
    pub const GIB_OF_AN_OSD: f64 = {
        let once = Bench::SMALL.bytes + Bench::SMALL.objects * OBJECT + Bench::LARGE.bytes;
        (once * TIMES as u64) as f64 / (1 << 30) as f64
    };

    /// The longest time that one OSD is loaded, seconds: a disk of 100 small writes a second and of 100 MiB/s.
    pub fn seconds_of_an_osd() -> u64 {
        let small =
            Bench::SMALL.bytes / Bench::SMALL.block / 100 + Bench::SMALL.objects * OBJECT / (100 << 20);
        let large = Bench::LARGE.bytes / (100 << 20) + 1;
        (small + large) * TIMES as u64
    }

    fn command(self) -> Value {
        let mut command =
            json!({"prefix": "bench", "count": self.bytes, "size": self.block, "format": "json"});
        if self.objects > 0 {
            command["object_size"] = json!(OBJECT);
            command["object_num"] = json!(self.objects);
        }
        command
    }
}

/// Has one OSD measure itself, on a cluster without a complaint but those of `accepted`, for as long as it `goes_on`. The client must be one that waits for it
/// ([`CommandClient::connect_to_measure`]).
///
/// # Errors
/// If the cluster complains, or the OSD refuses, or it does not go on.
pub fn osd(
    client: &CommandClient,
    id: u32,
    accepted: &BTreeSet<String>,
    goes_on: &dyn Fn() -> Result<(), String>,
) -> Result<Measured, String> {
    let mut figures = [Vec::new(), Vec::new()];
    for _ in 0..TIMES {
        for (bench, figures) in [Bench::SMALL, Bench::LARGE].into_iter().zip(&mut figures) {
            goes_on()?;
            if let Some(why) = Health::ask(client)?.complaint(accepted) {
                return Err(format!("it is not measured while the cluster complains: {why}"));
            }
            let to = Recipient::Osd(id);
            let fail = |why: loligo_ceph::CephError| why.to_string();
            client.send(to, &json!({"prefix": "cache drop"})).map_err(fail)?;
            let said = client.send(to, &bench.command()).map_err(fail)?;
            figures.push(answer(&said).ok_or_else(|| format!("its benchmark says no figures: {said}"))?);
        }
    }
    let [small, large] = figures;
    let iops = median(small.into_iter().map(|(_, iops)| iops).collect());
    let bandwidth = median(large.into_iter().map(|(bytes, _)| bytes).collect());
    let taken = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |it| it.as_secs() as i64);
    Ok(Measured { iops: iops.round(), bandwidth: bandwidth as i64, p50_us: None, taken: Some(taken) })
}

/// Bytes and writes a second.
fn answer(said: &str) -> Option<(f64, f64)> {
    let said: Value = serde_json::from_str(said).ok()?;
    Some((said["bytes_per_sec"].as_f64()?, said["iops"].as_f64()?))
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_benchmark_is_that_of_mclock() {
        let small = Bench::SMALL.command();
        let want = json!({"prefix": "bench", "count": 12288000, "size": 4096, "object_size": 4194304, "object_num": 100, "format": "json"});
        assert_eq!(small, want);
        assert_eq!(Bench::seconds_of_an_osd(), 111);
    }

    #[test]
    fn figures_are_read_and_the_median_counts() {
        let said = r#"{"bytes_written": 12288000, "blocksize": 4096, "elapsed_sec": 0.5, "bytes_per_sec": 24576000.0, "iops": 6000.0}"#;
        assert_eq!(answer(said), Some((24_576_000.0, 6000.0)));
        assert_eq!(answer("{}"), None);
        assert_eq!(median(vec![3.0, 900.0, 2.0]), 3.0);
    }
}
