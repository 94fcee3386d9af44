//! One shard over two device models. Time is a number; all data is zeros, so that nothing is stored.

use loligo_block::{Buf, IoError, IoKind, Op, OpKind, ReqKind, Request};
use loligo_engine::api::{Control, Dev, Effect, Event};
use loligo_engine::open::{self, Devices, FormatOptions, OpenOptions};
use loligo_engine::params::Params;
use loligo_engine::{Engine, Part, Router};
use loligo_format::mode::Mode;
use loligo_format::superblock::{CoreIdentity, Superblock};
use loligo_format::units::Striping;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::ops::Range;

pub const US: u64 = 1_000;
pub const MS: u64 = 1_000_000;
pub const S: u64 = 1_000_000_000;
pub const MIB: u64 = 1 << 20;

/// A device of some lanes; every operation takes `base + per_kib * KiB` on one of them.
#[derive(Clone)]
pub struct Model {
    lanes: Vec<u64>,
    base: u64,
    per_kib: u64,
    flush: u64,
}

impl Model {
    pub fn new(lanes: usize, base: u64, per_kib: u64, flush: u64) -> Model {
        Model { lanes: vec![0; lanes], base, per_kib, flush }
    }

    /// An NVMe drive.
    pub fn flash() -> Model {
        Model::new(16, 60 * US, 250, 200 * US)
    }

    /// A disk that takes one command at a time: 8 ms wherever, 143 MB/s.
    pub fn one_at_a_time() -> Model {
        Model::new(1, 8 * MS, 7 * US, 8 * MS)
    }

    fn due(&mut self, now: u64, op: &Op) -> u64 {
        let took = match op.kind {
            OpKind::Flush => self.flush,
            _ => self.base + op.len() * self.per_kib / 1024,
        };
        let lane = self.lanes.iter_mut().min().expect("a lane");
        *lane = (*lane).max(now) + took;
        *lane
    }
}

pub struct World {
    pub engine: Engine,
    pub now: u64,
    /// Id, latency, whether it succeeded.
    pub done: Vec<(u64, u64, bool)>,
    /// The results of management requests.
    pub controlled: Vec<(u64, Result<(), String>)>,
    /// Bytes of the core that cannot be read.
    pub unreadable: Vec<Range<u64>>,
    /// Bytes of the core that cannot be written.
    pub unwritable: Vec<Range<u64>>,
    /// Operations at the core that failed.
    pub failed: u64,
    router: Router,
    flash: Model,
    disk: Model,
    due: BinaryHeap<Reverse<(u64, u64)>>,
    ops: BTreeMap<u64, (Dev, Op)>,
    order: u64,
    next_id: u64,
    sent: BTreeMap<u64, u64>,
    fx: Vec<Effect>,
    parts: Vec<Part>,
    x: u64,
}

impl World {
    /// Write-back, over a core of `core` bytes behind `disk`.
    pub fn new(cache: u64, core: u64, params: Params, disk: Model) -> World {
        let mut dev = vec![0u8; cache as usize];
        let format = FormatOptions {
            uuid: [7; 16],
            name: "t".into(),
            cache_size: cache,
            core: CoreIdentity { size: core, id: String::new() },
            line_size: 4096,
            shards: 1,
            stripe: 0,
            mode: Mode::Wb,
            core_reserve: 0,
            journal_len: 0,
        };
        open::format(&mut dev, &format).unwrap();
        let options = OpenOptions { force: false, params, bug: None };
        let sb = Superblock::load(&mut dev).unwrap();
        let opened = open::open(&mut dev, &mut Vec::new(), sb, &options).unwrap();
        let devices = Devices { cache_volatile: true, core_volatile: true, ..Devices::PLAIN };
        World {
            engine: opened.into_engines(Mode::Wb, &options, &devices).1.remove(0),
            now: 1,
            done: Vec::new(),
            controlled: Vec::new(),
            unreadable: Vec::new(),
            unwritable: Vec::new(),
            failed: 0,
            router: Router::new(core, 512, Striping::by_window(1), params.seq_promotion),
            flash: Model::flash(),
            disk,
            due: BinaryHeap::new(),
            ops: BTreeMap::new(),
            order: 0,
            next_id: 0,
            sent: BTreeMap::new(),
            fx: Vec::new(),
            parts: Vec::new(),
            x: 88_172_645_463_325_252,
        }
    }

    pub fn random(&mut self, n: u64) -> u64 {
        self.x ^= self.x << 13;
        self.x ^= self.x >> 7;
        self.x ^= self.x << 17;
        (self.x >> 16) % n
    }

    pub fn submit(&mut self, kind: ReqKind, offset: u64, len: u64) -> u64 {
        self.next_id += 1;
        let id = self.next_id;
        self.sent.insert(id, self.now);
        let request = Request { id, kind, offset, len, fua: false };
        let mut parts = std::mem::take(&mut self.parts);
        assert!(self.router.route(request, &mut parts).is_none(), "refused");
        for p in parts.drain(..) {
            self.engine.step(self.now, Event::Submit(p.request, p.hint), &mut self.fx);
        }
        self.parts = parts;
        self.settle();
        id
    }

    pub fn write(&mut self, offset: u64, len: u64) -> u64 {
        self.submit(ReqKind::Write(Buf::zeroed(len as usize).freeze()), offset, len)
    }

    pub fn control(&mut self, control: Control) -> u64 {
        self.next_id += 1;
        self.engine.step(self.now, Event::Control(self.next_id, control), &mut self.fx);
        self.settle();
        self.next_id
    }

    fn settle(&mut self) {
        self.engine.settle(self.now, &mut self.fx);
        for f in std::mem::take(&mut self.fx) {
            match f {
                Effect::Io(dev, op) => {
                    let model = if dev == Dev::Cache { &mut self.flash } else { &mut self.disk };
                    let at = model.due(self.now, &op);
                    self.order += 1;
                    self.ops.insert(self.order, (dev, op));
                    self.due.push(Reverse((at, self.order)));
                }
                Effect::Answer(a) => {
                    if let Some(whole) = self.router.answered(a) {
                        let since = self.sent.remove(&whole.id).expect("asked");
                        self.done.push((whole.id, self.now - since, whole.result.is_ok()));
                    }
                }
                Effect::Controlled(id, result) => {
                    self.controlled.push((id, result.map_err(|why| why.to_string())));
                }
                Effect::Missed(_) => {}
            }
        }
    }

    /// On to whatever happens next, or to `limit`.
    pub fn advance(&mut self, limit: u64) {
        let first = self.due.peek().map(|Reverse((at, _))| *at);
        let next = [first, self.engine.next_deadline(self.now)].into_iter().flatten().min();
        self.now = next.unwrap_or(limit).max(self.now + 1).min(limit);
        let mut any = false;
        while let Some(Reverse((at, key))) = self.due.peek().copied() {
            if at > self.now {
                break;
            }
            self.due.pop();
            any = true;
            let (dev, op) = self.ops.remove(&key).expect("pending");
            let reads = matches!(op.kind, OpKind::Read(_));
            let bad = if reads { &self.unreadable } else { &self.unwritable };
            let hit = (reads || op.changes_data()) && bad.iter().any(|r| op.touches(r));
            let mut result = Ok(());
            if dev == Dev::Core && hit {
                self.failed += 1;
                result = Err(IoError::new(IoKind::Io, "a bad sector"));
            }
            let buf = match op.kind {
                OpKind::Read(mut b) => {
                    b.fill(0);
                    Some(b)
                }
                _ => None,
            };
            self.engine.step(self.now, Event::Done { tag: op.tag, buf, result }, &mut self.fx);
        }
        if !any {
            self.engine.step(self.now, Event::Tick, &mut self.fx);
        }
        self.settle();
    }

    /// So much time goes by.
    pub fn pass(&mut self, time: u64) {
        let limit = self.now + time;
        while self.now < limit {
            self.advance(limit);
        }
    }

    /// Until `id` is answered, for `most` at most: its latency.
    pub fn wait(&mut self, id: u64, most: u64) -> Option<u64> {
        let limit = self.now + most;
        loop {
            if let Some(d) = self.done.iter().find(|d| d.0 == id) {
                return Some(d.1);
            }
            if self.now >= limit {
                return None;
            }
            self.advance(limit);
        }
    }

    /// A write of one block that must succeed within 10 s.
    pub fn write_block(&mut self, offset: u64) {
        let id = self.write(offset, 4096);
        assert!(self.wait(id, 10 * S).is_some(), "the block at {offset}");
        let (_, _, ok) = self.done.pop().expect("answered");
        assert!(ok, "the block at {offset}");
        self.done.clear();
    }

    /// Uniform writes of 4 KiB over `span` with `depth` in flight, for `time`; how many were done in each `interval`.
    pub fn load(&mut self, time: u64, interval: u64, depth: usize, span: u64) -> Vec<u64> {
        let (begun, end) = (self.now, self.now + time);
        let mut counts = vec![0; time.div_ceil(interval) as usize];
        self.done.clear();
        while self.now < end {
            while self.sent.len() < depth {
                let at = self.random(span / 4096) * 4096;
                self.write(at, 4096);
            }
            if self.done.is_empty() {
                self.advance(end);
            }
            for (_, _, ok) in self.done.drain(..) {
                assert!(ok, "a write failed");
                if let Some(n) = counts.get_mut(((self.now - begun) / interval) as usize) {
                    *n += 1;
                }
            }
        }
        counts
    }

    /// A management request and its outcome, within `most`.
    pub fn ask(&mut self, control: Control, most: u64) -> Option<Result<(), String>> {
        let id = self.control(control);
        let limit = self.now + most;
        loop {
            if let Some(i) = self.controlled.iter().position(|c| c.0 == id) {
                return Some(self.controlled.remove(i).1);
            }
            if self.now >= limit {
                return None;
            }
            self.advance(limit);
        }
    }
}
