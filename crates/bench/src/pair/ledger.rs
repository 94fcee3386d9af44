//! The knowledge of what each block of an image may hold: the last acknowledged write, and what was under way since.

use super::stamp::Stamp;
use crate::rng::SplitMix64;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Blocks of an image that are used. Few enough that most reads meet a block that was written in this run.
pub(crate) const SPOTS: u64 = 1024;

/// Operations on an image, and what was wrong with them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Reads that ended.
    pub reads: u64,
    /// Writes that ended.
    pub writes: u64,
    /// Operations that ended with an error.
    pub errors: u64,
    /// Operations that had not ended when the client gave up.
    pub stuck: u64,
    /// Reads that gave an older write than one that had been acknowledged, or read, before.
    pub stale: u64,
    /// Reads that gave what no write wrote there.
    pub wrong: u64,
    /// Blocks that at the end did not hold their last acknowledged write, or a later one.
    pub lost: u64,
    /// Blocks that were read at the end.
    pub read_back: u64,
}

/// One block.
#[derive(Debug, Clone, Copy)]
struct Spot {
    block: u64,
    /// The newest write that was acknowledged or read: no later read may give an older one.
    floor: u64,
    /// The newest write that was begun.
    newest: u64,
    /// A write is under way. There is one at a time, so that the order of writes is known.
    busy: bool,
}

/// A write under way.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Writing {
    spot: usize,
    sequence: u64,
}

/// A read under way.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reading {
    spot: usize,
    floor: u64,
}

/// What is known of an image.
#[derive(Debug)]
pub(crate) struct Ledger {
    run: u64,
    image: u64,
    spots: Vec<Spot>,
    rng: SplitMix64,
    pub(crate) counts: Counts,
}

impl Ledger {
    /// Of an image of so many blocks, of which some are used.
    pub(crate) fn new(run: u64, image: u64, blocks: u64) -> Ledger {
        let mut rng = SplitMix64::new(run ^ (image << 32));
        let mut chosen = BTreeSet::new();
        while (chosen.len() as u64) < SPOTS.min(blocks) {
            chosen.insert(rng.below(blocks));
        }
        let spot = |block| Spot { block, floor: 0, newest: 0, busy: false };
        Ledger { run, image, spots: chosen.into_iter().map(spot).collect(), rng, counts: Counts::default() }
    }

    /// The number of blocks that are used.
    pub(crate) fn len(&self) -> usize {
        self.spots.len()
    }

    /// The next number of the run's own dice.
    pub(crate) fn dice(&mut self, below: u64) -> u64 {
        self.rng.below(below)
    }

    /// Begins a write to a block without one: its place and content. Nothing: each block has one.
    pub(crate) fn begin_write(&mut self) -> Option<(Writing, u64, Vec<u8>)> {
        let first = self.rng.below(self.spots.len() as u64) as usize;
        let count = self.spots.len();
        let spot = (0..count).map(|at| (first + at) % count).find(|at| !self.spots[*at].busy)?;
        Some(self.begin_write_to(spot))
    }

    /// Begins a write to a block that has none under way.
    pub(crate) fn begin_write_to(&mut self, spot: usize) -> (Writing, u64, Vec<u8>) {
        let of = &mut self.spots[spot];
        of.busy = true;
        of.newest += 1;
        let (block, sequence) = (of.block, of.newest);
        let content = Stamp { run: self.run, image: self.image, block, sequence }.content();
        (Writing { spot, sequence }, block, content)
    }

    /// A write ended. One that failed may have been carried out, and may be later.
    pub(crate) fn end_write(&mut self, writing: Writing, is_done: bool) {
        let spot = &mut self.spots[writing.spot];
        spot.busy = false;
        self.counts.writes += 1;
        match is_done {
            true => spot.floor = spot.floor.max(writing.sequence),
            false => self.counts.errors += 1,
        }
    }

    /// Begins a read of some block: its place.
    pub(crate) fn begin_read(&mut self) -> (Reading, u64) {
        let spot = self.rng.below(self.spots.len() as u64) as usize;
        let of = self.spots[spot];
        (Reading { spot, floor: of.floor }, of.block)
    }

    /// A read ended with these bytes, or failed.
    pub(crate) fn end_read(&mut self, reading: Reading, bytes: Option<&[u8]>) {
        self.counts.reads += 1;
        let Some(bytes) = bytes else {
            self.counts.errors += 1;
            return;
        };
        match self.sequence(reading.spot, bytes) {
            None => self.counts.wrong += 1,
            Some(sequence) if sequence < reading.floor => self.counts.stale += 1,
            Some(sequence) => {
                let spot = &mut self.spots[reading.spot];
                spot.floor = spot.floor.max(sequence);
            }
        }
    }

    /// The number of the write to this block that its bytes are of; nothing: of none.
    fn sequence(&self, spot: usize, bytes: &[u8]) -> Option<u64> {
        let of = &self.spots[spot];
        if of.newest == 0 && bytes.iter().all(|byte| *byte == 0) {
            return Some(0);
        }
        let stamp = Stamp::of(bytes)?;
        let is_ours = stamp.run == self.run && stamp.image == self.image && stamp.block == of.block;
        (is_ours && stamp.sequence <= of.newest).then_some(stamp.sequence)
    }

    /// The place of a block that is to be read at the end.
    pub(crate) fn place(&self, spot: usize) -> u64 {
        self.spots[spot].block
    }

    /// A block was read at the end, or could not be.
    pub(crate) fn read_back(&mut self, spot: usize, bytes: Option<&[u8]>) {
        self.counts.read_back += 1;
        let Some(bytes) = bytes else {
            self.counts.errors += 1;
            return;
        };
        if self.sequence(spot, bytes).is_none_or(|sequence| sequence < self.spots[spot].floor) {
            self.counts.lost += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger() -> Ledger {
        Ledger::new(1, 0, 1)
    }

    fn write(ledger: &mut Ledger) -> Vec<u8> {
        let (writing, _, content) = ledger.begin_write().unwrap();
        ledger.end_write(writing, true);
        content
    }

    #[test]
    fn an_older_write_than_the_last_acknowledged_is_stale() {
        let mut ledger = ledger();
        let (old, new) = (write(&mut ledger), write(&mut ledger));
        let (reading, _) = ledger.begin_read();
        ledger.end_read(reading, Some(&new));
        assert_eq!(ledger.counts.stale, 0);
        let (reading, _) = ledger.begin_read();
        ledger.end_read(reading, Some(&old));
        assert_eq!((ledger.counts.stale, ledger.counts.wrong), (1, 0));
    }

    #[test]
    fn a_read_beside_a_write_gives_either_then_only_the_newer() {
        let mut ledger = ledger();
        let old = write(&mut ledger);
        let (writing, _, new) = ledger.begin_write().unwrap();
        for bytes in [&old, &new] {
            let (reading, _) = ledger.begin_read();
            ledger.end_read(reading, Some(bytes));
        }
        assert_eq!(ledger.counts.stale, 0);
        let (reading, _) = ledger.begin_read();
        ledger.end_read(reading, Some(&old));
        assert_eq!(ledger.counts.stale, 1, "the newer one was read before");
        ledger.end_write(writing, true);
    }

    #[test]
    fn a_failed_write_may_have_landed_or_not() {
        let mut ledger = ledger();
        let old = write(&mut ledger);
        let (writing, _, new) = ledger.begin_write().unwrap();
        ledger.end_write(writing, false);
        ledger.read_back(0, Some(&old));
        ledger.read_back(0, Some(&new));
        assert_eq!((ledger.counts.lost, ledger.counts.errors), (0, 1));
    }

    #[test]
    fn a_block_that_went_back_or_was_never_written_so_is_lost() {
        let mut ledger = ledger();
        let (old, new) = (write(&mut ledger), write(&mut ledger));
        ledger.read_back(0, Some(&new));
        assert_eq!(ledger.counts.lost, 0);
        ledger.read_back(0, Some(&old));
        ledger.read_back(0, Some(&vec![0; 4096]));
        let foreign = Stamp { run: 2, image: 0, block: 0, sequence: 2 }.content();
        ledger.read_back(0, Some(&foreign));
        assert_eq!((ledger.counts.lost, ledger.counts.read_back), (3, 4));
    }

    #[test]
    fn a_block_has_one_write_at_a_time() {
        let mut ledger = ledger();
        let _writing = ledger.begin_write().unwrap();
        assert!(ledger.begin_write().is_none());
    }
}
