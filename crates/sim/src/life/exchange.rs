//! A cache that is taken away, or comes, while clients are served: the same deeds in the same order as in the service, with crashes
//! and failures between them.

use super::Run;
use crate::subject::Subject;
use crate::sync::Fuse;
use crate::world::Wrong;
use loligo_engine::api::Control;
use loligo_engine::exchange::{Change, Deed, Ending, Pause, Verdict};
use loligo_format::mode::Mode;

/// One deed in so many is where the process dies.
const CRASH_ONE_IN: u64 = 24;
/// One note in so many cannot be made.
const UNNOTED_ONE_IN: u64 = 6;
/// One exchange in so many has a thread that hears of it after the limit.
const LATE_ONE_IN: u64 = 4;
/// Steps of the workload that a thread which is not late needs at most.
const LIMIT: usize = 100_000;

impl<E: Subject> Run<E> {
    /// The cache goes if there is one, else one comes. True where that ended the life.
    pub(super) fn exchange(&mut self) -> Result<bool, Wrong> {
        self.release()?;
        while self.w.is_controlling() || self.w.is_rescuing() {
            self.step()?;
        }
        self.check_control("management")?;
        if !self.w.can_exchange() {
            return Ok(false);
        }
        let detach = !self.w.is_bare();
        if detach {
            // What is written meanwhile is written through, so that it does not grow back.
            self.while_served(&Control::SetMode(Mode::Wt))?;
            self.w.cfg.mode = Mode::Wt;
            self.while_served(&Control::FlushDirty)?;
            self.w.prepare(false, &Fuse::never())?;
        } else if !self.new_cache()? {
            return Ok(true);
        }
        self.w.hold_clients();
        let mut pause = Pause::with(self.w.cfg.bug);
        let patience = if self.swaps.chance(1, 8) { self.swaps.below(20) as usize } else { LIMIT };
        for _ in 0..patience {
            if self.w.is_heard() {
                break;
            }
            self.step()?;
        }
        if !self.w.is_heard() {
            self.w.marks.hit("a pause given up");
            self.end_pause(&pause, true);
            return Ok(false);
        }
        let mut change = match detach {
            true => Change::detach(self.w.cfg.bug),
            false => Change::attach(self.w.cfg.bug),
        };
        let verdict = loop {
            let deed = match change.next() {
                Ok(deed) => deed,
                Err(verdict) => break verdict,
            };
            if self.swaps.chance(1, CRASH_ONE_IN) {
                self.w.marks.hit("crash while a cache came or went");
                self.crash();
                return Ok(true);
            }
            let Some(done) = self.deed(deed, &mut pause)? else { return Ok(true) };
            let _ = change.did(done, &mut pause);
        };
        self.settle(verdict, detach, &pause)
    }

    /// Carries out the verdict.
    fn settle(&mut self, verdict: Verdict, detach: bool, pause: &Pause) -> Result<bool, Wrong> {
        match verdict {
            Verdict::Done => {
                self.w.is_anew();
                self.w.marks.hit(if detach { "detached" } else { "attached" });
                self.end_pause(pause, true);
                Ok(false)
            }
            Verdict::Kept | Verdict::Named => {
                self.w.marks.hit(if detach { "a detach taken back" } else { "an attach taken back" });
                self.end_pause(pause, true);
                Ok(false)
            }
            Verdict::Broken => {
                self.w.marks.hit("a change that broke off");
                self.end_pause(pause, false);
                let requests = self.swaps.range(20..200);
                self.drive(requests)?;
                self.crash();
                Ok(true)
            }
        }
    }

    fn end_pause(&mut self, pause: &Pause, settled: bool) {
        let ending = pause.end();
        if ending == Ending::Fail {
            self.w.marks.hit("every request fails");
        }
        self.w.end_pause(ending, settled);
    }

    /// Time goes on, with clients that ask.
    fn step(&mut self) -> Result<(), Wrong> {
        if self.w.clients.has_room() && self.swaps.chance(1, 8) {
            let req = self.w.clients.draw(self.w.now, &mut self.w.oracle);
            self.w.ask(req);
        }
        let soon = self.w.now + 5_000_000;
        if self.pump(Some(soon))? { Ok(()) } else { Err(self.stalled()) }
    }

    fn while_served(&mut self, control: &Control) -> Result<bool, Wrong> {
        self.w.control(control);
        while self.w.is_controlling() {
            self.step()?;
        }
        self.check_control(&format!("{control:?}"))
    }

    /// Makes a cache aside while clients are served. False where the process died of it.
    fn new_cache(&mut self) -> Result<bool, Wrong> {
        let fuse = if self.swaps.chance(1, 8) { Fuse::after(self.swaps.below(30)) } else { Fuse::never() };
        self.w.cfg.uuid[0] = self.w.cfg.uuid[0].wrapping_add(1);
        self.w.cfg.mode = self.swaps.pick(&Mode::ALL);
        if !self.w.noted.bare {
            // An attach before named the cache that is replaced now. The core has everything, and whoever replaces it says so.
            self.w.noted.void = true;
        }
        let made = self.w.format(&fuse)? && {
            let ready = self.w.prepare(true, &fuse);
            fuse.blown() || ready.map(|()| true)?
        };
        if !made || fuse.blown() {
            self.w.marks.hit("crash while a cache was made");
            self.crash();
            return Ok(false);
        }
        Ok(true)
    }

    /// Does the deed; the result is nothing if the process died of it.
    fn deed(&mut self, deed: Deed, pause: &mut Pause) -> Result<Option<Result<(), Wrong>>, Wrong> {
        let fuse = if self.swaps.chance(1, 8) { Fuse::after(self.swaps.below(8)) } else { Fuse::never() };
        let done = match deed {
            Deed::FlushDirty => {
                let flushed = self.while_served(&Control::FlushDirty)?;
                let dirty = self.w.engine().map_or(0, Subject::dirty_blocks);
                if flushed && dirty == 0 { Ok(()) } else { Err(format!("{dirty} blocks are dirty")) }
            }
            Deed::FlushCore if self.w.is_plain() => self.w.flush_core(&fuse),
            Deed::FlushCore => match self.while_served(&Control::FlushCore)? {
                true => Ok(()),
                false => Err("the core cannot be flushed".into()),
            },
            Deed::Wipe | Deed::Restore => {
                let done = self.w.wipe(deed == Deed::Restore, &fuse);
                // The device may fail at its end, too.
                if self.swaps.chance(1, UNNOTED_ONE_IN) { Err("it failed".into()) } else { done }
            }
            Deed::LabelClean | Deed::LabelGone => self.note(|n| n.label = false),
            Deed::LabelDirty | Deed::LabelCached => self.note(|n| n.label = true),
            Deed::StateClean => self.note(|n| n.dirty = false),
            Deed::StateDirty => self.note(|n| (n.dirty, n.void) = (true, false)),
            Deed::NoteVoid => {
                self.w.marks.hit("void without a wipe");
                self.note(|n| n.void = true)
            }
            Deed::StateBare => self.note(|n| n.bare = true),
            Deed::StateCached => self.note(|n| (n.bare, n.dirty, n.void) = (false, true, false)),
            Deed::Stop => match self.while_served(&Control::Stop)? {
                true => Ok(()),
                false => Err("it could not stop".into()),
            },
            Deed::Exchange => self.exchange_engines(pause)?,
        };
        if fuse.blown() {
            self.w.marks.hit("crash while a cache came or went");
            self.crash();
            return Ok(None);
        }
        Ok(Some(done))
    }

    /// A note that may fail, made or not.
    fn note(&mut self, make: impl FnOnce(&mut crate::world::Noted)) -> Result<(), Wrong> {
        let fails = self.swaps.chance(1, UNNOTED_ONE_IN);
        if !fails || self.swaps.chance(1, 2) {
            make(&mut self.w.noted);
        }
        if fails { Err("it could not be noted".into()) } else { Ok(()) }
    }

    fn exchange_engines(&mut self, pause: &mut Pause) -> Result<Result<(), Wrong>, Wrong> {
        let threads = self.w.engine().map_or(1, Subject::threads) as u64;
        let late = self.swaps.chance(1, LATE_ONE_IN).then(|| self.swaps.below(threads) as usize);
        pause.exchanging();
        self.w.exchange_engines(late);
        let limit = if late.is_some() { 20 } else { LIMIT };
        for _ in 0..limit {
            if self.w.is_heard() {
                pause.exchanged();
                return Ok(Ok(()));
            }
            self.step()?;
        }
        Ok(Err("it took too long".into()))
    }
}
