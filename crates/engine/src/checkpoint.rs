//! Checkpoints: the index image on the device catches up with the journal, which then may be overwritten.
//!
//! Pages that changed since the last one are written to their other place, then the directory, then the two roots, with
//! a flush between each step. The image is fuzzy: a page may hold later records than the cut; replaying those again
//! changes nothing. It commits only after the journal is durable through the highest frame any page may contain.

use crate::api::{Dev, Effect};
use crate::commit::RoomFor;
use crate::engine::Engine;
use crate::flushes::Waiter;
use crate::io_tag::IoTag;
use loligo_block::{Buf, Op, OpKind, Shared};
use loligo_format::layout::ShardLayout;
use loligo_format::page::{Directory, Entry, PAGE, PER_PAGE, Root, encode_page};
use std::collections::BTreeSet;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Idle,
    /// Pages are being written.
    Pages,
    /// Everything the pages contain becomes durable in the journal.
    Journal,
    /// The pages become durable.
    PagesFlush,
    /// The directory is written and made durable.
    Directory,
    DirectoryFlush,
    /// Root copy 0, then 1.
    Root(u8),
    RootFlush(u8),
}

/// The checkpointer's state.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    /// Pages that differ from their current place, a bit each.
    touched: Vec<u64>,
    touched_count: u32,
    /// Pages this checkpoint still has to write.
    todo: Vec<u32>,
    directory: Directory,
    next_directory: Directory,
    root_seq: u64,
    step: Step,
    /// It waits for a flush of the cache that has not begun.
    pub(crate) wants_flush: bool,
    in_flight: u32,
    cut: u64,
    cut_at: u64,
    /// The highest frame a written page may contain.
    highest: u64,
    root: Option<Shared>,
    committed: u64,
    /// Checkpoints begun and committed.
    begun: u64,
    done: u64,
    /// The intents have changed without a record, so the last commit is not the last word.
    stale: bool,
}

impl Checkpoint {
    /// `pending`: pages that differ from their place on the device already.
    pub(crate) fn new(
        layout: &ShardLayout,
        directory: Directory,
        root_seq: u64,
        pending: &BTreeSet<u32>,
    ) -> Checkpoint {
        let mut checkpoint = Checkpoint {
            touched: vec![0; (layout.page_count as usize).div_ceil(64)],
            touched_count: 0,
            todo: Vec::new(),
            next_directory: directory.clone(),
            directory,
            root_seq,
            step: Step::Idle,
            wants_flush: false,
            in_flight: 0,
            cut: 0,
            cut_at: 0,
            highest: 0,
            root: None,
            committed: 0,
            begun: 0,
            done: 0,
            stale: false,
        };
        for page in pending {
            checkpoint.touch(page * PER_PAGE as u32);
        }
        checkpoint
    }

    /// The entry of `slot` has changed.
    #[inline]
    pub(crate) fn touch(&mut self, slot: u32) {
        let page = slot / PER_PAGE as u32;
        let (word, bit) = (page as usize / 64, 1u64 << (page % 64));
        if self.touched[word] & bit == 0 {
            self.touched[word] |= bit;
            self.touched_count += 1;
        }
    }

    /// True if the last commit holds everything through frame `seq`.
    pub(crate) fn finished_at(&self, seq: u64) -> bool {
        self.step == Step::Idle && self.committed >= seq && self.touched_count == 0 && !self.stale
    }

    /// The next commit is needed even if no page changes.
    pub(crate) fn renew(&mut self) {
        self.stale = true;
    }

    /// None is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.step == Step::Idle
    }

    /// The number of the one that began last.
    pub(crate) fn number(&self) -> u64 {
        self.begun
    }

    /// True if the one with this number has committed.
    pub(crate) fn has_committed(&self, number: u64) -> bool {
        self.done >= number
    }

    /// Pages that speak of slots from `slot` on alone are to be forgotten.
    pub(crate) fn touch_written_from(&mut self, slot: u32) {
        for page in slot.div_ceil(PER_PAGE as u32)..self.directory.crc.len() as u32 {
            if self.directory.current(page).is_some() {
                self.touch(page * PER_PAGE as u32);
            }
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        2 * (self.directory.crc.len() * 5) + self.touched.len() * 8
    }

    fn take_touched(&mut self) -> Vec<u32> {
        let mut pages = Vec::with_capacity(self.touched_count as usize);
        for (i, word) in self.touched.iter_mut().enumerate() {
            while *word != 0 {
                pages.push(i as u32 * 64 + word.trailing_zeros());
                *word &= *word - 1;
            }
        }
        self.touched_count = 0;
        pages.reverse();
        pages
    }
}

impl Engine {
    /// Starts a checkpoint when the journal is two fifths full.
    pub(crate) fn checkpoint_if_due(&mut self, fx: &mut Vec<Effect>) {
        let used = self.commit.journal.used() * 5;
        if self.commit.checkpoint.step == Step::Idle && used > self.commit.journal.len() * 2 {
            self.start_checkpoint(fx);
        }
        if self.commit.checkpoint.step == Step::Pages {
            self.write_pages(fx);
        }
        debug_assert!(
            self.commit.has_room(RoomFor::Housekeeping) || self.commit.checkpoint.step != Step::Idle
        );
    }

    /// Cuts at the completed prefix: all it says is in the index, hence in the pages.
    pub(crate) fn start_checkpoint(&mut self, fx: &mut Vec<Effect>) {
        if self.commit.checkpoint.step != Step::Idle {
            return;
        }
        let c = &mut self.commit.checkpoint;
        c.cut = self.commit.journal.completed();
        c.cut_at = self.commit.journal.completed_end();
        c.todo = c.take_touched();
        c.step = Step::Pages;
        c.begun += 1;
        self.write_pages(fx);
    }

    fn write_pages(&mut self, fx: &mut Vec<Effect>) {
        let (id, slots) = (self.cfg.id, self.cfg.layout.slots);
        while self.commit.checkpoint.in_flight < self.cfg.devices.page_writes {
            let Some(page) = self.commit.checkpoint.todo.pop() else { break };
            let first = page * PER_PAGE as u32;
            let end = slots.min(first + PER_PAGE as u32);
            if first >= self.space.slots.count() && (first..end).all(|s| self.map.index.block_in(s).is_none())
            {
                // Its place may soon be somebody else's.
                self.commit.checkpoint.next_directory.clear(page);
                continue;
            }
            let mut buf = Buf::alloc(PAGE);
            let (index, stripe, policy) = (&self.map.index, self.cfg.stripe, &self.space.policy);
            let crc = encode_page(&mut buf, id, page, slots, |slot| {
                let (block, meta) = index.entry(slot)?;
                Some(Entry { block: stripe.global(block), meta, policy: policy.state(slot) })
            });
            let c = &mut self.commit.checkpoint;
            let place = c.directory.other(page);
            c.next_directory.set(page, place, crc);
            c.in_flight += 1;
            let offset = self.cfg.layout.page(page, place);
            self.put_checkpoint(offset, buf.freeze(), fx);
        }
        if self.commit.checkpoint.in_flight == 0 && self.commit.checkpoint.todo.is_empty() {
            self.commit.checkpoint.highest = self.commit.journal.completed();
            self.commit.checkpoint.step = Step::Journal;
            if self.commit.checkpoint.highest <= self.commit.journal.durable() {
                // Nothing further would happen to an idle cache, so nobody would wake this.
                return self.checkpoint_step(fx);
            }
            self.commit.wait_durable(self.commit.checkpoint.highest, Waiter::Checkpoint);
        }
    }

    fn put_checkpoint(&mut self, offset: u64, data: Shared, fx: &mut Vec<Effect>) {
        self.stats.cache_write_bytes += data.len() as u64;
        let kind = OpKind::Write { data, fua: false };
        fx.push(Effect::Io(Dev::Cache, Op { tag: IoTag::Checkpoint.tag(), offset, kind }));
    }

    fn flush_checkpoint(&mut self, step: Step, fx: &mut Vec<Effect>) {
        self.commit.checkpoint.step = step;
        if !self.cfg.devices.cache_volatile {
            return self.checkpoint_flushed(fx);
        }
        self.flush_for_checkpoint(fx);
    }

    /// The journal is durable through everything the pages contain.
    pub(crate) fn checkpoint_step(&mut self, fx: &mut Vec<Effect>) {
        self.flush_checkpoint(Step::PagesFlush, fx);
    }

    /// A write of the checkpoint is over.
    pub(crate) fn checkpoint_done(&mut self, fx: &mut Vec<Effect>) {
        if !self.state.uses_cache() {
            return;
        }
        match self.commit.checkpoint.step {
            Step::Pages => {
                self.commit.checkpoint.in_flight -= 1;
                self.write_pages(fx);
            }
            Step::Directory => self.flush_checkpoint(Step::DirectoryFlush, fx),
            Step::Root(n) => self.flush_checkpoint(Step::RootFlush(n), fx),
            s => unreachable!("a checkpoint write ended in step {s:?}"),
        }
    }

    /// The flush that the checkpoint waited for is over.
    pub(crate) fn checkpoint_flushed(&mut self, fx: &mut Vec<Effect>) {
        let (id, layout) = (self.cfg.id, self.cfg.layout);
        match self.commit.checkpoint.step {
            Step::PagesFlush => {
                let c = &mut self.commit.checkpoint;
                c.step = Step::Directory;
                c.root_seq += 1;
                let which = (c.root_seq % 2) as u8;
                let mut buf = Buf::alloc(layout.dir_len as usize);
                c.stale = false;
                let dir_crc = c.next_directory.encode(id, c.root_seq, &mut buf);
                let root = Root {
                    seq: c.root_seq,
                    epoch: self.commit.journal.epoch,
                    cut: c.cut,
                    durable: c.highest,
                    journal_pos: self.commit.journal.position(c.cut_at),
                    dir: which,
                    dir_crc,
                    intents: self.commit.intents.bitmap(),
                    // The cut is never before the end of the last recovery.
                    earlier: Vec::new(),
                };
                c.root = Some(Buf::copy_of(&root.encode(id)).freeze());
                self.put_checkpoint(layout.dirs[usize::from(which)], buf.freeze(), fx);
            }
            Step::DirectoryFlush => self.put_root(0, fx),
            Step::RootFlush(0) => self.put_root(1, fx),
            Step::RootFlush(_) => {
                let c = &mut self.commit.checkpoint;
                c.step = Step::Idle;
                c.directory = c.next_directory.clone();
                c.committed = c.cut;
                c.done = c.begun;
                let at = c.cut_at;
                self.commit.journal.trim(at);
                self.stats.checkpoints += 1;
            }
            s => unreachable!("a checkpoint flush ended in step {s:?}"),
        }
    }

    fn put_root(&mut self, n: u8, fx: &mut Vec<Effect>) {
        self.commit.checkpoint.step = Step::Root(n);
        let root = self.commit.checkpoint.root.clone().expect("made with the directory");
        self.put_checkpoint(self.cfg.layout.roots[usize::from(n)], root, fx);
    }
}
