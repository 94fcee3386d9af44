//! The end of a process, or of the power: what is in flight or not flushed reaches the medium in any part.

use super::loss::{LossStyle, Subset};
use super::{Crash, Disk, Fate, put, slice};
use crate::rng::Rng;
use loligo_block::{OpKind, SECTOR};

impl Disk {
    /// The process dies. In-flight writes leave any subset of their sectors; with [`Crash::Power`] so do writes that
    /// were completed and not flushed.
    pub fn crash(&mut self, crash: Crash) {
        self.bus_free = 0;
        let mut flight = std::mem::take(&mut self.flight);
        self.groups.clear();
        // Whoever comes next is told of nothing.
        let forgotten = std::mem::take(&mut self.forgotten);
        shuffle(&mut self.rng, &mut flight);
        if crash == Crash::Power
            && let Some(media) = &mut self.media
        {
            let style = LossStyle::draw(&mut self.rng, self.log.len() as u64);
            for (i, p) in self.log.iter().enumerate() {
                let keep = style.subset(&mut self.rng, i as u64, p.sectors);
                for s in 0..p.sectors {
                    if p.durable || keep.holds(&mut self.rng, s) {
                        put(media, p.sector + s, 1, &slice(&p.payload, s, 1));
                    }
                }
            }
            for p in forgotten.lost.into_iter().chain(self.log.drain(..)) {
                let mut raw = vec![0; (p.sectors * SECTOR) as usize];
                media.read(p.sector * SECTOR, &mut raw);
                self.live.write(p.sector * SECTOR, &raw);
            }
        }
        for f in &flight {
            let unknown = matches!(f.op.kind, OpKind::Discard { .. }) && !self.traits.can_unmap;
            if let (Some(payload), Fate::Fine) = (f.payload(), f.fate) {
                let (first, count) = f.sectors();
                let keep = Subset::draw(&mut self.rng, count);
                for s in 0..count {
                    let early = f.early.get(s as usize).is_some_and(|e| *e);
                    let kept = !early && keep.holds(&mut self.rng, s) && !(unknown && self.rng.chance(1, 2));
                    if kept && !self.any_worn(first + s, 1) {
                        self.apply(f.key, first + s, 1, slice(&payload, s, 1), false);
                    }
                }
            }
        }
        if crash == Crash::Power {
            self.harden(u64::MAX);
        }
    }
}

fn shuffle<T>(rng: &mut Rng, items: &mut [T]) {
    for i in (1..items.len()).rev() {
        items.swap(i, rng.below(i as u64 + 1) as usize);
    }
}
