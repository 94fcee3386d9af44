//! Sectors that a device takes no writes for, until some moment or for ever. They are read as before, unless a write that
//! failed has spoiled them.

use super::{Disk, Nanos};
use loligo_block::SECTOR;
use std::ops::Range;

/// A range of them.
#[derive(Debug)]
struct Worn {
    sectors: Range<u64>,
    until: Nanos,
    spoils: bool,
}

/// All of them, and what has come of them.
#[derive(Debug, Default)]
pub(super) struct WornOut {
    ranges: Vec<Worn>,
    spoiled: Vec<u64>,
}

impl Disk {
    /// The device takes no write for these bytes until then. With `spoils` one that fails leaves its sectors there unreadable.
    pub fn wear(&mut self, bytes: Range<u64>, until: Nanos, spoils: bool) {
        let sectors = bytes.start / SECTOR..bytes.end.div_ceil(SECTOR);
        self.worn.ranges.push(Worn { sectors, until, spoils });
    }

    /// Ranges that take no writes now.
    pub fn worn(&self) -> usize {
        self.worn.ranges.len()
    }

    /// The device takes every write again.
    pub fn renew(&mut self) {
        self.worn.ranges.clear();
    }

    /// Sectors that have become unreadable since this was last asked.
    pub fn spoiled(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.worn.spoiled)
    }

    /// Forgets what takes writes again by now.
    pub(super) fn renew_due(&mut self, now: Nanos) {
        self.worn.ranges.retain(|w| now < w.until);
    }

    /// True if any of `count` sectors from `first` on takes no writes.
    pub(super) fn any_worn(&self, first: u64, count: u64) -> bool {
        self.worn.ranges.iter().any(|w| w.sectors.start < first + count && first < w.sectors.end)
    }

    /// A write of these sectors has failed.
    pub(super) fn spoil_worn(&mut self, first: u64, count: u64) {
        for w in self.worn.ranges.iter().filter(|w| w.spoils) {
            for sector in first.max(w.sectors.start)..(first + count).min(w.sectors.end) {
                if self.bad.insert(sector) {
                    self.worn.spoiled.push(sector);
                }
            }
        }
    }
}
