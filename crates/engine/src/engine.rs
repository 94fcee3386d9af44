//! One shard of the cache: the only owner of its state. Events come in one at a time, effects go out; between them no
//! clock is read, no thread started, no I/O done.
//!
//! A 4 KiB write in write-back mode passes: [`Engine::step`] → `write` (lock, route) → `emit_back` (slot, data and record
//! out together) → `published` (completed prefix reaches the frame: the new version is visible, the answer goes out).

mod apply;

use crate::api::{Effect, Event, Hint, Nanos, answer};
use crate::bug::{Bug, planted};
use crate::checkpoint::Checkpoint;
use crate::commit::Commit;
use crate::destage::Destage;
use crate::devices::Devices;
use crate::fallback::state::FallbackState;
use crate::flushes::FLUSH_EVERY;
use crate::intake::{Intake, Task};
use crate::intent::Intents;
use crate::io_tag::{Done, IoTag};
use crate::journal::{Journal, Ring};
use crate::map::Map;
use crate::params::Params;
use crate::policy::admit::{Admission, Verdict};
use crate::recover::Recovered;
use crate::refusal::{Failure, Step};
use crate::space::Space;
use crate::state::State;
use crate::stats::Stats;
use crate::tables::Tables;
use loligo_block::{ReqError, ReqKind, Request};
use loligo_format::layout::ShardLayout;
use loligo_format::mode::Mode;
use loligo_format::record::JournalId;
use loligo_format::units::{BLOCK, Stripe};

/// The facts that a shard must know to run.
#[derive(Debug, Clone)]
pub struct Config {
    /// The windows that are this shard's.
    pub stripe: Stripe,
    /// The places of its parts on the cache device.
    pub layout: ShardLayout,
    /// The identity that its journal and pages carry.
    pub id: JournalId,
    /// The nature of its devices.
    pub devices: Devices,
    /// First byte of the core that is exported.
    pub data_start: u64,
    /// Bytes exported.
    pub data_length: u64,
    /// Blocks in a cache line.
    pub line_blocks: u32,
    /// Bytes of an intent region.
    pub region: u64,
    /// Mode at start, and the one since.
    pub mode: Mode,
    /// Tunables at start, and those since.
    pub params: Params,
    /// Sizes of hashed tables.
    pub tables: Tables,
    /// A planted bug (only with the feature `planted-bugs`).
    pub bug: Option<Bug>,
}

/// One shard of a cache, as a state machine. Each part has a file and tests of its own; what leads from one to another is here.
#[derive(Debug)]
pub struct Engine {
    pub(crate) cfg: Config,
    pub(crate) state: State,
    /// The requests of clients.
    pub(crate) intake: Intake,
    /// The versions of blocks, and their places.
    pub(crate) map: Map,
    /// The slots, and who gets them.
    pub(crate) space: Space,
    /// Journal, flushes, checkpoint, intents.
    pub(crate) commit: Commit,
    /// The data that goes to the core, and its time.
    pub(crate) destage: Destage,
    pub(crate) stats: Stats,
}

impl Engine {
    /// A shard as recovery left it.
    pub fn new(cfg: Config, mut rec: Recovered) -> Engine {
        let ring =
            Ring { base: cfg.layout.journal, len: cfg.layout.journal_len, unit: cfg.devices.journal_unit };
        let journal =
            Journal::new(cfg.id, ring, rec.epoch, rec.last_seq, rec.journal(), cfg.devices.cache_volatile);
        let windows = cfg.stripe.windows(cfg.data_length);
        // It may have been recovered before the core's present size was known.
        rec.index.grow(windows);
        let (slots, limit) = (cfg.layout.slots, cfg.layout.limit);
        let checkpoint = Checkpoint::new(&cfg.layout, rec.directory, rec.root_seq, &rec.touched);
        let intents = Intents::new(cfg.data_length, cfg.region);
        let admission = Admission::new(cfg.params.admission.kind(), slots);
        Engine {
            state: State::new(),
            intake: Intake::new(),
            map: Map::new(rec.index, slots, &cfg.tables),
            space: Space::new(rec.slots, rec.policy, admission, limit),
            commit: Commit::new(journal, checkpoint, intents),
            destage: Destage::new(),
            stats: Stats { cache_bytes: u64::from(limit) * BLOCK, ..Stats::default() },
            cfg,
        }
    }

    /// The only way in. `fx` receives what the world must do; call [`Engine::settle`] after each batch of events.
    pub fn step(&mut self, now: Nanos, event: Event, fx: &mut Vec<Effect>) {
        let from = fx.len();
        match event {
            Event::Submit(req, hint) => self.submit(now, req, hint, fx),
            Event::Done { tag, buf, result } => {
                let tag = IoTag::of(tag);
                self.done(tag, Done::new(now, tag, buf, result), fx);
            }
            Event::Control(id, control) => self.control(now, id, control, fx),
            Event::Tick => {}
        }
        self.advance(now, fx);
        self.ask_nothing(now, from, fx);
    }

    /// Ends a batch: closes the journal group, starts what has room, asks for the flushes that somebody waits for.
    pub fn settle(&mut self, now: Nanos, fx: &mut Vec<Effect>) {
        let from = fx.len();
        if self.state.uses_cache() {
            if !self.state.is_fenced() {
                // Where a core is frozen a thaw may bring room.
                let full = !self.state.has_freeze() && self.dirty_and_kept() >= self.space.slot_limit();
                self.destage.look_for_jam(now, full, &self.map, self.space.pending_dirty);
                self.admit_waiting(now, fx);
                self.make_room(now);
                self.shrink_step(now, fx);
                self.sweep(now, fx);
                self.core_flush_if_due(now, fx);
                self.lift_intents(now, fx);
                self.freeze_step(now, fx);
            }
            self.checkpoint_if_due(fx);
            self.commit.write_watermark(now);
        }
        if self.state.uses_cache() {
            self.commit.close_if_due(now, &mut self.stats, fx);
        } else {
            // What was recorded since may rest on something that did not happen: nothing of it is to become durable.
            self.commit.closed.clear();
        }
        self.flush_if_wanted(now, fx);
        self.stop_if_idle(now, fx);
        self.ask_nothing(now, from, fx);
    }

    /// The time at which [`Engine::settle`] wants to be called again if nothing else happens.
    pub fn next_deadline(&self, now: Nanos) -> Option<Nanos> {
        if !self.state.uses_cache() {
            return None;
        }
        let idle = self.commit.journal.undurable() || self.commit.journal.watermark_due();
        // Somebody began to wait, while settling, for what is durable already.
        let due = self.commit.has_durable_waiter();
        [
            self.commit.journal.deadline(),
            self.pace_deadline(),
            self.sweep_deadline(now),
            self.space.shrink_deadline(),
            idle.then_some(self.commit.last_flush + FLUSH_EVERY),
            self.commit.intents.deadline(),
            self.commit.core_flush.deadline(),
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
        blocks.clone().for_each(|b| self.map.index.prefetch(b));
        for slot in blocks.filter_map(|b| self.map.index.prefetch_line(b)) {
            self.space.policy.prefetch(slot);
        }
    }

    fn submit(&mut self, now: Nanos, req: Request, hint: Hint, fx: &mut Vec<Effect>) {
        if !self.state.accepts_requests() {
            return self.refuse_request(req.id, fx);
        }
        if self.state.is_alone() {
            return self.serve_alone(now, req, fx);
        }
        if !self.state.uses_cache() && (self.cfg.mode.is_ahead_of_core() || self.dirty_blocks() > 0) {
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
                self.write(now, req, hint, fx)
            }
        }
    }

    pub(crate) fn done(&mut self, tag: IoTag, done: Done, fx: &mut Vec<Effect>) {
        let now = done.now;
        if let Err(e) = &done.result {
            self.stats.io_errors += 1;
            self.look_for_fence(now, e, fx);
        }
        match tag {
            IoTag::Task(key, _) => match &self.intake.tasks[key] {
                Task::Read(_) => self.read_done(done, fx),
                Task::Write(_) if self.state.is_alone() => self.left(done, fx),
                Task::Write(_) => self.write_done(done, fx),
                Task::Direct(_) => self.direct_done(done, fx),
                Task::Flush(_) => unreachable!("a flush task issues nothing itself"),
            },
            IoTag::Data(low) => match done.result {
                Ok(()) => {
                    let seq = self.commit.journal.widen(low);
                    self.commit.journal.settle_one(seq);
                }
                Err(e) => self.cache_failed(now, Step::Data, e, fx),
            },
            IoTag::Frame(low) => match done.result {
                Ok(()) => {
                    let seq = self.commit.journal.widen(low);
                    self.commit.journal.written(seq);
                }
                Err(e) => self.cache_failed(now, Step::Journal, e, fx),
            },
            IoTag::CacheFlush => self.cache_flushed(now, done.result, fx),
            IoTag::CoreFlush => self.core_flushed_event(now, done.result, fx),
            IoTag::Destage(..) => {
                self.destage_done(done, fx);
                self.let_in(now, fx);
            }
            IoTag::Checkpoint => match done.result {
                Ok(()) => self.checkpoint_done(fx),
                Err(e) => self.cache_failed(now, Step::Checkpoint, e, fx),
            },
        }
    }

    /// Lets everything take effect that the completed and durable prefixes allow.
    fn advance(&mut self, now: Nanos, fx: &mut Vec<Effect>) {
        if !self.state.uses_cache() {
            return;
        }
        let swapped = planted(self.cfg.bug, Bug::JournalOrderSwapped);
        while let Some((seq, actions)) = self.commit.journal.next_completed(swapped) {
            self.take_effect(now, seq, &actions, fx);
            self.commit.journal.recycle(actions);
        }
        self.wake_durable(now, fx);
        self.free_slots();
    }

    /// The reason why the cache stopped acknowledging, if it did.
    pub fn poisoned(&self) -> Option<&Failure> {
        self.state.why()
    }

    /// Share of the slots that are mapped, in thousandths.
    pub(crate) fn occupancy_permille(&self) -> u32 {
        (self.map.index.occupied() * 1000 / u64::from(self.space.slots.count().max(1))) as u32
    }

    /// The shard's numbers now.
    pub fn stats(&self) -> Stats {
        let mut s = self.stats.clone();
        s.occupied_bytes = self.map.index.occupied() * BLOCK;
        s.dirty_bytes = self.map.index.dirty_blocks() * BLOCK;
        s.journal_bytes = self.commit.journal.used();
        s.destage_rate = self.destage.rate();
        s.refused_blocks = self.refused_blocks();
        s.poisoned &= self.alone() != Some(FallbackState::Serving);
        s
    }

    /// RAM held for the index and its kin, by part, in bytes.
    pub fn ram(&self) -> Vec<(&'static str, usize)> {
        let mut parts = self.map.index.bytes().to_vec();
        parts.push(("free slots", self.space.slots.bytes()));
        parts.push(("versions that may not be durable", self.map.recent.bytes()));
        parts.push(("replacement, ghost and shadows", self.space.policy.bytes()));
        parts.push(("admission", self.space.admission.bytes() + self.space.probation.bytes()));
        parts.push(("checkpoint directory", self.commit.checkpoint.bytes()));
        parts
    }

    /// Last journal frame written (for the superblock of a clean stop).
    pub fn last_seq(&self) -> u64 {
        self.commit.journal.last_seq()
    }

    /// Dirty blocks now.
    pub fn dirty_blocks(&self) -> u64 {
        self.map.index.dirty_blocks()
    }

    /// The mode now.
    pub fn mode(&self) -> Mode {
        self.cfg.mode
    }

    /// The tunables now.
    pub fn params(&self) -> Params {
        self.cfg.params
    }

    /// Requests and background work under way (0: nothing will happen without an event).
    pub fn in_flight(&self) -> usize {
        self.intake.tasks.len() + self.held_back()
    }

    pub(crate) fn verdict(&mut self, block: u32) -> Verdict {
        let line = u64::from(block / self.cfg.line_blocks);
        let occupancy = self.occupancy_permille();
        let known = self.space.policy.remembers(self.cfg.stripe.global(block));
        self.space.admission.admit(line, occupancy, known)
    }
}
