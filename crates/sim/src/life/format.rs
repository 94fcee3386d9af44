//! The beginning of a life: a core with a past, a cache that is made, and every later start of it.

use super::Run;
use crate::clients::FIRST_WRITE;
use crate::faults::{Fault, FaultKind, Target};
use crate::stamp;
use crate::subject::Subject;
use crate::sync::Fuse;
use crate::world::Wrong;
use loligo_format::mode::Mode;

impl<E: Subject> Run<E> {
    /// Makes a cache, with crashes in the middle of it.
    pub(super) fn format(&mut self) -> Result<(), Wrong> {
        loop {
            let fuse = if self.rng.chance(1, 8) { Fuse::after(self.rng.below(12)) } else { Fuse::never() };
            if self.w.format(&fuse)? {
                self.w.void = false;
                return Ok(());
            }
            self.w.marks.hit("crash in format");
            self.crash();
        }
    }

    /// The core has a past.
    pub(super) fn preset(&mut self) {
        let sectors = u64::from(self.w.oracle.sectors());
        let mut raw = [0; stamp::SECTOR];
        for _ in 0..self.rng.below(12) {
            let first = self.rng.below(sectors);
            for s in first..sectors.min(first + self.rng.skewed(1..4000)) {
                stamp::fill(&mut raw, FIRST_WRITE - 1, s as u32);
                self.w.core.preset(s * 512, &raw);
                self.w.oracle.preset(s as u32, FIRST_WRITE - 1);
            }
        }
    }

    /// Serves the core as it is, which its label allows where no cache may hold what it lacks.
    fn start_bare(&mut self) -> Result<bool, Wrong> {
        if self.w.noted.label {
            return Err("the label of the core refuses a bare start".into());
        }
        self.w.heal();
        self.stopped = false;
        self.w.open_bare(&Fuse::never()).map_err(|r| format!("refused to start: {}", r.text))?;
        self.w.marks.hit("started bare");
        Ok(true)
    }

    /// Opens the cache, with crashes in the middle of it. False where it refuses, with reason.
    pub(super) fn start(&mut self) -> Result<bool, Wrong> {
        if self.w.void || std::mem::take(&mut self.w.noted.void) {
            self.w.marks.hit("a void cache made anew");
            (self.stopped, self.rotted) = (false, false);
            self.w.cfg.uuid[0] = self.w.cfg.uuid[0].wrapping_add(1);
            self.format()?;
        }
        if self.w.cfg.exchanges {
            if self.w.noted.bare {
                return self.start_bare();
            }
            if self.w.is_blank() {
                if self.w.noted.dirty {
                    return Err("the cache may have held what the core lacks, and is gone".into());
                }
                self.w.marks.hit("a wiped cache made anew");
                self.stopped = false;
                self.w.cfg.uuid[0] = self.w.cfg.uuid[0].wrapping_add(1);
                self.format()?;
            }
            (self.w.noted.dirty, self.w.noted.label) = (true, true);
        }
        if self.w.cfg.load.cools_one_in == 0 && self.rng.chance(1, 4) {
            self.w.cfg.mode = self.rng.pick(&Mode::ALL);
        }
        let mut tries = 0;
        loop {
            let nested = tries < 3 && self.rng.chance(1, 3);
            let fuse = if nested { Fuse::after(self.rng.below(40)) } else { Fuse::never() };
            let failing = tries < 3 && self.w.cfg.faults && self.rng.chance(1, 6);
            if failing {
                let (target, skip) =
                    (self.rng.pick(&[Target::Reads, Target::Writes, Target::Flushes]), self.rng.below(30));
                self.w.cache.arm(Fault { kind: FaultKind::Error, target, range: 0..u64::MAX, skip });
            }
            let opened = self.w.open(&fuse);
            let expected = std::mem::take(&mut self.stopped);
            let fired = !self.w.cache.fired().is_empty();
            self.w.heal();
            match opened {
                _ if fuse.blown() => {
                    self.w.marks.hit("crash in recovery");
                    self.crash();
                }
                Ok(()) => {
                    let clean = self.w.engine().and_then(Subject::after_clean_stop);
                    if expected && clean == Some(false) {
                        return Err("a clean stop was not known as one at the next start".into());
                    }
                    break;
                }
                Err(_) if fired => {
                    self.w.marks.hit("device error in recovery");
                    self.crash();
                }
                Err(r) if self.rotted && r.damage => {
                    self.w.marks.hit("damage refused");
                    return Ok(false);
                }
                Err(r) => return Err(format!("refused to start: {}", r.text)),
            }
            tries += 1;
        }
        self.rotted = false;
        self.w.marks.hit("recoveries");
        Ok(true)
    }
}
