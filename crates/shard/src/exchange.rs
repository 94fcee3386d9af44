//! Engines that are exchanged under clients that wait, from the pause to its end.
//!
//! A pause ends in one of three ways: the engines that were there go on, all threads have the other ones, or every request
//! fails. There is no fourth: threads with engines of two kinds would answer one client through the cache and another past it.

use crate::draft;
use crate::mail::{Ask, Handle};
use crate::start::{Backend, CoreSource};
use std::time::Duration;

/// A volume whose clients wait. Dropping it lets them go on with the engines that are there.
#[derive(Debug)]
#[must_use = "clients wait as long as it is there"]
pub struct Paused {
    handle: Handle,
    over: bool,
}

/// Why engines were not exchanged.
#[derive(Debug)]
pub enum NotExchanged {
    /// Nothing was tried; clients still wait.
    Refused(String, Paused),
    /// It was not over in time in every thread: every request fails from now on.
    Failed(String),
}

impl NotExchanged {
    /// Has every request fail also where nothing was tried; why.
    pub fn fail(self) -> String {
        match self {
            NotExchanged::Refused(why, paused) => {
                paused.fail();
                why
            }
            NotExchanged::Failed(why) => why,
        }
    }
}

impl Handle {
    /// Has every thread hold what clients ask from now on, and waits until nothing that came before is under way.
    ///
    /// # Errors
    /// Where that takes longer than `limit`, because a device does not answer; clients go on then as if nothing had been.
    pub fn pause(&self, limit: Duration) -> Result<Paused, String> {
        let paused = Paused { handle: self.clone(), over: false };
        self.wait_within(self.ask_all(|| Ask::Pause), limit)?;
        Ok(paused)
    }
}

impl Paused {
    /// Gives every thread another engine, over `core`, for a volume of so many bytes in blocks of so many, and lets clients go
    /// on. A thread has it once the one that was there is quiet: a cached one has been stopped before.
    ///
    /// # Errors
    /// Where the backend is for another number of threads, and where it takes longer than `limit` in any thread, because a
    /// device does not answer.
    pub fn exchange(
        self,
        core: CoreSource,
        backend: Backend,
        extent: (u64, u32),
        limit: Duration,
    ) -> Result<(), NotExchanged> {
        let drafts = match draft::all(core, backend, self.handle.shards(), extent) {
            Ok(drafts) => drafts,
            Err(why) => return Err(NotExchanged::Refused(why.to_string(), self)),
        };
        let ask = |(n, draft)| self.handle.ask(n, Ask::Exchange(Box::new(draft)));
        let said = drafts.into_iter().enumerate().map(ask).collect();
        match self.handle.wait_within(said, limit) {
            Ok(()) => Ok(()),
            Err(why) => {
                self.fail();
                Err(NotExchanged::Failed(why))
            }
        }
    }

    /// Has every request fail from now on. A thread that hears of it late holds its clients until then.
    pub fn fail(mut self) {
        self.over = true;
        drop(self.handle.ask_all(|| Ask::Fail));
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        if !self.over {
            if std::thread::panicking() {
                // Nobody knows how far it had come.
                drop(self.handle.ask_all(|| Ask::Fail));
                return;
            }
            // A thread that has ended holds nobody up.
            let _ = self.handle.wait_all(self.handle.ask_all(|| Ask::Resume));
        }
    }
}
