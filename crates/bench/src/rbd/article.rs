//! Figure 4: the table of the published client-side cache: reads, writes and a mix, write-through and write-back.

use anyhow::{Context, Result};

use super::ceiling::Ceiling;
use super::{Before, Bench, Both, Cached, Cell, read};
use crate::fio::{Latency, Measured, Rw};
use crate::marks::Want;
use crate::stats::median;
use crate::units;

/// Requests in flight.
const DEPTH: u32 = 32;
/// The least share of native IOPS that counts as "about native".
const ABOUT: f64 = 0.9;

/// Runs it: the image warm in the cache, then each mode.
pub(super) fn run(bench: &mut Bench<'_>, cached: &mut Cached<'_>) -> Result<()> {
    cached.flush()?;
    read::warm(bench, cached)?;
    let cells = [Rw::RandRead, Rw::RandWrite, Rw::RandMix(70)].map(|rw| {
        let mut cell = Cell::new(rw, 4096, DEPTH, bench.opts.time);
        if rw != Rw::RandRead {
            // Up to what it keeps dirty by itself.
            cell.ramp = bench.opts.settle / 4;
        }
        cell
    });
    let ceiling = Ceiling::new(bench, bench.opts.image)?;
    let best = ceiling.measure(bench, &cells[2], 0)?;
    ceiling.end(bench)?;
    for mode in ["wt", "wb"] {
        cached.mode(mode)?;
        for both in bench.interleave(cached, &cells, Before::Nothing)? {
            let wb = mode == "wb";
            let iops = both.cached_over_native(|run| run.iops);
            match both.cell.rw {
                Rw::RandWrite if !wb => {
                    bench.record.push(both.row(4, ", wt: IOPS", Want::AtLeast(ABOUT), iops));
                }
                Rw::RandMix(_) => mix(bench, &both, mode, &best)?,
                _ => bench.record.push(both.row(4, &format!(", {mode}: IOPS"), Want::Nothing, iops)),
            }
        }
    }
    Ok(())
}

/// The mix: IOPS, and the latencies of its reads and of its writes by themselves.
fn mix(bench: &mut Bench<'_>, both: &Both, mode: &str, best: &super::ceiling::Parts) -> Result<()> {
    let marks = if mode == "wb" { [7.6, 25.0, 50.0].map(Want::AtLeast) } else { [Want::Nothing; 3] };
    let all = || both.runs.iter().map(|(_, native)| native);
    let reads = |run: &Measured| mean(run.reads.as_ref());
    let writes = |run: &Measured| mean(run.writes.as_ref());
    // What raw accesses and the hop at this depth would leave of native latencies.
    let limit = |of: &dyn Fn(&Measured) -> f64| -> Result<String> {
        let least = of(&best.raw) + of(&best.hop);
        let native = median(&all().map(of).collect::<Vec<_>>());
        let least = (least > 0.0).then_some(least).context("a mix has reads and writes")?;
        Ok(format!("raw cache file and NBD hop at this depth: {}", units::times(native / least)))
    };
    let iops = both.cached_over_native(|run| run.iops);
    let row = both.row(4, &format!(", {mode}: IOPS"), marks[0], iops);
    bench.record.push(row.note(limit(&|run| run.latency.mean_ns)?));
    let row = both.row(4, &format!(", {mode}: read latency"), marks[1], both.native_over_cached(reads));
    bench.record.push(row.note(limit(&reads)?));
    let row = both.row(4, &format!(", {mode}: write latency"), marks[2], both.native_over_cached(writes));
    bench.record.push(row.note(limit(&writes)?));
    Ok(())
}

fn mean(latency: Option<&Latency>) -> f64 {
    latency.map_or(0.0, |latency| latency.mean_ns)
}
