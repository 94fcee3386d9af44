//! Figure 2: one write at a time into a cache with room, and writes of every size into a full one.

use anyhow::Result;

use super::ceiling::Ceiling;
use super::{Before, Bench, Cached, Cell, Row, Want};
use crate::fio::Rw;
use crate::stats::ratio;

/// Runs it.
pub(super) fn run(bench: &mut Bench<'_>, cached: &mut Cached<'_>) -> Result<()> {
    single(bench, cached)?;
    for block in bench.opts.blocks.clone() {
        // One flush and one fill serve the four loads of a size.
        let loads = [(Rw::RandWrite, 1), (Rw::Write, 1), (Rw::RandWrite, 64), (Rw::Write, 64)];
        let cells = loads.map(|(rw, depth)| Cell::new(rw, block, depth, bench.opts.time));
        for both in bench.interleave(cached, &cells, Before::Full)? {
            let ratio = both.cached_over_native(|run| run.bytes_per_second);
            bench.push(both.row(2, ", full cache: rate", Want::AtLeast(0.95), ratio));
        }
    }
    Ok(())
}

/// 4K at depth 1, within half the cache, so that what is measured is the path of a write.
fn single(bench: &mut Bench<'_>, cached: &mut Cached<'_>) -> Result<()> {
    let mut cell = Cell::new(Rw::RandWrite, 4096, 1, bench.opts.time);
    cell.range = Some(bench.opts.cache / 2);
    let ceiling = Ceiling::new(bench, bench.opts.cache / 2)?;
    cached.flush()?;
    let parts = (0..bench.opts.rounds)
        .map(|round| ceiling.measure(bench, &cell, round))
        .collect::<Result<Vec<_>>>()?;
    ceiling.end(bench)?;
    for both in bench.interleave(cached, &[cell.clone()], Before::Flushed)? {
        let native = both.cached_over_native(|run| run.iops);
        bench.push(both.row(2, ", cache with room: IOPS", Want::AtLeast(10.0), native));
        let of_ceiling: Vec<(f64, f64)> = (both.runs.iter().zip(&parts))
            .map(|((cached, _), parts)| (parts.mean_ns(), cached.latency.mean_ns))
            .collect();
        let what = format!("{}, cache with room: of raw write and NBD hop", cell.what);
        let row = Row::new(2, what, Want::AtLeast(0.7), ratio(&of_ceiling, 2));
        bench.push(row.note("this or 10x native is wanted, not both"));
    }
    Ok(())
}
