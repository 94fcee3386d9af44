//! Figure 3: random reads of an image that the cache holds.

use anyhow::{Result, bail};

use super::ceiling::Ceiling;
use super::{Before, Bench, Cached, Cell, Group};
use crate::fio::{Job, Rw};
use crate::marks::{Row, Want};
use crate::stats::ratio;
use crate::units;

/// Passes over the image after which it must be warm.
const PASSES: usize = 8;
/// Share of hits from which the cache counts as warm.
pub(crate) const WARM: f64 = 0.99;

/// Reads the image until it comes from the cache: a first read only makes a block a candidate.
pub(crate) fn warm(bench: &Bench<'_>, cached: &mut Cached<'_>) -> Result<()> {
    for pass in 1..=PASSES {
        let (rate, hits) = sweep(bench, cached, 0, bench.opts.image)?;
        let rate = units::bytes(rate);
        bench
            .record
            .say(&format!("reading the image whole, pass {pass}: {rate}/s, {:.0} % hits", hits * 100.0));
        if hits >= WARM {
            return Ok(());
        }
    }
    bail!("after {PASSES} passes over the image the cache does not hold it")
}

/// Reads `size` bytes from `offset` once, in large pieces, and gives bytes a second and the share of hits.
pub(crate) fn sweep(
    bench: &Bench<'_>,
    cached: &mut Cached<'_>,
    offset: u64,
    size: u64,
) -> Result<(f64, f64)> {
    let before = cached.stats()?;
    let run = bench.bed.run(&Job::new(cached.target(), Rw::Read, 64 << 10, 8).within(offset, size))?;
    Ok((run.bytes_per_second, cached.stats()?.hits_since(&before)))
}

/// Runs it.
pub(super) fn run(bench: &mut Bench<'_>, cached: &mut Cached<'_>) -> Result<()> {
    cached.flush()?;
    warm(bench, cached)?;
    let cells = [1, 32].map(|depth| Cell::new(Rw::RandRead, 4096, depth, bench.opts.time));
    let fast = bench.opts.fast;
    let before = cached.stats()?;
    let ceiling = Ceiling::new(bench, bench.opts.image)?;
    let mut parts = Vec::new();
    let mut group = Group::new(&cells, Before::Nothing);
    for round in 0..bench.opts.rounds {
        parts.push(ceiling.measure(bench, &cells[0], round)?);
        bench.round(&mut group, cached, round)?;
    }
    ceiling.end(bench)?;
    let all = bench.close(group);
    let hits = format!("{:.1} % hits", cached.stats()?.hits_since(&before) * 100.0);
    let want = |mark: f64, gated: bool| if gated { Want::AtLeast(mark) } else { Want::Nothing };
    for both in &all {
        let mean = both.native_over_cached(|run| run.latency.mean_ns);
        let p99 = both.native_over_cached(|run| run.latency.p99_ns as f64);
        bench.record.push(both.row(3, ", warm: mean latency", want(40.0, !fast), mean).note(hits.clone()));
        bench.record.push(both.row(3, ", warm: p99 latency", want(35.0, !fast), p99));
        let iops = both.cached_over_native(|run| run.iops);
        bench.record.push(both.row(3, ", warm: IOPS", want(3.0, fast && both.cell.depth == 1), iops));
    }
    let single = &all[0];
    let of_ceiling: Vec<(f64, f64)> = (single.runs.iter().zip(&parts))
        .map(|((cached, _), parts)| (parts.mean_ns(), cached.latency.mean_ns))
        .collect();
    let what = format!("{}, warm: of raw read and NBD hop", single.cell.what);
    bench.record.push(Row::new(3, what, want(0.7, fast), ratio(&of_ceiling, 3)));
    Ok(())
}
