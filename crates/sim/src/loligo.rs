//! The real engine behind the simulator's seam: router, shards, and what happens before and after service.

use crate::config::Config;
use crate::engine::{Counters, Engine, Parts, Refusal};
use loligo_block::{Reply, Request, SyncIo};
use loligo_cache::api::{Effect, Event, Hint, Nanos};
use loligo_cache::layout::{Layout, SHARD_BASE, SUPERBLOCKS};
use loligo_cache::open::{Devices, FormatOptions, OpenError, OpenOptions, close, format, open};
use loligo_cache::page::PER_PAGE;
use loligo_cache::recover::{RecoverError, Report};
use loligo_cache::stats::Bypass;
use loligo_cache::superblock::{CoreIdentity, SuperError, Superblock};
use loligo_cache::{Alone, Config as CoreConfig, Core, Router};
use std::ops::Range;

/// A cache in service.
#[derive(Debug)]
pub struct Loligo {
    superblock: Superblock,
    router: Router,
    cores: Vec<Core>,
    report: Report,
    was_clean: bool,
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

impl Engine for Loligo {
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
        let seen = opened.compare(core, usize::MAX).map_err(|e| refusal(&e.into()))?;
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
        };
        let (report, was_clean) = (opened.report, opened.was_clean);
        let of_shard = |shard| CoreConfig {
            tables: cfg.tables,
            ..opened.config(shard, cfg.mode, &options(cfg), &devices)
        };
        let configs: Vec<CoreConfig> = (0..cfg.shards).map(of_shard).collect();
        let superblock = opened.superblock;
        let cores = configs.into_iter().zip(opened.shards).map(|(c, r)| Core::new(c, r)).collect();
        let router = Router::new(
            superblock.home_length,
            cfg.core.logical_block,
            superblock.striping(),
            cfg.params.seq_promotion,
        );
        Ok(Loligo { superblock, router, cores, report, was_clean })
    }

    fn close(mut self, cfg: &Config, cache: &mut dyn SyncIo) -> Result<(), String> {
        let finals: Vec<u64> = self.cores.iter().map(Core::last_seq).collect();
        let dirty = self.cores.iter().map(Core::dirty_blocks).sum();
        close(cache, &mut self.superblock, &finals, cfg.mode, dirty, cfg.bug).map_err(|e| e.to_string())
    }

    fn size(&self) -> u64 {
        self.superblock.home_length
    }

    fn shards(&self) -> usize {
        self.cores.len()
    }

    fn route(&mut self, _now: Nanos, req: Request, parts: &mut Vec<(usize, Request, Hint)>) -> Option<Reply> {
        let mut out = Vec::new();
        let reply = self.router.route(req, &mut out);
        parts.extend(out.into_iter().map(|p| (usize::from(p.shard), p.request, p.hint)));
        reply
    }

    fn join(&mut self, _now: Nanos, part: Reply) -> Option<Reply> {
        self.router.answered(part)
    }

    fn step(&mut self, shard: usize, now: Nanos, event: Event, fx: &mut Vec<Effect>) {
        self.cores[shard].step(now, event, fx);
    }

    fn settle(&mut self, shard: usize, now: Nanos, fx: &mut Vec<Effect>) {
        self.cores[shard].settle(now, fx);
    }

    fn next_deadline(&self, shard: usize, now: Nanos) -> Option<Nanos> {
        self.cores[shard].next_deadline(now)
    }

    fn after_clean_stop(&self) -> Option<bool> {
        Some(self.was_clean)
    }

    fn poisoned(&self) -> bool {
        self.cores.iter().any(|c| c.poisoned().is_some())
    }

    fn is_lost(&self, shard: usize) -> bool {
        self.cores[shard].lost().is_some()
    }

    fn alone(&self, shard: usize) -> Option<Alone> {
        self.cores[shard].alone()
    }

    fn freezes(&self) -> bool {
        true
    }

    fn has_sector(&self, sector: u32) -> bool {
        let offset = u64::from(sector) * 512;
        self.cores[usize::from(self.superblock.striping().owner(offset))].has_sector(offset)
    }

    fn audit(&self, shard: usize) -> Result<(), String> {
        self.cores[shard].audit()
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
        for core in &self.cores {
            let s = core.stats();
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
