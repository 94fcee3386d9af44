//! The drain of a freeze: it brings to the core the versions pinned at its moment, a window at a time, as
//! fast as it goes.

use super::{AHEAD, JOBS};
use crate::api::{Effect, Nanos};
use crate::bug::{Bug, planted};
use crate::engine::Engine;
use crate::index::Meta;

impl Engine {
    /// Starts jobs for windows with pinned versions. Nothing else goes to a frozen core.
    pub(super) fn drain(&mut self, now: Nanos, fx: &mut Vec<Effect>) {
        let mut look = self.state.freeze().map_or(0, |f| f.windows_left());
        let mut backlog = self.destage.backlog(self.cfg.devices.core_groups);
        while look > 0 && self.state.is_draining() && self.destage.jobs.len() < JOBS && backlog < AHEAD {
            look -= 1;
            let Some(freeze) = self.state.freeze_mut() else { return };
            let Some(window) = freeze.next_window() else { return };
            if self.destage.by_window.contains_key(&window) || self.destage.stuck.is_waiting(window, now) {
                freeze.later(window);
                continue;
            }
            let blocks = self.start_job(now, window, Vec::new(), fx);
            backlog += blocks.min(if self.cfg.devices.core_groups { 1 } else { 32 }) as u32;
        }
    }

    /// Of the dirty versions of `window`, those that may go to the core: while it is frozen the pinned ones.
    pub(super) fn destageable(&self, window: u32, dirty: &mut Vec<(u32, Meta)>) {
        let Some(freeze) = self.state.freeze() else { return };
        freeze.pinned_in(window, dirty);
        if planted(self.cfg.bug, Bug::NewestInsteadOfPinned) {
            for (block, meta) in dirty {
                *meta = self.map.index.get(*block).unwrap_or(*meta);
            }
        }
    }
}
