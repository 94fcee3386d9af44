//! A controller whose partner takes its devices: from the moment the array refuses it, nothing of it may reach either.

use super::Run;
use crate::disk::Crash;
use crate::subject::Subject;
use crate::world::Wrong;
use loligo_engine::api::Control;
use loligo_format::mode::Mode;

impl<E: Subject> Run<E> {
    /// The array fences this controller in the middle of it all, by one device or by both. The next life is the partner's: it
    /// finds everything that was acknowledged.
    pub(super) fn expel(&mut self) -> Result<(), Wrong> {
        while self.w.is_controlling() {
            if !self.pump(None)? {
                return Err(self.stalled());
            }
        }
        self.check_control("management")?;
        if self.fences.chance(1, 3) {
            // With nothing dirty the core could do without the cache: it is not asked to.
            let mode = self.fences.pick(&[Mode::Wt, Mode::Wa, Mode::Wi, Mode::Pt]);
            if self.command(&Control::SetMode(mode))? {
                self.w.cfg.mode = mode;
            }
            self.command(&Control::FlushDirty)?;
        }
        let at = self.fences.below(30);
        for step in 0..at + self.fences.below(80) {
            if self.w.clients.has_room() && self.fences.chance(1, 2) {
                let req = self.w.clients.draw(self.w.now, &mut self.w.oracle);
                self.w.ask(req);
            }
            if step == at {
                let which = self.fences.below(3);
                if which != 1 {
                    self.w.cache.fence();
                }
                if which != 0 {
                    self.w.core.fence();
                }
            }
            self.w.pump(None)?;
        }
        self.drain()?;
        self.check_control("management")?;
        self.w.crash(Crash::Kill);
        Ok(())
    }
}
