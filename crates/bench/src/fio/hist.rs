//! fio's completion-latency histograms: the log that gives IOPS and percentiles for every second.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Bins per power of two in fio's histogram (`FIO_IO_U_PLAT_BITS` = 6).
const BITS: u32 = 6;

/// The latency in nanoseconds that a bin of fio's histogram stands for (its middle; exact below 128 ns).
fn bin_ns(index: usize) -> u64 {
    let per_group = 1usize << BITS;
    if index < 2 * per_group {
        return index as u64;
    }
    let error_bits = (index >> BITS) as u32 - 1;
    let base = 1u64 << (error_bits + BITS);
    let within = (index % per_group) as u64;
    base + (within << error_bits) + (1 << error_bits) / 2
}

/// An empty histogram of nanoseconds. Its buckets are finer than fio's bins, and begin at their middles.
fn empty() -> Histogram<u64> {
    Histogram::new(3).expect("three digits are few enough")
}

/// The latency in nanoseconds that the share `p` (0..=1) of requests did not exceed; `None` when empty.
pub(super) fn percentile(all: &Histogram<u64>, p: f64) -> Option<u64> {
    (!all.is_empty()).then(|| all.lowest_equivalent(all.value_at_quantile(p)))
}

/// One window of about a second.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Second {
    /// End of the window, seconds since the job's start.
    pub at: f64,
    /// Requests completed per second of the window.
    pub iops: f64,
    /// Median completion latency, nanoseconds (0 where nothing completed).
    pub p50_ns: u64,
    /// 99th percentile of the completion latency, nanoseconds (0 where nothing completed).
    pub p99_ns: u64,
}

/// Reads the histogram logs of all workers (`--write_hist_log`, coarseness 0) and merges them second by second.
/// Returns the windows in order and the histogram of the whole run. fio does not log the last, unfinished window.
pub(super) fn seconds<'a>(logs: impl IntoIterator<Item = &'a str>) -> Result<(Vec<Second>, Histogram<u64>)> {
    // By the number of the second that a window's end rounds to: workers' clocks differ by milliseconds.
    let mut windows: BTreeMap<u64, (f64, Histogram<u64>)> = BTreeMap::new();
    for line in logs.into_iter().flat_map(str::lines).filter(|line| !line.trim().is_empty()) {
        let mut fields = line.split(',').map(str::trim);
        let mut next = || fields.next().context("a line of fio's histogram log is cut short");
        let at_ms: u64 = next()?.parse().context("time in fio's histogram log")?;
        next()?;
        next()?;
        let bins = fields
            .map(str::parse)
            .collect::<Result<Vec<u64>, _>>()
            .context("count in fio's histogram log")?;
        if bins.len() < 1 << BITS {
            bail!("fio's histogram log has {} bins a line: only coarseness 0 is understood", bins.len());
        }
        let window = windows.entry((at_ms + 500) / 1000).or_insert_with(|| (0.0, empty()));
        window.0 = window.0.max(at_ms as f64 / 1000.0);
        for (bin, n) in bins.into_iter().enumerate().filter(|(_, n)| *n > 0) {
            window.1.record_n(bin_ns(bin), n)?;
        }
    }
    let mut whole = empty();
    let mut before = 0.0;
    let mut series = Vec::with_capacity(windows.len());
    for (at, histogram) in windows.into_values() {
        let span = at - before;
        if span > 0.0 {
            series.push(Second {
                at,
                iops: histogram.len() as f64 / span,
                p50_ns: percentile(&histogram, 0.5).unwrap_or(0),
                p99_ns: percentile(&histogram, 0.99).unwrap_or(0),
            });
        }
        whole.add(&histogram)?;
        before = at;
    }
    Ok((series, whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(at_ms: u64, counts: &[(usize, u64)]) -> String {
        let mut bins = vec![0u64; 1856];
        for (index, n) in counts {
            bins[*index] = *n;
        }
        let bins: Vec<String> = bins.iter().map(u64::to_string).collect();
        format!("{at_ms}, 0, 4096, {}\n", bins.join(", "))
    }

    #[test]
    fn bins_stand_for_the_latencies_fio_puts_into_them() {
        assert_eq!(bin_ns(63), 63);
        assert_eq!(bin_ns(127), 127);
        assert_eq!(bin_ns(128), 129);
        for index in 128..1855 {
            assert!(bin_ns(index) < bin_ns(index + 1), "bin {index}");
            let error = (bin_ns(index + 1) - bin_ns(index)) as f64 / bin_ns(index) as f64;
            assert!(error < 0.017, "bin {index} is {error} wide");
        }
        for ns in (0..1856).map(bin_ns) {
            let mut one = empty();
            one.record(ns).unwrap();
            assert_eq!(percentile(&one, 0.5), Some(ns), "a percentile is the bin's own");
        }
    }

    #[test]
    fn every_bin_that_fio_names_in_its_json_is_one_of_ours() {
        let text = include_str!("../../fixtures/fio-mix.json");
        let json: serde_json::Value = serde_json::from_str(&text[text.find('{').unwrap()..]).unwrap();
        let bins = json["jobs"][0]["mixed"]["clat_ns"]["bins"].as_object().unwrap();
        assert!(bins.len() > 100);
        let ours: Vec<u64> = (0..1856).map(bin_ns).collect();
        for name in bins.keys() {
            assert!(ours.contains(&name.parse().unwrap()), "fio has a bin at {name} ns");
        }
    }

    #[test]
    fn workers_and_directions_add_up_within_a_second() {
        let one = line(1001, &[(10, 50)]) + &line(1001, &[(20, 49)]) + &line(2002, &[(30, 10)]);
        let two = line(999, &[(100, 1)]);
        let (series, whole) = seconds([one.as_str(), two.as_str()]).unwrap();
        assert_eq!(series.len(), 2);
        assert_eq!(series[0].iops.round(), 100.0);
        assert_eq!((series[0].p50_ns, series[0].p99_ns), (10, 20));
        assert_eq!(series[1].iops.round(), 10.0);
        assert_eq!(whole.len(), 110);
        assert_eq!(percentile(&whole, 1.0), Some(100));
    }

    #[test]
    fn a_window_stretched_by_a_stall_shows_the_rate_of_all_of_it() {
        let (series, _) = seconds([(line(1000, &[(10, 100)]) + &line(5000, &[(10, 100)])).as_str()]).unwrap();
        assert_eq!(series[1].iops, 25.0);
    }

    #[test]
    fn a_coarse_or_cut_log_is_refused() {
        assert!(seconds(["1000, 0, 4096, 1, 2"]).is_err());
        assert!(seconds(["1000, 0"]).is_err());
    }
}
