//! Sectors that the core refuses now and then, in any order of events: what is clean is in the core.

use crate::hand::{Hand, SECOND};
use loligo_block::{Buf, OpKind, ReqKind};
use loligo_engine::api::{Control, Dev};
use loligo_engine::open::Devices;
use loligo_format::mode::Mode;
use std::collections::{BTreeMap, BTreeSet};

const WINDOWS: u64 = 7;
const SEEDS: u64 = 40;

struct Run {
    h: Hand,
    x: u64,
    /// Sectors that fail.
    bad: BTreeSet<u64>,
    /// By sector: what was acknowledged; nothing: not known.
    want: BTreeMap<u64, Option<u8>>,
    /// Writes under way: sectors and byte.
    out: BTreeMap<u64, (u64, u64, u8)>,
    busy: BTreeSet<u64>,
    flushes: BTreeMap<u64, BTreeMap<u64, Option<u8>>>,
    freeze: Option<(u64, bool, BTreeMap<u64, Option<u8>>)>,
    log: Vec<String>,
}

impl Run {
    fn rnd(&mut self, n: u64) -> u64 {
        self.x ^= self.x << 13;
        self.x ^= self.x >> 7;
        self.x ^= self.x << 17;
        (self.x >> 11) % n
    }

    fn note(&mut self, s: String) {
        self.log.push(format!("{} {s}", self.h.now));
    }

    fn hits(&self, at: u64, len: u64) -> bool {
        self.bad.range(at / 512..(at + len) / 512).next().is_some()
    }

    fn one(&mut self, i: usize) {
        let (dev, op) = &self.h.pending[i];
        let broken = *dev == Dev::Core
            && match &op.kind {
                OpKind::Write { data, .. } => self.hits(op.offset, data.len() as u64),
                OpKind::WriteMany(p) => p.iter().any(|(at, d)| self.hits(*at, d.len() as u64)),
                _ => false,
            };
        if broken {
            // Some of it may be there.
            let data = match &op.kind {
                OpKind::Write { data, .. } => vec![(op.offset, data.clone())],
                OpKind::WriteMany(p) => p.clone(),
                _ => Vec::new(),
            };
            for (at, d) in data {
                for (n, s) in d.chunks(512).enumerate() {
                    let at = at + n as u64 * 512;
                    if !self.bad.contains(&(at / 512)) && self.rnd(2) == 0 {
                        self.h.disk[at as usize..at as usize + 512].copy_from_slice(s);
                    }
                }
            }
        }
        self.h.complete(i, broken);
        self.look();
    }

    fn on_disk(&self, s: u64) -> u8 {
        self.h.disk[s as usize * 512]
    }

    fn look(&mut self) {
        for (id, result) in std::mem::take(&mut self.h.answers) {
            let Some((first, n, byte)) = self.out.remove(&id) else { continue };
            for s in first..first + n {
                self.want.insert(s, result.is_ok().then_some(byte));
            }
            for b in first / 8..=(first + n - 1) / 8 {
                self.busy.remove(&b);
            }
            self.log.push(format!("{} write {id} {}", self.h.now, result.is_ok()));
        }
        for (id, result) in std::mem::take(&mut self.h.controlled) {
            self.log.push(format!("{} control {id} {result:?}", self.h.now));
            if let Some(then) = self.flushes.remove(&id) {
                if result.is_ok() {
                    self.same(&then, "an Ok flush");
                }
            } else if let Some((f, answered, then)) = self.freeze.take()
                && f == id
                && result.is_ok()
            {
                assert!(!answered);
                for (s, b) in &then {
                    let b = b.unwrap_or(self.on_disk(*s));
                    assert_eq!(self.on_disk(*s), b, "frozen sector {s}\n{}", self.log.join("\n"));
                }
                self.freeze = Some((f, true, then));
            }
        }
        if let Some((_, true, then)) = &self.freeze {
            for (s, b) in then {
                let b = b.unwrap_or(self.on_disk(*s));
                assert_eq!(self.on_disk(*s), b, "frozen sector {s} later");
            }
        }
    }

    /// The core has every block that has not changed since `then`.
    fn same(&self, then: &BTreeMap<u64, Option<u8>>, what: &str) {
        for (s, b) in then {
            if self.want.get(s) == Some(b)
                && !self.busy.contains(&(s / 8))
                && let Some(b) = b
            {
                assert_eq!(self.on_disk(*s), *b, "{what}: sector {s}\n{}", self.log.join("\n"));
            }
        }
    }

    fn write(&mut self) {
        let w = self.rnd(WINDOWS) * 256 + 512;
        let (first, n) = match self.rnd(6) {
            0 => ((w + self.rnd(40)) * 8 + self.rnd(8), 1),
            1 => ((w + self.rnd(40)) * 8, (1 + self.rnd(60)) * 8),
            _ => ((w + self.rnd(40)) * 8, 8),
        };
        let blocks: Vec<u64> = (first / 8..=(first + n - 1) / 8).collect();
        if blocks.iter().any(|b| self.busy.contains(b)) {
            return;
        }
        let byte = if self.rnd(12) == 0 { 0 } else { self.rnd(255) as u8 + 1 };
        self.busy.extend(&blocks);
        // A block that is written in part meanwhile is another version.
        for then in self.flushes.values_mut() {
            then.retain(|s, _| !blocks.contains(&(s / 8)));
        }
        let kind = match byte {
            0 => ReqKind::WriteZeroes { unmap: false },
            _ => ReqKind::Write(Buf::copy_of(&vec![byte; n as usize * 512]).freeze()),
        };
        // Answers come only later, by `look`.
        let id = self.h.asked + 1;
        self.out.insert(id, (first, n, byte));
        self.note(format!("write {id} of {byte} at {first} + {n}"));
        self.h.submit(kind, first * 512, n * 512);
        self.look();
    }

    fn settle(&mut self, nanos: u64) {
        let end = self.h.now + nanos;
        while self.h.now < end {
            while !self.h.pending.is_empty() {
                self.h.now += 1000;
                let i = self.rnd(self.h.pending.len() as u64) as usize;
                self.one(i);
            }
            let next = self
                .h
                .shard
                .next_deadline(self.h.now)
                .unwrap_or(end)
                .clamp(self.h.now + 1, end.max(self.h.now + 1));
            let by = next - self.h.now;
            self.h.tick(by);
            self.look();
        }
    }

    fn step(&mut self) {
        match self.rnd(100) {
            0..=24 => self.write(),
            25..=79 => {
                if !self.h.pending.is_empty() {
                    self.h.now += 1000;
                    let i = self.rnd(self.h.pending.len() as u64) as usize;
                    self.one(i);
                }
            }
            80..=86 => {
                let by = [1_000_000, 100_000_000, SECOND, 31 * SECOND][self.rnd(4) as usize];
                self.h.tick(by);
                self.look();
            }
            87..=89 => {
                let w = self.rnd(WINDOWS) * 256 + 512;
                let (at, n) = ((w + self.rnd(40)) * 8, [1, 8, 40, 200, 2000][self.rnd(5) as usize]);
                self.bad.extend(at..at + n);
                self.note(format!("bad {at} + {n}"));
            }
            90..=92 => {
                self.bad.clear();
                self.note("well".to_owned());
            }
            93..=95 => {
                let busy = &self.busy;
                let then = self
                    .want
                    .iter()
                    .filter(|(s, _)| !busy.contains(&(**s / 8)))
                    .map(|(s, b)| (*s, *b))
                    .collect();
                let id = self.h.asked + 1;
                self.note(format!("flush {id}"));
                self.flushes.insert(id, then);
                self.h.control(Control::FlushDirty);
                self.look();
            }
            96 => {
                if self.out.is_empty() && self.freeze.is_none() {
                    let id = self.h.asked + 1;
                    self.note(format!("freeze {id}"));
                    self.freeze = Some((id, false, self.want.clone()));
                    self.h.control(Control::Freeze);
                    self.look();
                } else if let Some((_, _, _)) = self.freeze.take() {
                    self.note("thaw".to_owned());
                    self.h.control(Control::Thaw);
                    self.look();
                }
            }
            97 => {
                let mode = [Mode::Wb, Mode::Wb, Mode::Wt, Mode::Wi][self.rnd(4) as usize];
                self.note(format!("{mode}"));
                self.h.control(Control::SetMode(mode));
                self.look();
            }
            _ => self.settle(SECOND),
        }
    }
}

fn run(seed: u64) {
    let devices = Devices {
        core_volatile: seed.is_multiple_of(2),
        core_groups: seed.is_multiple_of(3),
        ..Hand::DEVICES
    };
    let mut r = Run {
        h: Hand::with(devices),
        x: 88_172_645_463_325_252 ^ (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15),
        bad: BTreeSet::new(),
        want: BTreeMap::new(),
        out: BTreeMap::new(),
        busy: BTreeSet::new(),
        flushes: BTreeMap::new(),
        freeze: None,
        log: Vec::new(),
    };
    for _ in 0..1500 {
        r.step();
    }
    let told = |r: &Run| {
        format!(
            "seed {seed}: {:?}\n{}",
            r.h.shard.core_refuses(),
            r.log[r.log.len().saturating_sub(60)..].join("\n")
        )
    };
    // With what is bad still bad, everybody is answered.
    r.freeze = None;
    r.h.control(Control::Thaw);
    r.look();
    r.settle(400 * SECOND);
    assert!(r.flushes.is_empty(), "a flush does not end: {}", told(&r));
    assert!(r.out.is_empty(), "writes do not end: {}", told(&r));
    r.bad.clear();
    r.settle(65 * SECOND);
    let id = r.h.asked + 1;
    r.flushes.insert(id, r.want.clone());
    r.h.control(Control::FlushDirty);
    r.look();
    r.settle(5 * SECOND);
    assert!(r.flushes.is_empty(), "the last flush does not end: {}", told(&r));
    assert_eq!(
        (r.h.shard.dirty_blocks(), r.h.shard.stats().refused_blocks, r.h.shard.core_refuses()),
        (0, 0, None),
        "{}",
        told(&r)
    );
    r.same(&r.want.clone(), "the end");
}

#[test]
fn whatever_is_refused_what_is_clean_is_in_the_core() {
    for seed in 0..SEEDS {
        run(seed);
    }
}
