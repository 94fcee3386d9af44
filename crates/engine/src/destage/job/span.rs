//! A merge: a window's span is read from the core and written back with the dirty blocks in it. Nobody else has what lies between
//! them, so the buffer is kept until it is known what became of that.

use super::{CoreWrite, Job, MERGE, State, Strategy};
use crate::api::{Dev, Effect, Nanos};
use crate::destage::Destage;
use crate::destage::doubt::Doubt;
use crate::engine::Engine;
use crate::io_tag::{Done, IoTag};
use loligo_block::{Buf, Op, OpKind, Shared};
use loligo_format::units::{ALL, BLOCK, Stripe, WINDOW_BLOCKS, sector_mask};
use std::ops::RangeInclusive;

impl Job {
    /// From its first block to its last one.
    pub(super) fn blocks(&self) -> RangeInclusive<u32> {
        self.pieces[0].block..=self.pieces[self.pieces.len() - 1].block
    }

    /// Slots that a merge may need for what it writes beside what is dirty, from when it is sent until it is known what became of it.
    pub(in crate::destage) fn gap_at_core(&self) -> usize {
        let is_sent = self.sent > 0 || self.untaken.is_some();
        if self.span.is_some() && is_sent { self.gap() } else { 0 }
    }

    /// True if what it sends next is a merge.
    pub(super) fn wants_room(&self) -> bool {
        self.span.is_some() && self.untaken.is_none() && self.unsent() > 0
    }

    /// Its gaps, and blocks that are dirty in part.
    fn gap(&self) -> usize {
        self.blocks().count() - self.pieces.iter().filter(|p| p.meta.valid == ALL).count()
    }

    /// The data that it writes of `block`, until its result is known.
    pub(in crate::destage) fn content_of(&self, block: u32, stripe: Stripe) -> Option<Shared> {
        let start = |b: u32| stripe.global(b) * BLOCK;
        let at = start(block);
        let has = |from: u64, data: &Shared| from <= at && at < from + data.len() as u64;
        let span = self.span.as_ref().map(|span| (start(self.pieces[0].block), span));
        let writes = || self.writes.iter().filter_map(|w| Some((w.at, w.data.as_ref()?)));
        let (from, data) = span.into_iter().chain(writes()).find(|(from, data)| has(*from, data))?;
        let from = (at - from) as usize;
        Some(data.slice(from..data.len().min(from + BLOCK as usize)))
    }
}

impl Destage {
    /// True if the gaps of `window` may be read and written back: not beside a core that fails, which may spoil them, nor where it has
    /// spoiled some.
    pub(super) fn may_merge(&self, window: u32) -> bool {
        let first = window * WINDOW_BLOCKS as u32;
        let doubted = self.any_doubted(first, first + (WINDOW_BLOCKS as u32 - 1));
        self.stuck.can_merge(window) && !self.health.is_failing() && !doubted
    }
}

impl Engine {
    /// Reads the core's content of these blocks for job `key`.
    pub(super) fn read_span(&mut self, key: usize, first: u32, last: u32, fx: &mut Vec<Effect>) {
        let at = self.cfg.stripe.global(first) * BLOCK;
        let len = (u64::from(last - first + 1) * BLOCK).min(self.cfg.data_length - at);
        self.destage.writes += 1;
        self.stats.core_read_bytes += len;
        let kind = OpKind::Read(Buf::alloc(len as usize));
        let op = Op { tag: IoTag::Destage(key, MERGE).tag(), offset: at + self.cfg.data_start, kind };
        fx.push(Effect::Io(Dev::Core, op));
    }

    /// The old content of the span has come: lay the dirty sectors over it and write it back whole.
    pub(super) fn merged(&mut self, done: Done, fx: &mut Vec<Effect>) {
        let Done { now, key, buf, .. } = done;
        let mut span = buf.expect("a successful read returns its buffer");
        let job = &mut self.destage.jobs[key];
        let first = job.pieces[0].block;
        for p in job.pieces.iter().filter(|p| p.usable()) {
            let data = p.buf.as_deref().expect("read and good");
            let start = (p.block - first) as usize * BLOCK as usize;
            for s in (0..8usize).filter(|s| p.meta.dirty & (1 << s) != 0) {
                let to = start + s * 512;
                if to + 512 <= span.len() {
                    span[to..to + 512].copy_from_slice(&data[s * 512..s * 512 + 512]);
                }
            }
        }
        let at = self.cfg.stripe.global(first) * BLOCK;
        let span = span.freeze();
        job.span = Some(span.clone());
        job.writes.push(CoreWrite::new(at, span));
        self.begin_writes(now, key, fx);
    }

    /// The core did not take the span: what it holds there now nobody knows. Each block is written by itself, what lies between
    /// the dirty ones too.
    pub(super) fn compose_span_apart(&mut self, key: usize) {
        let stripe = self.cfg.stripe;
        let waited = self.intake.waited_by(&self.destage.jobs[key].tasks);
        let is_waited = |b: u32| waited.iter().any(|blocks| blocks.contains(&b));
        let job = &mut self.destage.jobs[key];
        let mut blocks: Vec<u32> = job.blocks().collect();
        job.untaken = Some(blocks.iter().copied().collect());
        blocks.sort_by_key(|b| !is_waited(*b));
        let write = |b: u32| Some(CoreWrite::new(stripe.global(b) * BLOCK, job.content_of(b, stripe)?));
        job.writes = blocks.into_iter().filter_map(write).collect();
        (job.apart, job.sent) = (true, 0);
    }

    /// True if the cache could take what lies in the gaps of a merge, if that is what job `key` sends next. It waits for other
    /// merges, and where there are none it goes without its gaps.
    pub(super) fn may_send(&mut self, now: Nanos, key: usize, fx: &mut Vec<Effect>) -> bool {
        let job = &self.destage.jobs[key];
        if !job.wants_room() {
            return true;
        }
        match self.has_room_for_gap(job.gap()) {
            Ok(()) => true,
            Err(others) if others => false,
            Err(_) => {
                let job = &mut self.destage.jobs[key];
                (job.span, job.way) = (None, Strategy::Runs);
                self.compose_runs(key);
                if self.destage.jobs[key].unsent() == 0 {
                    // Everything in it was replaced meanwhile.
                    self.writes_over(now, key, fx);
                }
                self.destage.ready.contains(&key)
            }
        }
    }

    /// Reads what the core has not taken of a merge, where the cache does not have all of that. False where there is nothing to read.
    pub(super) fn compare_untaken(&mut self, key: usize, fx: &mut Vec<Effect>) -> bool {
        let whole =
            |b: &u32| self.map.index.get(*b).is_some_and(|m| m.dirty == ALL) && !self.state.has_freeze();
        let untaken = self.destage.jobs[key].untaken.as_ref();
        let Some(untaken) = untaken.filter(|u| !u.iter().all(whole)) else { return false };
        let (Some(first), Some(last)) = (untaken.first().copied(), untaken.last().copied()) else {
            return false;
        };
        if !self.state.has_both() {
            return false;
        }
        self.destage.jobs[key].state = State::Comparing;
        self.read_span(key, first, last, fx);
        true
    }

    /// The core has `held` from the first to the last block that it has not taken; nothing: that cannot be
    /// read. Content that it holds as it was to be written is not spoiled.
    pub(super) fn compared(&mut self, now: Nanos, key: usize, held: Option<Buf>, fx: &mut Vec<Effect>) {
        let stripe = self.cfg.stripe;
        let job = &mut self.destage.jobs[key];
        let mut untaken = job.untaken.take().unwrap_or_default();
        if let (Some(held), Some(first)) = (held, untaken.first().copied()) {
            let at = |b: u32| (b - first) as usize * BLOCK as usize;
            untaken
                .retain(|b| job.content_of(*b, stripe).is_some_and(|c| held[at(*b)..][..c.len()] != c[..]));
        }
        job.untaken = Some(untaken);
        self.writes_over(now, key, fx);
    }

    /// Keeps the data of a merge that the core has not taken: it may be nowhere else. Clean blocks beneath a
    /// merge that is over may be evicted again.
    pub(super) fn doubt_untaken(&mut self, now: Nanos, key: usize, fx: &mut Vec<Effect>) {
        let stripe = self.cfg.stripe;
        let job = &mut self.destage.jobs[key];
        let untaken = job.untaken.take().into_iter().flatten();
        let doubt = |b: u32| {
            let content = job.content_of(b, stripe)?;
            let mask = sector_mask(0, 0, content.len() as u64);
            Some((b, Doubt::new(mask, content, job.newest(b))))
        };
        let untaken: Vec<(u32, Doubt)> = untaken.filter_map(doubt).collect();
        if job.span.take().is_none() {
            return;
        }
        let (blocks, why) = (job.blocks(), job.failed.clone());
        if let Some(why) = why.filter(|_| !untaken.is_empty()) {
            self.destage.salvaged_why = Some(why);
        }
        for (block, doubt) in untaken {
            self.doubt_block(now, block, doubt, fx);
        }
        for slot in blocks.filter_map(|b| self.map.index.get(b)).filter(|m| m.dirty == 0).map(|m| m.slot) {
            if self.space.policy.state(slot) != 0 {
                self.space.policy.cleaned(slot);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::destage::job::Piece;
    use crate::index::Meta;

    #[test]
    fn a_merge_that_failed_keeps_its_claim_to_slots() {
        let piece =
            |block, valid| Piece::new(block, Meta { slot: block, crc: 0, valid, dirty: valid }, false, 0);
        let mut job = Job::new(0, 0, vec![piece(0, ALL), piece(4, ALL), piece(6, 1)]);
        let span = Buf::zeroed(7 * BLOCK as usize).freeze();
        job.span = Some(span.clone());
        job.writes.push(CoreWrite::new(0, span));
        assert_eq!(job.gap_at_core(), 0, "it has not been sent");
        (job.sent, job.in_flight) = (1, 1);
        assert_eq!(job.gap_at_core(), 5, "what is dirty in part takes a slot too");
        (job.sent, job.in_flight, job.untaken) = (0, 0, Some(job.blocks().collect()));
        assert_eq!(job.gap_at_core(), 5, "between two of the writes again");
    }
}
