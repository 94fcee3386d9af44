//! A virtual block device in sectors of 512 B: what is on the medium, what was completed but not flushed, and what is
//! in flight. Time and chance come from outside; a crash keeps an arbitrary subset of what was not yet durable.

mod at_once;
mod bad;
mod crash;
mod forget;
mod loss;
mod worn;

use crate::faults::{Fault, FaultKind, Fired, is_stamped};
use crate::rng::Rng;
use crate::store::Store;
use loligo_block::{Completion, IoError, IoKind, Op, OpKind, SECTOR, Shared};
use loss::Subset;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

/// Virtual nanoseconds.
pub type Nanos = u64;

/// The time that operations take.
#[derive(Debug, Clone, Copy)]
pub struct Latency {
    /// Least time of an operation, ns.
    pub base: Nanos,
    /// Up to this much more, ns, drawn for each operation: what puts completions out of order.
    pub spread: Nanos,
    /// Transfer time, ns per KiB; transfers of one device follow each other.
    pub per_kib: Nanos,
    /// One operation in this many takes twenty times as long (0: none).
    pub stall_one_in: u64,
}

/// The kind of device that it is.
#[derive(Debug, Clone, Copy)]
pub struct Traits {
    /// Bytes.
    pub size: u64,
    /// Every offset and length is a multiple of this, bytes.
    pub logical_block: u32,
    /// Completed writes are lost at power loss until a flush.
    pub volatile: bool,
    /// Discarded ranges read as zeros (otherwise: zeros or what was there, by chance).
    pub can_unmap: bool,
    /// A flush that fails is told once to each owner, and what it should have made durable counts as flushed from then on.
    pub forgets: bool,
    /// The time that operations take.
    pub latency: Latency,
}

/// The end of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crash {
    /// The devices lose power with it.
    Power,
    /// The devices stay up and keep what was completed, in their volatile caches too.
    Kill,
}

#[derive(Debug, Clone)]
enum Payload {
    Bytes(Shared),
    Zero,
}

/// A completed change that a power loss may still undo.
#[derive(Debug)]
struct Pending {
    seq: u64,
    from: u64,
    sector: u64,
    sectors: u64,
    payload: Payload,
    durable: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Fine,
    Fault(FaultKind, u64),
}

#[derive(Debug)]
struct Flight {
    /// The group of writes that it is a piece of.
    group: Option<u64>,
    key: u64,
    due: Nanos,
    owner: usize,
    op: Op,
    /// Sectors that took effect already, because an overlapping operation ended first.
    early: Vec<bool>,
    captured: u64,
    fate: Fate,
}

impl Flight {
    fn payload(&self) -> Option<Payload> {
        match &self.op.kind {
            OpKind::Write { data, .. } => Some(Payload::Bytes(data.clone())),
            OpKind::Discard { .. } | OpKind::WriteZeroes { .. } => Some(Payload::Zero),
            OpKind::Read(_) | OpKind::Flush => None,
            OpKind::WriteMany(_) => unreachable!("{GROUP}"),
        }
    }

    fn sectors(&self) -> (u64, u64) {
        (self.op.offset / SECTOR, self.op.len() / SECTOR)
    }
}

/// A group of writes in flight: each piece goes its own way, the last one to end completes it.
#[derive(Debug)]
struct Group {
    tag: u64,
    left: usize,
    result: Result<(), IoError>,
}

const GROUP: &str = "a group is in flight piece by piece";

/// The device.
#[derive(Debug)]
pub struct Disk {
    traits: Traits,
    /// The ranges that were given away.
    others: Vec<Range<u64>>,
    /// The data that reads see.
    live: Store,
    /// The data that survives power loss; only kept apart from `live` for a volatile device.
    media: Option<Store>,
    log: VecDeque<Pending>,
    next_seq: u64,
    flight: Vec<Flight>,
    groups: BTreeMap<u64, Group>,
    next_key: u64,
    bus_free: Nanos,
    rng: Rng,
    faults: Vec<Fault>,
    fired: Vec<Fired>,
    gone: bool,
    fenced: bool,
    /// Sectors that cannot be read until they are written.
    bad: BTreeSet<u64>,
    worn: worn::WornOut,
    forgotten: forget::Forgotten,
    /// Operations completed.
    pub completed: u64,
}

impl Disk {
    /// A device of zeros.
    pub fn new(traits: Traits, rng: Rng) -> Disk {
        let live = Store::new(traits.size);
        Disk {
            traits,
            others: Vec::new(),
            media: traits.volatile.then(|| live.clone()),
            live,
            log: VecDeque::new(),
            next_seq: 1,
            flight: Vec::new(),
            groups: BTreeMap::new(),
            next_key: 0,
            bus_free: 0,
            rng,
            faults: Vec::new(),
            fired: Vec::new(),
            gone: false,
            fenced: false,
            bad: BTreeSet::new(),
            worn: worn::WornOut::default(),
            forgotten: forget::Forgotten::default(),
            completed: 0,
        }
    }

    /// The kind of device that it is.
    pub fn traits(&self) -> &Traits {
        &self.traits
    }

    /// Puts content on the medium before anything runs.
    pub fn preset(&mut self, offset: u64, data: &[u8]) {
        self.live.write(offset, data);
        if let Some(m) = &mut self.media {
            m.write(offset, data);
        }
    }

    /// These ranges are somebody else's from now on, who has written there. Others that were are this device's again.
    pub fn give_away(&mut self, ranges: Vec<Range<u64>>) {
        let mut garbage = [0; SECTOR as usize];
        for range in &ranges {
            for at in (range.start..range.end).step_by(4096) {
                if self.others.iter().any(|g| g.contains(&at)) {
                    continue;
                }
                garbage.chunks_exact_mut(8).for_each(|c| c.copy_from_slice(&self.rng.draw().to_le_bytes()));
                self.preset(at, &garbage);
            }
        }
        self.others = ranges;
    }

    /// Copies the data that a read would see, without an operation.
    pub fn peek(&self, offset: u64, out: &mut [u8]) {
        self.live.read(offset, out);
    }

    /// Inverts a bit on the medium and in what reads see.
    pub fn rot(&mut self, offset: u64, bit: u32) {
        self.live.flip(offset, bit);
        if let Some(m) = &mut self.media {
            m.flip(offset, bit);
        }
    }

    /// Arms a fault.
    pub fn arm(&mut self, fault: Fault) {
        self.faults.push(fault);
    }

    /// Disarms every fault, and brings a device that was gone back.
    pub fn heal(&mut self) {
        self.faults.clear();
        (self.gone, self.fenced) = (false, false);
    }

    /// Another controller has it from now on: changes and flushes are refused, and of those in flight each may be.
    pub fn fence(&mut self) {
        self.fenced = true;
        for f in &mut self.flight {
            let changes = f.op.changes_data() || f.op.is_empty();
            // What the array carries out in part it carries out before it answers the partner.
            if changes && f.fate == Fate::Fine && f.early.iter().all(|e| !e) && self.rng.chance(1, 2) {
                f.fate = Fate::Fault(FaultKind::Fenced, 0);
            }
        }
    }

    /// The faults that have fired since this was last asked.
    pub fn fired(&mut self) -> Vec<Fired> {
        std::mem::take(&mut self.fired)
    }

    /// Operations in flight.
    pub fn in_flight(&self) -> usize {
        self.flight.len()
    }

    /// True if anything of `owner`'s is in flight.
    pub fn is_busy_for(&self, owner: usize) -> bool {
        self.flight.iter().any(|f| f.owner == owner)
    }

    /// True if anything in flight will change it.
    pub fn is_changing(&self) -> bool {
        self.flight.iter().any(|f| f.op.changes_data())
    }

    /// True if anything completed would be lost without a flush.
    pub fn unflushed(&self) -> bool {
        self.log.iter().any(|p| !p.durable)
    }

    /// The reason why `op` is not one that this device can be given, if it is not.
    pub fn refuses(&self, op: &Op) -> Option<String> {
        let lb = u64::from(self.traits.logical_block);
        if let OpKind::WriteMany(pieces) = &op.kind {
            let starts = pieces.first().is_some_and(|p| p.0 == op.offset);
            let ordered = pieces.windows(2).all(|p| p[0].0 + p[0].1.len() as u64 <= p[1].0);
            if !starts || !ordered {
                return Some(format!("a group of {} writes at {} out of order", pieces.len(), op.offset));
            }
            let piece = |(offset, data): &(u64, Shared)| Op {
                tag: op.tag,
                offset: *offset,
                kind: OpKind::Write { data: data.clone(), fua: false },
            };
            return pieces.iter().find_map(|p| self.refuses(&piece(p)));
        }
        let flush = matches!(op.kind, OpKind::Flush);
        let bad = !flush && (op.is_empty() || !op.offset.is_multiple_of(lb) || !op.len().is_multiple_of(lb));
        if let Some(range) = self.others.iter().find(|r| op.touches(r)) {
            return Some(format!(
                "{} bytes at {}, of which {range:?} is somebody else's",
                op.len(),
                op.offset
            ));
        }
        let past = !flush && op.offset.checked_add(op.len()).is_none_or(|end| end > self.traits.size);
        (bad || past).then(|| {
            format!(
                "{} bytes at {} on a device of {} in blocks of {lb}",
                op.len(),
                op.offset,
                self.traits.size
            )
        })
    }

    /// Takes `op` for `owner`; it completes later.
    pub fn submit(&mut self, now: Nanos, owner: usize, op: Op) {
        let Op { tag, kind: OpKind::WriteMany(pieces), .. } = op else {
            return self.put_in_flight(now, owner, op, None);
        };
        let group = self.next_key;
        self.groups.insert(group, Group { tag, left: pieces.len(), result: Ok(()) });
        for (offset, data) in pieces {
            let kind = OpKind::Write { data, fua: false };
            self.put_in_flight(now, owner, Op { tag, offset, kind }, Some(group));
        }
    }

    fn put_in_flight(&mut self, now: Nanos, owner: usize, op: Op, group: Option<u64>) {
        self.check_flushes(owner, &op);
        let l = self.traits.latency;
        let mut took = l.base + self.rng.below(l.spread + 1);
        if l.stall_one_in > 0 && self.rng.chance(1, l.stall_one_in) {
            took *= 20;
        }
        let transfer = op.len() / 1024 * l.per_kib;
        self.bus_free = self.bus_free.max(now) + transfer;
        let due = self.bus_free.max(now + transfer) + took;
        let fate = self.fate(&op);
        let key = self.next_key;
        self.next_key += 1;
        let captured = self.next_seq;
        self.flight.push(Flight { group, key, due, owner, op, early: Vec::new(), captured, fate });
    }

    fn fate(&mut self, op: &Op) -> Fate {
        if self.gone {
            return Fate::Fault(FaultKind::Gone, 0);
        }
        if self.fenced && (op.changes_data() || op.is_empty()) {
            return Fate::Fault(FaultKind::Fenced, 0);
        }
        let Some(at) = self.faults.iter_mut().position(|f| f.hits(op)) else { return Fate::Fine };
        let fault = self.faults.swap_remove(at);
        self.gone |= fault.kind == FaultKind::Gone;
        let blocks = (fault.range.end - fault.range.start).saturating_sub(op.len()) / 4096;
        let to = fault.range.start + self.rng.below(blocks.max(1)) * 4096;
        Fate::Fault(fault.kind, to)
    }

    /// The time at which the next operation completes.
    pub fn next_due(&self) -> Option<Nanos> {
        self.flight.iter().map(|f| f.due).min()
    }

    /// Completes the operation that is due first, if it is due by `now`; gives its owner with it.
    pub fn complete(&mut self, now: Nanos) -> Option<(usize, Completion)> {
        loop {
            let (owner, group, completion) = self.end_one(now)?;
            let Some(key) = group else { return Some((owner, completion)) };
            let g = self.groups.get_mut(&key).expect("its pieces are in flight");
            g.left -= 1;
            if completion.result.is_err() {
                g.result = completion.result;
            }
            if g.left == 0
                && let Some(Group { tag, result, .. }) = self.groups.remove(&key)
            {
                return Some((owner, Completion { tag, buf: None, result }));
            }
        }
    }

    fn end_one(&mut self, now: Nanos) -> Option<(usize, Option<u64>, Completion)> {
        self.renew_due(now);
        let at = self
            .flight
            .iter()
            .enumerate()
            .filter(|(_, f)| f.due <= now)
            .min_by_key(|(_, f)| (f.due, f.key))?
            .0;
        let f = self.flight.remove(at);
        self.completed += 1;
        self.mix_overlaps(&f);
        let result = self.effect(&f);
        let result = self.flushed(&f, result);
        let Flight { owner, op, group, .. } = f;
        let buf = match op.kind {
            OpKind::Read(mut b) => {
                if result.is_ok() {
                    self.live.read(op.offset, &mut b);
                }
                Some(b)
            }
            _ => None,
        };
        Some((owner, group, Completion { tag: op.tag, buf, result }))
    }

    /// Lets some sectors of writes in flight that overlap `f` take effect before it.
    fn mix_overlaps(&mut self, f: &Flight) {
        let (first, count) = f.sectors();
        if count == 0 {
            return;
        }
        for i in 0..self.flight.len() {
            let (of, on) = self.flight[i].sectors();
            let (lo, hi) = (first.max(of), (first + count).min(of + on));
            if lo >= hi || !self.flight[i].op.changes_data() || self.flight[i].fate != Fate::Fine {
                continue;
            }
            let Some(payload) = self.flight[i].payload() else { continue };
            let key = self.flight[i].key;
            self.flight[i].early.resize(on as usize, false);
            for s in lo..hi {
                let late = !self.flight[i].early[(s - of) as usize];
                if late && self.rng.chance(1, 2) && !self.any_worn(s, 1) {
                    self.flight[i].early[(s - of) as usize] = true;
                    self.apply(key, s, 1, slice(&payload, s - of, 1), false);
                }
            }
        }
    }

    /// Carries out the effect of the end of `f`.
    fn effect(&mut self, f: &Flight) -> Result<(), IoError> {
        let (first, count) = f.sectors();
        let failed =
            |kind, what: &str| Err(IoError::new(kind, format!("injected: {what} at {}", f.op.offset)));
        let at = match self.fire(f) {
            Fate::Fine => first,
            Fate::Fault(FaultKind::Gone, _) => return failed(IoKind::Gone, "device gone"),
            Fate::Fault(FaultKind::Fenced, _) => return failed(IoKind::Fenced, "reservation conflict"),
            Fate::Fault(FaultKind::Lost, _) => return Ok(()),
            Fate::Fault(FaultKind::Misdirected, to) => to / SECTOR,
            Fate::Fault(kind, _) => {
                if let Some(p) = f.payload() {
                    self.apply_some(f, &p);
                }
                return if kind == FaultKind::Torn { Ok(()) } else { failed(IoKind::Io, "error") };
            }
        };
        match &f.op.kind {
            OpKind::Flush => self.harden(f.captured),
            OpKind::Read(_) if self.any_bad(first, count) => return failed(IoKind::Io, "bad sector"),
            OpKind::Read(_) => {}
            OpKind::WriteMany(_) => unreachable!("{GROUP}"),
            _ if f.op.changes_data() && self.any_worn(first, count) => {
                let Some(payload) = f.payload() else { return Ok(()) };
                self.apply_some(f, &payload);
                self.spoil_worn(first, count);
                return failed(IoKind::Io, "worn sector");
            }
            OpKind::Discard { .. } if !self.traits.can_unmap => self.apply_some(f, &Payload::Zero),
            OpKind::Discard { .. } | OpKind::WriteZeroes { .. } | OpKind::Write { .. } => {
                let fua = matches!(f.op.kind, OpKind::Write { fua: true, .. });
                let Some(payload) = f.payload() else { return Ok(()) };
                if fua {
                    self.log.iter_mut().filter(|p| p.from == f.key).for_each(|p| p.durable = true);
                }
                let mut s = 0;
                while s < count {
                    let late = |s: u64| f.early.get(s as usize).is_none_or(|e| !e);
                    let run = (s..count).take_while(|s| late(*s)).count() as u64;
                    if run > 0 {
                        self.apply(f.key, at + s, run, slice(&payload, s, run), fua);
                    }
                    s += run.max(1);
                }
            }
        }
        Ok(())
    }

    /// Reports the fault of `f`, if it has one. A misdirected write that would destroy what cannot be told is lost.
    fn fire(&mut self, f: &Flight) -> Fate {
        let Fate::Fault(mut kind, to) = f.fate else { return f.fate };
        let data = match &f.op.kind {
            OpKind::Write { data, .. } => Some(data.clone()),
            _ => None,
        };
        let mut destroyed = Vec::new();
        if kind == FaultKind::Misdirected {
            destroyed.resize(f.op.len() as usize, 0);
            self.live.read(to, &mut destroyed);
            if !is_stamped(&destroyed) {
                kind = FaultKind::Lost;
                destroyed.clear();
            }
        }
        self.fired.push(Fired { kind, offset: f.op.offset, data, destroyed });
        Fate::Fault(kind, to)
    }

    fn apply_some(&mut self, f: &Flight, payload: &Payload) {
        let (first, count) = f.sectors();
        let keep = Subset::draw(&mut self.rng, count);
        for s in 0..count {
            if keep.holds(&mut self.rng, s) && !self.any_worn(first + s, 1) {
                self.apply(f.key, first + s, 1, slice(payload, s, 1), false);
            }
        }
    }

    fn apply(&mut self, from: u64, sector: u64, sectors: u64, payload: Payload, durable: bool) {
        put(&mut self.live, sector, sectors, &payload);
        self.written(sector, sectors);
        if self.media.is_some() {
            self.log.push_back(Pending { seq: self.next_seq, from, sector, sectors, payload, durable });
            self.next_seq += 1;
        }
    }

    /// Everything completed before `captured` reaches the medium.
    fn harden(&mut self, captured: u64) {
        let Some(media) = &mut self.media else { return };
        while let Some(p) = self.log.front().filter(|p| p.seq < captured) {
            put(media, p.sector, p.sectors, &p.payload);
            self.log.pop_front();
        }
    }
}

fn put(store: &mut Store, sector: u64, sectors: u64, payload: &Payload) {
    match payload {
        Payload::Bytes(b) => store.write(sector * SECTOR, b),
        Payload::Zero => store.zero(sector * SECTOR, sectors * SECTOR),
    }
}

fn slice(payload: &Payload, sector: u64, sectors: u64) -> Payload {
    match payload {
        Payload::Bytes(b) => {
            Payload::Bytes(b.slice((sector * SECTOR) as usize..((sector + sectors) * SECTOR) as usize))
        }
        Payload::Zero => Payload::Zero,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loligo_block::Buf;

    const T: Traits = Traits {
        size: 1 << 20,
        logical_block: 512,
        volatile: true,
        can_unmap: true,
        forgets: false,
        latency: Latency { base: 10, spread: 1000, per_kib: 1, stall_one_in: 50 },
    };

    fn write(tag: u64, offset: u64, byte: u8, sectors: usize, fua: bool) -> Op {
        Op {
            tag,
            offset,
            kind: OpKind::Write { data: Buf::copy_of(&vec![byte; sectors * 512]).freeze(), fua },
        }
    }

    fn byte(d: &Disk, offset: u64) -> u8 {
        let mut b = [0];
        d.peek(offset, &mut b);
        b[0]
    }

    fn finish(d: &mut Disk) -> Vec<u64> {
        std::iter::from_fn(|| d.complete(u64::MAX)).map(|(_, c)| c.tag).collect()
    }

    #[test]
    fn power_loss_loses_unflushed_sectors_and_no_flushed_one() {
        let (mut lost, mut kept, mut torn) = (0, 0, 0);
        for seed in 0..200 {
            let mut d = Disk::new(T, Rng::new(seed));
            d.submit(0, 0, write(1, 0, 1, 8, false));
            finish(&mut d);
            d.submit(0, 0, Op { tag: 2, offset: 0, kind: OpKind::Flush });
            finish(&mut d);
            d.submit(0, 0, write(3, 0, 2, 8, false));
            finish(&mut d);
            assert_eq!(byte(&d, 0), 2);
            d.crash(Crash::Power);
            let now: Vec<u8> = (0..8).map(|s| byte(&d, s * 512)).collect();
            assert!(now.iter().all(|b| *b == 1 || *b == 2), "{now:?}");
            match now.iter().filter(|b| **b == 2).count() {
                0 => lost += 1,
                8 => kept += 1,
                _ => torn += 1,
            }
        }
        assert!(lost > 20 && kept > 20 && torn > 10, "{lost} {kept} {torn}");
    }

    #[test]
    fn a_flush_covers_only_what_had_completed_when_it_was_issued() {
        let mut escaped = 0;
        for seed in 0..200 {
            let mut d = Disk::new(T, Rng::new(seed));
            d.submit(0, 0, write(1, 0, 1, 1, false));
            d.submit(0, 0, Op { tag: 2, offset: 0, kind: OpKind::Flush });
            finish(&mut d);
            d.crash(Crash::Power);
            escaped += u32::from(byte(&d, 0) == 0);
        }
        assert!(escaped > 20, "{escaped}");
    }

    #[test]
    fn a_fua_write_is_not_undone_by_an_older_one_of_its_sector() {
        for seed in 0..200 {
            let mut d = Disk::new(T, Rng::new(seed));
            d.submit(0, 0, write(1, 0, 1, 2, false));
            finish(&mut d);
            d.submit(0, 0, write(2, 512, 2, 2, true));
            finish(&mut d);
            d.crash(Crash::Power);
            assert_eq!((byte(&d, 512), byte(&d, 1024)), (2, 2));
        }
    }

    #[test]
    fn a_kill_loses_nothing_completed_until_the_power_goes_too() {
        for seed in 0..100 {
            let mut d = Disk::new(T, Rng::new(seed));
            d.submit(0, 0, write(1, 0, 1, 2, false));
            finish(&mut d);
            d.submit(0, 0, write(2, 512, 2, 2, false));
            d.crash(Crash::Kill);
            assert!(byte(&d, 0) == 1 && byte(&d, 512) >= 1 && d.unflushed());
        }
    }

    #[test]
    fn a_disk_that_forgets_tells_each_owner_once_and_loses_the_rest() {
        let flush = |tag| Op { tag, offset: 0, kind: OpKind::Flush };
        let mut lost = 0;
        for seed in 0..100 {
            let mut d = Disk::new(Traits { forgets: true, ..T }, Rng::new(seed));
            let (kind, target) = (FaultKind::Error, crate::faults::Target::Flushes);
            d.arm(Fault { kind, target, range: 0..u64::MAX, skip: 0 });
            let mut ask = |owner, op| {
                d.submit(0, owner, op);
                d.complete(u64::MAX).expect("it is in flight").1.result.is_ok()
            };
            assert!(ask(0, write(1, 0, 1, 1, false)));
            let told = [0, 0, 1, 1].map(|owner| ask(owner, flush(2)));
            assert_eq!(told, [false, true, false, true]);
            assert!(byte(&d, 0) == 1 && d.has_forgotten(), "it is seen until the process ends");
            d.crash(Crash::Power);
            lost += u32::from(byte(&d, 0) == 0);
            assert!(!d.has_forgotten());
        }
        assert!((20..80).contains(&lost), "{lost}");
    }

    #[test]
    fn completions_come_in_any_order_and_overlaps_mix_by_sector() {
        let (mut swapped, mut mixed) = (0, 0);
        for seed in 0..100 {
            let mut d = Disk::new(T, Rng::new(seed));
            d.submit(0, 0, write(1, 0, 1, 8, false));
            d.submit(0, 0, write(2, 0, 2, 8, false));
            swapped += u32::from(finish(&mut d) == [2, 1]);
            let twos = (0..8).filter(|s| byte(&d, s * 512) == 2).count();
            mixed += u32::from(twos > 0 && twos < 8);
        }
        assert!(swapped > 10 && mixed > 30, "{swapped} {mixed}");
    }

    #[test]
    fn a_group_completes_as_one_and_a_crash_leaves_any_of_it() {
        let group = || Op {
            tag: 9,
            offset: 0,
            kind: OpKind::WriteMany((0..4).map(|i| (i * 8192, Buf::copy_of(&[1; 1024]).freeze())).collect()),
        };
        let seen = |d: &Disk| (0..4).filter(|i| byte(d, i * 8192) == 1).count();
        let mut left = [0; 5];
        for seed in 0..200 {
            let mut d = Disk::new(T, Rng::new(seed));
            d.submit(0, 0, group());
            assert_eq!((finish(&mut d), seen(&d)), (vec![9], 4));
            let mut d = Disk::new(T, Rng::new(seed));
            d.submit(0, 0, group());
            assert!(d.complete(500).is_none() || seen(&d) == 4, "not before the last one");
            d.crash(Crash::Kill);
            left[seen(&d)] += 1;
            assert!(d.in_flight() == 0 && d.complete(u64::MAX).is_none());
        }
        assert!(left[1..].iter().all(|n| *n > 5), "{left:?}");
        let fault = |kind| Fault { kind, target: crate::faults::Target::Writes, range: 0..1 << 20, skip: 2 };
        let mut d = Disk::new(T, Rng::new(1));
        d.arm(fault(FaultKind::Error));
        d.submit(0, 0, group());
        assert!(d.complete(u64::MAX).is_some_and(|(_, c)| c.tag == 9 && c.result.is_err()));
    }

    #[test]
    fn faults_fire_once_at_the_nth_operation_of_their_kind() {
        let mut d = Disk::new(T, Rng::new(1));
        d.arm(Fault {
            kind: FaultKind::Lost,
            target: crate::faults::Target::Writes,
            range: 0..1 << 20,
            skip: 1,
        });
        for tag in 0..3 {
            let mut data = Buf::alloc(4096);
            data.chunks_exact_mut(512).for_each(|s| crate::stamp::fill(s, 7, 0));
            let kind = OpKind::Write { data: data.freeze(), fua: false };
            d.submit(0, 0, Op { tag, offset: tag * 4096, kind });
            finish(&mut d);
        }
        assert_eq!([4, 4100, 8196].map(|at| byte(&d, at)), [7, 0, 7]);
        assert_eq!(d.fired()[0].offset, 4096);
        d.arm(Fault {
            kind: FaultKind::Gone,
            target: crate::faults::Target::Any,
            range: 0..1 << 20,
            skip: 0,
        });
        assert!(d.write_now(0, &[1; 512]).is_err() && d.write_now(0, &[1; 512]).is_err());
        d.heal();
        assert!(d.write_now(0, &[1; 512]).is_ok());
    }
}
