//! Content that only a write to the core had, and that the core did not take: a gap between dirty blocks, say. It goes into the
//! cache as dirty blocks. Until it is there it is in memory, and reads that the core fails are served from it.

use super::Destage;
use super::doubt::{Doubt, copy_sectors};
use super::job::DOUBT;
use crate::api::{Dev, Effect, Nanos};
use crate::commit::RoomFor;
use crate::engine::Engine;
use crate::index::Meta;
use crate::io_tag::{Done, IoTag};
use crate::refusal::ControlError;
use loligo_block::{Buf, Op, OpKind, Shared, crc32c};
use loligo_format::record::Record;
use loligo_format::units::{BLOCK, Stripe, WINDOW_BLOCKS, sector_mask};

/// `content` as a whole block. Only the last one of a volume is shorter.
fn whole(content: &Shared) -> Shared {
    if content.len() == BLOCK as usize {
        return content.clone();
    }
    let mut block = Buf::zeroed(BLOCK as usize);
    block[..content.len()].copy_from_slice(content);
    block.freeze()
}

impl Destage {
    /// The content of `block` in memory, kept because a write of it is under way or has failed. The core
    /// should hold this; nobody knows what it does hold. The result is the sectors, and a buffer that they
    /// begin with.
    pub(crate) fn content_of(&self, block: u32, stripe: Stripe) -> Option<(u8, Shared)> {
        let whole = |content: Shared| (sector_mask(0, 0, content.len() as u64), content);
        if let Some(d) = self.doubts.get(&block) {
            return Some((d.mask, d.content.clone()));
        }
        let job = self.by_window.get(&(block / WINDOW_BLOCKS as u32))?;
        self.jobs[*job].content_of(block, stripe).map(whole)
    }

    /// True if memory may have something of these blocks.
    pub(crate) fn has_content(&self, first: u32, last: u32) -> bool {
        let windows = first / WINDOW_BLOCKS as u32..=last / WINDOW_BLOCKS as u32;
        self.any_doubted(first, last)
            || self.by_window.range(windows).any(|(_, key)| self.jobs[*key].owns_core())
    }
}

impl Engine {
    /// Blocks of which the cache does not have everything that the core may lack.
    pub(super) fn in_memory(&self) -> impl Iterator<Item = u32> {
        let lacks = |(b, d): &(&u32, &Doubt)| d.mask & !self.map.index.get(**b).map_or(0, |m| m.valid) != 0;
        self.destage.doubts.iter().filter(lacks).map(|(b, _)| *b)
    }

    /// Checks that there are slots for what merges write beside dirty blocks, with `gap` blocks more, even if
    /// the core refuses all of it. If there are not, the error says whether there will be more of them once
    /// others are over.
    pub(super) fn has_room_for_gap(&self, gap: usize) -> Result<(), bool> {
        let under_way: usize = self.destage.jobs.iter().map(|(_, j)| j.gap_at_core()).sum();
        let room = self.space.slots.free_count() as usize;
        let none = self.destage.has_doubts() || under_way + gap > room;
        if none { Err(under_way > 0) } else { Ok(()) }
    }

    /// The reason why content stays in memory: no slot is free for it, nor will be one.
    pub(crate) fn cannot_salvage(&self) -> Option<ControlError> {
        let none = self.space.slots.free_count() + self.space.slots.leaving_count() + self.space.dropping
            == 0
            && self.space.no_victims;
        let blocks = if none { self.in_memory().count() as u64 } else { 0 };
        let why = || self.destage.salvaged_why.clone();
        (blocks > 0).then(|| ControlError::NoRoom { blocks, why: why() })
    }

    /// Puts the content of `block` into the cache, over `newest` of which it lacks something.
    pub(super) fn salvage(&mut self, now: Nanos, block: u32, newest: Option<Meta>, fx: &mut Vec<Effect>) {
        let Some(doubt) = self.destage.doubts.get(&block) else { return };
        let lacks = |m: &Meta| m.dirty != 0 && (doubt.of != Some(m.slot) || m.valid & !doubt.mask != 0);
        match newest.filter(lacks) {
            None => self.put_salvaged(now, block, newest, None, fx),
            // Each of those that are read takes a slot afterwards.
            Some(meta)
                if self.space.slots.free_count() as usize > self.destage.old_reads.len()
                    && !self.destage.old_reads.contains_key(&block) =>
            {
                let ticket = self.space.tickets.begin();
                self.destage.old_reads.insert(block, (meta, ticket));
                self.stats.cache_read_bytes += BLOCK;
                let kind = OpKind::Read(Buf::alloc(BLOCK as usize));
                let tag = IoTag::Destage(block as usize, DOUBT).tag();
                fx.push(Effect::Io(Dev::Cache, Op { tag, offset: self.cfg.layout.slot(meta.slot), kind }));
            }
            Some(_) => {}
        }
    }

    /// The version of a block that lacks what the core did not take has been read.
    pub(super) fn old_read(&mut self, done: Done, fx: &mut Vec<Effect>) {
        let Done { now, key, buf, result, .. } = done;
        let (block, ok) = (key as u32, result.is_ok());
        let (meta, ticket) = self.destage.old_reads.remove(&block).expect("it was asked for");
        self.space.tickets.end(ticket);
        let goes_on = self.state.has_both();
        if !goes_on || self.map.index.get(block) != Some(meta) || !self.may_note(block) {
            return;
        }
        match buf.filter(|b| ok && crc32c(b) == meta.crc) {
            Some(old) => self.put_salvaged(now, block, Some(meta), Some(old), fx),
            None => {
                self.stats.crc_errors += u64::from(ok);
                let Some(doubt) = self.destage.doubts.get_mut(&block) else { return };
                doubt.failures += 1;
                if !doubt.is_given_up() {
                    return;
                }
                // What is dirty is lost, and the block is told of as damaged. The rest is read from memory.
                self.destage.bad.insert(block);
                let drains = self.state.freeze().is_some_and(|f| !f.is_answered() && f.is_pinned(&meta));
                if drains {
                    self.end_freeze(now, self.damaged(block), fx);
                }
            }
        }
    }

    /// `old`: the content of `newest`, which goes over what the core did not take.
    fn put_salvaged(
        &mut self,
        now: Nanos,
        block: u32,
        newest: Option<Meta>,
        old: Option<Buf>,
        fx: &mut Vec<Effect>,
    ) {
        let Some(doubt) = self.destage.doubts.get(&block) else { return };
        let (mask, content) = (doubt.mask, &doubt.content);
        if !self.commit.has_room(RoomFor::Housekeeping) {
            return;
        }
        let (data, valid, dirty) = match (newest, old) {
            (Some(m), Some(mut data)) => {
                copy_sectors(content, &mut data, mask & !m.valid);
                (data.freeze(), m.valid | mask, m.dirty | mask)
            }
            _ => (whole(content), mask, mask),
        };
        let Some(slot) = self.space.slots.take() else { return };
        let fresh = newest.is_none_or(|m| m.dirty == 0);
        self.space.lands(fresh);
        let crc = crc32c(&data);
        self.commit.put_data(self.cfg.layout.slot(slot), data, &mut self.stats, fx);
        let global = self.cfg.stripe.global(block);
        self.commit.append(now, Record::Put { block: global, slot, crc, valid, dirty }, fresh, true);
        // Whoever writes the core beneath it ends it as it would a fill.
        self.map.filling.insert(block, slot);
    }

    /// Takes note that the sectors of a block that the core did not take are in the cache, in `slot`, in
    /// place of `old`. A freeze brings it to the core: it held this at the moment.
    pub(crate) fn salvaged(&mut self, block: u32, slot: u32, old: Option<Meta>) {
        let window = block / WINDOW_BLOCKS as u32;
        self.destage.flushes.iter_mut().for_each(|f| _ = f.remaining.insert(window));
        if let Some(key) = self.destage.by_window.get(&window) {
            self.destage.jobs[*key].outgrow();
        }
        let Some(freeze) = self.state.freeze_mut() else { return };
        match old.filter(|m| m.dirty != 0) {
            _ if freeze.is_answered() => freeze.note_fresh(slot),
            None => freeze.one_more(window, slot),
            Some(m) if freeze.is_pinned(&m) => {
                freeze.moved(slot);
                // A job may have looked before this was there.
                freeze.later(window);
            }
            Some(_) => freeze.note_fresh(slot),
        }
    }
}
