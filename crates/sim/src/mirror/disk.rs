//! One leg: what is durable on it, and what a power cut may take.

use crate::rng::Rng;
use loligo_block::mirror::Mark;

/// Blocks of content.
pub(super) const BLOCKS: u64 = 16;

/// The way in which a leg answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// As it should.
    Up,
    /// Not at all.
    Silent,
    /// With errors.
    Failing,
}

#[derive(Debug, Clone)]
pub(super) struct Disk {
    durable: Vec<u64>,
    /// Writes since, each with its number: block and content.
    volatile: Vec<(u64, u64, u64)>,
    /// The number of the last write.
    pub(super) last: u64,
    pub(super) mark: Option<Mark>,
    pub(super) reach: Reach,
    /// The array refuses whatever its controller asks.
    pub(super) fenced: bool,
    /// It was destroyed: nothing of it answers before somebody opens another in its place.
    pub(super) dead: bool,
    /// Part of it was copied, and the rest was not.
    pub(super) mixed: bool,
}

impl Disk {
    pub(super) fn blank() -> Disk {
        Disk {
            durable: vec![0; BLOCKS as usize],
            volatile: Vec::new(),
            last: 0,
            mark: None,
            reach: Reach::Up,
            fenced: false,
            dead: false,
            mixed: false,
        }
    }

    pub(super) fn write(&mut self, block: u64, content: u64) {
        self.last += 1;
        self.volatile.push((self.last, block, content));
    }

    pub(super) fn read(&self, block: u64) -> u64 {
        let newest = self.volatile.iter().rev().find(|(_, b, _)| *b == block);
        newest.map_or(self.durable[block as usize], |(_, _, content)| *content)
    }

    /// Makes all writes up to number `last` durable.
    pub(super) fn flush(&mut self, last: u64) {
        let durable = &mut self.durable;
        self.volatile.retain(|(n, block, content)| {
            if *n <= last {
                durable[*block as usize] = *content;
            }
            *n > last
        });
    }

    /// Of what is not durable, some stays and some does not.
    pub(super) fn lose_power(&mut self, rng: &mut Rng) {
        for (_, block, content) in std::mem::take(&mut self.volatile) {
            if rng.chance(1, 2) {
                self.durable[block as usize] = content;
            }
        }
    }
}
