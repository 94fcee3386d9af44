//! Changes: writes, zeroes and discards. Each takes its lock, is given a [`Route`], and ends in [`Engine::finish`].
//!
//! * *Back*: slots, data and records go out together (`write_back.rs`).
//! * *Through* and the others: the core is written under an intent, then the cache follows (`write_through.rs`).
//!
//! The payload stays with its change until the answer: whatever fails on the way, the request can be made again.

use crate::api::{Effect, Hint, Nanos};
use crate::bug::{Bug, planted};
use crate::durability::Waiter;
use crate::engine::{Engine, answer};
use crate::index::Meta;
use crate::intake::Task;
use crate::io_tag::Done;
use crate::params::SeqCutoff;
use crate::stats::Bypass;
use loligo_block::{Answer, Buf, OpKind, ReqError, ReqId, ReqKind, Request, Shared};
use loligo_format::mode::{Mode, WriteRoute};
use loligo_format::units::{ALL, BLOCK, WINDOW_BLOCKS, sector_mask};
use smallvec::SmallVec;
use std::ops::RangeInclusive;

/// Zeroes up to this many bytes are cached as data in write-back mode; longer ones go to the core.
const ZEROES_CACHED: u64 = 64 << 10;

/// How far a change has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Behind an overlapping change.
    Locking,
    /// For slots, journal room or the pacer.
    Admission,
    /// Old content of a partly written block is being read.
    Merging,
    /// Records are in the journal's hands.
    Recording,
    /// For an intent to be durable.
    Intent,
    /// For a destage job that owns the window.
    Claim,
    /// At the core.
    Core,
    /// For the core's flush, before dirty mappings may end.
    CoreFlush,
    /// For dirty blocks to reach the core (wt and its kin over dirty data).
    Destage,
    /// For the core to be no longer frozen.
    Thaw,
    /// For its frame to be durable, and the core's flush, before a FUA answer.
    Durability,
}

/// What becomes the content.
#[derive(Debug, Clone)]
pub(crate) enum Content {
    Data(Shared),
    Zero { unmap: bool },
}

impl Content {
    /// As `len` bytes for the core.
    pub(crate) fn for_core(self, len: u64) -> OpKind {
        match self {
            Content::Data(data) => OpKind::Write { data, fua: false },
            Content::Zero { unmap } => OpKind::WriteZeroes { len, unmap },
        }
    }
}

/// An old version that a partial write needs.
#[derive(Debug)]
pub(crate) struct Merge {
    pub(crate) block: u32,
    pub(crate) meta: Meta,
    pub(crate) ticket: u64,
    pub(crate) buf: Option<Buf>,
}

/// What a change in the cache's hands holds there.
#[derive(Debug, Default)]
pub(crate) struct Staged {
    /// Slots for its blocks, in order, until the data is on its way.
    pub(crate) slots: SmallVec<[u32; 2]>,
    pub(crate) merges: SmallVec<[Merge; 2]>,
    /// The answer waits until the dirty blocks are in the core.
    pub(crate) sync: bool,
}

/// Which way a change goes, with what it holds on it.
#[derive(Debug)]
pub(crate) enum Route {
    /// Not decided: it waits for its blocks, or for a thaw.
    Open,
    /// Dirty into the cache; destaging brings it to the core.
    Back(Staged),
    /// To the core, then clean into the cache.
    Through,
    /// To the core; what is clean beneath it ends.
    Invalidate,
    /// To the core as zeros; whatever the cache has beneath it ends.
    Zero,
    /// To the core although the cache writes back; it replaces what is dirty beneath it. Refused there it is staged
    /// instead.
    Direct,
}

/// A change in progress.
#[derive(Debug)]
pub(crate) struct WriteTask {
    /// Taken by the answer: from then on the client is told nothing more.
    id: Option<ReqId>,
    since: Nanos,
    content: Content,
    /// First and last block, the shard's numbers.
    pub(crate) first: u32,
    pub(crate) last: u32,
    /// On its way into the cache: the first block that is not in the journal's hands.
    pub(crate) next: u32,
    /// First block of the volume.
    pub(crate) first_global: u64,
    /// Bytes within the volume.
    pub(crate) offset: u64,
    pub(crate) len: u64,
    fua: bool,
    split: bool,
    /// Zeros that need not be.
    pub(crate) discard: bool,
    pub(crate) route: Route,
    pub(crate) sequential: bool,
    /// Bytes of the request it belongs to, where the core could take it past the cache; else 0.
    whole: u64,
    /// It was refused there: its intent stays until the cache has it.
    pub(crate) in_doubt: bool,
    pub(crate) stage: Stage,
    pub(crate) pending: u32,
    pub(crate) error: Option<ReqError>,
    /// The last frame with a record of it.
    pub(crate) seq: u64,
    /// It reached the core by itself.
    pub(crate) core_written: bool,
    pub(crate) claimed: bool,
    pub(crate) paced: bool,
}

impl WriteTask {
    /// A write of `len` bytes at `offset` that came at `since` and has got nowhere: no FUA, no discard, nothing known of its stream.
    #[inline]
    fn new(
        id: ReqId,
        since: Nanos,
        blocks: RangeInclusive<u32>,
        (offset, len): (u64, u64),
        content: Content,
    ) -> WriteTask {
        let (first, last) = blocks.into_inner();
        WriteTask {
            id: Some(id),
            since,
            content,
            first,
            last,
            next: first,
            first_global: offset / BLOCK,
            offset,
            len,
            fua: false,
            split: false,
            discard: false,
            route: Route::Open,
            sequential: false,
            whole: 0,
            in_doubt: false,
            stage: Stage::Locking,
            pending: 0,
            error: None,
            seq: 0,
            core_written: false,
            claimed: false,
            paced: false,
        }
    }

    /// A block-wise write that came at `since`, for tests of whoever owns it.
    #[cfg(test)]
    pub(crate) fn of_blocks(id: ReqId, since: Nanos, blocks: RangeInclusive<u32>) -> WriteTask {
        let len = u64::from(blocks.end() - blocks.start() + 1) * BLOCK;
        let offset = u64::from(*blocks.start()) * BLOCK;
        WriteTask::new(id, since, blocks, (offset, len), Content::Zero { unmap: false })
    }

    /// Takes the request's id, once: a poisoned cache answers for everybody.
    pub(crate) fn take_id(&mut self) -> Option<ReqId> {
        self.id.take()
    }

    /// The request once more, with its id taken as by [`WriteTask::take_id`].
    pub(crate) fn again(&mut self, bug: Option<Bug>) -> Option<Request> {
        let id = self.take_id()?;
        let kind = match &self.content {
            _ if planted(bug, Bug::ReplayedWithoutPayload) => ReqKind::WriteZeroes { unmap: false },
            _ if self.discard => ReqKind::Discard,
            Content::Data(data) => ReqKind::Write(data.clone()),
            Content::Zero { unmap } => ReqKind::WriteZeroes { unmap: *unmap },
        };
        Some(Request { id, kind, offset: self.offset, len: self.len, fua: self.fua })
    }

    /// When it came.
    pub(crate) fn since(&self) -> Nanos {
        self.since
    }

    /// Whether some of its blocks have come into the cache and others have not.
    pub(crate) fn is_halfway(&self) -> bool {
        (self.first + 1..=self.last).contains(&self.next)
    }

    /// Whether it is answered only when it is durable.
    pub(crate) fn is_fua(&self) -> bool {
        self.fua
    }

    /// What becomes the content. It never leaves the change.
    pub(crate) fn content(&self) -> &Content {
        &self.content
    }

    /// Whether it is zeros for the core.
    pub(crate) fn is_zero(&self) -> bool {
        matches!(self.content, Content::Zero { .. })
    }

    /// Its zeros are data from now on, for the cache.
    pub(crate) fn zeros_as_data(&mut self) {
        if self.is_zero() {
            self.content = Content::Data(Buf::zeroed(self.len as usize).freeze());
        }
    }

    /// What it holds on its way through the cache.
    pub(crate) fn staged(&mut self) -> &mut Staged {
        match &mut self.route {
            Route::Back(staged) => staged,
            other => unreachable!("a change on its way {other:?} has nothing staged"),
        }
    }

    /// Whether it goes to the core although the cache writes back.
    pub(crate) fn is_direct(&self) -> bool {
        matches!(self.route, Route::Direct)
    }

    /// The core was asked past the cache and has failed.
    pub(crate) fn refused_directly(&self) -> bool {
        self.is_direct() && self.error.is_some()
    }

    /// Whether dirty blocks beneath it end once the core has it.
    pub(crate) fn replaces_dirty(&self) -> bool {
        self.error.is_none() && matches!(self.route, Route::Zero | Route::Direct)
    }

    /// Whether clean versions of it go into the cache once the core has it.
    pub(crate) fn stays_clean(&self) -> bool {
        self.error.is_none() && matches!(self.route, Route::Through)
    }

    /// Whether it has taken effect in the cache and only its answer waits.
    pub(crate) fn has_taken_effect(&self) -> bool {
        matches!(self.stage, Stage::Destage | Stage::Durability)
    }

    /// The sectors of `block` it covers.
    pub(crate) fn mask(&self, block: u32) -> u8 {
        let global = self.first_global + u64::from(block - self.first);
        sector_mask(global, self.offset, self.offset + self.len)
    }

    /// Its payload within `block`: the bytes, and where in the block they begin.
    pub(crate) fn piece(&self, block: u32) -> (u64, u64, usize) {
        let start = (self.first_global + u64::from(block - self.first)) * BLOCK;
        let from = self.offset.max(start);
        let to = (self.offset + self.len).min(start + BLOCK);
        (from - self.offset, to - self.offset, (from - start) as usize)
    }
}

impl Engine {
    /// A write, zeroes or discard has come.
    pub(crate) fn write(&mut self, now: Nanos, req: Request, hint: Hint, fx: &mut Vec<Effect>) {
        let is_discard = matches!(req.kind, ReqKind::Discard);
        let (id, fua) = (req.id, req.fua);
        let Some((offset, len, content)) = self.extent_of(req) else {
            if fua {
                // What it leaves in place must not step back behind it.
                return self.flush(now, id, fx);
            }
            return answer(fx, id, Ok(Answer::Done));
        };
        let first_global = offset / BLOCK;
        let last_global = (offset + len - 1) / BLOCK;
        let cutoff = match self.cfg.params.seq_cutoff {
            SeqCutoff::Always => true,
            // A core that takes groups has no head to move: what is small is best gathered there, in order or not.
            SeqCutoff::Full if self.cfg.core_groups => false,
            SeqCutoff::Full => self.space.slots.free_count() <= self.space.room_target() + 512,
            SeqCutoff::Never => false,
        };
        let whole_blocks = offset.is_multiple_of(BLOCK) && len.is_multiple_of(BLOCK);
        let passable = whole_blocks && matches!(content, Content::Data(_));
        let blocks = self.cfg.stripe.local(first_global)..=self.cfg.stripe.local(last_global);
        let content = self.as_data_if_small(content, offset, len, is_discard);
        let m = WriteTask {
            fua,
            split: hint.split,
            discard: is_discard,
            sequential: cutoff && hint.stream_bytes >= self.cfg.params.seq_threshold,
            whole: if passable { len.max(hint.whole) } else { 0 },
            ..WriteTask::new(id, now, blocks, (offset, len), content)
        };
        let (first, last) = (m.first, m.last);
        let key = self.intake.tasks.insert(Task::Write(Box::new(m)));
        if self.map.locks.acquire(first, last, key) {
            self.route(now, key, fx);
        }
    }

    /// What a change changes, and into what; nothing for a discard that allows nothing.
    pub(crate) fn extent_of(&mut self, req: Request) -> Option<(u64, u64, Content)> {
        let (offset, len) = (req.offset, req.len);
        match req.kind {
            ReqKind::Write(data) => {
                self.stats.write_bytes += len;
                Some((offset, len, Content::Data(data)))
            }
            ReqKind::WriteZeroes { unmap } => Some((offset, len, Content::Zero { unmap })),
            _ => {
                // A discard is a promise to nobody: whole blocks only, none where the core could not keep it, or must not.
                let end = (offset + len) / BLOCK * BLOCK;
                let offset = offset.next_multiple_of(BLOCK);
                let len = end.saturating_sub(offset);
                let allowed = len > 0 && self.cfg.core_unmaps && !self.is_frozen();
                allowed.then_some((offset, len, Content::Zero { unmap: true }))
            }
        }
    }

    /// Short or unaligned zeroes become data, so that the core's zeroing only ever sees whole blocks.
    pub(crate) fn as_data_if_small(
        &self,
        content: Content,
        offset: u64,
        len: u64,
        is_discard: bool,
    ) -> Content {
        let Content::Zero { .. } = content else { return content };
        let aligned = offset.is_multiple_of(BLOCK)
            && (len.is_multiple_of(BLOCK) || offset + len == self.cfg.data_length);
        let small = len <= ZEROES_CACHED && self.cfg.mode.write_route() == WriteRoute::Back;
        if !aligned || (small && !is_discard) {
            return Content::Data(Buf::zeroed(len as usize).freeze());
        }
        content
    }

    /// Whether it passes the cache by: its bytes cost the core more than its operation, or it would have to wait for room
    /// that destaging makes, by writing as much to the same core. It gives room instead where it covers dirty blocks;
    /// `replaces`: it covers nothing else, so that it needs no room, and waits only behind others.
    fn goes_direct(&mut self, now: Nanos, key: usize, replaces: bool) -> bool {
        let whole = self.intake.write(key).whole;
        whole >= self.cfg.core_large.least
            && self.cfg.mode.write_route() == WriteRoute::Back
            && !self.destage.health.is_failing()
            && (whole >= self.cfg.core_large.always
                || (self.is_short_of_room(now) && !(replaces && self.intake.waiting.is_empty())))
    }

    /// The lock is held: where does it go?
    pub(crate) fn route(&mut self, now: Nanos, key: usize, fx: &mut Vec<Effect>) {
        if self.state.is_fenced() {
            // Those that waited for its blocks are met by the loop there.
            self.intake.waiting.push_back(key);
            return self.admit_waiting(now, fx);
        }
        let (first, last) = (self.intake.write(key).first, self.intake.write(key).last);
        self.changed(first, last);
        let (mut dirty, mut cached, mut whole, mut replaces) = (false, true, true, true);
        for block in first..=last {
            match self.map.index.get(block) {
                Some(meta) => {
                    dirty |= meta.dirty != 0;
                    replaces &= meta.dirty != 0;
                    whole &= (meta.valid | self.intake.write(key).mask(block)) == meta.valid;
                }
                None => (cached, whole, replaces) = (false, false, false),
            }
        }
        dirty |= self.destage.any_doubted(first, last);
        let m = self.intake.write(key);
        // One that comes here again after a thaw, or because of a freeze, is known already.
        let new = m.stage == Stage::Locking;
        match (m.split, cached, m.id) {
            _ if !new => {}
            (false, true, _) => self.stats.write_hits += 1,
            (false, false, _) => self.stats.write_misses += 1,
            (true, true, _) => {}
            (true, false, id) => fx.extend(id.map(Effect::Missed)),
        }
        for line in first / self.cfg.line_blocks..=last / self.cfg.line_blocks {
            self.space.admission.touched(u64::from(line));
        }
        let frozen = self.is_frozen();
        if frozen && self.stays_out(now, key, fx) {
            return;
        }
        let sequential = self.intake.write(key).sequential && !frozen;
        let mode = self.cfg.mode.write_route();
        let past = sequential || mode == WriteRoute::Invalidate || (mode == WriteRoute::Around && !whole);
        let route = if self.intake.write(key).is_zero() {
            self.stats.bypassed(Bypass::Zeroes, 1);
            Route::Zero
        } else if !frozen && self.goes_direct(now, key, replaces) {
            Route::Direct
        } else if dirty || (mode == WriteRoute::Back && !sequential) {
            // A sequential bypass over dirty data is an ordinary cached write; only the mode can ask for the core.
            Route::Back(Staged { sync: mode != WriteRoute::Back, ..Staged::default() })
        } else if past {
            if sequential {
                self.stats.bypassed(Bypass::Sequential, 1);
            } else if matches!(self.cfg.mode, Mode::Pt) {
                self.stats.bypassed(Bypass::Mode, 1);
            }
            Route::Invalidate
        } else {
            Route::Through
        };
        let back = matches!(route, Route::Back(_));
        self.intake.write(key).route = route;
        if back {
            self.intake.write(key).stage = Stage::Admission;
            self.intake.waiting.push_back(key);
            return self.admit_waiting(now, fx);
        }
        self.through(now, key, fx);
    }

    /// One of a change's operations is over.
    pub(crate) fn write_done(&mut self, done: Done, fx: &mut Vec<Effect>) {
        match self.intake.write(done.key).stage {
            Stage::Merging => self.merge_done(done, fx),
            Stage::Core => self.core_done(done, fx),
            s => unreachable!("an operation ended in stage {s:?}"),
        }
    }

    /// Everything recorded for `key` has taken effect.
    pub(crate) fn published(&mut self, now: Nanos, key: usize, seq: u64, fx: &mut Vec<Effect>) {
        let m = self.intake.write(key);
        m.seq = seq;
        let (first, last, halfway) = (m.first, m.last, m.is_halfway());
        let back = matches!(m.route, Route::Back(_));
        let asked = matches!(&m.route, Route::Back(staged) if staged.sync);
        // The mode may have changed meanwhile: what is answered from then on is in the core.
        let sync = asked || (back && !self.cfg.mode.is_ahead_of_core());
        self.changed(first, last);
        if halfway {
            self.intake.wait_for_room(key);
            return self.admit_waiting(now, fx);
        }
        if sync && !self.state.is_fenced() && self.map.any_dirty(first, last) {
            self.intake.write(key).stage = Stage::Destage;
            self.destage.put_first(first, key);
        } else {
            self.finish(now, key, fx);
        }
    }

    /// A destage pass over the window of a change in stage `Destage` is over.
    pub(crate) fn pass_over(&mut self, now: Nanos, key: usize, failed: bool, fx: &mut Vec<Effect>) {
        if self.state.is_fenced() {
            return self.give_up(now, key, fx);
        }
        let m = self.intake.write(key);
        let (first, last) = (m.first, m.last);
        // A bad block elsewhere in the window is none of its business.
        if !self.map.any_dirty(first, last) {
            self.intake.write(key).core_written = true;
        } else if failed || self.destage.any_bad(first, last) {
            self.intake.write(key).error = Some(ReqError::Io);
        } else {
            return self.destage.put_first(first, key);
        }
        self.finish(now, key, fx);
    }

    /// The change has taken effect (or failed): unlock, then answer, at once or when it is durable.
    pub(crate) fn finish(&mut self, now: Nanos, key: usize, fx: &mut Vec<Effect>) {
        let m = self.intake.write(key);
        let (first, last, claimed) = (m.first, m.last, std::mem::take(&mut m.claimed));
        if m.core_written {
            self.commit.core_acked += 1;
        }
        if claimed {
            // Only now: until its records took effect a destage job could have put an older version over it.
            let window = first / WINDOW_BLOCKS as u32;
            self.destage.unclaim(window);
            if self.intake.write(key).is_direct() {
                self.destage.direct_write(now, false);
            }
            self.window_free(now, window, fx);
        }
        let goes_on = self.state.has_both();
        if goes_on && self.intake.write(key).refused_directly() {
            return self.stage_instead(now, key, fx);
        }
        let m = self.intake.write(key);
        let (fua, failed, seq, offset) = (m.fua, m.error.is_some(), m.seq, m.offset);
        if std::mem::take(&mut m.in_doubt) {
            let region = self.commit.intents.region_of(offset);
            self.commit.intents.leave(region, now, seq);
        }
        // Its records have taken effect, or it never reached the core: what was filled beneath it shows nothing newer.
        self.map.show(first, last);
        let mut woken = Vec::new();
        self.map.locks.release(first, key, &mut woken);
        if !fua || failed {
            self.answer_write(now, key, fx);
        } else {
            let m = self.intake.write(key);
            m.stage = Stage::Durability;
            m.pending = 1;
            // Without a record of its own it still comes after all that was recorded before it.
            let need = if seq == 0 { self.commit.journal.last_seq() } else { seq };
            self.commit.wait_durable(need, Waiter::Task(key));
            if self.commit.core_lacks_flush() && self.want_core_flush(Waiter::Task(key), fx) {
                self.intake.write(key).pending += 1;
            }
        }
        for key in woken {
            self.route(now, key, fx);
        }
    }

    /// The core refused what the cache may still take: it is a write like any other now, its blocks still locked.
    fn stage_instead(&mut self, now: Nanos, key: usize, fx: &mut Vec<Effect>) {
        let m = self.intake.write(key);
        (m.route, m.whole, m.error, m.seq) = (Route::Open, 0, None, 0);
        self.route(now, key, fx);
    }

    /// Durability, or the flush of the core that a zeroing waits for, has come one step nearer.
    pub(crate) fn write_durable(&mut self, now: Nanos, key: usize, fx: &mut Vec<Effect>) {
        if self.intake.write(key).stage == Stage::CoreFlush {
            return self.record_drops(now, key, fx);
        }
        let m = self.intake.write(key);
        m.pending -= 1;
        if m.pending == 0 {
            self.answer_write(now, key, fx);
        }
    }

    fn answer_write(&mut self, now: Nanos, key: usize, fx: &mut Vec<Effect>) {
        let Task::Write(mut m) = self.intake.tasks.remove(key) else {
            unreachable!("task {key} is a change")
        };
        self.stats.write_ns.saturating_record(now.saturating_sub(m.since));
        if let Some(id) = m.take_id() {
            answer(fx, id, m.error.map_or(Ok(Answer::Done), Err));
        }
    }

    /// Whether every sector of block `m` would be overwritten by `mask`.
    pub(crate) fn covers(mask: u8, meta: Meta) -> bool {
        mask == ALL || meta.valid & !mask == 0
    }
}
