//! The parts of a volume that hold data: cached blocks do, and elsewhere the core's own file system knows.

use crate::devices::DeviceQueue;
use loligo_block::Extent;

/// Runs asked of the core for one request; the rest of the range counts as data.
const MAX_RUNS: usize = 1024;

/// The core's extents of `len` bytes at `offset` of it.
pub(crate) fn of_core(core: &DeviceQueue, offset: u64, len: u64) -> Vec<Extent> {
    let data = |len| Extent { len, allocated: true, zero: false };
    let mut runs = match core.device.file().map(|f| f.extents(offset, len, MAX_RUNS)) {
        Some(Ok(runs)) => runs,
        _ => return vec![data(len)],
    };
    let covered: u64 = runs.iter().map(|e| e.len).sum();
    if covered < len {
        runs.push(data(len - covered));
    }
    runs
}

/// Replaces the runs that the cache holds nothing of by what the core says; `offset` is on the core.
pub(crate) fn refine(core: &DeviceQueue, offset: u64, cached: Vec<Extent>) -> Vec<Extent> {
    let mut out: Vec<Extent> = Vec::with_capacity(cached.len());
    let mut at = offset;
    for run in cached {
        let parts = if run.allocated { vec![run] } else { of_core(core, at, run.len) };
        for part in parts {
            match out.last_mut() {
                Some(last) if last.allocated == part.allocated && last.zero == part.zero => {
                    last.len += part.len
                }
                _ => out.push(part),
            }
        }
        at += run.len;
    }
    out
}
