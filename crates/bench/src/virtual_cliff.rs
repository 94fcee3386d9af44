//! Figure 1 on a virtual clock: the engine over the spinning-disk model, minutes of load in seconds of computing.
//!
//! It has the disk and the cache device's latency, and leaves out all else: no transport, no processor time. It is
//! for trying out destage decisions; the figure that counts is measured in real time by `bench cliff`.

use crate::engine::format_options;
use crate::rng::SplitMix64 as Rng;
use anyhow::{Result, ensure};
use loligo_block::{
    Buf, Finished, HddKind, HddModel, HddParams, Op, OpKind, ReqKind, Request, Rpm, Shared, SyncIo,
};
use loligo_engine::api::{Dev, Effect, Event};
use loligo_engine::open::{self, Devices, OpenOptions};
use loligo_engine::params::Params;
use loligo_engine::{Engine, Part, Router};
use loligo_format::mode::Mode;
use loligo_format::superblock::Superblock;
use loligo_format::units::Striping;
use serde::Serialize;
use std::collections::BTreeMap;

/// In nanoseconds.
const SECOND: u64 = 1_000_000_000;

/// Bytes of the core.
pub const CORE: u64 = 1 << 30;
/// Requests in flight.
const DEPTH: u64 = 32;
/// Virtual seconds of load.
const SECONDS: u64 = 140;
/// Of those, the last ones that count.
const TAIL: u64 = 60;
/// A cache operation, ns.
const CACHE_IO: u64 = 40_000;
/// A cache flush, ns.
const CACHE_FLUSH: u64 = 400_000;

/// The result.
#[derive(Debug, Default, Serialize)]
pub struct VirtualResult {
    /// Writes a second over the tail.
    pub iops: f64,
    /// The slowest whole second.
    pub worst_second: u64,
    /// The highest p99 of any second, ms.
    pub worst_p99_ms: f64,
    /// Writes in each second.
    pub per_second: Vec<u64>,
    /// Dirty share at the end of each second, percent.
    pub dirty_percent: Vec<u64>,
    /// p99 of each second, ms.
    pub p99_ms: Vec<f64>,
    /// Blocks destaged a second over the tail.
    pub destaged: f64,
}

/// A completion due at a time, by its place in the order.
type Due = BTreeMap<(u64, u64), Event>;

struct World {
    cache: Vec<u8>,
    disk: HddModel,
    core_ops: BTreeMap<u64, (u64, Option<Buf>)>,
    next_op: u64,
    due: Due,
    order: u64,
}

impl World {
    fn later(&mut self, at: u64, e: Event) {
        self.order += 1;
        self.due.insert((at, self.order), e);
    }

    fn carry_out(&mut self, now: u64, dev: Dev, op: Op) -> Result<()> {
        let len = op.len();
        if dev == Dev::Cache {
            let (after, buf) = match op.kind {
                OpKind::Read(mut b) => {
                    self.cache.read_at(op.offset, &mut b)?;
                    (CACHE_IO, Some(b))
                }
                OpKind::Write { data, .. } => {
                    self.cache.write_at(op.offset, &data)?;
                    (CACHE_IO, None)
                }
                _ => (CACHE_FLUSH, None),
            };
            self.later(now + after, Event::Done { tag: op.tag, buf, result: Ok(()) });
            return Ok(());
        }
        let (kind, buf) = match op.kind {
            OpKind::Read(b) => (HddKind::Read, Some(b)),
            OpKind::Write { .. } => (HddKind::Write, None),
            OpKind::Flush => (HddKind::Flush, None),
            _ => (HddKind::Metadata, None),
        };
        self.next_op += 1;
        self.core_ops.insert(self.next_op, (op.tag, buf));
        self.disk.submit(now, self.next_op, op.offset, len, kind);
        Ok(())
    }

    fn reap_disk(&mut self, now: u64) {
        let mut done: Vec<Finished> = Vec::new();
        self.disk.advance(now, &mut done);
        for f in done {
            let (tag, buf) = self.core_ops.remove(&f.id).expect("submitted once");
            self.later(f.at, Event::Done { tag, buf, result: Ok(()) });
        }
    }
}

/// The raw disk at the same depth: 4 KiB random writes a second.
pub fn bare() -> f64 {
    let mut disk = HddModel::new(HddParams::preset(Rpm::R7200, 1 << 20), CORE);
    let (mut rng, mut done, mut id, mut count, mut now) = (Rng::new(7), Vec::new(), 0, 0u64, 0u64);
    let end = 60_000_000_000;
    for _ in 0..DEPTH {
        id += 1;
        disk.submit(0, id, rng.below(CORE / 4096) * 4096, 4096, HddKind::Write);
    }
    while now < end {
        now = disk.next_deadline().unwrap_or(end);
        disk.advance(now, &mut done);
        for f in done.drain(..) {
            count += 1;
            id += 1;
            disk.submit(f.at, id, rng.below(CORE / 4096) * 4096, 4096, HddKind::Write);
        }
    }
    count as f64 / 60.0
}

/// A cached volume under load, and what it has done so far.
struct Run {
    engine: Engine,
    router: Router,
    world: World,
    now: u64,
    rng: Rng,
    /// The time at which each request in flight was sent.
    started: BTreeMap<u64, u64>,
    sent: u64,
    /// The time that each answer of this second took.
    took: Vec<u64>,
    parts: Vec<Part>,
    effects: Vec<Effect>,
    /// Blocks destaged before the tail.
    before_tail: u64,
    result: VirtualResult,
}

impl Run {
    fn new(cache_bytes: u64) -> Result<Run> {
        let mut cache = vec![0; cache_bytes as usize];
        open::format(&mut cache, &format_options(cache_bytes, CORE))?;
        let oo = OpenOptions { force: false, params: Params::default(), bug: None };
        let sb = Superblock::load(&mut cache)?;
        let opened = open::open(&mut cache, &mut Vec::new(), sb, &oo)?;
        let devices = Devices { cache_volatile: true, core_unmaps: true, ..Devices::PLAIN };
        let (_, mut engines) = opened.into_engines(Mode::Wb, &oo, &devices);
        Ok(Run {
            engine: engines.remove(0),
            router: Router::new(CORE, 512, Striping::by_window(1), 8),
            world: World {
                cache,
                disk: HddModel::new(HddParams::preset(Rpm::R7200, 1 << 20), CORE),
                core_ops: BTreeMap::new(),
                next_op: 0,
                due: Due::new(),
                order: 0,
            },
            now: 1,
            rng: Rng::new(1),
            started: BTreeMap::new(),
            sent: 0,
            took: Vec::new(),
            parts: Vec::new(),
            effects: Vec::new(),
            before_tail: 0,
            result: VirtualResult::default(),
        })
    }

    /// True if fewer requests than wanted are in flight.
    fn has_room(&self) -> bool {
        (self.started.len() as u64) < DEPTH
    }

    /// Sends what may be in flight, and has the engine do all that can be done now.
    fn step(&mut self, payload: &Shared) -> Result<()> {
        while self.has_room() {
            self.sent += 1;
            self.started.insert(self.sent, self.now);
            let offset = self.rng.below(CORE / 4096) * 4096;
            let kind = ReqKind::Write(payload.clone());
            let req = Request { id: self.sent, kind, offset, len: 4096, fua: false };
            ensure!(self.router.route(req, &mut self.parts).is_none(), "refused");
        }
        for p in self.parts.drain(..) {
            self.engine.step(self.now, Event::Submit(p.request, p.hint), &mut self.effects);
        }
        while self.world.due.first_key_value().is_some_and(|((at, _), _)| *at <= self.now) {
            let Some((_, e)) = self.world.due.pop_first() else { break };
            self.engine.step(self.now, e, &mut self.effects);
        }
        self.engine.settle(self.now, &mut self.effects);
        for f in self.effects.drain(..) {
            match f {
                Effect::Io(dev, op) => self.world.carry_out(self.now, dev, op)?,
                Effect::Answer(a) => {
                    if let Some(whole) = self.router.answered(a) {
                        ensure!(whole.result.is_ok(), "a write failed");
                        let sent = self.started.remove(&whole.id).expect("it was sent");
                        self.took.push(self.now - sent);
                    }
                }
                Effect::Missed(_) | Effect::Controlled(..) => {}
            }
        }
        Ok(())
    }

    /// Lets time pass until something can happen.
    fn advance(&mut self) {
        if self.has_room() {
            self.now += 2_000;
            return self.world.reap_disk(self.now);
        }
        let end_of_second = (self.result.per_second.len() as u64 + 1) * SECOND;
        let due = self.world.due.first_key_value().map(|((at, _), _)| *at);
        let next = [due, self.world.disk.next_deadline(), self.engine.next_deadline(self.now)];
        let next = next.into_iter().flatten().min();
        self.now = next.unwrap_or(end_of_second).max(self.now + 1).min(end_of_second);
        self.world.reap_disk(self.now);
        if self.now == end_of_second {
            self.note_second();
        }
    }

    fn note_second(&mut self) {
        let (r, s) = (&mut self.result, self.engine.stats());
        self.took.sort_unstable();
        r.per_second.push(self.took.len() as u64);
        r.dirty_percent.push(s.dirty_bytes * 100 / s.cache_bytes);
        r.p99_ms.push(self.took.get(self.took.len() * 99 / 100).map_or(0.0, |n| *n as f64 / 1e6));
        self.took.clear();
        let seconds = r.per_second.len() as u64;
        if seconds == SECONDS - TAIL {
            self.before_tail = s.destaged_blocks;
        }
        if seconds == SECONDS {
            r.destaged = (s.destaged_blocks - self.before_tail) as f64 / TAIL as f64;
        }
    }
}

/// Runs uniform 4 KiB random writes against the cached volume.
///
/// # Errors
/// When the engine refuses its configuration or fails a write.
pub fn run(cache_bytes: u64) -> Result<VirtualResult> {
    let mut run = Run::new(cache_bytes)?;
    let payload = Buf::zeroed(4096).freeze();
    while run.result.per_second.len() < SECONDS as usize {
        run.step(&payload)?;
        run.advance();
    }
    let mut r = run.result;
    let tail = &r.per_second[(SECONDS - TAIL) as usize..];
    r.iops = tail.iter().sum::<u64>() as f64 / TAIL as f64;
    r.worst_second = r.per_second.iter().copied().min().unwrap_or(0);
    r.worst_p99_ms = r.p99_ms.iter().copied().fold(0.0, f64::max);
    Ok(r)
}
