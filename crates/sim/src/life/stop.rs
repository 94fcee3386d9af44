//! The orderly end of a life: a clean stop, the core given up to somebody else, and the last end of all.

use super::Run;
use crate::disk::Crash;
use crate::subject::Subject;
use crate::sync::Fuse;
use crate::world::Wrong;
use loligo_engine::api::Control;

/// The last try of what the core refused is over so long after it takes every write again, ns.
const RENEWED: u64 = 70_000_000_000;

impl<E: Subject> Run<E> {
    /// A clean stop, perhaps with requests under way, perhaps cut off.
    pub(super) fn stop(&mut self) -> Result<(), Wrong> {
        while self.w.is_controlling() || self.w.is_rescuing() {
            if !self.pump(None)? {
                return Err(self.stalled());
            }
        }
        self.check_control("management")?;
        // Only a core that keeps what it has taken holds what went past the cache without a flush.
        let fenced = self.w.fenced && self.w.cfg.core.volatile;
        let since = self.w.oracle.begin_flush();
        self.w.control(&Control::Stop);
        if self.rng.chance(1, 6) {
            for _ in 0..self.rng.below(40) {
                self.w.pump(None)?;
            }
            self.w.marks.hit("crash while stopping");
            self.crash();
            return Ok(());
        }
        self.drain()?;
        if !self.check_control("stop")? {
            self.crash();
            return Ok(());
        }
        let fuse = if self.rng.chance(1, 5) { Fuse::after(self.rng.below(4)) } else { Fuse::never() };
        if self.w.void {
            // There is nothing to close.
            if !fenced {
                self.w.oracle.end_flush(since);
            }
            self.crash();
            return Ok(());
        }
        match self.w.close(&fuse) {
            _ if fuse.blown() => self.w.marks.hit("crash in close"),
            Ok(()) => {
                self.w.marks.hit("clean stop");
                self.stopped = true;
            }
            Err(e) if !self.w.broken => return Err(format!("close: {e}")),
            Err(_) => {}
        }
        if !fenced {
            self.w.oracle.end_flush(since);
        }
        self.crash();
        Ok(())
    }

    /// Somebody else takes the core, in the middle of it all: the cache must let go of it and keep what it has.
    pub(super) fn fence(&mut self) -> Result<(), Wrong> {
        while self.w.is_controlling() {
            if !self.pump(None)? {
                return Err(self.stalled());
            }
        }
        self.check_control("management")?;
        self.w.control(&Control::Fence("somebody else has it".into()));
        for _ in 0..self.extra.below(60) {
            if self.w.clients.has_room() && self.extra.chance(1, 2) {
                let req = self.w.clients.draw(self.w.now, &mut self.w.oracle);
                self.w.ask(req);
            }
            self.w.pump(None)?;
        }
        self.drain()?;
        self.check_control("giving the core up")?;
        self.w.marks.hit("core fenced");
        if self.extra.chance(1, 2) {
            return self.stop();
        }
        self.crash();
        Ok(())
    }

    /// The last life: everything is destaged, the core alone must hold it, and a clean stop must keep it.
    pub(super) fn farewell(&mut self) -> Result<(), Wrong> {
        self.verify()?;
        let requests = self.rng.skewed(1..200);
        self.drive(requests)?;
        if self.w.is_bare() {
            return self.farewell_bare();
        }
        if self.w.cfg.wear_one_in > 0 && self.worn.chance(2, 3) {
            self.drain()?;
            self.check_control("management")?;
            // All that was refused is to be there in the end.
            self.w.renew_core();
            self.idle(RENEWED)?;
        }
        let flushed = self.command(&Control::FlushDirty)?;
        if flushed {
            self.w.check_core()?;
        }
        let since = self.w.oracle.begin_flush();
        if self.command(&Control::Stop)? {
            if !self.w.void {
                self.w.close(&Fuse::never())?;
                self.stopped = true;
            }
            self.w.oracle.end_flush(since);
            self.w.marks.hit("clean stop");
        }
        self.w.crash(Crash::Power);
        if flushed {
            self.w.check_core()?;
        }
        if self.start()? {
            self.verify()?;
        }
        Ok(())
    }
    /// The same without a cache: what was flushed is there.
    fn farewell_bare(&mut self) -> Result<(), Wrong> {
        let flush = self.w.clients.flush(self.w.now, &mut self.w.oracle);
        self.w.ask(flush);
        self.drain()?;
        self.w.check_core()?;
        self.w.crash(Crash::Power);
        self.w.check_core()?;
        if self.start()? {
            self.verify()?;
        }
        Ok(())
    }
}
