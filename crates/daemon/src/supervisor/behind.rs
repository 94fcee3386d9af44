//! Starts that hang, and that nobody waits for once their volume is to be stopped.
//!
//! A start hangs in one of two places. While its options are made, nothing of it is open. After that it opens
//! devices, before its gate ([`loligo_volume::signals::StopSignals::passes`]). One that is left behind finds
//! on waking that another wish has come, or that its gate is closed, and ends there. It has noted, made,
//! written and served nothing then. Its open devices are locked by open descriptors, so that a successor
//! which needs them is refused until it wakes.

use super::{DesiredState, Status, Supervisor};
use std::time::Duration;

impl Supervisor {
    /// Has nobody wait for its thread where that was told to stop so long ago and hangs in a start of which nothing is made,
    /// noted or served; in what it may hang, where that is so from now on.
    pub(crate) fn leave_behind(&self, after: Duration) -> Option<String> {
        if self.is_over() {
            return None;
        }
        let left = {
            let inner = self.lock();
            if !inner.is_ending() || inner.left_behind || inner.asked.elapsed() < after {
                return None;
            }
            match &inner.stopper {
                Some(stopper) => stopper.leave_behind()?,
                None if inner.looks => Vec::new(),
                // It is about to see that it is to end.
                None => return None,
            }
        };
        // Without the lock: their file system may be the one that hangs.
        for path in left {
            let _ = std::fs::remove_file(path);
        }
        let mut inner = self.lock();
        if !inner.is_ending() || inner.left_behind {
            return None;
        }
        inner.left_behind = true;
        if inner.desired != DesiredState::Quit {
            inner.status = Status::Stopped;
        }
        self.changed.notify_all();
        let cache = inner.config.cache.as_ref().map(|c| format!(", cache {}", c.display()));
        Some(format!("core {}{}", inner.config.core, cache.unwrap_or_default()))
    }

    /// True if its thread hangs, and nobody waits for it.
    pub(crate) fn is_left_behind(&self) -> bool {
        self.lock().left_behind
    }

    /// True if a stop of the daemon waits for its thread.
    pub(crate) fn is_waited_for(&self) -> bool {
        !self.is_over() && !self.is_left_behind()
    }
}
