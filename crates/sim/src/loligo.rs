//! The real engine behind the simulator's seam: router, shards, and what happens before and after service.

use crate::config::Config;
use crate::subject::{Counters, Parts, Refusal, Sent, Subject};
use loligo_block::{Reply, ReqId, Request, SyncIo};
use loligo_engine::api::{Effect, Event, Hint, Nanos};
use loligo_engine::open::{Devices, FormatOptions, OpenError, OpenOptions, close, format, open, wipe};
use loligo_engine::recover::{RecoverError, Report};
use loligo_engine::relay::{Relay, ShardMessage};
use loligo_engine::stats::Bypass;
use loligo_engine::uncached::UncachedEngine;
use loligo_engine::{Config as CoreConfig, Engine, FallbackState, Router, share};
use loligo_format::layout::{Layout, SHARD_BASE, SUPERBLOCKS};
use loligo_format::page::PER_PAGE;
use loligo_format::superblock::{CoreIdentity, SuperError, Superblock};
use loligo_format::units::Striping;
use std::collections::BTreeSet;
use std::ops::Range;

/// The engine that serves one thread, or one shard of a thread that has all.
#[derive(Debug)]
enum Thread {
    Cached(Box<Engine>, Box<Relay>),
    /// With the requests that are on their way to it.
    Uncached(Box<UncachedEngine>, BTreeSet<ReqId>),
}

impl Thread {
    fn engine(&self) -> Option<&Engine> {
        match self {
            Thread::Cached(engine, _) => Some(engine),
            Thread::Uncached(..) => None,
        }
    }

    fn engine_mut(&mut self) -> Option<&mut Engine> {
        match self {
            Thread::Cached(engine, _) => Some(engine),
            Thread::Uncached(..) => None,
        }
    }
}

/// A volume in service.
#[derive(Debug)]
pub struct Loligo {
    size: u64,
    superblock: Option<Superblock>,
    by: Striping,
    /// One thread has all shards: the first one's relay is its, and all are exchanged at once.
    joint: bool,
    threads: Vec<Thread>,
    report: Report,
    was_clean: bool,
    /// The engines that are to take the place of each thread's, and the superblock of the cache that comes.
    next: Vec<Option<Thread>>,
    coming: Option<Superblock>,
}

impl Loligo {
    fn engines(&self) -> impl Iterator<Item = &Engine> {
        self.threads.iter().filter_map(Thread::engine)
    }

    fn bare(cfg: &Config) -> Thread {
        Thread::Uncached(Box::new(UncachedEngine::new(cfg.core.size, cfg.core.volatile)), BTreeSet::new())
    }

    fn by(cfg: &Config) -> Striping {
        Striping { shards: cfg.shards, exponent: cfg.stripe() }
    }
}

fn options(cfg: &Config) -> OpenOptions {
    OpenOptions { force: false, params: cfg.params, bug: cfg.bug }
}

fn refusal(e: &OpenError) -> Refusal {
    let damage = match e {
        OpenError::Super(SuperError::Damaged(_)) => true,
        OpenError::Shard(_, e) => !matches!(e, RecoverError::Io(_)),
        _ => false,
    };
    Refusal { damage, text: e.to_string() }
}

impl Subject for Loligo {
    fn format(cfg: &Config, cache: &mut dyn SyncIo, _core: &mut dyn SyncIo) -> Result<(), String> {
        let o = FormatOptions {
            uuid: cfg.uuid,
            name: "sim".into(),
            cache_size: cfg.cache.size,
            core: CoreIdentity { size: cfg.core.size, id: String::new() },
            line_size: cfg.line_size,
            shards: cfg.shards,
            stripe: cfg.stripe(),
            mode: cfg.mode,
            core_reserve: cfg.core_reserve,
            journal_len: cfg.journal_len,
        };
        let mut superblock = format(cache, &o).map_err(|e| e.to_string())?;
        if cfg.region > 0 {
            superblock.region = cfg.region;
            superblock.store(cache).map_err(|e| e.to_string())?;
        }
        Ok(())
    }

    fn open(cfg: &Config, cache: &mut dyn SyncIo, core: &mut dyn SyncIo) -> Result<Loligo, Refusal> {
        let mut superblock = Superblock::load(cache).map_err(|e| refusal(&e.into()))?;
        superblock.layout.limit = cfg.limit;
        core.flush().map_err(|e| refusal(&e.into()))?;
        let opened = open(cache, core, superblock, &options(cfg)).map_err(|e| refusal(&e))?;
        let seen = opened.compare(core, usize::MAX, || true).map_err(|e| refusal(&e.into()))?;
        if seen.different > 0 {
            let text = format!("{} of {} clean blocks differ from the core", seen.different, seen.compared);
            return Err(Refusal { damage: false, text });
        }
        let devices = Devices {
            journal_unit: cfg.cache.logical_block.max(512),
            cache_volatile: cfg.cache.volatile,
            core_volatile: cfg.core.volatile,
            core_unmaps: cfg.core.can_unmap,
            core_groups: cfg.core_groups,
            core_large: cfg.core_large,
            core_snapshots: cfg.core_groups,
            page_writes: cfg.page_writes,
            slot_run: cfg.slot_run,
        };
        let (report, was_clean) = (opened.report, opened.was_clean);
        let of_shard = |shard| CoreConfig {
            tables: cfg.tables,
            ..opened.config(shard, cfg.mode, &options(cfg), &devices)
        };
        let configs: Vec<CoreConfig> = (0..cfg.shards).map(of_shard).collect();
        let superblock = opened.superblock;
        let size = superblock.data_length;
        let by = superblock.striping();
        let router = || Router::new(size, cfg.core.logical_block, by, cfg.params.seq_promotion);
        let of_thread =
            |(me, (c, r))| Thread::Cached(Box::new(Engine::new(c, r)), Box::new(Relay::new(me, router())));
        let threads: Vec<_> = (0..).zip(configs.into_iter().zip(opened.shards)).map(of_thread).collect();
        let next = threads.iter().map(|_| None).collect();
        Ok(Loligo {
            size,
            superblock: Some(superblock),
            by,
            joint: cfg.is_joint(),
            threads,
            report,
            was_clean,
            next,
            coming: None,
        })
    }

    fn open_bare(cfg: &Config, core: &mut dyn SyncIo) -> Result<Loligo, Refusal> {
        core.flush().map_err(|e| refusal(&e.into()))?;
        Ok(Loligo {
            size: cfg.core.size,
            superblock: None,
            by: Loligo::by(cfg),
            joint: cfg.is_joint(),
            threads: (0..cfg.shards).map(|_| Loligo::bare(cfg)).collect(),
            report: Report::default(),
            was_clean: false,
            next: (0..cfg.shards).map(|_| None).collect(),
            coming: None,
        })
    }

    fn close(mut self, cfg: &Config, cache: &mut dyn SyncIo) -> Result<(), String> {
        let finals: Vec<u64> = self.engines().map(Engine::last_seq).collect();
        let dirty = self.dirty_blocks();
        let Some(superblock) = &mut self.superblock else { return Ok(()) };
        close(cache, superblock, &finals, cfg.mode, dirty, cfg.bug).map_err(|e| e.to_string())
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn shards(&self) -> usize {
        self.threads.len()
    }

    fn threads(&self) -> usize {
        if self.joint { 1 } else { self.threads.len() }
    }

    fn route(&mut self, home: usize, req: Request, parts: &mut Vec<(usize, Request, Hint)>) -> Option<Reply> {
        match &mut self.threads[home] {
            Thread::Cached(_, relay) => {
                relay.request(req, |shard, part, hint| parts.push((usize::from(shard), part, hint)))
            }
            Thread::Uncached(_, coming) => {
                coming.insert(req.id);
                parts.push((home, req, Hint::default()));
                None
            }
        }
    }

    fn reply(&self, shard: usize, reply: Reply) -> Sent {
        match &self.threads[shard] {
            Thread::Cached(..) => {
                let (to, message) = Relay::reply(reply);
                Sent::Thread(usize::from(to), message)
            }
            Thread::Uncached(..) => Sent::Client(reply),
        }
    }

    fn shard_message(&mut self, home: usize, message: ShardMessage) -> Option<Reply> {
        match (&mut self.threads[home], message) {
            (Thread::Cached(_, relay), ShardMessage::Answered(reply)) => relay.answered(reply),
            (Thread::Cached(_, relay), ShardMessage::Missed(id)) => {
                relay.missed(id);
                None
            }
            (_, message) => panic!("thread {home} can do nothing with {message:?}"),
        }
    }

    fn step(&mut self, shard: usize, now: Nanos, event: Event, fx: &mut Vec<Effect>) {
        match (&mut self.threads[shard], event) {
            (Thread::Cached(engine, _), event) => engine.step(now, event, fx),
            (Thread::Uncached(bare, coming), Event::Submit(req, _)) => {
                assert!(coming.remove(&req.id), "a bare engine was asked by another thread");
                bare.request(now, req, fx);
            }
            (Thread::Uncached(bare, _), Event::Done { tag, buf, result }) => {
                bare.done(now, tag, buf, result, fx);
            }
            (Thread::Uncached(..), Event::Control(id, _)) => fx.push(Effect::Controlled(id, Ok(()))),
            (Thread::Uncached(..), Event::Tick) => {}
        }
    }

    fn settle(&mut self, shard: usize, now: Nanos, fx: &mut Vec<Effect>) {
        if self.joint {
            let engines = self.threads.iter_mut().filter_map(Thread::engine_mut);
            share(&mut engines.collect::<Vec<_>>());
        }
        if let Thread::Cached(engine, _) = &mut self.threads[shard] {
            engine.settle(now, fx);
        }
    }

    fn next_deadline(&self, shard: usize, now: Nanos) -> Option<Nanos> {
        self.threads[shard].engine().and_then(|engine| engine.next_deadline(now))
    }

    fn is_blank(cache: &mut dyn SyncIo) -> bool {
        matches!(Superblock::load(cache), Err(SuperError::Absent))
    }

    fn is_bare(&self) -> bool {
        self.engines().next().is_none()
    }

    fn in_flight(&self, home: usize) -> usize {
        match &self.threads[home] {
            Thread::Cached(_, relay) => relay.router().in_flight(),
            Thread::Uncached(bare, coming) => bare.in_flight() + coming.len(),
        }
    }

    fn prepare(
        &mut self,
        cfg: &Config,
        devices: Option<(&mut dyn SyncIo, &mut dyn SyncIo)>,
    ) -> Result<(), Refusal> {
        let made = match devices {
            None => (0..cfg.shards).map(|_| Some(Loligo::bare(cfg))).collect(),
            Some((cache, core)) => {
                let opened = Loligo::open(cfg, cache, core)?;
                self.coming = opened.superblock;
                opened.threads.into_iter().map(Some).collect()
            }
        };
        self.next = made;
        Ok(())
    }

    fn exchange(&mut self, home: usize) {
        let shards = if self.joint { 0..self.threads.len() } else { home..home + 1 };
        for shard in shards {
            if let Some(next) = self.next[shard].take() {
                self.threads[shard] = next;
            }
        }
        if self.next.iter().all(Option::is_none) {
            self.superblock = self.coming.take();
        }
    }

    fn dirty_blocks(&self) -> u64 {
        self.engines().map(Engine::dirty_blocks).sum()
    }

    fn wipe(&mut self, cache: &mut dyn SyncIo, back: bool) -> Result<(), String> {
        match &mut self.superblock {
            Some(superblock) if back => superblock.store(cache).map_err(|e| e.to_string()),
            _ => wipe(cache).map_err(|e| e.to_string()),
        }
    }

    fn after_clean_stop(&self) -> Option<bool> {
        Some(self.was_clean)
    }

    fn poisoned(&self) -> bool {
        self.engines().any(|c| c.poisoned().is_some())
    }

    fn is_fenced(&self, shard: usize) -> bool {
        self.threads[shard].engine().is_some_and(|c| c.fenced().is_some())
    }

    fn alone(&self, shard: usize) -> Option<FallbackState> {
        self.threads[shard].engine().and_then(Engine::alone)
    }

    fn freezes(&self) -> bool {
        self.threads() == 1 && !self.is_bare()
    }

    fn has_sector(&self, sector: u32) -> bool {
        let offset = u64::from(sector) * 512;
        self.threads[usize::from(self.by.owner(offset))].engine().is_some_and(|c| c.has_sector(offset))
    }

    fn gives_up(&self, now: Nanos) -> bool {
        self.engines().any(|c| c.gives_up(now))
    }

    fn audit(&self, shard: usize) -> Result<(), String> {
        self.threads[shard].engine().map_or(Ok(()), Engine::audit)
    }

    fn counters(&self) -> Counters {
        let mut all: Counters = vec![
            ("recovery: frames replayed", self.report.frames),
            ("recovery: records dropped", self.report.records_dropped),
            ("recovery: clean blocks dropped", self.report.clean_dropped),
            ("recovery: image kept", u64::from(self.report.images_kept > 0)),
            ("recovery: older image entries", self.report.older_entries),
            ("recovery: after a clean stop", u64::from(self.was_clean)),
        ];
        for engine in self.engines() {
            let s = engine.stats();
            all.extend([
                ("engine: evictions", s.evictions),
                ("engine: checkpoints", s.checkpoints),
                ("engine: blocks destaged", s.destaged_blocks),
                ("engine: blocks filled", s.fills),
                ("engine: groups written", s.core_groups),
                ("engine: pinned versions replaced", s.pinned_blocks),
                ("engine: pieces of groups", s.core_group_pieces),
                ("engine: writes paced", s.paced),
                ("engine: checksum errors", s.crc_errors),
                ("engine: checksum errors repaired", s.crc_repaired),
                ("engine: read hits", s.read_hits),
                ("engine: write hits", s.write_hits),
                ("engine: bypasses", s.bypass.iter().sum()),
                ("engine: large writes past the cache", s.bypass[Bypass::Large as usize]),
                ("full cache at the end of a life", u64::from(s.occupied_bytes * 100 > s.cache_bytes * 97)),
                ("dirty at the end of a life", u64::from(s.dirty_bytes > 0)),
                ("mostly dirty at the end of a life", u64::from(s.dirty_bytes * 100 > s.cache_bytes * 80)),
            ]);
        }
        all
    }

    fn parts(cfg: &Config) -> Parts {
        let mut parts = Parts { doubled: SUPERBLOCKS.map(|at| at..at + 4096).into(), ..Parts::default() };
        let Ok(layout) = Layout::new(cfg.cache.size, cfg.shards, cfg.journal_len) else { return parts };
        for shard in 0..cfg.shards {
            let l = layout.shard(shard);
            parts.data.push(l.slot(0)..l.slot(l.slots));
            parts.journals.push(l.journal..l.journal + l.journal_len);
            parts.doubled.extend(l.roots.map(|at| at..at + 4096));
            parts.image.push(l.dirs[0]..l.journal);
        }
        debug_assert!(parts.data.iter().all(|r| r.start > SHARD_BASE));
        parts
    }

    fn beyond(cfg: &Config, limit: u32) -> Vec<Range<u64>> {
        let Ok(layout) = Layout::new(cfg.cache.size, cfg.shards, cfg.journal_len) else { return Vec::new() };
        let of_shard = |shard| {
            let l = layout.shard(shard);
            let limit = limit.min(l.slots);
            let pages = limit.div_ceil(PER_PAGE as u32);
            let of_place = |place| l.page(pages, place)..l.page(l.page_count, place);
            [l.slot(limit)..l.slot(l.slots), of_place(0), of_place(1)]
        };
        (0..cfg.shards).flat_map(of_shard).filter(|r| !r.is_empty()).collect()
    }
}
