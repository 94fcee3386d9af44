//! Figure 7: what a 4K write costs the client's processor: destaged by the cache, and written by librbd.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::{Bench, Cached, Cell, Librbd};
use crate::cpu;
use crate::fio::{Job, Rw};
use crate::marks::{Row, Want};
use crate::stats::{median, ratio};
use crate::units;

/// Runs it. The cached side is measured while a full cache drains with no client there; the native side is the whole fio process,
/// less what it takes to start and end.
pub(super) fn run(bench: &mut Bench<'_>, cached: &mut Cached<'_>) -> Result<()> {
    let cell = Cell::new(Rw::RandWrite, 4096, 64, bench.opts.time);
    let (mut destaged, mut whole) = (Vec::new(), Vec::new());
    for round in 0..bench.opts.rounds {
        cached.fill()?;
        let (before, used) = (cached.stats()?, cached.cpu()?);
        let run = bench.bed.run(&cell.job(cached.target(), Duration::ZERO, bench.record.seed()))?;
        let served = (cached.cpu()? - used) / run.requests as f64;
        let during = cached.stats()?.destaged_blocks - before.destaged_blocks;
        let (before, used) = (cached.stats()?, cached.cpu()?);
        cached.flush()?;
        let blocks = cached.stats()?.destaged_blocks - before.destaged_blocks;
        ensure!(blocks > 0, "a full cache was flushed and no block was destaged");
        let drained = (cached.cpu()? - used) / blocks as f64;
        let native = native(bench, &cell, round)?;
        bench.record.say(&format!(
            "processor, round {}: {} a 4K destaged ({blocks} of them), {} a 4K served and destaged ({during} destaged of {}), \
             librbd {}",
            round + 1,
            units::time(drained * 1e9),
            units::time(served * 1e9),
            run.requests,
            units::time(native * 1e9)
        ));
        destaged.push((drained, native));
        whole.push((served, native));
    }
    let words = |pairs: &[(f64, f64)]| {
        let [ours, theirs] = [|pair: &(f64, f64)| pair.0, |pair: &(f64, f64)| pair.1]
            .map(|pick| units::time(median(&pairs.iter().map(pick).collect::<Vec<_>>()) * 1e9));
        format!("{ours} against {theirs}")
    };
    let what = "client processor time a 4K destaged (no client), of librbd's a 4K write";
    bench.record.push(Row::new(7, what, Want::AtMost(0.25), ratio(&destaged, 7)).note(words(&destaged)));
    let what = "client processor time a 4K write served and destaged through a full cache, of librbd's";
    bench.record.push(Row::new(7, what, Want::Nothing, ratio(&whole, 7)).note(words(&whole)));
    Ok(())
}

/// Seconds of fio's processor time for each write of this load.
fn native(bench: &mut Bench<'_>, cell: &Cell, round: usize) -> Result<f64> {
    let target = bench.cluster.native(&bench.native, Librbd::Uncached);
    let mut nothing = Job::new(target, Rw::RandWrite, 4096, 1);
    nothing.total = Some(4096);
    let begun = cpu::of_children()?;
    bench.bed.run(&nothing)?;
    let idle = cpu::of_children()?;
    let run = bench.native(cell, Librbd::Uncached, round)?;
    Ok((cpu::of_children()? - idle - (idle - begun)) / run.requests as f64)
}
