//! The journal behind the image's cut, record by record.

use super::frames::Frames;
use super::{Plan, RecoverError, Report};
use crate::bug::{Bug, planted};
use crate::index::{Index, Meta};
use crate::policy::Replacement;
use loligo_block::SyncIo;
use loligo_format::page::{PER_PAGE, Root};
use loligo_format::record::{FrameError, Record};
use loligo_format::units::{BLOCK, Stripe};
use std::collections::{BTreeMap, BTreeSet};

/// Frames replayed together, so that what they touch can be brought near first.
const TOGETHER: usize = 16;

/// State while replaying.
pub(super) struct Replay {
    pub(super) index: Index,
    pub(super) policy: Replacement,
    /// Image pages that no longer match.
    pub(super) touched: BTreeSet<u32>,
    /// For blocks put above the watermark: the slots put, each with what it replaced.
    pub(super) undo: BTreeMap<u32, Vec<(u32, Option<Meta>)>>,
    pub(super) intents: BTreeSet<u32>,
}

impl Replay {
    pub(super) fn touch(&mut self, slot: u32) {
        self.touched.insert(slot / PER_PAGE as u32);
    }

    fn apply(&mut self, record: Record, stripe: Stripe, tentative: bool) {
        match record {
            Record::Put { block, slot, crc, valid, dirty } => {
                let local = stripe.local(block);
                let before = self.index.get(local);
                // One that names the newest version's own slot brings no data: it says what of it is dirty. Taken back
                // with that version, it must not hide what came before.
                if tentative && before.is_none_or(|m| m.slot != slot) {
                    self.undo.entry(local).or_default().push((slot, before));
                }
                if let Some(other) = self.index.block_in(slot)
                    && other != local
                {
                    self.policy.remove(slot);
                }
                self.put(local, Meta { slot, crc, valid, dirty }, block);
            }
            Record::Clean { block, slot } => {
                if self.index.clean(stripe.local(block), slot) {
                    self.touch(slot);
                }
            }
            Record::Drop { block, slot } => self.forget(stripe.local(block), slot),
            Record::IntentOpen { region } => {
                self.intents.insert(region);
            }
            Record::IntentClose { region } => {
                self.intents.remove(&region);
            }
        }
    }

    pub(super) fn put(&mut self, local: u32, meta: Meta, key: u64) {
        if let Some(old) = self.index.replay(local, meta) {
            self.policy.remove(old);
            self.touch(old);
        }
        if self.policy.state(meta.slot) == 0 {
            self.policy.insert(meta.slot, key);
        }
        self.touch(meta.slot);
    }

    pub(super) fn forget(&mut self, local: u32, slot: u32) {
        if self.index.drop_version(local, slot) {
            self.policy.remove(slot);
            self.touch(slot);
        }
    }
}

/// True if a record speaks of a slot, a block and a region that there are.
fn in_range(record: &Record, plan: &Plan) -> bool {
    let block =
        |b: u64| b < plan.data_length.div_ceil(BLOCK) && plan.stripe.by.owner(b * BLOCK) == plan.stripe.shard;
    match *record {
        Record::Put { block: b, slot, .. }
        | Record::Clean { block: b, slot }
        | Record::Drop { block: b, slot } => block(b) && slot < plan.layout.limit,
        Record::IntentOpen { region } | Record::IntentClose { region } => {
            u64::from(region) < plan.data_length.div_ceil(plan.region)
        }
    }
}

/// Replays every frame behind the cut; the last one's sequence, and where the next goes.
pub(super) fn replay(
    dev: &mut dyn SyncIo,
    plan: &Plan,
    root: &Root,
    r: &mut Replay,
    report: &mut Report,
) -> Result<(u64, u64), RecoverError> {
    let strict = (!planted(plan.bug, Bug::StaleTailReplayed)).then_some(root);
    let mut frames = Frames::new(dev, plan);
    let mut records = Vec::new();
    let (mut seq, mut pos, mut watermark) = (root.cut, root.journal_pos, root.durable.max(root.cut));
    let mut above: Vec<(u64, Vec<Record>)> = Vec::new();
    // Two passes over what the watermark of a later frame may still vouch for: first all frames, then their records.
    while let Some((at, h)) = frames.read(pos, seq + 1, strict, &mut records)? {
        if !records.iter().all(|rec| in_range(rec, plan)) {
            return Err(FrameError::Malformed(h.seq).into());
        }
        watermark = watermark.max(h.watermark);
        above.push((h.seq, std::mem::take(&mut records)));
        (seq, pos) = (h.seq, at + u64::from(h.total));
        report.frames += 1;
        if above.len() >= TOGETHER {
            apply_sure(&mut above, watermark, plan, r);
        }
    }
    apply_sure(&mut above, watermark, plan, r);
    for (_, unsure) in above {
        unsure.into_iter().for_each(|rec| r.apply(rec, plan.stripe, true));
    }
    let stopped_here = plan.final_seq == Some(seq);
    if let Some(at) = frames.unreadable(pos, seq + 1, strict)?.filter(|_| !stopped_here) {
        if !plan.force {
            return Err(RecoverError::Unreadable { frame: seq + 1, at });
        }
        report.frames_lost += 1;
    }
    let known = match frames.witness(seq + 1, root.epoch)? {
        Some(w) => Some(w),
        // The root vouches for frames too, and so do the final sequences of a clean stop.
        None => Some(plan.final_seq.unwrap_or(0).max(root.durable)).filter(|known| *known > seq),
    };
    if let Some(known) = known {
        if !plan.force {
            return Err(RecoverError::Shorter { found: seq, known });
        }
        report.frames_lost += known - seq;
    }
    Ok((seq, pos % plan.layout.journal_len))
}

/// Replays the frames that the watermark vouches for, and takes them out.
fn apply_sure(above: &mut Vec<(u64, Vec<Record>)>, watermark: u64, plan: &Plan, r: &mut Replay) {
    let sure = above.iter().take_while(|(s, _)| *s <= watermark).count();
    let records = || above[..sure].iter().flat_map(|(_, records)| records);
    let blocks = || records().filter_map(Record::block).map(|b| plan.stripe.local(b));
    blocks().for_each(|b| r.index.prefetch(b));
    for block in blocks() {
        let _ = r.index.prefetch_line(block);
    }
    for (_, known) in above.drain(..sure) {
        known.into_iter().for_each(|rec| r.apply(rec, plan.stripe, false));
    }
}
