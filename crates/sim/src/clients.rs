//! The clients of a run: what they ask next, and what their requests mean to the oracle.

use crate::config::{Config, Load};
use crate::disk::Nanos;
use crate::marks::Marks;
use crate::oracle::{Change, Oracle, Ticket};
use crate::rng::Rng;
use crate::stamp::{self, Content, WriteId};
use loligo_block::{Answer, Buf, Extent, ReqError, ReqId, ReqKind, Request, Segments};
use std::collections::BTreeMap;
use std::ops::Range;

/// Content ids below this one are set aside for what the core held before.
pub const FIRST_WRITE: WriteId = 2;

#[derive(Debug)]
enum Sense {
    Read,
    Change { fua: bool },
    Flush,
    Status,
}

/// A request under way.
#[derive(Debug)]
pub struct Asked {
    /// First sector.
    pub first: u32,
    /// Sectors.
    pub count: u32,
    /// The ticket that the oracle knows it by.
    pub ticket: Ticket,
    sense: Sense,
    since: Nanos,
}

impl Asked {
    /// True if it reads.
    pub fn is_read(&self) -> bool {
        matches!(self.sense, Sense::Read)
    }

    /// The time at which it was asked for.
    pub fn since(&self) -> Nanos {
        self.since
    }

    /// Shows the outcome to the oracle.
    ///
    /// # Errors
    /// If something is so that may not be.
    pub fn settle(
        self,
        oracle: &mut Oracle,
        result: Result<Answer, ReqError>,
        marks: &mut Marks,
    ) -> Result<(), String> {
        let Asked { first, count, sense, ticket, .. } = self;
        let wrong =
            |v: crate::oracle::Violation| format!("sector {} read as {}: {}", v.sector, v.got, v.history);
        match (sense, result) {
            (Sense::Read | Sense::Status, Err(_)) => oracle.end_read_failed(ticket),
            (Sense::Change { .. }, Err(_)) => oracle.end_change(ticket, false, false),
            (Sense::Flush, Err(_)) => {}
            (Sense::Read, Ok(Answer::Data(segments))) => {
                let flat = contents(&segments);
                if flat.len() != count as usize {
                    return Err(format!(
                        "a read of {count} sectors at {first} came back with {}",
                        flat.len()
                    ));
                }
                marks.add("sectors read", u64::from(count));
                if let Some(v) = oracle.end_read(ticket, |i| Some(flat[i as usize])) {
                    return Err(wrong(v));
                }
            }
            (Sense::Status, Ok(Answer::Extents(extents))) => {
                let flat = zeros(&extents);
                if flat.len() != count as usize {
                    return Err(format!("a status of {count} sectors at {first} told of {}", flat.len()));
                }
                marks.hit("status");
                if let Some(v) = oracle.end_read(ticket, |i| flat[i as usize].then_some(Content::Zero)) {
                    return Err(format!("by block status, {}", wrong(v)));
                }
            }
            (Sense::Change { fua }, Ok(Answer::Done)) => {
                marks.add("sectors changed", u64::from(count));
                oracle.end_change(ticket, true, fua);
            }
            (Sense::Flush, Ok(Answer::Done)) => {
                marks.hit("flushes");
                oracle.end_flush(ticket);
            }
            (sense, Ok(answer)) => return Err(format!("{sense:?} was answered with {answer:?}")),
        }
        Ok(())
    }
}

fn contents(segments: &Segments) -> Vec<Content> {
    let mut flat = Vec::new();
    let mut carry: Vec<u8> = Vec::new();
    for s in segments {
        let mut rest: &[u8] = s;
        if !carry.is_empty() {
            let n = (stamp::SECTOR - carry.len()).min(rest.len());
            carry.extend_from_slice(&rest[..n]);
            rest = &rest[n..];
            if carry.len() == stamp::SECTOR {
                flat.push(stamp::read(&carry));
                carry.clear();
            }
        }
        let sectors = rest.chunks_exact(stamp::SECTOR);
        carry.extend_from_slice(sectors.remainder());
        flat.extend(sectors.map(stamp::read));
    }
    flat
}

fn zeros(extents: &[Extent]) -> Vec<bool> {
    extents.iter().flat_map(|e| std::iter::repeat_n(e.zero, (e.len / 512) as usize)).collect()
}

/// The clients that ask, and what is under way.
#[derive(Debug)]
pub struct Clients {
    load: Load,
    rng: Rng,
    /// Sectors of the volume.
    size: u64,
    /// Sectors a request is a multiple of.
    align: u64,
    hot: Vec<u64>,
    streams: [u64; 3],
    /// The range in which the hot blocks of a cold volume wander, in sectors; empty: they do not.
    cold: Range<u64>,
    next_write: WriteId,
    next: ReqId,
    under_way: BTreeMap<ReqId, Asked>,
}

impl Clients {
    /// The clients of `cfg`.
    pub fn new(cfg: &Config, mut rng: Rng) -> Clients {
        let mut c = Clients {
            load: cfg.load.clone(),
            size: cfg.core.size / 512,
            align: u64::from(cfg.core.logical_block) / 512,
            hot: Vec::new(),
            streams: [0; 3],
            cold: 0..0,
            next_write: FIRST_WRITE,
            next: 1,
            under_way: BTreeMap::new(),
            rng: rng.fork(),
        };
        c.hot = (0..c.load.spots).map(|_| c.rng.below(c.size)).collect();
        c
    }

    /// The volume has this many bytes.
    pub fn resize(&mut self, bytes: u64) {
        self.size = bytes / 512 / self.align * self.align;
    }

    /// Sectors of the volume.
    pub fn sectors(&self) -> u64 {
        self.size
    }

    /// Sectors that every request is a multiple of.
    pub fn align(&self) -> u64 {
        self.align
    }

    /// Keeps requests within the first `sectors`, until [`Clients::resize`].
    pub fn focus(&mut self, sectors: u64) {
        self.size = self.size.min(sectors / self.align * self.align).max(self.align);
    }

    /// From now on requests are for a few hot blocks that wander over `cold`, in sectors.
    pub fn wander(&mut self, cold: Range<u64>) {
        self.cold = cold;
        self.hot = (0..self.load.spots).map(|_| self.rng.range(self.cold.clone())).collect();
    }

    /// A name not used before.
    pub fn next_id(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Requests under way.
    pub fn under_way(&self) -> usize {
        self.under_way.len()
    }

    /// True if more requests may be put under way.
    pub fn has_room(&self) -> bool {
        self.under_way.len() < self.load.depth
    }

    /// The request under way that has waited longest, and since when.
    pub fn oldest(&self) -> Option<(ReqId, Nanos)> {
        self.under_way.iter().next().map(|(id, a)| (*id, a.since))
    }

    /// Takes an answered request off the list.
    pub fn take(&mut self, id: ReqId) -> Option<Asked> {
        self.under_way.remove(&id)
    }

    /// The reads under way: their names, first sectors and sectors.
    pub fn reads(&self) -> impl Iterator<Item = (ReqId, u32, u32)> {
        self.under_way.iter().filter(|(_, a)| a.is_read()).map(|(id, a)| (*id, a.first, a.count))
    }

    /// First sectors and sectors of what is under way and changes something.
    pub fn changes(&self) -> impl Iterator<Item = (u32, u32)> {
        let changes = |a: &&Asked| matches!(a.sense, Sense::Change { .. });
        self.under_way.values().filter(changes).map(|a| (a.first, a.count))
    }

    /// The process died: nothing will be answered.
    pub fn forget(&mut self) {
        self.under_way.clear();
    }

    /// The time until the next request, ns.
    pub fn pause(&mut self) -> Nanos {
        if self.load.pause_one_in > 0 && self.rng.chance(1, self.load.pause_one_in) {
            self.rng.below(4_000_000_000)
        } else {
            self.rng.below(2 * self.load.think)
        }
    }

    /// True if it is time for a management request.
    pub fn wants_control(&mut self) -> bool {
        self.rng.chance(1, self.load.control_one_in)
    }

    fn length(&mut self) -> u64 {
        let n = match self.rng.below(4) {
            0 => 8,
            1 => 8 * self.rng.range(1..5),
            _ => self.rng.skewed(1..self.load.largest + 1),
        };
        n.next_multiple_of(self.align).min(self.size)
    }

    /// One of the hot blocks, after one of them may have cooled down for good.
    fn place_in_cold(&mut self) -> (u64, u64) {
        let i = self.rng.below(self.hot.len() as u64) as usize;
        if self.rng.chance(1, self.load.cools_one_in) {
            self.hot[i] = self.rng.range(self.cold.clone());
        }
        (self.hot[i] / 8 * 8, 8)
    }

    fn place(&mut self) -> (u64, u64) {
        if !self.cold.is_empty() {
            return self.place_in_cold();
        }
        let len = self.length();
        let at = if self.rng.chance(self.load.streams, 100) {
            let i = self.rng.below(3) as usize;
            if self.streams[i] + len > self.size || self.rng.chance(1, 30) {
                self.streams[i] = self.rng.below(self.size);
            }
            let at = self.streams[i];
            self.streams[i] = at + len;
            at
        } else if self.rng.chance(self.load.hot, 100) {
            let i = self.rng.below(self.hot.len() as u64) as usize;
            self.hot[i] % self.size + self.rng.below(self.load.hot_span / 512)
        } else {
            self.rng.below(self.size)
        };
        let mut at = at.min(self.size - len) / self.align * self.align;
        if self.rng.chance(1, 2) && !at.is_multiple_of(8) && at / 8 * 8 + len <= self.size {
            at = at / 8 * 8;
        }
        (at, len)
    }

    /// A sector that requests go to, by somebody else's chance.
    pub fn some_place(&self, rng: &mut Rng) -> u32 {
        let hot = rng.pick(&self.hot) % self.size + rng.below(self.load.hot_span / 512);
        let at = if rng.chance(self.load.hot, 100) { hot } else { rng.below(self.size) };
        at.min(self.size - 1) as u32
    }

    /// The next request of the workload, already known to the oracle.
    pub fn draw(&mut self, now: Nanos, oracle: &mut Oracle) -> Request {
        if self.load.flush_one_in > 0 && self.rng.chance(1, self.load.flush_one_in) {
            return self.flush(now, oracle);
        }
        let (at, len) = self.place();
        if self.rng.chance(self.load.reads, 100) {
            return if self.rng.chance(1, 40) {
                self.status(now, oracle, at, len)
            } else {
                self.read(now, oracle, at, len)
            };
        }
        let fua = self.rng.chance(self.load.fua, 100);
        let change = if self.rng.chance(self.load.holes, 100) {
            self.rng.pick(&[Change::Discard, Change::Zeroes, Change::Zeroes])
        } else {
            self.next_write += 1;
            Change::Write(self.next_write)
        };
        self.change(now, oracle, at, len, change, fua)
    }

    fn change(
        &mut self,
        now: Nanos,
        oracle: &mut Oracle,
        at: u64,
        len: u64,
        change: Change,
        fua: bool,
    ) -> Request {
        let ticket = oracle.begin_change(at as u32, len as u32, change);
        let kind = match change {
            Change::Write(id) => {
                let mut data = Buf::alloc((len * 512) as usize);
                for (i, s) in data.chunks_exact_mut(stamp::SECTOR).enumerate() {
                    stamp::fill(s, id, at as u32 + i as u32);
                }
                ReqKind::Write(data.freeze())
            }
            Change::Zeroes => ReqKind::WriteZeroes { unmap: self.rng.chance(1, 2) },
            Change::Discard => ReqKind::Discard,
        };
        self.request(now, at, len, kind, fua, Sense::Change { fua }, ticket)
    }

    /// The next request of a sequential write that fills a cache.
    pub fn draw_fill(&mut self, now: Nanos, oracle: &mut Oracle) -> Request {
        let len = 512.min(self.size);
        if self.streams[0] + len > self.size {
            self.streams[0] = 0;
        }
        let at = self.streams[0];
        self.streams[0] = at + len;
        self.next_write += 1;
        let change = Change::Write(self.next_write);
        self.change(now, oracle, at, len, change, false)
    }

    /// Zeroes for `len` sectors at `at`.
    pub fn clear(&mut self, now: Nanos, oracle: &mut Oracle, at: u64, len: u64) -> Request {
        self.change(now, oracle, at, len, Change::Zeroes, false)
    }

    /// A read of `len` sectors at `at`.
    pub fn read(&mut self, now: Nanos, oracle: &mut Oracle, at: u64, len: u64) -> Request {
        let ticket = oracle.begin_read(at as u32, len as u32);
        self.request(now, at, len, ReqKind::Read, false, Sense::Read, ticket)
    }

    fn status(&mut self, now: Nanos, oracle: &mut Oracle, at: u64, len: u64) -> Request {
        let ticket = oracle.begin_read(at as u32, len as u32);
        self.request(now, at, len, ReqKind::Status, false, Sense::Status, ticket)
    }

    /// A flush.
    pub fn flush(&mut self, now: Nanos, oracle: &mut Oracle) -> Request {
        let ticket = oracle.begin_flush();
        self.request(now, 0, 0, ReqKind::Flush, false, Sense::Flush, ticket)
    }

    #[expect(clippy::too_many_arguments, reason = "one place that builds every request")]
    fn request(
        &mut self,
        now: Nanos,
        at: u64,
        len: u64,
        kind: ReqKind,
        fua: bool,
        sense: Sense,
        ticket: Ticket,
    ) -> Request {
        let id = self.next_id();
        self.under_way.insert(id, Asked { first: at as u32, count: len as u32, sense, ticket, since: now });
        Request { id, kind, offset: at * 512, len: len * 512, fua }
    }
}
