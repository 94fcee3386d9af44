//! Recovery of one shard: the newest image, the journal behind its cut, and every decision made durable before the
//! first request. Replay is bounded by the journal ring; no data is scanned but what the watermark does not vouch for.

mod frames;
mod image;
mod replay;
mod verify;

use crate::bug::{Bug, planted};
use crate::copies::write_missing;
use crate::index::{Index, Meta};
use crate::policy::{Kind, Replacement};
use crate::slots::Slots;
use image::load_image;
use loligo_block::{IoError, SyncIo};
use loligo_format::layout::ShardLayout;
use loligo_format::page::{Directory, Entry, PAGE, PER_PAGE, PageError, Root, encode_page};
use loligo_format::record::{FrameError, JournalId};
use loligo_format::units::{BLOCK, Stripe, is_counted};
use replay::{Replay, replay};
use std::collections::{BTreeMap, BTreeSet};
use thiserror::Error;
use verify::verify;

/// Bytes of the image read at a time.
const CHUNK: usize = 1 << 20;
/// Crashes since the cut that a root speaks of; one more, and the image is brought up to date at start.
const EPOCHS: usize = 8;

/// The reason why a shard cannot be recovered.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RecoverError {
    /// A device failed.
    #[error("{0}")]
    Io(#[from] IoError),
    /// Part of a checkpoint is damaged or too new.
    #[error("{0}")]
    Checkpoint(#[from] PageError),
    /// A journal record of a later version, or one that does not parse.
    #[error("{0}")]
    Journal(#[from] FrameError),
    /// The journal ends before something that is known to have been durable.
    #[error(
        "the journal ends at frame {found} but frame {known} was durable: acknowledged writes are missing"
    )]
    Shorter {
        /// Last frame found.
        found: u64,
        /// A frame known to have been durable.
        known: u64,
    },
    /// A frame may be there, and with it an acknowledged write.
    #[error(
        "journal frame {frame} would be at byte {at}, which cannot be read: an acknowledged write may be in it"
    )]
    Unreadable {
        /// The frame behind the last one found.
        frame: u64,
        /// Byte of the cache.
        at: u64,
    },
}

/// The findings and decisions of recovery.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Report {
    /// Journal frames replayed.
    pub frames: u64,
    /// Records dropped because their data never became durable.
    pub records_dropped: u64,
    /// Clean blocks dropped because a write to the core beside them may have been under way.
    pub clean_dropped: u64,
    /// Image pages given up (only when forced).
    pub pages_lost: u64,
    /// Acknowledged frames given up (only when forced).
    pub frames_lost: u64,
    /// Shards with frames replayed whose image was kept, because nothing had to be decided.
    pub images_kept: u64,
    /// Older versions of a block that the image names beside a newer one.
    pub older_entries: u64,
}

impl Report {
    /// True if something was given up, so that replaying again could end in another state.
    fn decided(&self) -> bool {
        self.records_dropped + self.clean_dropped + self.pages_lost + self.frames_lost > 0
    }

    /// Adds another shard's numbers.
    pub fn merge(&mut self, o: &Report) {
        self.frames += o.frames;
        self.records_dropped += o.records_dropped;
        self.clean_dropped += o.clean_dropped;
        self.pages_lost += o.pages_lost;
        self.frames_lost += o.frames_lost;
        self.images_kept += o.images_kept;
        self.older_entries += o.older_entries;
    }
}

/// A shard's state after recovery, ready for [`crate::Engine::new`].
#[derive(Debug)]
pub struct Recovered {
    pub(crate) epoch: u64,
    pub(crate) last_seq: u64,
    journal_pos: u64,
    /// Bytes of the ring before that which the image does not hold.
    journal_kept: u64,
    pub(crate) index: Index,
    pub(crate) slots: Slots,
    pub(crate) policy: Replacement,
    pub(crate) directory: Directory,
    pub(crate) root_seq: u64,
    /// Image pages that do not match.
    pub(crate) touched: BTreeSet<u32>,
    /// The findings and decisions.
    pub report: Report,
}

impl Recovered {
    /// Dirty blocks.
    pub fn dirty_blocks(&self) -> u64 {
        self.index.dirty_blocks()
    }

    /// The place in the ring of the next frame, and the length that is kept before it.
    pub(crate) fn journal(&self) -> (u64, u64) {
        (self.journal_pos, self.journal_kept)
    }

    /// Blocks mapped.
    pub fn occupied(&self) -> u64 {
        self.index.occupied()
    }

    /// Sequence of the last frame replayed.
    pub fn last_seq(&self) -> u64 {
        self.last_seq
    }

    /// The content of every `step`th slot: block of the volume and its newest version.
    pub fn blocks(&self, stripe: Stripe, step: usize) -> impl Iterator<Item = (u64, Meta)> + '_ {
        (0..self.slots.size())
            .step_by(step)
            .filter_map(move |s| self.index.entry(s).map(|(b, m)| (stripe.global(b), m)))
    }

    /// Forgets every clean block (the core was changed without its cache). Call [`commit`] afterwards.
    pub fn drop_clean(&mut self) {
        for slot in 0..self.slots.size() {
            if let Some((block, meta)) = self.index.entry(slot)
                && meta.dirty == 0
            {
                self.forget(block, slot);
                self.report.clean_dropped += 1;
            }
        }
    }

    /// The version `meta` of `block` is in slot `to` from now on, where it was written. Call [`commit`] afterwards.
    pub(crate) fn relocate(&mut self, block: u32, meta: Meta, to: u32) {
        self.index.put(block, Meta { slot: to, ..meta });
        self.policy.moved(meta.slot, to);
        self.slots.free(meta.slot);
        self.touched.extend([meta.slot, to].map(|s| s / PER_PAGE as u32));
    }

    /// Forgets the newest version of `block`, which is in `slot`. Call [`commit`] afterwards.
    pub(crate) fn forget(&mut self, block: u32, slot: u32) {
        self.index.drop_version(block, slot);
        self.policy.remove(slot);
        self.slots.free(slot);
        self.touched.insert(slot / PER_PAGE as u32);
    }
}

/// The facts that recovery needs.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// The shard.
    pub stripe: Stripe,
    /// The places of its parts.
    pub layout: ShardLayout,
    /// The id that its frames carry.
    pub id: JournalId,
    /// Bytes exported.
    pub data_length: u64,
    /// Bytes of an intent region.
    pub region: u64,
    /// The last frame of a clean stop, if there was one.
    pub final_seq: Option<u64>,
    /// Give up what is damaged instead of refusing.
    pub force: bool,
    /// Replacement policy to fill.
    pub replacement: Kind,
    /// A planted bug.
    pub bug: Option<Bug>,
}

/// The newest valid root of a shard, both copies made equal.
///
/// # Errors
/// If neither copy is valid, or the device fails.
pub fn load_root(dev: &mut dyn SyncIo, plan: &Plan) -> Result<Root, RecoverError> {
    let mut roots = Vec::new();
    for at in plan.layout.roots {
        let mut raw = vec![0; PAGE];
        roots.push(match dev.read_at(at, &mut raw) {
            Ok(()) => Root::decode(&raw, plan.id).and_then(|root| plausible(root, &plan.layout)),
            Err(e) if e.is_final() => return Err(e.into()),
            Err(e) => Err(PageError::Damaged(format!("a checkpoint root: {e}"))),
        });
    }
    if let Some(Err(e @ PageError::UnknownSection(_))) =
        roots.iter().find(|r| matches!(r, Err(PageError::UnknownSection(_))))
    {
        return Err(e.clone().into());
    }
    let best = roots.iter().filter_map(|r| r.as_ref().ok()).max_by_key(|r| r.seq).cloned();
    let Some(best) = best else {
        return Err(PageError::Damaged("both copies of the checkpoint root".into()).into());
    };
    Ok(best)
}

/// Checks that the numbers of a root, whatever wrote it, lie within the shard and leave room to count on.
fn plausible(root: Root, layout: &ShardLayout) -> Result<Root, PageError> {
    let counted = [root.seq, root.epoch, root.cut, root.durable];
    if root.journal_pos >= layout.journal_len || !counted.iter().all(|n| is_counted(*n)) {
        return Err(PageError::Damaged("a number in the checkpoint root".into()));
    }
    Ok(root)
}

/// Makes both copies of the root `best`, so that space only the other named may be used again.
fn mend_roots(dev: &mut dyn SyncIo, plan: &Plan, best: &Root) -> Result<(), RecoverError> {
    let raw = best.encode(plan.id);
    write_missing(dev, plan.layout.roots, &raw)?;
    Ok(())
}

/// Brings a shard back: image, replay, verification, and a checkpoint of it all under `epoch`.
///
/// # Errors
/// [`RecoverError`]; the devices are then as they were, or hold an older, still valid root.
pub fn recover(
    cache: &mut dyn SyncIo,
    core: &mut dyn SyncIo,
    plan: &Plan,
    root: &Root,
    epoch: u64,
) -> Result<Recovered, RecoverError> {
    mend_roots(cache, plan, root)?;
    let mut report = Report::default();
    let mut policy = Replacement::new(plan.replacement, plan.layout.slots, 0);
    policy.set_limit(plan.layout.limit);
    let mut r = Replay {
        index: Index::new(plan.layout.slots, plan.stripe.windows(plan.data_length)),
        policy,
        touched: BTreeSet::new(),
        undo: BTreeMap::new(),
        intents: (0u32..)
            .zip(&root.intents)
            .flat_map(|(i, b)| (0..8).filter(move |k| b >> k & 1 == 1).map(move |k| i * 8 + k))
            .collect(),
    };
    let directory = load_image(cache, plan, root, &mut r, &mut report)?;
    let (last_seq, pos) = replay(cache, plan, root, &mut r, &mut report)?;
    if !planted(plan.bug, Bug::RecordWithoutData) {
        verify(cache, plan, &mut r, &mut report)?;
    }
    let gave_up = report.frames_lost > 0;
    if gave_up || !r.intents.is_empty() {
        // What the core holds there may not be durable yet: it must be before anything read from it is trusted.
        core.flush()?;
        drop_distrusted(plan, gave_up, &mut r, &mut report);
    }
    let mut slots = Slots::new(plan.layout.slots, plan.layout.limit);
    (0..plan.layout.slots).filter(|s| r.index.block_in(*s).is_none()).for_each(|s| slots.free(s));
    let epoch = if planted(plan.bug, Bug::StaleTailReplayed) { root.epoch } else { epoch };
    let mut rec = Recovered {
        epoch,
        last_seq,
        journal_pos: pos,
        journal_kept: match (pos + plan.layout.journal_len - root.journal_pos) % plan.layout.journal_len {
            // Filled to the last byte, not empty.
            0 if last_seq > root.cut => plan.layout.journal_len,
            kept => kept,
        },
        index: r.index,
        slots,
        policy: r.policy,
        directory,
        root_seq: root.seq,
        touched: r.touched,
        report,
    };
    if report.decided() || !r.intents.is_empty() || root.earlier.len() >= EPOCHS {
        commit(cache, plan, &mut rec)?;
    } else {
        vouch(cache, plan, &mut rec, root)?;
    }
    Ok(rec)
}

/// Opens the new epoch where recovery had nothing to decide: image and cut stay as they are, replaying again
/// would end in the same state, and the root says how far the frames of the epochs before count. Changes
/// since the cut are written by the first checkpoint, while serving.
fn vouch(dev: &mut dyn SyncIo, plan: &Plan, rec: &mut Recovered, root: &Root) -> Result<(), RecoverError> {
    // What was read and found right may not be durable yet; from here on it counts as such.
    dev.flush()?;
    let mut next = root.clone();
    // Two up: the next checkpoint's directory is then the one that is not in use.
    next.seq = root.seq + 2;
    next.epoch = rec.epoch;
    next.durable = rec.last_seq;
    let before = root.earlier.last().map_or(root.cut, |(_, end)| *end);
    if rec.last_seq > before && rec.epoch != root.epoch {
        next.earlier.push((root.epoch, rec.last_seq));
    }
    let raw = next.encode(plan.id);
    for at in plan.layout.roots {
        dev.write_at(at, &raw)?;
        dev.flush()?;
    }
    rec.root_seq = next.seq;
    rec.report.images_kept += u64::from(rec.last_seq > root.cut);
    Ok(())
}

/// Forgets the clean blocks that cannot be trusted: those of regions with an open intent, or all once frames were given up, which
/// may have said that the core has newer ones.
fn drop_distrusted(plan: &Plan, gave_up: bool, r: &mut Replay, report: &mut Report) {
    for slot in 0..plan.layout.slots {
        let Some((block, meta)) = r.index.entry(slot) else { continue };
        let region = (plan.stripe.global(block) * BLOCK / plan.region) as u32;
        if !gave_up && !r.intents.contains(&region) {
            continue;
        }
        if meta.dirty == 0 {
            r.forget(block, slot);
            report.clean_dropped += 1;
        } else if meta.valid != meta.dirty {
            // Below an intent the core may have lost what the clean sectors hold: they are written again with the others.
            let known = if gave_up { meta.dirty } else { meta.valid };
            r.index.put(block, Meta { valid: known, dirty: known, ..meta });
            r.touch(slot);
        }
    }
}

/// Makes the recovered state durable in the image: the touched pages, the directory, both roots.
///
/// # Errors
/// Those of the device.
pub fn commit(dev: &mut dyn SyncIo, plan: &Plan, rec: &mut Recovered) -> Result<(), RecoverError> {
    let l = &plan.layout;
    let touched = std::mem::take(&mut rec.touched);
    let mut next = rec.directory.clone();
    let mut page_bytes = vec![0u8; PAGE];
    // Neighbouring pages with the same place go out in one write.
    let mut run: Vec<u8> = Vec::with_capacity(CHUNK);
    let mut run_at = 0;
    for page in &touched {
        let first = page * PER_PAGE as u32;
        let mut of_page = first..l.slots.min(first + PER_PAGE as u32);
        if first >= l.limit && of_page.all(|s| rec.index.block_in(s).is_none()) {
            // Its place may soon be somebody else's.
            next.clear(*page);
            continue;
        }
        let place = rec.directory.other(*page);
        let crc = encode_page(&mut page_bytes, plan.id, *page, l.slots, |slot| {
            let (block, meta) = rec.index.entry(slot)?;
            Some(Entry { block: plan.stripe.global(block), meta, policy: rec.policy.state(slot) })
        });
        next.set(*page, place, crc);
        let at = l.page(*page, place);
        if run.len() >= CHUNK || run_at + run.len() as u64 != at {
            if !run.is_empty() {
                dev.write_at(run_at, &run)?;
            }
            run.clear();
            run_at = at;
        }
        run.extend_from_slice(&page_bytes);
    }
    if !run.is_empty() {
        dev.write_at(run_at, &run)?;
    }
    dev.flush()?;
    let seq = rec.root_seq + 1;
    let mut raw = vec![0u8; l.dir_len as usize];
    let dir = (seq % 2) as u8;
    let dir_crc = next.encode(plan.id, seq, &mut raw);
    dev.write_at(l.dirs[usize::from(dir)], &raw)?;
    dev.flush()?;
    let root = Root {
        seq,
        epoch: rec.epoch,
        cut: rec.last_seq,
        durable: rec.last_seq,
        journal_pos: rec.journal_pos,
        dir,
        dir_crc,
        intents: Vec::new(),
        earlier: Vec::new(),
    };
    let raw = root.encode(plan.id);
    for at in l.roots {
        dev.write_at(at, &raw)?;
        dev.flush()?;
    }
    rec.root_seq = seq;
    rec.directory = next;
    rec.journal_kept = 0;
    Ok(())
}

/// Writes an empty checkpoint: a shard with nothing in it.
///
/// # Errors
/// Those of the device.
pub fn format_shard(dev: &mut dyn SyncIo, layout: &ShardLayout, id: JournalId) -> Result<(), IoError> {
    let directory = Directory::new(layout.page_count);
    let mut raw = vec![0u8; layout.dir_len as usize];
    let dir_crc = directory.encode(id, 0, &mut raw);
    dev.write_at(layout.dirs[0], &raw)?;
    let root = Root {
        seq: 0,
        epoch: 1,
        cut: 0,
        durable: 0,
        journal_pos: 0,
        dir: 0,
        dir_crc,
        intents: Vec::new(),
        earlier: Vec::new(),
    };
    let raw = root.encode(id);
    for at in layout.roots {
        dev.write_at(at, &raw)?;
        dev.flush()?;
    }
    Ok(())
}
