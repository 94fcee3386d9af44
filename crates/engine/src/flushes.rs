//! Flushes of both devices, and who waits for them.

use crate::api::{ControlId, Nanos};

/// The engine flushes by itself at least this often while anything is not durable.
pub(crate) const FLUSH_EVERY: Nanos = 500_000_000;

/// Destage jobs that nobody waits for share a flush of the core: one at most in this time.
const SHARED: Nanos = 50_000_000;
/// So many of them do not wait any longer.
pub(crate) const MANY: usize = 24;

/// The waiter for a frame to be durable, or for a flush of the core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waiter {
    Task(usize),
    /// A destage job.
    Job(usize),
    Intent(u32),
    /// The open intents are being lifted.
    Lift,
    /// The last flush of a stop: it closes the intents, and [`Engine::settle`] goes on from there.
    Stop,
    Checkpoint,
    /// A management request, which is among [`CoreFlush::asked`] for as long as it is not answered.
    Control(ControlId),
}

/// A flush of the cache device that is under way, and what it covers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CacheFlush {
    /// The journal through this frame.
    pub(crate) journal: u64,
    /// The writes of the checkpoint too.
    pub(crate) checkpoint: bool,
}

/// Flushes of the core: whoever asks while one is under way waits for the next.
#[derive(Debug, Default)]
pub(crate) struct CoreFlush {
    pub(crate) running: bool,
    pub(crate) captured: u64,
    pub(crate) now: Vec<Waiter>,
    pub(crate) next: Vec<Waiter>,
    /// Somebody in `next` does not want to share.
    pub(crate) urgent: bool,
    /// The time at which the first of `next` came that does.
    pub(crate) shared_since: Option<Nanos>,
    /// Management requests that wait, whichever flush it is for.
    pub(crate) asked: Vec<ControlId>,
    /// One has failed.
    pub(crate) failed: bool,
}

impl CoreFlush {
    /// True if `who` waits already.
    pub(crate) fn has(&self, who: Waiter) -> bool {
        self.now.contains(&who) || self.next.contains(&who)
    }

    /// Nobody waits any longer for a flush that has not begun: those who did.
    pub(crate) fn give_up(&mut self) -> Vec<Waiter> {
        (self.urgent, self.shared_since) = (false, None);
        std::mem::take(&mut self.next)
    }

    /// Nobody waits any more, not even for the one under way.
    pub(crate) fn end(&mut self) {
        self.give_up();
        self.now.clear();
    }

    /// The time at which a shared flush falls due.
    pub(crate) fn deadline(&self) -> Option<Nanos> {
        self.shared_since.filter(|_| !self.running).map(|t| t + SHARED)
    }
}
