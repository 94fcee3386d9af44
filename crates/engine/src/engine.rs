//! One shard of the cache: the only owner of its state. Events come in one at a time, effects go out; between them no
//! clock is read, no thread started, no I/O done.
//!
//! A 4 KiB write in write-back mode passes: [`Engine::step`] → `mutate` (lock, route) → `back` (slot, data and record
//! out together) → `publish` (completed prefix reaches the frame: the new version is visible, the answer goes out).

mod apply;

use crate::api::{Dev, Effect, Event, Hint, Nanos};
use crate::bug::{Bug, planted};
use crate::checkpoint::Checkpoint;
use crate::destage::Destage;
use crate::durability::{CacheFlush, CoreFlush, FLUSH_EVERY, Waiter};
use crate::fallback::{Direct, FallbackState};
use crate::freeze::Inflow;
use crate::index::Index;
use crate::intent::Intents;
use crate::io_tag::IoTag;
use crate::journal::{Action, ClosedFrame, Journal, Ring};
use crate::locks::Locks;
use crate::open::Large;
use crate::params::Params;
use crate::policy::Replacement;
use crate::policy::admit::{Admission, Verdict};
use crate::policy::probation::Probation;
use crate::read::ReadTask;
use crate::recent::Recent;
use crate::recover::Recovered;
use crate::shared_core::Demand;
use crate::shrink::Shrink;
use crate::slots::{Slots, Tickets};
use crate::state::State;
use crate::stats::Stats;
use crate::tables::Tables;
use crate::write::WriteTask;
use loligo_block::{Answer, Buf, IoError, Op, OpKind, Reply, ReqError, ReqId, ReqKind, Request, Shared};
use loligo_format::layout::ShardLayout;
use loligo_format::mode::Mode;
use loligo_format::record::{JournalId, Record};
use loligo_format::units::{BLOCK, Stripe};
use slab::Slab;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What a shard must know to run.
#[derive(Debug, Clone)]
pub struct Config {
    /// Which windows are this shard's.
    pub stripe: Stripe,
    /// Where its parts are on the cache device.
    pub layout: ShardLayout,
    /// What its journal and pages carry.
    pub id: JournalId,
    /// Journal frames are multiples of this, bytes.
    pub journal_unit: u32,
    /// The cache device may lose completed writes at power loss.
    pub cache_volatile: bool,
    /// First byte of the core that is exported.
    pub home_start: u64,
    /// Bytes exported.
    pub home_length: u64,
    /// The core may lose completed writes at power loss.
    pub core_volatile: bool,
    /// Discarded space of the core reads as zeros.
    pub core_unmaps: bool,
    /// The core takes groups of writes, and wants whatever is destaged in them.
    pub core_groups: bool,
    /// Writes that may pass the cache by.
    pub core_large: Large,
    /// Others take snapshots of the core.
    pub core_snapshots: bool,
    /// Pages of a checkpoint being written at a time, at most.
    pub page_writes: u32,
    /// Blocks in a cache line.
    pub line_blocks: u32,
    /// Bytes of an intent region.
    pub region: u64,
    /// Mode at start.
    pub mode: Mode,
    /// Tunables at start.
    pub params: Params,
    /// Sizes of hashed tables.
    pub tables: Tables,
    /// A planted bug (only with the feature `planted-bugs`).
    pub bug: Option<Bug>,
}

/// Work in progress for a client.
#[derive(Debug)]
pub(crate) enum Task {
    Read(Box<ReadTask>),
    Write(Box<WriteTask>),
    Flush(FlushTask),
    /// Without the cache.
    Direct(Box<Direct>),
}

#[derive(Debug)]
pub(crate) struct FlushTask {
    /// Taken by the answer: from then on the client is told nothing more.
    pub(crate) id: Option<ReqId>,
    pub(crate) since: Nanos,
    pub(crate) pending: u32,
}

/// One shard of a cache, as a state machine.
#[derive(Debug)]
pub struct Engine {
    pub(crate) cfg: Config,
    pub(crate) mode: Mode,
    pub(crate) params: Params,
    pub(crate) index: Index,
    pub(crate) slots: Slots,
    pub(crate) tickets: Tickets,
    pub(crate) journal: Journal,
    pub(crate) locks: Locks,
    pub(crate) recent: Recent,
    pub(crate) policy: Replacement,
    pub(crate) admission: Admission,
    pub(crate) probation: Probation,
    pub(crate) tasks: Slab<Task>,
    /// Tasks with a lock that wait for slots, journal room or the pacer, in order.
    pub(crate) waiting: VecDeque<usize>,
    /// The first of them waits for room that only destaging makes.
    pub(crate) starved: bool,
    /// Blocks on their way to becoming dirty that are not yet.
    pub(crate) pending_dirty: u64,
    /// Dirty versions recorded that have not taken effect, new blocks and others.
    pub(crate) landing: u64,
    /// Fills recorded that have not taken effect: what changes such a block without a new version must end them.
    pub(crate) filling: BTreeMap<u32, u32>,
    /// Blocks whose fill came after a change had begun: the core may have shown newer content already.
    pub(crate) hidden: BTreeSet<u32>,
    /// Evictions recorded that have not taken effect.
    pub(crate) dropping: u32,
    pub(crate) destage: Destage,
    pub(crate) checkpoint: Checkpoint,
    pub(crate) intents: Intents,
    pub(crate) durable_waiters: VecDeque<(u64, Waiter)>,
    pub(crate) cache_flush: Option<CacheFlush>,
    pub(crate) last_flush: Nanos,
    pub(crate) core_flush: CoreFlush,
    /// Acknowledged changes that reached the core by another route than destaging.
    pub(crate) core_acked: u64,
    /// Of those, how many a core flush has covered.
    pub(crate) core_flushed: u64,
    pub(crate) changes: u64,
    stamps: Vec<u64>,
    pub(crate) closed: Vec<ClosedFrame>,
    pub(crate) state: State,
    pub(crate) shrink: Option<Shrink>,
    /// Changes that wait for the thaw, with their locks.
    pub(crate) held: Vec<usize>,
    pub(crate) inflow: Inflow,
    /// Demand of the other shards that share the core.
    pub(crate) others: Demand,
    /// The last look for something to evict found nothing.
    pub(crate) no_victims: bool,
    /// Waiting changes are being admitted.
    pub(crate) admitting: bool,
    /// Foreground operations at the core.
    pub(crate) core_busy: u32,
    pub(crate) stats: Stats,
}

impl Engine {
    /// A shard as recovery left it.
    pub fn new(cfg: Config, mut rec: Recovered) -> Engine {
        let ring = Ring { base: cfg.layout.journal, len: cfg.layout.journal_len, unit: cfg.journal_unit };
        let journal = Journal::new(cfg.id, ring, rec.epoch, rec.last_seq, rec.journal(), cfg.cache_volatile);
        let windows = cfg.stripe.windows(cfg.home_length);
        // It may have been recovered before the core's present size was known.
        rec.index.grow(windows);
        let (slots, limit) = (cfg.layout.slots, cfg.layout.limit);
        let mut core = Engine {
            mode: cfg.mode,
            params: cfg.params,
            index: rec.index,
            slots: rec.slots,
            tickets: Tickets::default(),
            journal,
            locks: Locks::new(cfg.tables.locks),
            recent: Recent::new(slots, cfg.tables.recent),
            policy: rec.policy,
            admission: Admission::new(cfg.params.admission.kind(), slots),
            probation: Probation::new(slots),
            tasks: Slab::with_capacity(256),
            waiting: VecDeque::new(),
            starved: false,
            pending_dirty: 0,
            landing: 0,
            dropping: 0,
            filling: BTreeMap::new(),
            hidden: BTreeSet::new(),
            destage: Destage::new(),
            checkpoint: Checkpoint::new(&cfg.layout, rec.directory, rec.root_seq, &rec.touched),
            intents: Intents::new(cfg.home_length, cfg.region),
            durable_waiters: VecDeque::new(),
            cache_flush: None,
            last_flush: 0,
            core_flush: CoreFlush::default(),
            core_acked: 0,
            core_flushed: 0,
            changes: 0,
            stamps: vec![0; cfg.tables.stamps],
            closed: Vec::new(),
            state: State::new(),
            shrink: None,
            held: Vec::new(),
            inflow: Inflow::default(),
            others: Demand::default(),
            no_victims: false,
            admitting: false,
            core_busy: 0,
            stats: Stats { cache_bytes: u64::from(limit) * BLOCK, ..Stats::default() },
            cfg,
        };
        core.admission.set_limit(limit);
        core.probation.set_limit(limit);
        core
    }

    /// The only way in. `fx` receives what the world must do; call [`Engine::settle`] after each batch of events.
    pub fn step(&mut self, now: Nanos, event: Event, fx: &mut Vec<Effect>) {
        match event {
            Event::Submit(req, hint) => self.submit(now, req, hint, fx),
            Event::Done { tag, buf, result } => self.done(now, tag, buf, result, fx),
            Event::Control(id, control) => self.control(now, id, control, fx),
            Event::Tick => {}
        }
        self.advance(now, fx);
    }

    /// Ends a batch: closes the journal group, starts what has room, asks for the flushes that somebody waits for.
    pub fn settle(&mut self, now: Nanos, fx: &mut Vec<Effect>) {
        if self.state.uses_cache() {
            if !self.state.is_fenced() {
                self.look_for_jam(now);
                self.admit_waiting(now, fx);
                self.make_room(now);
                self.shrink_step(now, fx);
                self.sweep(now, fx);
                self.core_flush_if_due(now, fx);
                self.lift_intents(now, fx);
                self.freeze_step(now, fx);
            }
            self.checkpoint_if_due(fx);
            if self.journal.watermark_due() && now.saturating_sub(self.last_flush) >= WATERMARK_AFTER {
                self.journal.close(&mut self.closed);
            }
            self.journal.close_if_due(now, &mut self.closed);
        }
        self.emit_frames(fx);
        self.flush_if_wanted(now, fx);
        self.stop_if_idle(now, fx);
    }

    /// When [`Engine::settle`] wants to be called again if nothing else happens.
    pub fn next_deadline(&self, now: Nanos) -> Option<Nanos> {
        if !self.state.uses_cache() {
            return None;
        }
        let idle = self.journal.undurable() || self.journal.watermark_due();
        // Somebody began to wait, while settling, for what is durable already.
        let due = self.durable_waiters.front().is_some_and(|(need, _)| *need <= self.journal.durable());
        [
            self.journal.deadline(),
            self.pace_deadline(),
            self.sweep_deadline(now),
            self.shrink_deadline(),
            idle.then_some(self.last_flush + FLUSH_EVERY),
            self.intents.deadline(),
            self.core_flush.deadline(),
            due.then_some(now + 1),
        ]
        .into_iter()
        .flatten()
        // What is due already was looked at by the last settle; if it could not go, a completion will bring it up again.
        .filter(|t| *t > now)
        .min()
    }

    /// Brings what requests at `offsets` will look up towards the processor; worth calling for a batch before its steps.
    pub fn prefetch(&self, offsets: impl Iterator<Item = u64> + Clone) {
        let blocks = offsets.map(|o| self.cfg.stripe.local(o / BLOCK));
        blocks.clone().for_each(|b| self.index.prefetch(b));
        for slot in blocks.filter_map(|b| self.index.prefetch_line(b)) {
            self.policy.prefetch(slot);
        }
    }

    fn submit(&mut self, now: Nanos, req: Request, hint: Hint, fx: &mut Vec<Effect>) {
        if !self.state.accepts_requests() {
            return answer(fx, req.id, Err(ReqError::Shutdown));
        }
        if self.state.is_alone() {
            return self.serve_alone(now, req, fx);
        }
        if !self.state.uses_cache() && (self.mode.is_ahead_of_core() || self.dirty_blocks() > 0) {
            // What was written and not answered may or may not be there: whoever stands on this volume had better end, and be
            // brought back from its copies.
            return answer(fx, req.id, Err(ReqError::Io));
        }
        match req.kind {
            ReqKind::Read => self.read(now, &req, hint, fx),
            ReqKind::Status => self.status(&req, fx),
            _ if !self.state.uses_cache() => answer(fx, req.id, Err(ReqError::Io)),
            ReqKind::Flush => self.flush(now, req.id, fx),
            ReqKind::Write(_) | ReqKind::WriteZeroes { .. } | ReqKind::Discard => {
                self.mutate(now, req, hint, fx)
            }
        }
    }

    fn done(
        &mut self,
        now: Nanos,
        tag: u64,
        buf: Option<Buf>,
        result: Result<(), IoError>,
        fx: &mut Vec<Effect>,
    ) {
        if result.is_err() {
            self.stats.io_errors += 1;
        }
        match IoTag::of(tag) {
            IoTag::Task(key, sub) => match &self.tasks[key] {
                Task::Read(_) => self.read_done(now, key, sub, buf, result, fx),
                Task::Write(_) if self.state.is_alone() => self.left(now, key, sub, result, fx),
                Task::Write(_) => self.write_done(now, key, sub, buf, result, fx),
                Task::Direct(_) => self.direct_done(now, key, buf, result, fx),
                Task::Flush(_) => unreachable!("a flush task issues nothing itself"),
            },
            IoTag::Data(low) => match result {
                Ok(()) => {
                    let seq = self.journal.widen(low);
                    self.journal.settle_one(seq);
                }
                Err(e) => self.cache_failed(now, "writing data to the cache", &e, fx),
            },
            IoTag::Frame(low) => match result {
                Ok(()) => {
                    let seq = self.journal.widen(low);
                    self.journal.written(seq);
                }
                Err(e) => self.cache_failed(now, "writing the journal", &e, fx),
            },
            IoTag::CacheFlush => self.cache_flushed(now, result, fx),
            IoTag::CoreFlush => self.core_flushed_event(now, result, fx),
            IoTag::Destage(key, sub) => {
                self.destage_done(now, key, sub, buf, result, fx);
                self.let_in(now, fx);
            }
            IoTag::Checkpoint => match result {
                Ok(()) => self.checkpoint_done(fx),
                Err(e) => self.cache_failed(now, "writing a checkpoint", &e, fx),
            },
        }
    }

    /// Lets everything take effect that the completed and durable prefixes allow.
    fn advance(&mut self, now: Nanos, fx: &mut Vec<Effect>) {
        if !self.state.uses_cache() {
            return;
        }
        let swapped = planted(self.cfg.bug, Bug::JournalOrderSwapped);
        while let Some((seq, actions)) = self.journal.next_completed(swapped) {
            for action in &actions {
                match *action {
                    Action::Apply(record, fresh) => self.apply(now, seq, record, fresh),
                    Action::Notify(key) => self.published(now, key, seq, fx),
                    Action::NotifyJob(key) => self.job_over(now, key, fx),
                }
            }
            self.journal.recycle(actions);
        }
        self.wake_durable(now, fx);
        self.free_slots();
    }

    /// Why the cache stopped acknowledging, if it did.
    pub fn poisoned(&self) -> Option<&str> {
        self.state.why()
    }

    pub(crate) fn emit_frames(&mut self, fx: &mut Vec<Effect>) {
        if !self.state.uses_cache() {
            // What was recorded since may rest on something that did not happen: nothing of it is to become durable.
            return self.closed.clear();
        }
        for f in self.closed.drain(..) {
            self.stats.cache_write_bytes += f.data.len() as u64;
            let kind = OpKind::Write { data: f.data, fua: false };
            fx.push(Effect::Io(
                Dev::Cache,
                Op { tag: IoTag::Frame(f.seq as u32).tag(), offset: f.offset, kind },
            ));
        }
    }

    /// Writes `data` (whole blocks) to `slot` and following, as data of the open frame.
    pub(crate) fn put_data(&mut self, slot: u32, data: Shared, fx: &mut Vec<Effect>) {
        let seq = self.journal.data_issued();
        self.stats.cache_write_bytes += data.len() as u64;
        let op = Op {
            tag: IoTag::Data(seq as u32).tag(),
            offset: self.cfg.layout.slot(slot),
            kind: OpKind::Write { data, fua: false },
        };
        fx.push(Effect::Io(Dev::Cache, op));
    }

    /// Adds a record to the open frame; somebody waits for it if `urgent`.
    pub(crate) fn record(&mut self, now: Nanos, record: Record, fresh: bool, urgent: bool) -> u64 {
        self.landing += u64::from(matches!(record, Record::Put { dirty: 1.., .. }));
        self.journal.append(now, record, fresh, urgent, &mut self.closed)
    }

    /// Notes that the content of `first..=last` changes about now, so that fills under way are not used.
    pub(crate) fn changed(&mut self, first: u32, last: u32) {
        self.changes += 1;
        for g in first / 16..=last / 16 {
            let place = g as usize % self.stamps.len();
            self.stamps[place] = self.changes;
        }
        if !self.probation.is_empty() {
            for block in first..=last {
                self.probation.remove(u64::from(block));
            }
        }
    }

    /// Whether `block` may have changed since the change counter stood at `stamp`.
    pub(crate) fn changed_since(&self, block: u32, stamp: u64) -> bool {
        self.stamps[(block / 16) as usize % self.stamps.len()] > stamp || self.locks.is_locked(block)
    }

    /// Share of the slots that are mapped, in thousandths.
    pub(crate) fn occupancy_permille(&self) -> u32 {
        (self.index.occupied() * 1000 / u64::from(self.slots.count().max(1))) as u32
    }

    /// The shard's numbers now.
    pub fn stats(&self) -> Stats {
        let mut s = self.stats.clone();
        s.occupied_bytes = self.index.occupied() * BLOCK;
        s.dirty_bytes = self.index.dirty_blocks() * BLOCK;
        s.journal_bytes = self.journal.used();
        s.destage_rate = self.destage.rate();
        s.refused_blocks = self.refused_blocks();
        s.poisoned &= self.alone() != Some(FallbackState::Serving);
        s
    }

    /// RAM held for the index and its kin, by part, in bytes.
    pub fn ram(&self) -> Vec<(&'static str, usize)> {
        let mut parts = self.index.bytes().to_vec();
        parts.push(("free slots", self.slots.bytes()));
        parts.push(("versions that may not be durable", self.recent.bytes()));
        parts.push(("replacement, ghost and shadows", self.policy.bytes()));
        parts.push(("admission", self.admission.bytes() + self.probation.bytes()));
        parts.push(("checkpoint directory", self.checkpoint.bytes()));
        parts
    }

    /// Last journal frame written (for the superblock of a clean stop).
    pub fn last_seq(&self) -> u64 {
        self.journal.last_seq()
    }

    /// Dirty blocks now.
    pub fn dirty_blocks(&self) -> u64 {
        self.index.dirty_blocks()
    }

    /// The mode now.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The tunables now.
    pub fn params(&self) -> Params {
        self.params
    }

    /// Requests and background work under way (0: nothing will happen without an event).
    pub fn in_flight(&self) -> usize {
        self.tasks.len() + self.held_back()
    }

    pub(crate) fn verdict(&mut self, block: u32) -> Verdict {
        let line = u64::from(block / self.cfg.line_blocks);
        let occupancy = self.occupancy_permille();
        let known = self.policy.remembers(self.cfg.stripe.global(block));
        self.admission.admit(line, occupancy, known)
    }
}

/// An idle journal writes its watermark this long after the flush.
const WATERMARK_AFTER: Nanos = 200_000_000;

pub(crate) fn answer(fx: &mut Vec<Effect>, id: ReqId, result: Result<Answer, ReqError>) {
    fx.push(Effect::Answer(Reply { id, result }));
}
