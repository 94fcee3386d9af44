//! Engines that are exchanged under clients that wait: what threads do by [`Gate`](loligo_engine::exchange::Gate), from the thread that
//! has it done.

use crate::command_error::CommandError;
use crate::engine_setup;
use crate::message::{Command, Handle};
use crate::start::{Backend, CoreSource};
use loligo_engine::exchange::{Ending, Pause};
use std::time::Duration;

/// A volume whose clients wait. Dropping it lets them go on, or has every request fail where an exchange broke off.
#[derive(Debug)]
#[must_use = "clients wait as long as it is there"]
pub struct Paused {
    handle: Handle,
    state: Pause,
}

impl Handle {
    /// Has every thread hold what clients ask from now on, and waits until nothing that came before is under way.
    ///
    /// # Errors
    /// If that takes longer than `limit`, because a device does not answer; clients go on then as if nothing had been.
    pub fn pause(&self, limit: Duration) -> Result<Paused, CommandError> {
        let paused = Paused { handle: self.clone(), state: Pause::default() };
        self.wait_within(self.send_all(|| Command::Pause), limit)?;
        Ok(paused)
    }
}

impl Paused {
    /// Gives every thread another engine, over `core`, for a volume of so many bytes in blocks of so many. A thread has it once
    /// the one that was there is quiet: a cached one has been stopped before.
    ///
    /// # Errors
    /// If the backend is for another number of threads, so that nothing was tried. If it takes longer than `limit` in any
    /// thread, because a device does not answer: then every request fails once this is dropped.
    pub fn exchange(
        &mut self,
        core: CoreSource,
        backend: Backend,
        extent: (u64, u32),
        limit: Duration,
    ) -> Result<(), CommandError> {
        let setups = engine_setup::all(core, backend, self.handle.shards(), extent)?;
        self.state.exchanging();
        let ask = |(n, setup)| self.handle.send(n, Command::Exchange(Box::new(setup)));
        let said = setups.into_iter().enumerate().map(ask).collect();
        self.handle.wait_within(said, limit)?;
        self.state.exchanged();
        Ok(())
    }

    /// The pause, which knows how it will end.
    pub fn state(&mut self) -> &mut Pause {
        &mut self.state
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // Nobody knows how far it had come.
            self.state.broke();
        }
        match self.state.end() {
            // A thread that hears of it late holds its clients until then.
            Ending::Fail => drop(self.handle.send_all(|| Command::Fail)),
            Ending::Resume => {
                // A thread that has ended holds nobody up.
                let _ = self.handle.wait_all(self.handle.send_all(|| Command::Resume));
            }
        }
    }
}
