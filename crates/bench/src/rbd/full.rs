//! Figures 1 and 5: random writes past a full cache.

use anyhow::Result;

use super::{Before, Bench, Cached, Cell};
use crate::fio::Rw;
use crate::marks::Want;

/// Depths at which a full cache must not be slower than none.
const DEPTHS: [u32; 4] = [1, 16, 64, 128];

/// Figure 1: uniform 4K random writes at depth 64, cache full and settled.
pub(super) fn sustained(bench: &mut Bench<'_>, cached: &mut Cached<'_>) -> Result<()> {
    let mut cell = Cell::new(Rw::RandWrite, 4096, 64, bench.opts.time);
    cell.ramp = bench.opts.settle;
    let mark = if bench.opts.fast { 4.0 } else { 8.0 };
    for both in bench.interleave(cached, &[cell], Before::Full)? {
        let ratio = both.cached_over_native(|run| run.iops);
        let row = both.row(1, ", full cache: IOPS", Want::AtLeast(mark), ratio);
        bench.record.push(row.note(format!("after {} s past a full cache", bench.opts.settle.as_secs())));
    }
    Ok(())
}

/// Figure 5: the same at other depths. Loads too light to keep the cache full find room; that is their steady state.
pub(super) fn depths(bench: &mut Bench<'_>, cached: &mut Cached<'_>) -> Result<()> {
    let cells = DEPTHS.map(|depth| {
        let mut cell = Cell::new(Rw::RandWrite, 4096, depth, bench.opts.time);
        cell.ramp = bench.opts.settle / 12;
        cell
    });
    for both in bench.interleave(cached, &cells, Before::Full)? {
        let ratio = both.cached_over_native(|run| run.iops);
        bench.record.push(both.row(5, ", full cache: IOPS", Want::AtLeast(1.0), ratio));
    }
    Ok(())
}
