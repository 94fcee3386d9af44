//! Verification at recovery: of the newest versions, which became durable?

use super::{CHUNK, Plan, RecoverError, Replay, Report};
use crate::index::Meta;
use loligo_block::{IoError, SyncIo, crc32c};
use loligo_format::units::BLOCK;
use std::collections::BTreeSet;

/// Slots apart at most that are read in one go.
const NEAR: u32 = 16;

/// Compares what no watermark vouches for with its checksum; a mismatch is a write that never became durable, and the
/// version before it counts.
pub(super) fn verify(
    dev: &mut dyn SyncIo,
    plan: &Plan,
    r: &mut Replay,
    report: &mut Report,
) -> Result<(), RecoverError> {
    let undo = std::mem::take(&mut r.undo);
    let newest = undo.iter().filter_map(|(block, puts)| {
        let (slot, _) = puts.last()?;
        r.index.get(*block).filter(|m| m.slot == *slot)
    });
    let good = whole(dev, plan, newest.collect())?;
    let mut raw = vec![0u8; BLOCK as usize];
    for (block, mut puts) in undo {
        while let Some((slot, before)) = puts.pop() {
            // Dropped or zeroed afterwards: nothing of it is left to verify.
            let Some(meta) = r.index.get(block).filter(|m| m.slot == slot) else { break };
            if good.contains(&slot) {
                break;
            }
            // One that the first look found wrong is looked at alone, and so are the versions before it.
            if could_be(dev, plan, &meta, &mut raw)? {
                break;
            }
            report.records_dropped += 1;
            r.forget(block, slot);
            if let Some(meta) = before {
                r.put(block, meta, plan.stripe.global(block));
            }
        }
    }
    Ok(())
}

/// True if the version's data matches, or cannot be read: it may have been acknowledged then, and an error is better than what was
/// there before. A read that fails is made once more, since an error that passes says nothing of the data, and a version that
/// is kept for it without having become durable would fail for good.
fn could_be(dev: &mut dyn SyncIo, plan: &Plan, meta: &Meta, raw: &mut [u8]) -> Result<bool, IoError> {
    let at = plan.layout.slot(meta.slot);
    match dev.read_at(at, raw).or_else(|_| dev.read_at(at, raw)) {
        Ok(()) => Ok(crc32c(raw) == meta.crc),
        Err(e) if e.is_final() => Err(e),
        Err(_) => Ok(true),
    }
}

/// Those of the slots whose data matches. Slots are given out in order, so that the newest lie side by side: they are read
/// in stretches, ahead of being looked at.
fn whole(dev: &mut dyn SyncIo, plan: &Plan, mut wanted: Vec<Meta>) -> Result<BTreeSet<u32>, IoError> {
    wanted.sort_unstable_by_key(|m| m.slot);
    let most = (CHUNK as u64 / BLOCK) as u32;
    let near =
        |run: &[Meta], m: &Meta| m.slot - run[run.len() - 1].slot <= NEAR && m.slot - run[0].slot < most;
    let mut runs: Vec<&[Meta]> = Vec::new();
    let mut first = 0;
    for i in 1..=wanted.len() {
        if wanted.get(i).is_none_or(|m| !near(&wanted[first..i], m)) {
            runs.push(&wanted[first..i]);
            first = i;
        }
    }
    let bytes = |run: &[Meta]| (run[run.len() - 1].slot - run[0].slot + 1) as usize * BLOCK as usize;
    dev.read_next(runs.iter().map(|run| (plan.layout.slot(run[0].slot), bytes(run))).collect());
    let mut raw = vec![0u8; CHUNK];
    let mut good = BTreeSet::new();
    for run in runs {
        let raw = &mut raw[..bytes(run)];
        match dev.read_at(plan.layout.slot(run[0].slot), raw) {
            // Each of them is looked at alone.
            Err(e) if !e.is_final() => continue,
            result => result?,
        }
        let of = |m: &Meta| &raw[(m.slot - run[0].slot) as usize * BLOCK as usize..][..BLOCK as usize];
        good.extend(run.iter().filter(|m| crc32c(of(m)) == m.crc).map(|m| m.slot));
    }
    Ok(good)
}
