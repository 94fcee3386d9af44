//! One window's way to the core.

mod compose;
mod over;
mod reading;
mod span;
mod writing;

use super::choose::{Strategy, Turn};
use super::{DEPTH_BUSY, Destage};
use crate::api::{Effect, Nanos};
use crate::bug::{Bug, planted};
use crate::engine::Engine;
use crate::flushes::Waiter;
use crate::index::Meta;
use crate::io_tag::Done;
use crate::map::Map;
use crate::refusal::CoreWriteError;
use loligo_block::{Buf, Shared};
use loligo_format::units::{ALL, WINDOW_BLOCKS};
use std::collections::BTreeSet;

/// One part in so many of a window's dirty blocks is much of it.
const MUCH: usize = 4;
/// Most writes in one group: from 512 on a compound operation on a RADOS object costs several times as much (12 ms with 256
/// extents, 61 with 512, measured on 16.2).
const GROUP: usize = 256;
/// Gaps of at most this many blocks are bridged.
const BRIDGE: u32 = 32;
/// Marks, beside a number, a tag's operation as a core write, and as the core read of a merge.
const WRITE: u32 = 1 << 22;
const MERGE: u32 = 1 << 21;
/// The same for the read of a dirty version that is to be put together with what the core did not take: its block stands in place of
/// a job's key.
pub(super) const DOUBT: u32 = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Slots are being read and versions become durable.
    Reading,
    /// Everything is at hand; a client writes the core here.
    Queued,
    /// The span of the core is ours: its old content is being read.
    Merging,
    /// Writes are out or wait for their turn.
    Writing,
    /// Reads what the core did not take of a merge, to see whether it still holds that.
    Comparing,
    /// For the core's flush.
    Flushing,
    /// Clean records are in the journal's hands.
    Recording,
}

#[derive(Debug)]
struct Piece {
    block: u32,
    meta: Meta,
    /// Only fills a gap: clean, read from the cache.
    filler: bool,
    /// Another version is newest now.
    superseded: bool,
    /// It goes to the core all the same: the core is being brought to a moment at which it was the newest.
    pinned: bool,
    ticket: u64,
    buf: Option<Buf>,
    bad: bool,
    /// The core did not take it.
    refused: bool,
    /// It is among what was made ready for the core.
    made_ready: bool,
}

impl Piece {
    fn new(block: u32, meta: Meta, filler: bool, ticket: u64) -> Piece {
        Piece {
            block,
            meta,
            filler,
            superseded: false,
            pinned: false,
            ticket,
            buf: None,
            bad: false,
            refused: false,
            made_ready: false,
        }
    }

    /// Good, and still the newest version, or pinned: otherwise it might go over what a client has put into the core since.
    fn usable(&self) -> bool {
        !self.bad && (!self.superseded || self.pinned)
    }

    /// The core has it, once the job's writes are over.
    fn is_taken(&self) -> bool {
        self.usable() && !self.filler && !self.refused
    }
}

/// A write of a job.
#[derive(Debug)]
struct CoreWrite {
    /// The volume's byte, and how many.
    at: u64,
    len: u64,
    /// Until it is over.
    data: Option<Shared>,
    /// Writes from this one on that went in the same operation.
    with: usize,
}

/// A window on its way to the core.
#[derive(Debug)]
pub(crate) struct Job {
    number: u64,
    window: u32,
    began: Nanos,
    state: State,
    way: Strategy,
    turn: Turn,
    pieces: Vec<Piece>,
    dirty: usize,
    /// Made for a freeze: newer versions in the window were left out.
    drains: bool,
    /// Pieces whose slot is yet to be read: those from here on are not even asked for.
    asked: usize,
    reads: u32,
    durable: bool,
    /// In order, and how many of them have been sent.
    writes: Vec<CoreWrite>,
    sent: usize,
    in_flight: u32,
    /// Each block is written by itself: the window failed before.
    apart: bool,
    /// The data that a merge writes, until its result is known: nobody else has the gaps.
    span: Option<Shared>,
    /// Its blocks that the core has not taken since it refused the whole.
    untaken: Option<BTreeSet<u32>>,
    /// Of those that are over.
    successes: u32,
    failures: u32,
    failed: Option<CoreWriteError>,
    /// The rest was not tried after so many failures.
    gave_up: bool,
    /// The core as a whole failed.
    down: bool,
    /// It failed in a way that names no block, and is made once more, apart.
    again: bool,
    /// Blocks that failed by themselves, and those of them that only a merge wrote.
    refused: Vec<u32>,
    refused_gaps: Vec<u32>,
    /// It only finds out whether the core takes a clean block.
    probe: bool,
    /// Clean blocks of its window became dirty since it began: it says nothing of those.
    outgrown: bool,
    tasks: Vec<usize>,
    pub(crate) claimants: Vec<usize>,
}

impl Job {
    /// One of these pieces, which are durable on the cache; its number comes when it begins.
    fn new(window: u32, now: Nanos, pieces: Vec<Piece>) -> Job {
        Job {
            number: 0,
            window,
            began: now,
            state: State::Reading,
            way: Strategy::Runs,
            turn: Turn::default(),
            asked: 0,
            reads: pieces.len() as u32,
            pieces,
            dirty: 0,
            drains: false,
            durable: true,
            writes: Vec::new(),
            sent: 0,
            in_flight: 0,
            apart: false,
            span: None,
            untaken: None,
            successes: 0,
            failures: 0,
            failed: None,
            gave_up: false,
            down: false,
            again: false,
            refused: Vec::new(),
            refused_gaps: Vec::new(),
            probe: false,
            outgrown: false,
            tasks: Vec::new(),
            claimants: Vec::new(),
        }
    }

    /// The version `meta` of a block in its window has more dirty sectors than it had. The job brings them to the core if it still
    /// can, or does so anyway.
    pub(super) fn now_dirty(&mut self, block: u32, meta: Meta) {
        if let Ok(i) = self.pieces.binary_search_by_key(&block, |p| p.block) {
            let written = self.written_of(&self.pieces[i]);
            let p = &mut self.pieces[i];
            if p.meta.slot == meta.slot && !p.filler && (!p.made_ready || meta.dirty & !written == 0) {
                p.meta.dirty = meta.dirty;
                return;
            }
            p.superseded = true;
        }
        self.outgrown = true;
    }

    /// A block of its window became dirty that is none of its own.
    pub(super) fn outgrow(&mut self) {
        self.outgrown = true;
    }

    pub(super) fn is_probe(&self) -> bool {
        self.probe
    }

    /// The block of one that only finds out whether the core takes it.
    pub(super) fn tried(&self) -> (u32, Meta) {
        (self.pieces[0].block, self.pieces[0].meta)
    }

    /// True if the core took what it was given; nothing where it was given nothing.
    pub(super) fn outcome(&self) -> Option<bool> {
        (self.successes + self.failures > 0).then_some(self.failures == 0)
    }

    /// The error of a write of it.
    pub(super) fn why(&self) -> Option<&CoreWriteError> {
        self.failed.as_ref()
    }

    fn piece_of(&self, block: u32) -> Option<&Piece> {
        let i = self.pieces.binary_search_by_key(&block, |p| p.block).ok()?;
        Some(&self.pieces[i])
    }

    /// The slot of its version of `block`, while that is the newest.
    fn newest(&self, block: u32) -> Option<u32> {
        self.piece_of(block).filter(|p| !p.superseded).map(|p| p.meta.slot)
    }

    pub(crate) fn superseded(&mut self, block: u32) {
        if let Ok(i) = self.pieces.binary_search_by_key(&block, |p| p.block) {
            self.pieces[i].superseded = true;
        }
    }

    pub(crate) fn pin(&mut self, on: bool) {
        for p in &mut self.pieces {
            p.pinned = on && !p.filler && !p.superseded && !p.bad;
        }
    }

    pub(crate) fn unpin(&mut self, block: u32) {
        if let Ok(i) = self.pieces.binary_search_by_key(&block, |p| p.block) {
            self.pieces[i].pinned = false;
        }
    }

    /// The sectors of a block that go to the core with it.
    fn written_of(&self, p: &Piece) -> u8 {
        if self.way == Strategy::Merge || p.meta.valid == ALL { ALL } else { p.meta.dirty }
    }

    /// True if `block` is written although the core has it: it fills a gap, or it is found out whether the core takes it.
    pub(super) fn rewrites(&self, block: u32) -> bool {
        if self.way == Strategy::Merge {
            return self.owns_core() && self.blocks().contains(&block);
        }
        let piece = || self.pieces.binary_search_by_key(&block, |p| p.block);
        self.state == State::Writing && piece().is_ok_and(|i| self.pieces[i].filler)
    }

    /// True if it began no later than number `from`, and has or will have something at the core.
    pub(super) fn may_write(&self, from: u64) -> bool {
        self.number <= from && !matches!(self.state, State::Flushing | State::Recording)
    }

    /// Everything is at hand, and clients write the core there.
    pub(crate) fn waits_for_clients(&self) -> bool {
        self.state == State::Queued
    }

    pub(crate) fn owns_core(&self) -> bool {
        matches!(self.state, State::Merging | State::Writing | State::Comparing)
    }
}

impl Destage {
    /// Core writes in flight, waiting, or soon to come; `groups`: they go in groups.
    pub(super) fn backlog(&self, groups: bool) -> u32 {
        if groups {
            // One or two each: what bounds them is how many jobs there may be.
            return self.jobs.len() as u32;
        }
        let waiting: usize = self
            .jobs
            .iter()
            .map(|(_, j)| match j.state {
                State::Reading | State::Queued => j.dirty.min(32),
                State::Merging => 8,
                State::Writing => j.unsent(),
                _ => 0,
            })
            .sum();
        self.writes + waiting as u32
    }
}

impl Map {
    /// The gaps between dirty blocks: how many, and those whose every block is clean and whole in the cache.
    fn known_gaps(&self, dirty: &[(u32, Meta)]) -> (usize, Vec<Vec<(u32, Meta)>>) {
        let (mut gaps, mut known) = (0, Vec::new());
        for pair in dirty.windows(2) {
            let (a, b) = (pair[0].0 + 1, pair[1].0);
            if a == b {
                continue;
            }
            gaps += 1;
            if b - a > BRIDGE {
                continue;
            }
            let filler: Vec<(u32, Meta)> = (a..b)
                .map_while(|x| self.index.get(x).filter(|m| m.valid == ALL && m.dirty == 0).map(|m| (x, m)))
                .collect();
            if filler.len() == (b - a) as usize {
                known.push(filler);
            }
        }
        (gaps, known)
    }
}

impl Engine {
    /// Gathers what is dirty in `window`; returns how many blocks.
    pub(super) fn start_job(
        &mut self,
        now: Nanos,
        window: u32,
        tasks: Vec<usize>,
        fx: &mut Vec<Effect>,
    ) -> u64 {
        let mut dirty = Vec::new();
        self.map.index.dirty_in(window, &mut dirty);
        self.destageable(window, &mut dirty);
        // Whoever waits for a block is told of an error only once that has been tried.
        let waited = self.intake.waited_by(&tasks);
        let is_waited = |b: u32| waited.iter().any(|blocks| blocks.contains(&b));
        let d = &self.destage;
        let waits = |b: u32| d.stuck.keeps(b, now) && (d.stuck.is_refused(b) || !is_waited(b));
        dirty.retain(|(b, _)| !d.bad.contains(b) && !waits(*b));
        if dirty.is_empty() {
            // Nothing (more) to write, or only what must not be written, or what the core refuses.
            for key in tasks {
                self.pass_over(now, key, true, fx);
            }
            return 0;
        }
        // Only what is durable on the cache goes to the core: a version that a crash could take back must not be found there
        // beneath an older one that is believed clean. A flush stands in the way of every client, so what is not durable
        // yet is left to the next round, unless it is much of the window or somebody waits for it.
        let early = planted(self.cfg.bug, Bug::DestagedBeforeDurable);
        let durable = if early { u64::MAX } else { self.commit.journal.durable() };
        let drains = self.state.has_freeze();
        // What is pinned took effect before the freeze, whatever has come after it.
        let seq = self.state.freeze().map_or(u64::MAX, |f| f.seq());
        let fresh = dirty.iter().filter(|(b, _)| self.map.recent.frame(*b).min(seq) > durable).count();
        let all = !tasks.is_empty() || !self.destage.flushes.is_empty() || drains || self.takes_all();
        if fresh * MUCH <= dirty.len() && !all {
            dirty.retain(|(b, _)| self.map.recent.frame(*b) <= durable);
        }
        let newest = dirty.iter().map(|(b, _)| self.map.recent.frame(*b).min(seq)).max().unwrap_or(0);
        let count = dirty.len();
        let apart = self.destage.stuck.is_apart(window);
        let (way, turn, fillers) = if self.cfg.devices.core_groups || apart {
            (Strategy::Runs, Turn::default(), Vec::new())
        } else {
            let (gaps, fillers) = self.map.known_gaps(&dirty);
            match self.destage.chooser.choose(count, gaps, fillers.len()) {
                (Strategy::Merge, turn) if !self.destage.may_merge(window) => (Strategy::Runs, turn, fillers),
                (way, turn) => (way, turn, fillers),
            }
        };
        let mut wanted: Vec<(u32, Meta, bool)> = dirty.into_iter().map(|(b, m)| (b, m, false)).collect();
        if way == Strategy::Bridged {
            wanted.extend(fillers.into_iter().flatten().map(|(b, m)| (b, m, true)));
            wanted.sort_unstable_by_key(|w| w.0);
        }
        let pieces = wanted
            .into_iter()
            .map(|(block, meta, filler)| Piece {
                superseded: self.state.freeze().is_some_and(|f| f.kept_of(block).is_some()),
                pinned: drains && !filler,
                ..Piece::new(block, meta, filler, self.space.tickets.begin())
            })
            .collect::<Vec<_>>();
        self.destage.last_job = now;
        let mut job = Job::new(window, now, pieces);
        (job.way, job.turn, job.dirty, job.apart, job.drains) = (way, turn, count, apart, drains);
        job.durable = newest <= durable;
        job.tasks = tasks;
        self.destage.tasked += u32::from(!job.tasks.is_empty());
        let key = self.begin(now, job, fx);
        if newest > durable {
            self.commit.wait_durable(newest, Waiter::Job(key));
        }
        count as u64
    }

    /// The job's slots are read from now on.
    fn begin(&mut self, now: Nanos, mut job: Job, fx: &mut Vec<Effect>) -> usize {
        self.destage.number += 1;
        job.number = self.destage.number;
        let window = job.window;
        let key = self.destage.jobs.insert(job);
        self.destage.by_window.insert(window, key);
        self.destage.reading.push_back(key);
        self.issue_slot_reads(now, fx);
        key
    }

    /// Writes a clean block to the core once more.
    pub(super) fn start_probe(&mut self, now: Nanos, block: u32, meta: Meta, fx: &mut Vec<Effect>) {
        let piece = Piece::new(block, meta, true, self.space.tickets.begin());
        let job = Job { probe: true, ..Job::new(block / WINDOW_BLOCKS as u32, now, vec![piece]) };
        self.begin(now, job, fx);
    }

    /// An operation of a job is over.
    pub(crate) fn destage_done(&mut self, done: Done, fx: &mut Vec<Effect>) {
        if done.sub & DOUBT != 0 {
            self.old_read(done, fx);
        } else if done.sub & WRITE != 0 {
            self.core_write_done(done, fx);
        } else if done.sub & MERGE != 0 {
            let (now, key) = (done.now, done.key);
            self.destage.writes -= 1;
            if self.destage.jobs[key].state == State::Comparing {
                return self.compared(now, key, done.buf.filter(|_| done.result.is_ok()), fx);
            }
            match done.result {
                Ok(()) => self.merged(done, fx),
                Err(_) => {
                    // What lies between is none of ours: the dirty runs need nothing of it.
                    self.destage.stuck.cannot_merge(self.destage.jobs[key].window);
                    self.destage.jobs[key].way = Strategy::Runs;
                    self.compose_runs(key);
                    self.begin_writes(now, key, fx);
                }
            }
        } else {
            self.slot_read(done, fx);
        }
    }

    /// Goes on with a job: the event that it waited for outside (durability, the core's flush) has come.
    pub(crate) fn job_step(&mut self, now: Nanos, key: usize, fx: &mut Vec<Effect>) {
        match self.destage.jobs[key].state {
            State::Reading => {
                self.destage.jobs[key].durable = true;
                self.ready_if_all_there(now, key, fx);
            }
            State::Flushing => self.record_clean(now, key, fx),
            s => unreachable!("a job in state {s:?} waits for nothing"),
        }
    }

    fn ready_if_all_there(&mut self, now: Nanos, key: usize, fx: &mut Vec<Effect>) {
        let job = &mut self.destage.jobs[key];
        if job.reads > 0 || !job.durable {
            return;
        }
        job.state = State::Queued;
        self.own_window(now, key, fx);
    }

    /// No client writes the core in `window` any more.
    pub(crate) fn window_free(&mut self, now: Nanos, window: u32, fx: &mut Vec<Effect>) {
        if let Some(key) = self.destage.by_window.get(&window).copied()
            && self.destage.jobs[key].state == State::Queued
        {
            self.own_window(now, key, fx);
        }
    }

    fn own_window(&mut self, now: Nanos, key: usize, fx: &mut Vec<Effect>) {
        if self.state.is_fenced() || self.state.is_alone() {
            return self.begin_writes(now, key, fx);
        }
        let job = &mut self.destage.jobs[key];
        if self.destage.claims.contains_key(&job.window) {
            return;
        }
        if job.way == Strategy::Merge {
            let (window, blocks) = (job.window, job.blocks());
            let good = !job.pieces.iter().any(|p| p.bad);
            // The core may have failed since it was planned.
            let way = if good && self.destage.may_merge(window) { Strategy::Merge } else { Strategy::Runs };
            let job = &mut self.destage.jobs[key];
            job.way = way;
            if way == Strategy::Merge {
                job.state = State::Merging;
                return self.read_span(key, *blocks.start(), *blocks.end(), fx);
            }
        }
        if !self.destage.jobs[key].probe || self.may_probe() {
            self.compose_runs(key);
        }
        self.begin_writes(now, key, fx);
    }

    /// Has job `key` compose what it writes, run by run.
    fn compose_runs(&mut self, key: usize) {
        let (jobs, stuck) = (&mut self.destage.jobs, &self.destage.stuck);
        let job = &mut jobs[key];
        // One that is being evicted would not be there any more if the core refused it.
        for p in job.pieces.iter_mut().filter(|p| p.filler && self.space.policy.state(p.meta.slot) == 0) {
            p.superseded = true;
        }
        let waited = self.intake.waited_by(&job.tasks);
        let is_waited = |b: u32| waited.iter().any(|blocks| blocks.contains(&b));
        // Those that somebody waits for come first, those that failed before last: the others are not to wait behind them where
        // the job is given up.
        let order = |b: u32| (!is_waited(b), stuck.is_refused(b));
        job.compose((self.cfg.stripe, self.cfg.data_length), order);
    }

    /// True if somebody waits for what destaging brings about.
    pub(crate) fn destage_is_wanted(&self) -> bool {
        let d = &self.destage;
        let clients = !self.intake.waiting.is_empty() || d.blocked > 0 || !d.first.is_empty() || d.tasked > 0;
        clients || self.state.is_draining() || !d.flushes.is_empty() || self.space.shrink.is_some()
    }
}
