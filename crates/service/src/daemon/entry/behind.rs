//! Starts that hang, and that a stop of the daemon leaves behind.

use super::{Entry, Wish};
use crate::signals::Stopper;

impl Entry {
    /// Has nobody wait for its thread where that is to end and hangs in a start of which nothing is made, noted or served; in what it may
    /// hang, where that is so from now on.
    pub(crate) fn leave_behind(&self) -> Option<String> {
        if self.is_over() {
            return None;
        }
        let mut inner = self.lock();
        if inner.wish != Wish::Quit || inner.left_behind {
            return None;
        }
        // Without a stopper it is about to see that it is to end, and begins nothing.
        if !inner.stopper.as_ref().is_none_or(Stopper::leave_behind) {
            return None;
        }
        inner.left_behind = true;
        let cache = inner.config.cache.as_ref().map(|c| format!(", cache {}", c.display()));
        Some(format!("core {}{}", inner.config.core, cache.unwrap_or_default()))
    }

    /// Whether a stop of the daemon waits for its thread.
    pub(crate) fn is_waited_for(&self) -> bool {
        !self.is_over() && !self.lock().left_behind
    }
}
