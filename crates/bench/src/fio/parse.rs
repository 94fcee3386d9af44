//! fio's JSON made into a typed result.

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::hist::Second;

/// Latency, nanoseconds: from the moment fio has a request to its answer, handing it to the kernel included (fio's "lat").
/// fio's "clat" begins only behind the system call that submits, which is a good part of what a raw write takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Arithmetic mean.
    pub mean_ns: f64,
    /// Median.
    pub p50_ns: u64,
    /// 90th percentile.
    pub p90_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

/// The figures of one fio run, reads and writes together.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The command, without the arguments that place its output.
    pub command: String,
    /// Requests completed.
    pub requests: u64,
    /// Seconds of load.
    pub seconds: f64,
    /// Requests per second.
    pub iops: f64,
    /// Bytes per second.
    pub bytes_per_second: f64,
    /// Latency.
    pub latency: Latency,
    /// Of the reads alone, where there were reads and writes.
    pub reads: Option<Latency>,
    /// Of the writes alone, where there were reads and writes.
    pub writes: Option<Latency>,
    /// Second by second; empty where the run was too short for one.
    pub series: Vec<Second>,
    /// The 99th percentile of all that the series was made of (fio's "clat", as it logs nothing else second by second).
    pub logged_p99_ns: Option<u64>,
}

#[derive(Deserialize)]
struct Output {
    jobs: Vec<JobOutput>,
}

#[derive(Deserialize)]
struct JobOutput {
    error: i32,
    mixed: Option<Side>,
    read: Option<Side>,
    write: Option<Side>,
}

#[derive(Deserialize)]
struct Side {
    bw_bytes: u64,
    iops: f64,
    runtime: u64,
    total_ios: u64,
    lat_ns: Lat,
}

#[derive(Deserialize)]
struct Lat {
    max: u64,
    mean: f64,
    #[serde(default)]
    percentile: std::collections::BTreeMap<String, u64>,
}

/// Reads what fio wrote with `--output-format=json --unified_rw_reporting=both --group_reporting`. Text before the
/// first brace (the nbd engine greets its server) is skipped.
pub(super) fn measured(command: String, json: &str, series: Vec<Second>) -> Result<Measured> {
    if json.trim().is_empty() {
        bail!("fio's output is empty: the disk that it is written to may be full");
    }
    let start = json.find('{').with_context(|| format!("fio wrote no JSON but: {}", json.trim()))?;
    let output: Output = serde_json::from_str(&json[start..]).context("fio's JSON")?;
    let [job] = output.jobs.as_slice() else {
        bail!("fio reported {} jobs, not one group", output.jobs.len())
    };
    if job.error != 0 {
        bail!("fio ended with {}", std::io::Error::from_raw_os_error(job.error));
    }
    let side = job.mixed.as_ref().context("fio's JSON has no \"mixed\" section")?;
    if side.total_ios == 0 {
        bail!("fio completed no request");
    }
    let alone = |direction: &Option<Side>| match direction {
        Some(one) if one.total_ios > 0 && one.total_ios < side.total_ios => one.latency().map(Some),
        _ => Ok(None),
    };
    Ok(Measured {
        command,
        requests: side.total_ios,
        seconds: side.runtime as f64 / 1000.0,
        iops: side.iops,
        bytes_per_second: side.bw_bytes as f64,
        latency: side.latency()?,
        reads: alone(&job.read)?,
        writes: alone(&job.write)?,
        series,
        logged_p99_ns: None,
    })
}

impl Side {
    fn latency(&self) -> Result<Latency> {
        let at = |key: &str| {
            let found = self.lat_ns.percentile.get(key).copied();
            found.with_context(|| format!("fio's JSON lacks percentile {key}"))
        };
        Ok(Latency {
            mean_ns: self.lat_ns.mean,
            p50_ns: at("50.000000")?,
            p90_ns: at("90.000000")?,
            p99_ns: at("99.000000")?,
            p999_ns: at("99.900000")?,
            max_ns: self.lat_ns.max,
        })
    }
}

impl Measured {
    /// IOPS and 99th percentile of the last `seconds` of the run, from its windows.
    pub fn tail(&self, seconds: f64) -> Option<(f64, u64)> {
        let end = self.series.last()?.at;
        let windows: Vec<&Second> = self.series.iter().filter(|second| second.at > end - seconds).collect();
        let iops = windows.iter().map(|second| second.iops).sum::<f64>() / windows.len() as f64;
        Some((iops, windows.iter().map(|second| second.p99_ns).max()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fio::hist::seconds;

    const MIX: &str = include_str!("../../fixtures/fio-mix.json");
    const LOGS: [&str; 2] =
        [include_str!("../../fixtures/fio-mix.1.log"), include_str!("../../fixtures/fio-mix.2.log")];

    #[test]
    fn a_real_run_of_two_workers_is_read_whole() {
        let (series, histogram) = seconds(LOGS).unwrap();
        let result = measured("fio".to_owned(), MIX, series).unwrap();
        assert_eq!(result.requests, 24_000);
        assert!((result.iops - 8000.0).abs() < 50.0, "{}", result.iops);
        assert!((result.seconds - 3.0).abs() < 0.1);
        assert!((result.bytes_per_second / result.iops - 4096.0).abs() < 10.0);
        let latency = result.latency;
        assert!(latency.p50_ns <= latency.p90_ns && latency.p99_ns <= latency.p999_ns);
        assert!(latency.p999_ns <= latency.max_ns);
        // The log ends before the run's last window.
        assert!(histogram.len() > result.requests / 2 && histogram.len() < result.requests);
        assert!(result.series.len() >= 2);
        assert!(
            result.series.iter().all(|second| (second.iops - 8000.0).abs() < 200.0),
            "{:?}",
            result.series
        );
    }

    #[test]
    fn what_is_not_json_is_shown_in_the_error() {
        let error = measured(String::new(), "fio: engine nbd not loadable\n", Vec::new()).unwrap_err();
        assert!(error.to_string().contains("engine nbd not loadable"), "{error}");
    }

    #[test]
    fn the_tail_is_the_mean_rate_and_the_worst_second() {
        let window = |at: f64, iops: f64, p99_ns: u64| Second { at, iops, p50_ns: 1, p99_ns };
        let series = vec![window(1.0, 900.0, 9), window(2.0, 100.0, 5), window(3.0, 200.0, 7)];
        let mut result = measured(String::new(), MIX, series).unwrap();
        assert_eq!(result.tail(2.0), Some((150.0, 7)));
        result.series.clear();
        assert_eq!(result.tail(2.0), None);
    }
}
