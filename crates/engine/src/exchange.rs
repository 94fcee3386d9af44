//! Engines that are exchanged under clients that wait: [`Gate`] is the part of one thread, [`Pause`] that of whoever has it done,
//! [`Change`] what must be done in which order meanwhile. State machines: the service runs them on threads, the simulator in
//! its world.
//!
//! A pause ends in one of three ways: the engines that were there go on, all threads have the other ones, or every request
//! fails. There is no fourth: threads with engines of two kinds would answer one client through the cache and another past it.

mod change;

use crate::bug::{Bug, planted};
pub use change::{Change, Deed, Verdict};

/// The pause of one thread: `R` is what clients ask, `W` who waits for an answer of this thread, `N` the engine to come.
#[derive(Debug)]
pub struct Gate<R, W, N> {
    /// Requests that came since it began, oldest first; nothing while there is none. They are bounded as requests in flight are: by
    /// what connections, mounts and queues may have under way.
    held: Option<Vec<R>>,
    /// The asker who waits until nothing is under way.
    asked: Option<W>,
    /// The engine that comes once the one that is there is quiet.
    next: Option<(N, W)>,
    /// Every request fails.
    failed: bool,
}

impl<R, W, N> Default for Gate<R, W, N> {
    fn default() -> Self {
        Gate { held: None, asked: None, next: None, failed: false }
    }
}

impl<R, W, N> Gate<R, W, N> {
    /// Holds requests from now on; `who` hears when none is under way any more.
    pub fn begin(&mut self, who: W) {
        self.held.get_or_insert_default();
        self.asked = Some(who);
    }

    /// Takes `requests` while a pause lasts.
    pub fn hold(&mut self, requests: &mut Vec<R>) {
        if let Some(held) = &mut self.held {
            held.append(requests);
        }
    }

    /// Ends the pause; what was held comes before what is there.
    pub fn end(&mut self, requests: &mut Vec<R>) {
        if let Some(mut held) = self.held.take() {
            held.append(requests);
            *requests = held;
        }
        // Whoever still waits hears that it came to nothing.
        self.asked = None;
        self.next = None;
    }

    /// The same, and every request fails from now on, those that were held among them.
    pub fn fail(&mut self, requests: &mut Vec<R>) {
        self.failed = true;
        self.end(requests);
    }

    /// True if every request fails.
    pub fn is_failed(&self) -> bool {
        self.failed
    }

    /// Has `next` take the engine's place; `who` hears when it has.
    pub fn exchange(&mut self, next: N, who: W) {
        self.next = Some((next, who));
    }

    /// The asker who is to hear that nothing is under way, if that is so.
    pub fn rested(&mut self, in_flight: usize) -> Option<W> {
        if in_flight == 0 { self.asked.take() } else { None }
    }

    /// The engine that is to come, if this is the moment: clients wait, and the one that is there is `quiet`.
    pub fn next(&mut self, quiet: impl FnOnce() -> bool) -> Option<(N, W)> {
        if self.next.is_some() && self.held.is_some() && quiet() { self.next.take() } else { None }
    }
}

/// The word to every thread at the end of a pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Requests go on.
    Resume,
    /// Every request fails from now on.
    Fail,
}

/// A pause of all threads, from its beginning to what they are told at its end.
#[derive(Debug, Default)]
pub struct Pause {
    bug: Option<Bug>,
    broken: bool,
}

impl Pause {
    /// One that breaks a rule.
    pub fn with(bug: Option<Bug>) -> Pause {
        Pause { bug, broken: false }
    }

    /// Some thread may have another engine from now on, until [`Pause::exchanged`] says that all of them have.
    pub fn exchanging(&mut self) {
        self.broken = true;
    }

    /// Every thread has said that it has the other engine.
    pub fn exchanged(&mut self) {
        self.broken = false;
    }

    /// Takes note that the deeds done meanwhile could not be taken back: there is no engine that requests
    /// could go on with.
    pub fn broke(&mut self) {
        self.broken = true;
    }

    /// The word to every thread now that it is over.
    pub fn end(&self) -> Ending {
        match self.broken {
            true if !planted(self.bug, Bug::MixedEngines) => Ending::Fail,
            _ => Ending::Resume,
        }
    }
}
