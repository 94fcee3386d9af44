//! The pen that notes are written with: one writer has it at a time, and keeps it when nobody waits for what it writes any
//! more. A file system that hangs can so put no older state over a newer one.

use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The state of the lock.
#[derive(Debug, Default)]
struct WriterState {
    taken: Mutex<bool>,
    freed: Condvar,
}

/// The pen, for whoever is next.
#[derive(Debug, Default)]
pub(super) struct WriterLock(Arc<WriterState>);

/// The pen in a hand; dropping this puts it back.
#[derive(Debug)]
pub(super) struct WriterGuard(Arc<WriterState>);

impl WriterLock {
    /// Waits for it until then at most.
    pub(super) fn take(&self, until: Instant) -> Option<WriterGuard> {
        let limit = until.saturating_duration_since(Instant::now());
        let mut taken = self.0.taken.lock();
        self.0.freed.wait_while_for(&mut taken, |taken| *taken, limit);
        let is_free = !std::mem::replace(&mut *taken, true);
        is_free.then(|| WriterGuard(self.0.clone()))
    }
}

impl Drop for WriterGuard {
    fn drop(&mut self) {
        *self.0.taken.lock() = false;
        self.0.freed.notify_one();
    }
}

/// The time that notes are waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limit(pub(super) Duration);

impl Limit {
    /// While requests of clients wait.
    pub const PAUSED: Limit = Limit(loligo_volume::volume::live::LIMIT);
    /// While nobody but a command or a start does.
    pub(super) const PATIENT: Limit = Limit(Duration::from_secs(30));
}
