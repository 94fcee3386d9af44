//! The kind of cache, devices and clients that one seed gets.

use crate::disk::{Latency, Traits};
use crate::rng::Rng;
use loligo_engine::open::Large;
use loligo_engine::params::{Ack, AdmissionKind, LargeWrites, Params, SeqCutoff};
use loligo_engine::policy::Kind;
use loligo_engine::{Bug, Tables};
use loligo_format::mode::Mode;
use loligo_format::pool::share::MIN_SLOTS;
use std::ops::Range;

/// One run in this many that does not fill its cache has a cold majority.
const COLD_ONE_IN: u64 = 24;

/// The constants of a run.
#[derive(Debug, Clone)]
pub struct Config {
    /// The flash.
    pub cache: Traits,
    /// The slow device.
    pub core: Traits,
    /// The cache's name, another for each that is made in place of one that was given up.
    pub uuid: [u8; 16],
    /// Mode at creation.
    pub mode: Mode,
    /// Cache line, bytes.
    pub line_size: u32,
    /// Shards.
    pub shards: u16,
    /// Percent of the core left unexported.
    pub core_reserve: u8,
    /// Bytes of each journal ring (0: the engine's choice).
    pub journal_len: u64,
    /// The core takes groups of writes.
    pub core_groups: bool,
    /// Writes that may pass the cache by.
    pub core_large: Large,
    /// Pages of a checkpoint being written at a time: one makes images that are as fuzzy as those of large caches.
    pub page_writes: u32,
    /// Tunables at start.
    pub params: Params,
    /// The cache is a share of a pool: its limit moves.
    pub share: bool,
    /// Slots in each shard that it has now.
    pub limit: u32,
    /// Sizes of the engine's hashed tables.
    pub tables: Tables,
    /// Bytes of an intent region (0: the engine's choice).
    pub region: u64,
    /// One step of the workload in so many makes a block of the core unreadable until it is written (0: none does); what
    /// rots on the cache may become unreadable too.
    pub spoil_one_in: u64,
    /// One step of the workload in so many makes a part of the core take no writes for a while, or for good (0: none does).
    pub wear_one_in: u64,
    /// The first life begins with a cache that is full of what the core refuses, until nobody waits for room any more.
    pub jam: bool,
    /// Clients come to any thread, not only to the first.
    pub homes: bool,
    /// The cache is taken away and given back while clients are served.
    pub exchanges: bool,
    /// A rule the engine is to break.
    pub bug: Option<Bug>,
    /// The clients' behaviour.
    pub load: Load,
    /// True if devices fail, lie and rot in this run.
    pub faults: bool,
}

/// The behaviour of a run's clients.
#[derive(Debug, Clone)]
pub struct Load {
    /// Requests under way at most.
    pub depth: usize,
    /// Percent of requests that read.
    pub reads: u64,
    /// Percent of changes that are discards or zeroes.
    pub holes: u64,
    /// Percent of changes with FUA.
    pub fua: u64,
    /// One request in this many is a flush (0: the clients never flush).
    pub flush_one_in: u64,
    /// Largest request, sectors.
    pub largest: u64,
    /// Percent of requests at the hot spots.
    pub hot: u64,
    /// Bytes of a hot spot.
    pub hot_span: u64,
    /// Percent of requests that continue a sequential stream.
    pub streams: u64,
    /// Mean time between two requests of a client, ns.
    pub think: u64,
    /// One request in this many is followed by a pause of up to 4 s.
    pub pause_one_in: u64,
    /// One request in this many is followed by a management request.
    pub control_one_in: u64,
    /// The first life begins by writing more than the cache holds.
    pub fill: bool,
    /// Of the cache, in percent.
    pub fill_percent: Range<u64>,
    /// Every life overwrites dirty data in bursts and mostly ends in the middle of one.
    pub burst: bool,
    /// One step of the workload in this many freezes the core, where it can be.
    pub freeze_one_in: u64,
    /// Hot spots.
    pub spots: u64,
    /// Not 0: the first life fills most of the cache and frees its beginning again; from then on the hot spots are single
    /// blocks, one of which wanders over the cold rest with one request in this many, so that most pages of the image
    /// stay as they are from one checkpoint to the next.
    pub cools_one_in: u64,
}

/// Tunables by chance.
pub fn draw_params(rng: &mut Rng) -> Params {
    let seq_cutoff = rng.pick(&[SeqCutoff::Always, SeqCutoff::Full, SeqCutoff::Never]);
    let seq_threshold = rng.pick(&[64 << 10, 256 << 10, 1 << 20]);
    Params {
        ack: Ack::Written,
        // With one in three too.
        large_writes: if seq_cutoff == SeqCutoff::Always { LargeWrites::Cached } else { LargeWrites::Past },
        seq_cutoff,
        seq_threshold,
        // With one in three: no draw of its own, so that older seeds stay what they were.
        promote_run: if seq_cutoff == SeqCutoff::Never { seq_threshold / 4 } else { 0 },
        seq_promotion: rng.pick(&[1, 2, 8]),
        replacement: rng.pick(&Kind::ALL),
        admission: rng.pick(&[
            AdmissionKind::Probation,
            AdmissionKind::Nhit,
            AdmissionKind::Always,
            AdmissionKind::Always,
        ]),
        destage_low: rng.pick(&[0, 10, 50, 90]),
        destage_rate: rng.pick(&[0, 0, 0, 2000]),
        destage_age: 30,
        snapshot_deadline: 60,
    }
}

impl Load {
    fn draw(rng: &mut Rng, mode: Mode) -> Load {
        let flush_one_in = rng.pick(&[0, 5, 20, 60]);
        Load {
            depth: rng.pick(&[1, 4, 16, 32]),
            reads: rng.pick(&[10, 30, 50]),
            holes: rng.pick(&[0, 5, 20]),
            fua: rng.pick(&[0, 10, 40]),
            flush_one_in,
            largest: rng.pick(&[8, 64, 256, 520]),
            hot: rng.pick(&[20, 60, 90]),
            hot_span: rng.pick(&[8 << 10, 64 << 10, 512 << 10]),
            streams: rng.pick(&[0, 10, 40]),
            think: rng.pick(&[1_000, 50_000, 2_000_000]),
            pause_one_in: rng.pick(&[40, 150, 1000]),
            fill: false,
            fill_percent: 80..105,
            burst: false,
            freeze_one_in: 300,
            spots: 4,
            cools_one_in: 0,
            control_one_in: if mode == Mode::Wb { 100 } else { 50 },
        }
    }
}

impl Config {
    /// The configuration of a seed.
    pub fn draw(rng: &mut Rng, bug: Option<Bug>) -> Config {
        let mode = rng.pick(&[
            Mode::Wb,
            Mode::Wb,
            Mode::Wb,
            Mode::Wb,
            Mode::Wt,
            Mode::Wa,
            Mode::Wi,
            Mode::Wo,
            Mode::Pt,
        ]);
        let cache_block = rng.pick(&[512, 512, 4096]);
        let core_block = rng.pick(&[512, 512, 512, 4096]);
        let shards = rng.pick(&[1, 1, 2, 3]) as u16;
        let slow_core = rng.chance(3, 4);
        let core_latency = if slow_core {
            Latency {
                base: 500_000,
                spread: rng.pick(&[100_000, 8_000_000]),
                per_kib: 8_000,
                stall_one_in: rng.pick(&[0, 50]),
            }
        } else {
            Latency { base: 5_000, spread: 20_000, per_kib: 100, stall_one_in: 0 }
        };
        let cache_latency = Latency {
            base: 10_000,
            spread: rng.pick(&[2_000, 100_000, 2_000_000]),
            per_kib: 400,
            stall_one_in: rng.pick(&[0, 20, 100]),
        };
        let core_size = rng.pick(&[3 << 20, 8 << 20, 8 << 20, 16 << 20, 36 << 20])
            + rng.below(512) * u64::from(core_block);
        let mut cfg = Config {
            uuid: *b"simulated cache.",
            cache: Traits {
                size: (24 << 20) + rng.pick(&[0, 0, 0, 1 << 20, 9 << 20]),
                logical_block: cache_block,
                volatile: rng.chance(3, 4),
                can_unmap: rng.chance(1, 2),
                forgets: false,
                latency: cache_latency,
            },
            core: Traits {
                size: core_size,
                logical_block: core_block,
                volatile: rng.chance(2, 3),
                can_unmap: rng.chance(1, 2),
                forgets: false,
                latency: core_latency,
            },
            mode,
            line_size: rng.pick(&[4096, 4096, 8192, 16_384, 65_536]),
            shards,
            core_reserve: rng.pick(&[0, 0, 0, 10]),
            journal_len: rng.pick(&[0, 128 << 10, 128 << 10, 192 << 10]),
            page_writes: rng.pick(&[1, 1, 2, 16]),
            params: draw_params(rng),
            core_groups: false,
            core_large: Large::NEVER,
            share: false,
            limit: u32::MAX,
            tables: Tables::default(),
            region: 0,
            spoil_one_in: 0,
            wear_one_in: 0,
            jam: false,
            homes: false,
            exchanges: false,
            bug,
            load: Load::draw(rng, mode),
            faults: rng.chance(1, 4) && bug.is_none() || bug == Some(Bug::CrcCheckDropped),
        };
        if rng.chance(1, 8) {
            cfg.fill(rng);
        } else if rng.chance(1, COLD_ONE_IN) {
            cfg.cold(rng);
        }
        // From what is drawn already, so that known seeds stay what they are.
        cfg.core_groups = (cfg.core.size / u64::from(core_block)).is_multiple_of(3);
        if cfg.core_groups {
            let least =
                [4096, 8192, 16_384, u64::MAX][(cfg.core.size / u64::from(core_block) / 3 % 4) as usize];
            cfg.core_large = Large { least, always: least.saturating_mul(4) };
        }
        cfg.often_frozen(cfg.core.size / u64::from(core_block) / 4);
        cfg.params.snapshot_deadline = cfg.core.size / u64::from(core_block) % 4;
        cfg.in_a_pool(cfg.core.size / u64::from(core_block) / 5);
        let forgets = (cfg.core.size / u64::from(core_block) / 6).is_multiple_of(2);
        (cfg.cache.forgets, cfg.core.forgets) = (forgets, forgets);
        cfg
    }

    /// Adds what only wide seeds have: tables in which everything collides, large regions and requests, bad
    /// sectors, clients at every thread, and a cache that comes and goes.
    pub fn widen(&mut self, rng: &mut Rng) {
        if rng.chance(2, 3) {
            self.tables = Tables { stamps: 1 << 3, recent: 1 << 5, locks: 1 };
        }
        if rng.chance(1, 2) {
            self.region = 4 << 20;
        }
        if rng.chance(1, 3) && self.load.cools_one_in == 0 {
            self.load.largest = 2048;
        }
        if rng.chance(2, 3) {
            self.spoil_one_in = rng.pick(&[20, 60]);
        }
        self.homes = rng.chance(3, 4);
        let plain = !self.faults && !self.share && self.load.cools_one_in == 0 && !self.load.fill;
        // A cache whose volume is smaller than its core is not attached to a volume that is served.
        self.exchanges = rng.chance(3, 4) && plain && self.core_reserve == 0;
        if self.exchanges && rng.chance(2, 3) {
            self.shards = self.shards.max(2);
        }
    }

    /// Adds what only worn seeds have: parts of the core that take no writes, beneath a cache that is full before long.
    pub fn wear(&mut self, rng: &mut Rng) {
        self.wear_one_in = rng.pick(&[20, 60, 200]);
        self.exchanges = false;
        if rng.chance(1, 2) {
            self.spoil_one_in = 0;
        }
        if !self.share && !self.load.fill && self.load.cools_one_in == 0 && rng.chance(3, 4) {
            self.crowd(rng);
            self.jam = rng.chance(1, 4);
        }
    }

    /// As few slots as there can be, which what the core refuses fills soon.
    fn crowd(&mut self, rng: &mut Rng) {
        self.limit = MIN_SLOTS;
        self.mode = Mode::Wb;
        self.faults = false;
        self.shards = 1;
        self.core.size = (16 << 20) + self.core.size % (1 << 20);
        self.params.seq_cutoff = SeqCutoff::Never;
        self.load.reads = rng.pick(&[10, 30]);
        self.load.largest = rng.pick(&[64, 520]);
        self.load.hot = 20;
        self.load.streams = 10;
    }

    /// True if one thread has all of several shards, from what is drawn already.
    pub fn is_joint(&self) -> bool {
        self.shards > 1 && (self.core.size / u64::from(self.core.logical_block) / 7).is_multiple_of(2)
    }

    /// Exponent of the windows in a stripe, from what is drawn already.
    pub fn stripe(&self) -> u8 {
        let chance = self.core.size / u64::from(self.core.logical_block) / 14;
        if self.is_joint() { (chance % 3) as u8 } else { 0 }
    }

    /// A share of a pool, which grows and shrinks all the time, by `chance`.
    fn in_a_pool(&mut self, chance: u64) {
        self.share = chance.is_multiple_of(5) && self.load.cools_one_in == 0;
        if self.share {
            // Enough for the fewest slots that there may be, and half as many again.
            self.shards = self.shards.min(2);
            self.cache.size = (24 << 20) + u64::from(self.shards - 1) * (12 << 20);
            self.limit = MIN_SLOTS + (chance / 5 % 3000) as u32;
        }
    }

    /// Freezes that meet much dirty data and many overwrites of it, by `chance`.
    fn often_frozen(&mut self, chance: u64) {
        if self.load.burst {
            // The others are for what bursts show without: a freeze brings what is dirty to the core.
            let often = chance.is_multiple_of(2);
            self.shards = if often { 1 } else { self.shards };
            self.load.freeze_one_in = if often { 20 } else { 100_000 };
        } else if !self.load.fill && self.load.cools_one_in == 0 && chance.is_multiple_of(8) {
            // Half a cache of dirty data that nothing but freezes brings to a slow core, and a storm over all of it: slots
            // go round while versions in them are pinned.
            self.shards = 1;
            self.mode = Mode::Wb;
            self.cache.size = 24 << 20;
            self.cache.latency.spread = 100_000;
            self.core.size = (36 << 20) + self.core.size % (1 << 20);
            self.core.latency.base = 20_000_000;
            self.params.seq_cutoff = SeqCutoff::Never;
            self.params.destage_low = 90;
            self.load = Load {
                depth: 32,
                reads: 10,
                fua: 0,
                largest: 520,
                hot: 20,
                hot_span: 512 << 10,
                streams: 0,
                think: 1_000,
                pause_one_in: 1000,
                fill: true,
                fill_percent: 35..60,
                burst: true,
                freeze_one_in: 60,
                ..self.load.clone()
            };
        }
    }

    /// Makes it a run with a cold majority: one shard, for its image then has the most pages, and a ring that makes
    /// checkpoints frequent.
    fn cold(&mut self, rng: &mut Rng) {
        self.mode = Mode::Wb;
        self.cache.size = 24 << 20;
        self.cache.latency.spread = rng.pick(&[500_000, 2_000_000]);
        self.core.size = (24 << 20) + rng.below(512) * u64::from(self.core.logical_block);
        self.line_size = 4096;
        self.shards = 1;
        self.core_reserve = 0;
        self.journal_len = 128 << 10;
        self.page_writes = 1;
        self.params.seq_cutoff = SeqCutoff::Never;
        self.params.destage_low = 90;
        self.load = Load {
            depth: rng.pick(&[8, 16, 32]),
            reads: 10,
            holes: rng.pick(&[0, 0, 10]),
            fua: rng.pick(&[10, 40]),
            largest: 8,
            think: rng.pick(&[20_000, 100_000]),
            pause_one_in: 1000,
            control_one_in: 1000,
            spots: rng.pick(&[30, 60]),
            cools_one_in: rng.pick(&[20, 200]),
            ..self.load.clone()
        };
        self.faults = false;
    }

    /// Makes it a run with a full cache.
    fn fill(&mut self, rng: &mut Rng) {
        self.load.fill = true;
        self.mode = Mode::Wb;
        self.cache.size = 24 << 20;
        self.core.size = (36 << 20) + rng.below(512) * u64::from(self.core.logical_block);
        self.params.seq_cutoff = SeqCutoff::Never;
        self.params.destage_low = rng.pick(&[0, 90]);
        if rng.chance(2, 3) {
            // Overwrites in bursts, without a flush: slots are as short as they get.
            self.cache.volatile = true;
            self.params.destage_rate = 50;
            self.load = Load {
                depth: 32,
                reads: 10,
                holes: 0,
                fua: 0,
                flush_one_in: rng.pick(&[0, 60]),
                largest: 520,
                hot: 20,
                hot_span: 512 << 10,
                streams: 0,
                think: 1_000,
                burst: true,
                ..self.load.clone()
            };
        }
    }
}
