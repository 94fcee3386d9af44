//! A cache that goes while its core serves on.

use super::Run;
use crate::faults::{Fault, FaultKind, Target};
use crate::subject::Subject;
use crate::world::Wrong;
use loligo_engine::api::Control;
use loligo_format::mode::Mode;

impl<E: Subject> Run<E> {
    /// The cache goes, by itself or because somebody says so, and the core alone serves if it can.
    pub(super) fn fall_back(&mut self) -> Result<(), Wrong> {
        while self.w.is_controlling() {
            if !self.pump(None)? {
                return Err(self.stalled());
            }
        }
        self.check_control("management")?;
        if self.w.luck.chance(3, 4) {
            let mode = self.w.luck.pick(&[Mode::Wt, Mode::Wa, Mode::Wi, Mode::Pt]);
            if self.command(&Control::SetMode(mode))? {
                self.w.cfg.mode = mode;
            }
            self.command(&Control::FlushDirty)?;
        }
        for step in 0..self.w.luck.range(20..200) {
            if self.w.clients.has_room() && self.w.luck.chance(1, 2) {
                let req = self.w.clients.draw(self.w.now, &mut self.w.oracle);
                self.w.ask(req);
            }
            if step == 10 && self.w.luck.chance(1, 2) {
                let (target, skip) =
                    (self.w.luck.pick(&[Target::Any, Target::Writes]), self.w.luck.below(20));
                self.w.cache.arm(Fault { kind: FaultKind::Gone, target, range: 0..u64::MAX, skip });
            } else if step == 15 {
                self.w.fall_back();
            }
            self.w.pump(None)?;
            if step > 15 && self.w.luck.chance(1, 40) {
                // As it is, for whatever ends this life.
                return Ok(());
            }
        }
        self.drain()?;
        if self.w.alone {
            if self.command(&Control::FlushDirty)? {
                self.w.check_core()?;
            }
            self.verify()?;
        }
        Ok(())
    }
}
