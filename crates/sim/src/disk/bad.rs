//! Sectors that a device cannot read any more. They stay so, whatever restarts, until they are written.

use super::Disk;
use loligo_block::SECTOR;

impl Disk {
    /// The block of the device around `offset` cannot be read from now on.
    pub fn spoil(&mut self, offset: u64) {
        let block = u64::from(self.traits.logical_block);
        let first = offset / block * block / SECTOR;
        self.bad.extend(first..first + block / SECTOR);
    }

    /// True if any sector cannot be read.
    pub fn has_bad(&self) -> bool {
        !self.bad.is_empty()
    }

    /// True if any of `count` sectors from `first` on cannot be read.
    pub(super) fn any_bad(&self, first: u64, count: u64) -> bool {
        self.bad.range(first..first + count).next().is_some()
    }

    /// The sectors among `count` from `first` on that cannot be read.
    pub fn bad_in(&self, first: u64, count: u64) -> impl Iterator<Item = u64> {
        self.bad.range(first..first + count).copied()
    }

    /// Writing a sector mends it: the device has put another in its place.
    pub(super) fn written(&mut self, first: u64, count: u64) {
        if !self.bad.is_empty() {
            (first..first + count).for_each(|s| {
                self.bad.remove(&s);
            });
        }
    }
}
