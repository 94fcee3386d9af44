//! Changes: writes, zeroes and discards. Each takes its lock, is given a [`Route`], and ends in [`Engine::finish`].
//!
//! * *Back*: slots, data and records go out together (`write_back.rs`).
//! * *Through* and the others: the core is written under an intent, then the cache follows (`write_through.rs`).
//!
//! The payload stays with its change until the answer: whatever fails on the way, the request can be made again.

use crate::api::{Effect, Hint, Nanos, answer};
use crate::engine::Engine;
use crate::flushes::Waiter;
use crate::index::Meta;
use crate::intake::Task;
use crate::io_tag::Done;
use crate::params::{Ack, LargeWrites, SeqCutoff};
use crate::stats::Bypass;
use crate::write_task::{BackStep, Content, CoreStep, Header, Route, WriteTask};
use loligo_block::{Answer, Buf, ReqError, ReqKind, Request};
use loligo_format::mode::{Mode, WriteRoute};
use loligo_format::units::{ALL, BLOCK, WINDOW_BLOCKS};

/// Zeroes up to this many bytes are cached as data in write-back mode; longer ones go to the core.
const ZEROES_CACHED: u64 = 64 << 10;

impl Engine {
    /// A write, zeroes or discard has come.
    pub(crate) fn write(&mut self, now: Nanos, req: Request, hint: Hint, fx: &mut Vec<Effect>) {
        let is_discard = matches!(req.kind, ReqKind::Discard);
        let (id, fua) = (req.id, req.fua || self.cfg.params.ack == Ack::Durable);
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
            SeqCutoff::Full if self.cfg.devices.core_groups => false,
            SeqCutoff::Full => self.space.slots.free_count() <= self.space.room_target() + 512,
            SeqCutoff::Never => false,
        };
        let whole_blocks = offset.is_multiple_of(BLOCK) && len.is_multiple_of(BLOCK);
        let passable = whole_blocks && matches!(content, Content::Data(_));
        let blocks = self.cfg.stripe.local(first_global)..=self.cfg.stripe.local(last_global);
        let content = self.as_data_if_small(content, offset, len, is_discard);
        let mut head = Header::new(id, now, blocks, (offset, len), content);
        (head.fua, head.split, head.discard) = (fua, hint.split, is_discard);
        head.sequential = cutoff && hint.stream_bytes >= self.cfg.params.seq_threshold;
        head.whole = if passable { len.max(hint.whole) } else { 0 };
        let (first, last) = (head.first, head.last);
        let key = self.intake.tasks.insert(Task::Write(Box::new(WriteTask::new(head))));
        if self.map.locks.acquire(first, last, key) {
            self.route(now, key, fx);
        }
    }

    /// The blocks that a change changes, each with its new content; nothing for a discard that allows nothing.
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
                let allowed = len > 0 && self.cfg.devices.core_unmaps && !self.is_frozen();
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

    /// True if it passes the cache by: its bytes cost the core more than its operation, or it would have to wait for room
    /// that destaging makes, by writing as much to the same core. It gives room instead where it covers dirty blocks;
    /// `replaces`: it covers nothing else, so that it needs no room, and waits only behind others.
    fn goes_direct(&mut self, now: Nanos, key: usize, replaces: bool) -> bool {
        let whole = self.intake.write(key).head.whole;
        let always = self.cfg.params.large_writes == LargeWrites::Past;
        whole >= self.cfg.devices.core_large.least
            && self.cfg.mode.write_route() == WriteRoute::Back
            && !self.destage.health.is_failing()
            && ((always && whole >= self.cfg.devices.core_large.always)
                || (self.is_short_of_room(now) && !(replaces && self.intake.waiting.is_empty())))
    }

    /// The lock is held: where does it go?
    pub(crate) fn route(&mut self, now: Nanos, key: usize, fx: &mut Vec<Effect>) {
        if self.state.is_fenced() {
            // Those that waited for its blocks are met by the loop there.
            self.intake.waiting.push_back(key);
            return self.admit_waiting(now, fx);
        }
        let head = &self.intake.write(key).head;
        let (first, last) = (head.first, head.last);
        self.map.changed(first, last);
        self.space.changed(first, last);
        let (mut dirty, mut cached, mut whole, mut replaces) = (false, true, true, true);
        for block in first..=last {
            match self.map.index.get(block) {
                Some(meta) => {
                    dirty |= meta.dirty != 0;
                    replaces &= meta.dirty != 0;
                    whole &= (meta.valid | self.intake.write(key).head.mask(block)) == meta.valid;
                }
                None => (cached, whole, replaces) = (false, false, false),
            }
        }
        dirty |= self.destage.any_doubted(first, last);
        let m = self.intake.write(key);
        // One that comes here again after a thaw, or because of a freeze, is known already.
        let counted = !matches!(m.route, Route::Open { counted: false });
        match (m.head.split, cached, m.head.id()) {
            _ if counted => {}
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
        let sequential = self.intake.write(key).head.sequential && !frozen;
        let mode = self.cfg.mode.write_route();
        let past = sequential || mode == WriteRoute::Invalidate || (mode == WriteRoute::Around && !whole);
        let route = if self.intake.write(key).head.is_zero() {
            self.stats.bypassed(Bypass::Zeroes, 1);
            Route::Zero(CoreStep::Intent)
        } else if !frozen && self.goes_direct(now, key, replaces) {
            Route::Direct(CoreStep::Intent)
        } else if dirty || (mode == WriteRoute::Back && !sequential) {
            // A sequential bypass over dirty data is an ordinary cached write; only the mode can ask for the core.
            Route::back(first, mode != WriteRoute::Back)
        } else if past {
            if sequential {
                self.stats.bypassed(Bypass::Sequential, 1);
            } else if matches!(self.cfg.mode, Mode::Pt) {
                self.stats.bypassed(Bypass::Mode, 1);
            }
            Route::Invalidate(CoreStep::Intent)
        } else {
            Route::Through(CoreStep::Intent)
        };
        let back = matches!(route, Route::Back(_));
        self.intake.write(key).route = route;
        if back {
            self.intake.waiting.push_back(key);
            return self.admit_waiting(now, fx);
        }
        self.through(now, key, fx);
    }

    /// One of a change's operations is over.
    pub(crate) fn write_done(&mut self, done: Done, fx: &mut Vec<Effect>) {
        match &self.intake.write(done.key).route {
            Route::Back(_) => self.merge_done(done, fx),
            _ => self.core_done(done, fx),
        }
    }

    /// Everything recorded for `key` has taken effect.
    pub(crate) fn published(&mut self, now: Nanos, key: usize, seq: u64, fx: &mut Vec<Effect>) {
        let m = self.intake.write(key);
        let (first, last, halfway) = (m.head.first, m.head.last, m.is_halfway());
        let (result, asked) = match &mut m.route {
            Route::Back(back) => {
                back.seq = seq;
                // The mode may have changed meanwhile: what is answered from then on is in the core.
                (Ok(()), back.sync || !self.cfg.mode.is_ahead_of_core())
            }
            route => (route.recorded(seq), false),
        };
        self.map.changed(first, last);
        self.space.changed(first, last);
        if halfway {
            self.intake.wait_for_room(key);
            return self.admit_waiting(now, fx);
        }
        if asked && !self.state.is_fenced() && self.map.any_dirty(first, last) {
            self.intake.write(key).back().step = BackStep::Destage;
            self.destage.put_first(first, key);
        } else {
            self.finish(now, key, result, fx);
        }
    }

    /// A destage pass over the window of a change that waits for one is over.
    pub(crate) fn pass_over(&mut self, now: Nanos, key: usize, failed: bool, fx: &mut Vec<Effect>) {
        if self.state.is_fenced() {
            return self.give_up(now, key, fx);
        }
        let head = &self.intake.write(key).head;
        let (first, last) = (head.first, head.last);
        // A bad block elsewhere in the window is none of its business.
        if !self.map.any_dirty(first, last) {
            self.finish(now, key, Ok(()), fx);
        } else if failed || self.destage.any_bad(first, last) {
            self.finish(now, key, Err(ReqError::Io), fx);
        } else {
            self.destage.put_first(first, key);
        }
    }

    /// The change has taken effect (or failed): unlock, then answer, at once or when it is durable.
    pub(crate) fn finish(
        &mut self,
        now: Nanos,
        key: usize,
        result: Result<(), ReqError>,
        fx: &mut Vec<Effect>,
    ) {
        let m = self.intake.write(key);
        let (first, last, seq, direct) = (m.head.first, m.head.last, m.route.seq(), m.route.is_direct());
        let (owns_window, in_core) = (m.route.owns_window(), result.is_ok() && m.route.ends_in_core());
        if in_core {
            self.commit.core_acked += 1;
        }
        if owns_window {
            // Only now: until its records took effect a destage job could have put an older version over it.
            let window = first / WINDOW_BLOCKS as u32;
            self.destage.unclaim(window);
            if direct {
                self.destage.direct_write(now, false);
            }
            self.window_free(now, window, fx);
        }
        if direct && result.is_err() && self.state.has_both() {
            return self.stage_instead(now, key, fx);
        }
        let head = &mut self.intake.write(key).head;
        let fua = head.fua;
        if std::mem::take(&mut head.in_doubt) {
            self.leave_region(now, key, seq);
        }
        // Its records have taken effect, or it never reached the core: what was filled beneath it shows nothing newer.
        self.map.show(first, last);
        let mut woken = Vec::new();
        self.map.locks.release(first, key, &mut woken);
        if fua && result.is_ok() {
            self.answer_when_durable(key, seq, fx);
        } else {
            self.answer_write(now, key, result, fx);
        }
        for key in woken {
            self.route(now, key, fx);
        }
    }

    /// The answer waits for the change's frame to be durable, and for what the core has of it.
    fn answer_when_durable(&mut self, key: usize, seq: u64, fx: &mut Vec<Effect>) {
        // Without a record of its own it still comes after all that was recorded before it.
        let need = if seq == 0 { self.commit.journal.last_seq() } else { seq };
        self.commit.wait_durable(need, Waiter::Task(key));
        let core = self.commit.core_lacks_flush() && self.want_core_flush(Waiter::Task(key), fx);
        self.intake.write(key).route = Route::Durable { pending: 1 + u32::from(core) };
    }

    /// The core refused what the cache may still take: it is a write like any other now, its blocks still locked.
    fn stage_instead(&mut self, now: Nanos, key: usize, fx: &mut Vec<Effect>) {
        let m = self.intake.write(key);
        (m.head.whole, m.route) = (0, Route::Open { counted: true });
        self.route(now, key, fx);
    }

    /// Durability, or the flush of the core that a zeroing waits for, has come one step nearer.
    pub(crate) fn write_durable(&mut self, now: Nanos, key: usize, fx: &mut Vec<Effect>) {
        let Route::Durable { pending } = &mut self.intake.write(key).route else {
            return self.record_drops(now, key, Ok(()), fx);
        };
        *pending -= 1;
        if *pending == 0 {
            self.answer_write(now, key, Ok(()), fx);
        }
    }

    fn answer_write(&mut self, now: Nanos, key: usize, result: Result<(), ReqError>, fx: &mut Vec<Effect>) {
        let Task::Write(mut m) = self.intake.tasks.remove(key) else {
            unreachable!("task {key} is a change")
        };
        self.stats.write_ns.saturating_record(now.saturating_sub(m.head.since));
        if let Some(id) = m.head.take_id() {
            answer(fx, id, result.map(|()| Answer::Done));
        }
    }

    /// True if every sector of block `m` would be overwritten by `mask`.
    pub(crate) fn covers(mask: u8, meta: Meta) -> bool {
        mask == ALL || meta.valid & !mask == 0
    }
}
