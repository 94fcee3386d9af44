//! Reads: planned as pieces in block order (slots, core, memory), checked, overlaid, answered, and perhaps promoted.
//!
//! Reads take no lock: they see the last version that took effect. A slot is safe under a read by its ticket.

mod lay;
mod memory;
mod missing;
pub(crate) mod task;

use crate::api::{Dev, Effect, Hint, Nanos, answer};
use crate::bug::{Bug, planted};
use crate::commit::RoomFor;
use crate::engine::Engine;
use crate::index::Meta;
use crate::intake::Task;
use crate::io_tag::{Done, IoTag};
use crate::params::SeqCutoff;
use crate::policy::admit::Verdict;
use crate::stats::Bypass;
use lay::overlay;
use loligo_block::{Answer, Buf, Extent, Op, OpKind, ReqError, Request, Segments, Shared, crc32c};
use loligo_format::record::Record;
use loligo_format::units::{ALL, BLOCK, sector_mask};
use smallvec::SmallVec;
use task::{Piece, ReadTask, Source};

/// Misses with at most this many cached blocks between them are read in one go.
const BRIDGE: u32 = 32;

impl Engine {
    /// A read has come.
    pub(crate) fn read(&mut self, now: Nanos, req: &Request, hint: Hint, fx: &mut Vec<Effect>) {
        let first_global = req.offset / BLOCK;
        let first = self.cfg.stripe.local(first_global);
        let last = self.cfg.stripe.local((req.offset + req.len - 1) / BLOCK);
        let cutoff = match self.cfg.params.seq_cutoff {
            SeqCutoff::Always => true,
            SeqCutoff::Full => self.space.slots.free_count() <= self.space.room_target() + 512,
            SeqCutoff::Never => false,
        };
        let long = self.cfg.params.promote_run > 0 && hint.run_bytes > self.cfg.params.promote_run;
        let sequential = long || cutoff && hint.stream_bytes >= self.cfg.params.seq_threshold;
        let mut task = ReadTask {
            id: Some(req.id),
            since: now,
            offset: req.offset,
            len: req.len,
            first,
            first_global,
            stamp: self.map.stamp(),
            promote: self.cfg.mode.promotes_reads() && !sequential && self.state.uses_cache(),
            pieces: SmallVec::new(),
            kept: Vec::new(),
            pending: 0,
            error: None,
        };
        let missed = self.plan(&mut task, last);
        match (hint.split, missed) {
            (false, 0) => self.stats.read_hits += 1,
            (false, _) => self.stats.read_misses += 1,
            (true, 0) => {}
            (true, _) => fx.push(Effect::Missed(req.id)),
        }
        if missed > 0 {
            if sequential {
                self.stats.bypassed(Bypass::Sequential, u64::from(missed));
            } else if !self.cfg.mode.promotes_reads() {
                self.stats.bypassed(Bypass::Mode, u64::from(missed));
            }
        }
        let key = self.intake.tasks.insert(Task::Read(Box::new(task)));
        for sub in 0..self.intake.read(key).pieces.len() {
            self.issue_piece(key, sub as u32, fx);
        }
        if self.intake.read(key).pending == 0 {
            self.answer_read(now, key, fx);
        }
    }

    /// Divides the blocks into pieces; returns how many blocks must come from the core.
    fn plan(&mut self, task: &mut ReadTask, last: u32) -> u32 {
        let end = task.offset + task.len;
        let memory = self.destage.has_content(task.first, last);
        let mut missed = 0;
        // The piece of the core that a further miss may join, and the dirty blocks met since.
        let mut core: Option<usize> = None;
        let mut block = task.first;
        while block <= last {
            let need = sector_mask(task.global(block), task.offset, end);
            let found = self.map.index.get(block);
            let served = found.filter(|m| self.serves(block, m, need));
            let Some(meta) = served else {
                if let Some((mask, content)) = memory.then(|| self.memory_of(block, need, found)).flatten() {
                    task.pieces.push(self.patched(block));
                    task.kept.push((block, mask, content));
                    if let Some(meta) = found.filter(|m| m.valid & need != 0 && self.map.overlays(block, m)) {
                        self.push_overlay(task, block, meta);
                    }
                    (core, block) = (None, block + 1);
                    continue;
                }
                let memory =
                    if found.is_none() { self.space.probation.get(u64::from(block)).cloned() } else { None };
                if let Some(data) = memory {
                    task.pieces.push(Piece { ready: Some(data), ..Piece::new(block, Source::Memory) });
                    core = None;
                } else {
                    missed += 1;
                    self.space.policy.missed(self.cfg.stripe.global(block));
                    match core.filter(|c| block - (task.pieces[*c].first + task.pieces[*c].blocks) <= BRIDGE)
                    {
                        Some(c) => self.extend_core(task, c, block),
                        None => {
                            task.pieces.push(Piece::new(block, Source::Core));
                            core = Some(task.pieces.len() - 1);
                        }
                    }
                    if let Some(meta) = found.filter(|m| self.map.overlays(block, m)) {
                        self.push_overlay(task, block, meta);
                    }
                }
                block += 1;
                continue;
            };
            self.space.policy.hit(meta.slot, task.global(block));
            self.space.admission.touched(u64::from(block / self.cfg.line_blocks));
            match task.pieces.last_mut() {
                Some(Piece { first, blocks, source: Source::Slots { metas, .. }, .. })
                    if *first + *blocks == block && metas[metas.len() - 1].slot + 1 == meta.slot =>
                {
                    *blocks += 1;
                    metas.push(meta);
                }
                _ => {
                    let ticket = self.space.tickets.begin();
                    let source = Source::Slots { metas: SmallVec::from_slice(&[meta]), ticket };
                    task.pieces.push(Piece::new(block, source));
                }
            }
            block += 1;
        }
        missed
    }

    /// True if the cached version alone answers a read of the sectors `need`.
    pub(crate) fn serves(&self, block: u32, meta: &Meta, need: u8) -> bool {
        self.map.serves(block, meta, need, self.cfg.mode.serves_clean())
    }

    /// Lets piece `c` of the core reach `block`: what was planned from slots in between stays as overlays where it
    /// differs from the core, and is dropped where the core has the same.
    fn extend_core(&mut self, task: &mut ReadTask, c: usize, block: u32) {
        let between: SmallVec<[Piece; 4]> = task.pieces.drain(c + 1..).collect();
        task.pieces[c].blocks = block - task.pieces[c].first + 1;
        for piece in between {
            match piece.source {
                Source::Slots { metas, ticket } => {
                    self.space.tickets.end(ticket);
                    for (b, meta) in (piece.first..).zip(metas) {
                        if self.map.overlays(b, &meta) {
                            self.push_overlay(task, b, meta);
                        }
                    }
                }
                Source::Overlay { .. } => task.pieces.push(piece),
                _ => unreachable!("a bridge spans only slots"),
            }
        }
    }

    fn push_overlay(&mut self, task: &mut ReadTask, block: u32, meta: Meta) {
        let source = Source::Overlay { meta, ticket: self.space.tickets.begin() };
        task.pieces.push(Piece::new(block, source));
    }

    fn issue_piece(&mut self, key: usize, sub: u32, fx: &mut Vec<Effect>) {
        let layout = self.cfg.layout;
        let (volume_start, volume_length) = (self.cfg.data_start, self.cfg.data_length);
        let task = self.intake.read(key);
        let piece = &task.pieces[sub as usize];
        let whole = u64::from(piece.blocks) * BLOCK;
        let (dev, offset, len) = match &piece.source {
            Source::Memory | Source::Patched => return,
            Source::Missing { from, to } => (Dev::Core, *from + volume_start, *to - *from),
            Source::Slots { metas, .. } => (Dev::Cache, layout.slot(metas[0].slot), whole),
            Source::Overlay { meta, .. } => (Dev::Cache, layout.slot(meta.slot), whole),
            Source::Core => {
                let at = task.global(piece.first) * BLOCK;
                (Dev::Core, at + volume_start, whole.min(volume_length - at))
            }
        };
        task.pending += 1;
        match dev {
            Dev::Cache => self.stats.cache_read_bytes += len,
            Dev::Core => {
                self.stats.core_read_bytes += len;
                self.intake.core_busy += 1;
            }
        }
        let kind = OpKind::Read(Buf::alloc(len as usize));
        fx.push(Effect::Io(dev, Op { tag: IoTag::Task(key, sub).tag(), offset, kind }));
    }

    /// One piece has come.
    pub(crate) fn read_done(&mut self, done: Done, fx: &mut Vec<Effect>) {
        let Done { now, key, sub, buf, result } = done;
        let unchecked = planted(self.cfg.bug, Bug::CrcCheckDropped);
        let task = self.intake.read(key);
        task.pending -= 1;
        let piece = &mut task.pieces[sub as usize];
        let (from_core, ticket) = match &piece.source {
            Source::Core | Source::Missing { .. } => (true, None),
            Source::Slots { ticket, .. } | Source::Overlay { ticket, .. } => (false, Some(*ticket)),
            Source::Memory | Source::Patched => unreachable!("nothing is read for it"),
        };
        let ok = result.is_ok();
        let good = match (&piece.source, buf.as_ref().filter(|_| ok)) {
            (_, None) => false,
            (Source::Slots { metas, .. }, Some(b)) => {
                unchecked || b.chunks_exact(BLOCK as usize).zip(metas).all(|(c, m)| crc32c(c) == m.crc)
            }
            (Source::Overlay { meta, .. }, Some(b)) => unchecked || crc32c(b) == meta.crc,
            (_, Some(_)) => true,
        };
        if good {
            piece.buf = buf;
        }
        if let Some(t) = ticket {
            self.space.tickets.end(t);
        }
        if from_core {
            self.intake.core_busy -= 1;
            self.destage.client_done();
        }
        if self.state.is_fenced() {
            if self.intake.read(key).pending == 0 {
                self.intake.tasks.remove(key);
            }
            return;
        }
        if !good {
            self.piece_failed(now, key, sub, from_core, ok, fx);
        }
        if self.intake.read(key).pending == 0 {
            self.answer_read(now, key, fx);
        }
    }

    /// A piece could not be used: clean data is read from the core instead, dirty data is lost. Parts that
    /// the core cannot give in one go are asked for without those that the cache has.
    fn piece_failed(
        &mut self,
        now: Nanos,
        key: usize,
        sub: u32,
        from_core: bool,
        mismatch: bool,
        fx: &mut Vec<Effect>,
    ) {
        if mismatch && !from_core {
            self.stats.crc_errors += 1;
        }
        let stamp = self.intake.read(key).stamp;
        let piece = &mut self.intake.read(key).pieces[sub as usize];
        let dirty = match &piece.source {
            Source::Slots { metas, .. } if metas.len() > 1 => {
                // One of several: read each by itself, to lose or repair only what must be.
                let (first, blocks) = (piece.first, piece.blocks);
                return self.split_piece(key, sub, first, blocks, fx);
            }
            Source::Slots { metas, .. } => metas[0].dirty != 0,
            Source::Overlay { meta, .. } if meta.dirty == 0 => {
                // The core's answer stands without it.
                let (block, valid) = (piece.first, meta.valid);
                self.stats.crc_repaired += u64::from(mismatch);
                return self.patch_from_core(key, block, valid, fx);
            }
            Source::Core => {
                if !self.patch(key, sub, fx) {
                    self.intake.read(key).error = Some(ReqError::Io);
                }
                return;
            }
            &Source::Missing { from, to } => {
                if !self.patch_missing(key, sub, (from, to), fx) {
                    self.intake.read(key).error = Some(ReqError::Io);
                }
                return;
            }
            _ => true,
        };
        if dirty {
            self.intake.read(key).error = Some(ReqError::Io);
            return;
        }
        let block = piece.first;
        self.stats.crc_repaired += u64::from(mismatch);
        if self.give_from_memory(key, sub) {
            return;
        }
        self.intake.read(key).pieces[sub as usize].source = Source::Core;
        if let Some(meta) =
            self.map.index.get(block).filter(|m| m.dirty == 0 && !self.map.changed_since(block, stamp))
            && self.state.uses_cache()
            && !self.destage.holds(block)
        {
            let record = Record::Drop { block: self.cfg.stripe.global(block), slot: meta.slot };
            self.commit.append(now, record, false, false);
        }
        self.issue_piece(key, sub, fx);
    }

    /// Reads each block of piece `sub` by itself. A version may have been replaced or have gone since it was planned: each
    /// is planned again.
    fn split_piece(&mut self, key: usize, sub: u32, first: u32, blocks: u32, fx: &mut Vec<Effect>) {
        let mut singles: SmallVec<[Piece; 4]> = SmallVec::new();
        for block in first..first + blocks {
            let newest = self.map.index.get(block);
            let task = self.intake.read(key);
            let need = sector_mask(task.global(block), task.offset, task.offset + task.len);
            if let Some(meta) = newest.filter(|m| self.serves(block, m, need)) {
                let metas = SmallVec::from_slice(&[meta]);
                let source = Source::Slots { metas, ticket: self.space.tickets.begin() };
                singles.push(Piece::new(block, source));
                continue;
            }
            if let Some((mask, content)) = self.memory_of(block, need, newest) {
                singles.push(self.patched(block));
                self.intake.read(key).kept.push((block, mask, content));
            } else {
                singles.push(Piece::new(block, Source::Core));
            }
            if let Some(meta) = newest.filter(|m| m.valid & need != 0 && self.map.overlays(block, m)) {
                let source = Source::Overlay { meta, ticket: self.space.tickets.begin() };
                singles.push(Piece::new(block, source));
            }
        }
        self.replace_piece(key, sub, singles, fx);
    }

    /// Asks for `pieces`, of which there is one at least, in place of piece `sub`.
    fn replace_piece(
        &mut self,
        key: usize,
        sub: u32,
        mut pieces: SmallVec<[Piece; 4]>,
        fx: &mut Vec<Effect>,
    ) {
        let task = self.intake.read(key);
        let begun = task.pieces.len();
        task.pieces[sub as usize] = pieces.remove(0);
        task.pieces.extend(pieces);
        self.issue_piece(key, sub, fx);
        self.issue_from(key, begun, fx);
    }

    /// Asks for every piece from number `begun` on.
    fn issue_from(&mut self, key: usize, begun: usize, fx: &mut Vec<Effect>) {
        for sub in begun..self.intake.read(key).pieces.len() {
            self.issue_piece(key, sub as u32, fx);
        }
    }

    /// Puts over the core's answer what other reads get, if a change came while the core was read: the core
    /// may have shown it before other reads see it. True if something is to be read first.
    fn overlay_late(&mut self, key: usize, fx: &mut Vec<Effect>) -> bool {
        let Task::Read(task) = &self.intake.tasks[key] else { return false };
        let mut late: SmallVec<[(u32, Meta); 4]> = SmallVec::new();
        for p in task.pieces.iter().filter(|p| p.is_from_core() && task.error.is_none()) {
            for block in (p.first..p.first + p.blocks).filter(|b| self.map.changed_since(*b, task.stamp)) {
                late.extend(
                    self.map.known(block).filter(|m| !task.has_over(block, m.slot)).map(|m| (block, m)),
                );
            }
        }
        for (block, meta) in late.iter().copied() {
            let source = Source::Overlay { meta, ticket: self.space.tickets.begin() };
            let task = self.intake.read(key);
            task.pieces.push(Piece::new(block, source));
            let sub = task.pieces.len() as u32 - 1;
            self.issue_piece(key, sub, fx);
        }
        !late.is_empty()
    }

    /// All pieces are here: overlay, answer, promote.
    fn answer_read(&mut self, now: Nanos, key: usize, fx: &mut Vec<Effect>) {
        if self.overlay_late(key, fx) {
            return;
        }
        let Task::Read(mut task) = self.intake.tasks.remove(key) else {
            unreachable!("task {key} is a read")
        };
        let Some(id) = task.take_id() else { return };
        self.stats.read_ns.saturating_record(now.saturating_sub(task.since));
        self.stats.read_bytes += task.len;
        if let Some(e) = task.error {
            return answer(fx, id, Err(e));
        }
        self.keep_for_read(&mut task);
        overlay(&mut task);
        if task.pieces.len() > 1 {
            task.pieces.sort_by_key(|p| p.first);
        }
        let mut segments = Segments::new();
        for i in 0..task.pieces.len() {
            let p = &mut task.pieces[i];
            if matches!(p.source, Source::Overlay { .. } | Source::Missing { .. }) {
                continue;
            }
            let data = p
                .ready
                .take()
                .or_else(|| p.buf.take().map(Buf::freeze))
                .expect("a piece without error has its data");
            // Only what may be promoted is kept beyond the answer.
            let keep = task.promote && matches!(p.source, Source::Core | Source::Memory);
            p.ready = keep.then(|| data.clone());
            let start = task.global(task.pieces[i].first) * BLOCK;
            let from = task.offset.max(start);
            let to = (task.offset + task.len).min(start + data.len() as u64);
            segments.push(data.into_slice((from - start) as usize..(to - start) as usize));
        }
        answer(fx, id, Ok(Answer::Data(segments)));
        if task.promote && self.state.uses_cache() {
            for p in &task.pieces {
                if let (Source::Core | Source::Memory, Some(data)) = (&p.source, &p.ready) {
                    self.promote(now, p.first, task.stamp, data, fx);
                }
            }
        }
    }

    /// Offers what came from the core to the admission policy, and writes what it takes into slots.
    fn promote(&mut self, now: Nanos, first: u32, stamp: u64, data: &Shared, fx: &mut Vec<Effect>) {
        let last = first + (data.len() as u64).div_ceil(BLOCK) as u32 - 1;
        let memory = self.destage.has_content(first, last);
        // One request is one access to a line, however many of its blocks it reads.
        let mut judged: Option<(u32, Verdict)> = None;
        for (block, from) in (first..).zip((0..data.len()).step_by(BLOCK as usize)) {
            let there = self.map.index.get(block).is_some_and(|m| m.valid == ALL || m.dirty != 0);
            if there || self.map.filling.contains_key(&block) {
                continue;
            }
            // It is in better hands.
            if memory && self.destage.content_of(block, self.cfg.stripe).is_some() {
                continue;
            }
            if self.map.changed_since(block, stamp) {
                self.stats.bypassed(Bypass::Raced, 1);
                continue;
            }
            let to = data.len().min(from + BLOCK as usize);
            let piece = data.slice(from..to);
            let line = block / self.cfg.line_blocks;
            let verdict = match judged {
                Some((of, verdict)) if of == line => verdict,
                _ => self.verdict(block),
            };
            judged = Some((line, verdict));
            match verdict {
                Verdict::Refuse => self.stats.bypassed(Bypass::Admission, 1),
                Verdict::Probation => {
                    self.stats.bypassed(Bypass::Admission, 1);
                    if piece.len() == BLOCK as usize {
                        // A block of its own, so that a small one does not keep a large buffer alive.
                        self.space.probation.insert(u64::from(block), Buf::copy_of(&piece).freeze());
                    }
                }
                Verdict::Admit => self.fill(now, block, piece, fx),
            }
        }
    }

    fn fill(&mut self, now: Nanos, block: u32, piece: Shared, fx: &mut Vec<Effect>) {
        if self.space.slots.free_count() <= self.space.reserve() || !self.commit.has_room(RoomFor::Client) {
            return self.stats.bypassed(Bypass::NoSlot, 1);
        }
        let slot = self.space.slots.take().expect("more than the reserve is free");
        let (data, valid) = if piece.len() == BLOCK as usize {
            (piece, ALL)
        } else {
            let mut whole = Buf::zeroed(BLOCK as usize);
            whole[..piece.len()].copy_from_slice(&piece);
            (whole.freeze(), ((1u16 << (piece.len() / 512)) - 1) as u8)
        };
        let crc = crc32c(&data);
        self.space.probation.remove(u64::from(block));
        self.commit.put_data(self.cfg.layout.slot(slot), data, &mut self.stats, fx);
        let record = Record::Put { block: self.cfg.stripe.global(block), slot, crc, valid, dirty: 0 };
        self.commit.append(now, record, false, false);
        self.map.filling.insert(block, slot);
        self.stats.fills += 1;
    }

    /// Tells which parts are cached; the world adds what it knows of the core.
    pub(crate) fn status(&mut self, req: &Request, fx: &mut Vec<Effect>) {
        let mut extents: Vec<Extent> = Vec::new();
        let mut at = req.offset;
        let end = req.offset + req.len;
        while at < end {
            let next = (at / BLOCK + 1) * BLOCK;
            let len = next.min(end) - at;
            let local = self.cfg.stripe.local(at / BLOCK);
            let allocated = self.map.index.get(local).is_some();
            match extents.last_mut() {
                Some(e) if e.allocated == allocated => e.len += len,
                _ => extents.push(Extent { len, allocated, zero: false }),
            }
            at += len;
        }
        answer(fx, req.id, Ok(Answer::Extents(extents)));
    }
}
