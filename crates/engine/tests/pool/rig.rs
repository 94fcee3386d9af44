//! A device that loses power after so many operations, and members to put on it.

use loligo_block::{ExtentMap, IoError, IoKind, MappedIo, SyncIo};
use loligo_engine::open::{FormatOptions, format};
use loligo_engine::pool::Pool;
use loligo_format::mode::Mode;
use loligo_format::pool::Member;
use loligo_format::superblock::{CoreIdentity, Superblock};
use std::collections::BTreeMap;
use std::sync::Arc;

pub const MIB: u64 = 1 << 20;
const SECTOR: usize = 512;
const PAGE: usize = 4096;

/// Pages of memory; those never written, or written with zeros, are none.
#[derive(Clone, Default)]
struct Pages(BTreeMap<u64, [u8; PAGE]>);

impl Pages {
    fn read(&self, offset: u64, buf: &mut [u8]) {
        for (at, part) in split(offset, buf.len()) {
            let (page, from) = (at / PAGE as u64, at as usize % PAGE);
            let to = &mut buf[(at - offset) as usize..][..part];
            match self.0.get(&page) {
                Some(have) => to.copy_from_slice(&have[from..from + part]),
                None => to.fill(0),
            }
        }
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        for (at, part) in split(offset, data.len()) {
            let (page, from) = (at / PAGE as u64, at as usize % PAGE);
            let data = &data[(at - offset) as usize..][..part];
            if self.0.contains_key(&page) || data.iter().any(|b| *b != 0) {
                self.0.entry(page).or_insert([0; PAGE])[from..from + part].copy_from_slice(data);
            }
        }
    }
}

/// The parts of a range that lie in one page each.
fn split(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize)> {
    let end = offset + len as u64;
    let next = move |at: &u64| Some((*at / PAGE as u64 + 1) * PAGE as u64).filter(|n| *n < end);
    let starts = std::iter::successors((len > 0).then_some(offset), next);
    starts.map(move |at| (at, ((at / PAGE as u64 + 1) * PAGE as u64).min(end).abs_diff(at) as usize))
}

/// Memory that forgets what was not flushed when its power goes.
#[derive(Clone)]
pub struct Dev {
    size: u64,
    durable: Pages,
    now: Pages,
    pending: Vec<(u64, usize)>,
    /// Writes and flushes until the power goes.
    pub left: usize,
    pub done: usize,
}

impl Dev {
    pub fn new(size: u64) -> Dev {
        let (durable, now) = Default::default();
        Dev { size, durable, now, pending: Vec::new(), left: usize::MAX, done: 0 }
    }

    /// It is larger from now on.
    pub fn grow(&mut self, size: u64) {
        self.size = size;
    }

    /// The power is back. Of what was not flushed, the sectors that `chance` chooses are there.
    pub fn restarted(mut self, chance: u64) -> Dev {
        let mut x = chance.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut sector = [0; SECTOR];
        for (at, len) in std::mem::take(&mut self.pending) {
            for s in (at..at + len as u64).step_by(SECTOR) {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                let kept = match chance % 4 {
                    0 => false,
                    1 => true,
                    _ => x >> 40 & 1 == 1,
                };
                if kept {
                    self.now.read(s, &mut sector);
                    self.durable.write(s, &sector);
                }
            }
        }
        self.now = self.durable.clone();
        Dev { left: usize::MAX, done: 0, ..self }
    }

    fn step(&mut self) -> Result<(), IoError> {
        if self.left == 0 {
            return Err(IoError::new(IoKind::Gone, "power"));
        }
        (self.left, self.done) = (self.left - 1, self.done + 1);
        Ok(())
    }
}

impl SyncIo for Dev {
    fn size(&self) -> u64 {
        self.size
    }
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), IoError> {
        assert!(offset + buf.len() as u64 <= self.size);
        self.now.read(offset, buf);
        Ok(())
    }
    fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<(), IoError> {
        assert!(offset + data.len() as u64 <= self.size);
        // What is being written when the power goes may be there or not.
        let over = self.step();
        self.now.write(offset, data);
        self.pending.push((offset, data.len()));
        over
    }
    fn flush(&mut self) -> Result<(), IoError> {
        self.step()?;
        self.pending.clear();
        self.durable = self.now.clone();
        Ok(())
    }
}

/// A core of 64 MiB at least, `max` at most.
pub fn member(number: u16, max: u64) -> Member {
    Member {
        number,
        shards: 1,
        weight: 100,
        min: 28 * MIB,
        max,
        journal_len: MIB / 2,
        name: format!("vol{number}"),
        core: String::new(),
    }
}

/// The share of a member, as its cache sees it.
pub fn view(dev: &Dev, pool: &Pool, number: u16) -> MappedIo<Dev> {
    let d = pool.superblock().division;
    let map = ExtentMap::new(d.start, d.extent, pool.table().member(number).expect("a member").max);
    pool.table().extents_of(number).iter().for_each(|(here, there)| map.set(*here, Some(*there)));
    MappedIo::new(dev.clone(), Arc::new(map))
}

/// The device after a cache was made in the share of a member.
pub fn with_cache(dev: &Dev, pool: &Pool, number: u16) -> Dev {
    let d = pool.superblock().division;
    let m = pool.table().member(number).expect("a member").clone();
    let mut cache = view(dev, pool, number);
    let options = FormatOptions {
        uuid: [number as u8; 16],
        name: m.name.clone(),
        cache_size: m.max,
        core: CoreIdentity { size: 1 << 30, id: String::new() },
        line_size: 4096,
        shards: m.shards,
        stripe: 0,
        mode: Mode::Wb,
        core_reserve: 0,
        journal_len: m.journal_len,
    };
    format(&mut cache, &options).expect("a member can be made a cache");
    // The view wrote to a copy of its own.
    let mut out = dev.clone();
    let mut raw = vec![0; d.extent as usize];
    for (here, there) in pool.table().extents_of(number) {
        let at = u64::from(here) * d.extent;
        let n = d.extent.min(m.max - at) as usize;
        cache.read_at(at, &mut raw[..n]).expect("reads");
        out.write_at(d.extent_at(there), &raw[..n]).expect("writes");
    }
    out.flush().expect("flushes");
    out
}

/// The superblock of the cache in the share of a member, if one is found.
pub fn cache_in(dev: &Dev, pool: &Pool, number: u16) -> Option<Superblock> {
    Superblock::load(&mut view(dev, pool, number)).ok()
}
