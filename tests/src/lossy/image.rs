//! One file of the lossy file system: what a power cut leaves for certain, and the writes it may take.

use loligo_sim::rng::Rng;
use std::collections::BTreeMap;

/// The unit that survives or is lost as a whole, bytes.
const SECTOR: usize = 512;

#[derive(Debug)]
struct Unflushed {
    offset: usize,
    data: Vec<u8>,
    /// The writer has been told.
    done: bool,
}

/// A file's content, and of it what is durable.
#[derive(Debug, Default)]
pub(super) struct Image {
    now: Vec<u8>,
    durable: Vec<u8>,
    /// Per sector, the number of the write that `durable` shows.
    shown: Vec<u64>,
    log: BTreeMap<u64, Unflushed>,
    next: u64,
}

impl Image {
    pub(super) fn len(&self) -> u64 {
        self.now.len() as u64
    }

    /// Sizes are durable at once; only content can be lost.
    pub(super) fn resize(&mut self, len: u64) {
        let len = len as usize;
        self.now.resize(len, 0);
        self.durable.resize(len, 0);
        self.shown.resize(len.div_ceil(SECTOR), 0);
        self.log.retain(|_, w| w.offset < len);
        for w in self.log.values_mut() {
            w.data.truncate(len - w.offset);
        }
    }

    pub(super) fn read(&self, offset: u64, len: usize) -> &[u8] {
        let from = (offset as usize).min(self.now.len());
        &self.now[from..self.now.len().min(from + len)]
    }

    /// Takes a write; it is durable only after [`Image::harden`] or a flush that begins after [`Image::done`].
    pub(super) fn write(&mut self, offset: u64, data: &[u8]) -> u64 {
        let (from, to) = (offset as usize, offset as usize + data.len());
        if to > self.now.len() {
            self.resize(to as u64);
        }
        self.now[from..to].copy_from_slice(data);
        let (from, to) = (from / SECTOR * SECTOR, to.next_multiple_of(SECTOR).min(self.now.len()));
        self.next += 1;
        self.log
            .insert(self.next, Unflushed { offset: from, data: self.now[from..to].to_vec(), done: false });
        self.next
    }

    pub(super) fn done(&mut self, number: u64) {
        if let Some(w) = self.log.get_mut(&number) {
            w.done = true;
        }
    }

    /// The writes a flush that begins now must make durable: those whose writers have been told.
    pub(super) fn flush_begins(&self) -> Vec<u64> {
        self.log.iter().filter(|(_, w)| w.done).map(|(n, _)| *n).collect()
    }

    /// Makes one write durable, unless a later one to the same sector is.
    pub(super) fn harden(&mut self, number: u64) {
        if let Some(w) = self.log.remove(&number) {
            self.settle(number, &w, |_| true);
        }
    }

    fn settle(&mut self, number: u64, w: &Unflushed, mut survives: impl FnMut(usize) -> bool) {
        for (i, sector) in w.data.chunks(SECTOR).enumerate() {
            let at = w.offset + i * SECTOR;
            if self.shown[at / SECTOR] < number && survives(i) {
                self.durable[at..at + sector.len()].copy_from_slice(sector);
                self.shown[at / SECTOR] = number;
            }
        }
    }

    /// Of the writes not flushed an arbitrary part survives: by sectors or by whole writes, few or many of them.
    pub(super) fn power_cut(&mut self, rng: &mut Rng) {
        let share = rng.pick(&[0, 1, 2, 3, 4]);
        let whole = rng.chance(1, 3);
        for (number, w) in std::mem::take(&mut self.log) {
            let all = rng.chance(share, 4);
            self.settle(number, &w, |_| if whole { all } else { rng.chance(share, 4) });
        }
        self.now.clone_from(&self.durable);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image() -> Image {
        let mut i = Image::default();
        i.resize(4096);
        i
    }

    fn after_cut(i: &mut Image, seed: u64) -> Vec<u8> {
        i.power_cut(&mut Rng::new(seed));
        i.read(0, 4096).to_vec()
    }

    #[test]
    fn flushed_data_survives_and_the_rest_may_go_by_the_sector() {
        let mut outcomes = std::collections::BTreeSet::new();
        for seed in 0..64 {
            let mut i = image();
            let n = i.write(0, &[1; 1024]);
            i.done(n);
            i.flush_begins().into_iter().for_each(|n| i.harden(n));
            i.write(512, &[2; 1024]);
            let c = after_cut(&mut i, seed);
            assert_eq!(c[..512], [1; 512]);
            assert!(c[512] == 1 || c[512] == 2);
            assert!(c[1024] == 0 || c[1024] == 2);
            outcomes.insert((c[512], c[1024]));
        }
        assert_eq!(outcomes.len(), 4, "every combination can happen");
    }

    #[test]
    fn a_flush_covers_only_what_was_acknowledged_before_it_began() {
        let mut lost = false;
        for seed in 0..32 {
            let mut i = image();
            i.write(0, &[1; 512]);
            i.flush_begins().into_iter().for_each(|n| i.harden(n));
            lost |= after_cut(&mut i, seed)[0] == 0;
        }
        assert!(lost);
    }

    #[test]
    fn an_earlier_write_never_hides_a_later_durable_one() {
        for seed in 0..32 {
            let mut i = image();
            i.write(0, &[1; 512]);
            let later = i.write(0, &[2; 512]);
            i.harden(later);
            assert_eq!(after_cut(&mut i, seed)[0], 2);
        }
    }
}
