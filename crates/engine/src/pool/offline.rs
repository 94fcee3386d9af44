//! A share gets smaller while nobody serves from it: what is clean in the slots above is dropped, what is dirty moves below.

use crate::open::{OpenError, OpenOptions, close, open, plan};
use crate::params::Params;
use crate::recover::{Plan, Recovered, commit};
use loligo_block::{IoError, IoKind, SyncIo, crc32c};
use loligo_format::layout::ShardLayout;
use loligo_format::page::PER_PAGE;
use loligo_format::superblock::Superblock;
use loligo_format::units::BLOCK;

/// Brings a cleanly stopped cache within `limit` slots in each shard. Cut off anywhere, it is whole: it needs the slots that it
/// had, and is recovered by its next start.
///
/// # Errors
/// If it was not stopped cleanly, holds more dirty data than fits, or the device fails.
pub fn shrink(dev: &mut dyn SyncIo, sb: Superblock, limit: u32) -> Result<(), OpenError> {
    if !sb.clean {
        return Err(OpenError::InUse);
    }
    let mode = sb.mode;
    let options = OpenOptions { force: false, params: Params::default(), bug: None };
    let for_shard = |sb: &Superblock, shard| {
        let before = plan(sb, shard, &options);
        let layout = ShardLayout { limit: limit.min(before.layout.slots), ..before.layout };
        Plan { layout, ..before }
    };
    let mut opened = open(dev, &mut Untouched(sb.core.size), sb, &options)?;
    for shard in 0..opened.superblock.layout.shards {
        let p = for_shard(&opened.superblock, shard);
        let rec = &mut opened.shards[usize::from(shard)];
        make_fit(dev, &p, rec)?;
    }
    let finals: Vec<u64> = opened.shards.iter().map(Recovered::last_seq).collect();
    let dirty = opened.dirty_blocks();
    close(dev, &mut opened.superblock, &finals, mode, dirty, None)?;
    Ok(())
}

/// Empties the slots above the limit of `plan`, in two commits: a slot that the image names is not written to.
fn make_fit(dev: &mut dyn SyncIo, plan: &Plan, rec: &mut Recovered) -> Result<(), OpenError> {
    let failed = |e| OpenError::Shard(plan.stripe.shard, e);
    let (limit, slots) = (plan.layout.limit, plan.layout.slots);
    rec.slots.set_limit(limit);
    let mut moves = Vec::new();
    for slot in limit..slots {
        match rec.index.entry(slot) {
            Some((block, meta)) if meta.dirty == 0 => rec.forget(block, slot),
            Some((block, meta)) => moves.push((block, meta)),
            None => {}
        }
    }
    for slot in 0..limit {
        if rec.slots.free_count() as usize >= moves.len() {
            break;
        }
        if let Some((block, _)) = rec.index.entry(slot).filter(|(_, m)| m.dirty == 0) {
            rec.forget(block, slot);
        }
    }
    if rec.dirty_blocks() * 4 > u64::from(limit) * 3 {
        let dirty = rec.dirty_blocks() * BLOCK;
        return Err(OpenError::TooDirty { dirty, room: u64::from(limit) * BLOCK });
    }
    commit(dev, plan, rec).map_err(failed)?;
    let mut raw = vec![0; BLOCK as usize];
    for (block, meta) in moves {
        dev.read_at(plan.layout.slot(meta.slot), &mut raw)?;
        if crc32c(&raw) != meta.crc {
            return Err(OpenError::Damaged(plan.stripe.global(block) * BLOCK));
        }
        let to = rec.slots.take().expect("as many are free as there are to be moved");
        dev.write_at(plan.layout.slot(to), &raw)?;
        rec.relocate(block, meta, to);
    }
    for page in limit.div_ceil(PER_PAGE as u32)..plan.layout.page_count {
        if rec.directory.current(page).is_some() {
            rec.touched.insert(page);
        }
    }
    // Data first, then the image that speaks of it.
    dev.flush()?;
    commit(dev, plan, rec).map_err(failed)
}

/// The core is not there, and a cache that was stopped cleanly has nothing to ask of it.
struct Untouched(u64);

fn absent() -> IoError {
    IoError::new(IoKind::Gone, "the core is not open")
}

impl SyncIo for Untouched {
    fn size(&self) -> u64 {
        self.0
    }
    fn read_at(&mut self, _: u64, _: &mut [u8]) -> Result<(), IoError> {
        Err(absent())
    }
    fn write_at(&mut self, _: u64, _: &[u8]) -> Result<(), IoError> {
        Err(absent())
    }
    fn flush(&mut self) -> Result<(), IoError> {
        Err(absent())
    }
}
