//! Bits that flip on the cache.

use super::Run;
use crate::faults::block_of;
use crate::subject::Subject;
use crate::world::{SETTLED, Wrong};
use loligo_engine::api::Control;

impl<E: Subject> Run<E> {
    /// Bits of data on the cache flip, long after it was written.
    pub(super) fn rot_data(&mut self, clean: bool) -> Result<(), Wrong> {
        self.drain()?;
        self.check_control("management")?;
        let clean = clean && self.command(&Control::FlushDirty)?;
        self.idle(SETTLED)?;
        let mut hit = Vec::new();
        for _ in 0..40 {
            let range = self.rng.below(self.w.parts.data.len() as u64) as usize;
            let range = self.w.parts.data[range].clone();
            // Slots are taken from the front: most data lies there.
            let slots = (range.end - range.start) / 4096;
            let at = range.start + self.rng.skewed(0..slots) * 4096;
            let mut raw = [0; 4096];
            self.w.cache.peek(at, &mut raw);
            if let Some(block) = block_of(&raw).filter(|_| hit.len() < 4) {
                self.w.trace.say(|| format!("rot at {at}, block {block}"));
                let (byte, bit) = (at + self.rng.below(4096), self.rng.below(8) as u32);
                if self.w.cfg.spoil_one_in > 0 && self.bad.chance(1, 2) {
                    self.w.cache.spoil(byte);
                    self.w.marks.hit("a slot went bad");
                } else {
                    self.w.cache.rot(byte, bit);
                }
                hit.push(block);
            }
        }
        self.w.marks.add(if clean { "clean data rotted" } else { "data rotted" }, hit.len() as u64);
        // Over a bad sector of the core also what is clean was all there is.
        if !clean || self.w.core.has_bad() || !self.w.is_renewed() {
            self.w.let_loose(&hit);
        }
        self.w.rotten.extend(hit);
        if self.rng.chance(2, 3) {
            self.verify()?;
        }
        Ok(())
    }

    /// A bit of metadata flips, and the process ends: in one of two copies, or in what there is one of.
    pub(super) fn rot_meta(&mut self, copy: bool) -> Result<(), Wrong> {
        self.drain()?;
        self.check_control("management")?;
        self.idle(SETTLED)?;
        let parts = if copy {
            self.w.parts.doubled.clone()
        } else {
            self.w.parts.journals.iter().chain(&self.w.parts.image).cloned().collect()
        };
        for _ in 0..200 {
            let range = parts[self.rng.below(parts.len() as u64) as usize].clone();
            let at = range.start + self.rng.below(range.end - range.start);
            let mut raw = [0];
            self.w.cache.peek(at, &mut raw);
            if raw[0] != 0 && copy && self.w.cfg.spoil_one_in > 0 && self.bad.chance(1, 2) {
                self.w.cache.spoil(at);
                self.w.marks.hit("a copy went bad");
                break;
            }
            if raw[0] != 0 {
                self.w.cache.rot(at, self.rng.below(8) as u32);
                self.w.marks.hit(if copy { "a copy rotted" } else { "metadata rotted" });
                self.rotted = !copy;
                break;
            }
        }
        self.crash();
        Ok(())
    }
}
