//! A job's writes to the core: sent out oldest job first, and what becomes of those that the core does not take.

use super::{CoreWrite, DEPTH_BUSY, GROUP, Job, State, WRITE};
use crate::api::{Dev, Effect, Nanos};
use crate::bug::{Bug, planted};
use crate::destage::Destage;
use crate::destage::doubt::Doubt;
use crate::destage::{BACKOFF, JOBS};
use crate::engine::Engine;
use crate::flushes::Waiter;
use crate::io_tag::{Done, IoTag};
use crate::refusal::CoreWriteError;
use loligo_block::{Buf, Op, OpKind, Shared};
use loligo_format::units::{BLOCK, Stripe, WINDOW_BLOCKS, sector_mask};
use std::collections::BTreeSet;
use std::ops::Range;

/// After so many failures without a success the rest of a window is not tried.
const HOPELESS: u32 = 16;
/// A job whose writes have waited so long at a core that clients never leave gets a share of it: one write after so many of
/// the clients' operations.
const PATIENT: Nanos = 1_000_000_000;
const SHARE: u32 = 8;
/// The bits of a tag that number a job's writes.
const NUMBER: u32 = 0xffff;

/// The part of the block that begins at `start` in a write of `data` at byte `at` of the volume, in a buffer
/// that begins there.
fn part(data: &Shared, at: u64, start: u64) -> Shared {
    let end = data.len().min((start + BLOCK - at) as usize);
    if at <= start {
        return data.slice((start - at) as usize..end);
    }
    let mut block = Buf::zeroed(BLOCK as usize);
    let from = (at - start) as usize;
    block[from..from + end].copy_from_slice(&data[..end]);
    block.freeze()
}

impl Job {
    /// Writes that have not been sent.
    pub(in crate::destage) fn unsent(&self) -> usize {
        self.writes.len() - self.sent
    }

    /// Drops the writes that have not been sent.
    fn send_no_more(&mut self) {
        self.writes.truncate(self.sent);
    }

    /// The blocks of these writes stay dirty. `known`: the core refused them, each by itself.
    fn stay_dirty(&mut self, writes: Range<usize>, known: bool, stripe: Stripe) {
        for w in &self.writes[writes] {
            for p in self.pieces.iter_mut().filter(|p| !p.filler) {
                let start = stripe.global(p.block) * BLOCK;
                if start < w.at + w.len && w.at < start + BLOCK {
                    if known && !p.refused {
                        self.refused.push(p.block);
                    }
                    p.refused = true;
                }
            }
        }
    }

    /// True if whatever of it failed did so by itself.
    fn names_all(&self) -> bool {
        self.refused.len() == self.pieces.iter().filter(|p| !p.filler && p.refused).count()
    }

    /// The blocks of it that are in the core now.
    fn taken(&self) -> Vec<u32> {
        self.pieces.iter().filter(|p| p.is_taken()).map(|p| p.block).collect()
    }
}

impl Destage {
    /// Remembers what the core did not take of job `key`, and what it takes by now.
    fn note_refusals(&mut self, now: Nanos, key: usize) {
        let job = &self.jobs[key];
        let window = job.window;
        let Some(why) = job.failed.clone() else {
            if job.apart {
                self.stuck.taken(window, &job.taken());
            }
            return;
        };
        self.jam.refused(now);
        let successes = self.health.successes();
        let known = job.names_all() && self.stuck.are_known(window, &job.refused);
        // A window that failed when others did not, and fails again, says nothing of the core.
        let sectors = self.stuck.is_sectors(window, successes);
        if !(known && sectors) {
            self.health.failed(now, why.clone());
        }
        if !sectors {
            self.health.refused_in(window);
        }
        let down = self.core_is_down() && !sectors;
        let job = &mut self.jobs[key];
        if down && !known {
            // It is the core, not a sector: nothing is asked of it for a moment.
            self.backoff = now + BACKOFF;
            job.down = true;
        }
        if job.apart || (down && job.names_all() && self.stuck.may_remember(window)) {
            let gaps = job.refused_gaps.iter().copied().filter(|b| self.doubts.contains_key(b));
            let refused: Vec<u32> = job.refused.iter().copied().chain(gaps).collect();
            let outcome = (&job.taken()[..], &refused[..], job.gave_up);
            self.stuck.failed_apart(now, window, successes, outcome, &why);
            // Some of it may have been dropped meanwhile.
            self.stuck.changed(window * WINDOW_BLOCKS as u32);
        } else if !down || !job.tasks.is_empty() {
            self.stuck.failed_together(now, window, successes, &why);
            job.again = true;
        }
    }
}

impl Engine {
    pub(super) fn begin_writes(&mut self, now: Nanos, key: usize, fx: &mut Vec<Effect>) {
        let job = &mut self.destage.jobs[key];
        job.state = State::Writing;
        for p in job.pieces.iter_mut().filter(|p| p.usable()) {
            p.made_ready = true;
        }
        if self.state.is_fenced() || self.state.is_alone() {
            job.send_no_more();
        }
        if job.unsent() == 0 {
            return self.writes_over(now, key, fx);
        }
        if !self.destage.ready.contains(&key) {
            self.destage.ready.push_back(key);
        }
        self.issue_core_writes(now, fx);
    }

    /// Writes to keep at the core. While clients use it and nobody waits for what destaging frees, none: a single write
    /// in between would cost a stream two seeks.
    fn write_depth(&self, now: Nanos) -> u32 {
        if self.cfg.devices.core_groups {
            // What takes groups gathers them further and keeps back what it has no use for yet.
            return JOBS as u32;
        }
        // Nobody is told of a freeze before what the core has been asked for is over.
        let freezes = self.state.freeze().is_some_and(|f| !f.is_answered());
        match (self.intake.core_busy > 0, freezes || self.destage_is_wanted()) {
            (false, _) => self.destage.depth.now(),
            (true, true) => DEPTH_BUSY,
            (true, false) => u32::from(self.has_a_share(now)),
        }
    }

    /// True if clients that leave the core no pause have had so much of it that it is the turn of what has waited behind them:
    /// what is dirty is not to grow old because of that.
    fn has_a_share(&self, now: Nanos) -> bool {
        let d = &self.destage;
        let waits = |key: &usize| now >= d.jobs[*key].began + PATIENT;
        self.cfg.params.destage_age > 0 && d.beside >= SHARE && d.ready.front().is_some_and(waits)
    }

    /// Sends core writes out, oldest job first, as deep as the core's users allow.
    pub(in crate::destage) fn issue_core_writes(&mut self, now: Nanos, fx: &mut Vec<Effect>) {
        let depth = self.write_depth(now);
        // A merge that waits for others is passed by those that need no room, the others among them, but by no merge.
        let (mut place, mut waits) = (0, false);
        while self.destage.writes < depth {
            let Some(key) = self.destage.ready.get(place).copied() else { return };
            if (waits && self.destage.jobs[key].wants_room()) || !self.may_send(now, key, fx) {
                if self.destage.ready.get(place) == Some(&key) {
                    (place, waits) = (place + 1, true);
                }
                continue;
            }
            let number = self.destage.jobs[key].sent as u32;
            let Some((at, kind)) = self.next_core_write(key) else {
                self.destage.ready.remove(place);
                continue;
            };
            self.destage.jobs[key].in_flight += 1;
            self.destage.writes += 1;
            self.destage.beside = 0;
            let op = Op { tag: IoTag::Destage(key, WRITE | number).tag(), offset: at, kind };
            self.stats.core_write_bytes += op.len();
            fx.push(Effect::Io(Dev::Core, op));
        }
    }

    /// Drops the writes that wait for their turn at a core that is not ours any more.
    pub(crate) fn drop_core_writes(&mut self, now: Nanos, fx: &mut Vec<Effect>) {
        for key in std::mem::take(&mut self.destage.ready) {
            let job = &mut self.destage.jobs[key];
            job.send_no_more();
            if job.in_flight == 0 {
                self.writes_over(now, key, fx);
            }
        }
    }

    /// The next write of job `key`, with its place on the core: a run, or a group of them.
    fn next_core_write(&mut self, key: usize) -> Option<(u64, OpKind)> {
        let (volume_start, groups) = (self.cfg.data_start, self.cfg.devices.core_groups);
        let job = &mut self.destage.jobs[key];
        let most = if groups && !job.apart { GROUP } else { 1 };
        let from = job.sent;
        job.sent = (from + most).min(job.writes.len());
        let sent = &mut job.writes[from..job.sent];
        let with = sent.len();
        let mut pieces: Vec<(u64, Shared)> =
            sent.iter().filter_map(|w| Some((w.at + volume_start, w.data.clone()?))).collect();
        sent.first_mut()?.with = with;
        if !groups {
            return pieces.pop().map(|(at, data)| (at, OpKind::Write { data, fua: false }));
        }
        let first = pieces.first()?.0;
        self.stats.core_groups += 1;
        self.stats.core_group_pieces += pieces.len() as u64;
        Some((first, OpKind::WriteMany(pieces)))
    }

    /// The core has taken or refused a write of job `key`. One bad sector is no reason to leave the others.
    pub(super) fn core_write_done(&mut self, done: Done, fx: &mut Vec<Effect>) {
        let Done { now, key, sub, result, .. } = done;
        self.destage.writes -= 1;
        let down = self.destage.core_is_down();
        let job = &mut self.destage.jobs[key];
        job.in_flight -= 1;
        let first = (sub & NUMBER) as usize;
        let block = self.cfg.stripe.local(job.writes[first].at / BLOCK);
        let sent = first..first + job.writes[first].with;
        match result {
            Ok(()) => {
                job.successes += 1;
                job.writes[sent].iter_mut().for_each(|w| w.data = None);
                self.destage.health.worked();
                let gap = job.untaken.is_some() && job.piece_of(block).is_none();
                if let Some(untaken) = &mut job.untaken {
                    untaken.remove(&block);
                }
                if !job.probe && !gap {
                    self.destage.jam.over();
                }
                if down {
                    self.destage.retry_all();
                }
            }
            Err(e) => {
                job.failures += 1;
                let why = CoreWriteError::from(e);
                job.failed = Some(why.clone());
                let goes_on = self.state.has_both();
                if job.span.is_some() && job.untaken.is_none() && goes_on {
                    let (window, successes) = (job.window, self.destage.health.successes());
                    self.destage.stuck.failed_together(now, window, successes, &why);
                    // It costs a MiB, each of its blocks and a read to find that out.
                    self.destage.stuck.cannot_merge(window);
                    let blocks = self.destage.jobs[key].blocks();
                    self.keep_for_reads(*blocks.start(), *blocks.end());
                    self.compose_span_apart(key);
                    return self.begin_writes(now, key, fx);
                }
                let known = sent.len() == 1 && job.writes[first].is_in_one_block();
                job.stay_dirty(sent.clone(), known, self.cfg.stripe);
                // One who waits is told of an error that is his own, where that can be had for a few writes.
                let unwanted = down && job.tasks.is_empty();
                if unwanted || (job.failures >= HOPELESS && job.successes == 0) {
                    job.gave_up |= job.unsent() > 0;
                    job.stay_dirty(job.sent..job.writes.len(), false, self.cfg.stripe);
                    job.send_no_more();
                }
                if job.untaken.is_none() {
                    self.doubt_writes(now, key, sent.clone(), fx);
                } else if job.piece_of(block).is_none() {
                    job.refused_gaps.push(block);
                }
                self.destage.jobs[key].writes[sent].iter_mut().for_each(|w| w.data = None);
            }
        }
        let job = &self.destage.jobs[key];
        if job.in_flight == 0 && job.unsent() == 0 {
            self.writes_over(now, key, fx);
        }
    }

    /// Doubts the data that these writes of job `key` were to bring: it may not be in the core any more.
    fn doubt_writes(&mut self, now: Nanos, key: usize, writes: Range<usize>, fx: &mut Vec<Effect>) {
        for i in writes {
            let w = &self.destage.jobs[key].writes[i];
            let (from, to, Some(data)) = (w.at, w.at + w.len, w.data.clone()) else { continue };
            let local = |global: u64| self.cfg.stripe.local(global);
            self.keep_for_reads(local(from / BLOCK), local((to - 1) / BLOCK));
            for global in from / BLOCK..to.div_ceil(BLOCK) {
                let (block, mask) = (self.cfg.stripe.local(global), sector_mask(global, from, to));
                let of = self.destage.jobs[key].newest(block);
                let content = part(&data, from, global * BLOCK);
                self.doubt_block(now, block, Doubt::new(mask, content, of), fx);
            }
        }
    }

    /// The core has taken (or refused) all of the job's writes: the window is free again.
    pub(super) fn writes_over(&mut self, now: Nanos, key: usize, fx: &mut Vec<Effect>) {
        self.destage.ready.retain(|k| *k != key);
        if self.destage.jobs[key].state == State::Writing && self.compare_untaken(key, fx) {
            return;
        }
        let busy = self.destage.writes > 0;
        let job = &mut self.destage.jobs[key];
        if job.untaken.as_ref().is_some_and(BTreeSet::is_empty) && !job.pieces.iter().any(|p| p.refused) {
            job.failed = None;
        }
        self.doubt_untaken(now, key, fx);
        let job = &mut self.destage.jobs[key];
        job.state = State::Flushing;
        let (way, turn, dirty) = (job.way, job.turn, job.dirty);
        let (failed, apart, probe) = (job.failed.is_some(), job.apart, job.probe);
        let claimants = std::mem::take(&mut job.claimants);
        self.destage.blocked -= claimants.len() as u32;
        for p in &mut job.pieces {
            p.buf = None;
            // It may have been passed over for eviction meanwhile.
            if p.filler && self.space.policy.state(p.meta.slot) != 0 {
                self.space.policy.cleaned(p.meta.slot);
            }
        }
        if !self.cfg.devices.core_groups && !failed && !apart && !probe {
            self.destage.chooser.ended(now, way, turn, dirty, busy);
        }
        for task in claimants {
            self.claim(now, task, fx);
        }
        if self.state.is_fenced() || probe {
            return self.job_over(now, key, fx);
        }
        self.destage.note_refusals(now, key);
        if failed && !self.destage.jobs[key].pieces.iter().any(super::Piece::is_taken) {
            return self.job_over(now, key, fx);
        }
        if planted(self.cfg.bug, Bug::CleanBeforeCoreFlush) || !self.share_core_flush(now, Waiter::Job(key)) {
            self.record_clean(now, key, fx);
        }
    }
}

impl CoreWrite {
    /// `data` for the volume's byte `at`.
    pub(super) fn new(at: u64, data: Shared) -> CoreWrite {
        CoreWrite { at, len: data.len() as u64, data: Some(data), with: 1 }
    }

    /// True if it names the block that fails with it.
    fn is_in_one_block(&self) -> bool {
        self.at / BLOCK == (self.at + self.len - 1) / BLOCK
    }
}
