//! `loligo bench engine` and `loligo bench model`: the engine alone, on memory and on a virtual clock.

use anyhow::Result;
use loligo_bench::engine::{EngineOptions, run as measure};
use loligo_bench::virtual_cliff::{CORE, bare, run as cliff};
use loligo_log::{out, outln, say};
use std::process::ExitCode;

/// CPU cost of the engine on devices of memory, one shard, and memory per line of a 64 GiB cache
///
/// Figures are requests per second of thread CPU time. Needs about 6 GiB of free memory.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    options: EngineOptions,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Measures.
pub(crate) fn run(a: &Args) -> Result<ExitCode> {
    let r = measure(&a.options, |what| say!("{what}"))?;
    if a.json {
        out!("{}\n", serde_json::to_string_pretty(&r)?);
    } else {
        outln!("read hit    {:>10.0} /s of CPU", r.read_hit_iops);
        outln!("write hit   {:>10.0} /s of CPU", r.write_hit_iops);
        outln!("write miss  {:>10.0} /s of CPU", r.write_miss_iops);
        if r.lines > 0 {
            outln!("memory      {:>10.2} B a line ({} lines)", r.bytes_per_line, r.lines);
            for (what, bytes) in &r.ram {
                outln!("            {bytes:>10.2} B {what}");
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The cliff on a virtual clock: 140 s of 4 KiB random writes at depth 32 on a 7,200 rpm disk model, in seconds
///
/// Leaves out transport and processor time; `bench cliff` measures the same in real time.
#[derive(Debug, clap::Args)]
pub(crate) struct ModelArgs {
    /// Cache sizes in percent of the 1 GiB core
    #[arg(long, value_delimiter = ',', default_value = "5,25,50")]
    percents: Vec<u64>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs the model.
pub(crate) fn run_model(a: &ModelArgs) -> Result<ExitCode> {
    let raw = bare();
    let mut rows = Vec::new();
    for percent in &a.percents {
        let r = cliff(CORE * percent / 100)?;
        if !a.json {
            outln!(
                "cache {percent:>3} %: {:>6.0} IOPS = {:>5.1}x the bare disk's {raw:.0}; worst second {}, worst p99 {:.1} ms",
                r.iops,
                r.iops / raw,
                r.worst_second,
                r.worst_p99_ms
            );
        }
        rows.push(
            serde_json::json!({ "percent": percent, "bare_iops": raw, "ratio": r.iops / raw, "result": r }),
        );
    }
    if a.json {
        out!("{}\n", serde_json::to_string_pretty(&rows)?);
    }
    Ok(ExitCode::SUCCESS)
}
