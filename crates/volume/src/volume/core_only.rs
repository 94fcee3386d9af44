//! A cache that is gone while the core has everything: the volume goes on without it, once it is noted that nobody may believe
//! what that cache holds.
//!
//! Without such a note a device that comes back after the next boot would be served with what was true before it went. So
//! changes wait (the engine holds them) for one of these to be durable: the core's label without a cache, an image's mark, the
//! daemon's state, or superblocks that are wiped after all, because only a part of the device has failed.

use super::Volume;
use crate::labelled_core::LabelledCore;
use crate::last_cache::LastCache;
use crate::memory::Memory;
use crate::rbd;
use anyhow::{Context, Result, anyhow, ensure};
use loligo_block::keys::{CREATE, DATA_OFFSET, FORCE};
use loligo_block::{SyncIo, keyed};
use loligo_engine::api::Control;
use loligo_engine::{FallbackState, open as engine};
use loligo_format::layout::SUPERBLOCKS;
use loligo_format::superblock::SUPERBLOCK;
use loligo_log::say;
use loligo_shard::{Command, Snapshot};

impl Volume {
    /// Settles what is to become of a cache that is gone, by what the threads say of themselves.
    pub(super) fn mind_cache(&mut self, snapshots: &[Snapshot], memory: Option<&dyn Memory>) {
        let Some(why) = snapshots.iter().find_map(|s| s.poisoned.clone()).filter(|_| !self.core_only) else {
            return;
        };
        // Failing that the volume is as said.
        let _ = self.forsake(why, memory, true);
    }

    /// Fails all threads once one thread's cache has failed for good, or, without a cache, its flush of the
    /// core. Every user of the volume is to end at once, whichever part of it is asked.
    pub(super) fn fail_together(&mut self, snapshots: &[Snapshot]) {
        let has_failed = |s: &Snapshot| match self.core_only {
            true => s.fallback == Some(FallbackState::Failed),
            false => s.poisoned.is_some(),
        };
        let Some(why) = snapshots.iter().find(|s| has_failed(s)).and_then(|s| s.poisoned.clone()) else {
            return;
        };
        if !snapshots.iter().all(has_failed) {
            // A thread that has ended is found out elsewhere.
            let _ = self.app.handle.control(&Control::GiveUp(why));
        }
    }

    /// Goes on without the cache because of `why`, once it is noted that what it holds is void. `answers`: its device does, if only
    /// with errors.
    ///
    /// # Errors
    /// If the core lacks anything, or nothing could be noted: everything fails from then on.
    pub(super) fn forsake(&mut self, why: String, memory: Option<&dyn Memory>, answers: bool) -> Result<()> {
        let handle = self.app.handle.clone();
        let settled = handle
            .control(&Control::FallBack(why.clone()))
            .map_err(|e| anyhow!(e))
            .and_then(|()| self.note_void(memory, answers));
        if !answers {
            // What waits for it, reads above all, is done by the core. A thread that has ended is found out elsewhere.
            let _ = handle.wait_all(handle.send_all(|| Command::Abandon(why.clone())));
        }
        let cache = self.options.cache.as_ref().map(|c| c.path.display().to_string()).unwrap_or_default();
        match settled {
            Ok(noted) => {
                self.core_only = true;
                self.asks_of_its_arrays();
                // A thread that has ended is found out elsewhere.
                let _ = handle.control(&Control::Confirm);
                let wiped = noted.contains(&WIPED);
                if let Some(held) = self.left.held.as_ref().filter(|_| answers && !wiped) {
                    // Nobody waits for it now: what is wiped is believed by nobody, wherever it turns up.
                    let _ = wipe(&mut held.file.sync_io());
                }
                say!(
                    "error: the cache {cache} is gone: {why}. The core has everything, and serves alone from now on; what the cache \
                     holds is void ({}). {}",
                    noted.join(", "),
                    self.mend(memory.is_some())
                );
                Ok(())
            }
            Err(reason) => {
                let _ = handle.control(&Control::GiveUp(why.clone()));
                say!(
                    "error: the cache {cache} is gone: {why}. The volume cannot go on without it: {reason:#}"
                );
                Err(reason)
            }
        }
    }

    /// The remedy for a volume whose cache is gone.
    pub(super) fn mend(&self, daemon: bool) -> String {
        let exchangeable =
            self.left.image.is_none() && !self.left.core.home.as_ref().is_some_and(LabelledCore::is_masked);
        match daemon && exchangeable {
            true => format!(
                "Give the volume another one with 'loligo volume detach {0}' and 'loligo volume attach {0}'",
                self.options.name
            ),
            false => {
                keyed!("Its next start makes a new cache with {CREATE} {FORCE}, on this device or another")
                    .to_string()
            }
        }
    }

    /// Notes durably that the cache is void; where.
    fn note_void(&mut self, memory: Option<&dyn Memory>, answers: bool) -> Result<Vec<&'static str>> {
        let (mut noted, mut failed) = (Vec::new(), Vec::new());
        let mut note = |what: &'static str, result: Result<()>| match result {
            Ok(()) => noted.push(what),
            Err(why) => failed.push(format!("{what}: {why:#}")),
        };
        if let Some(home) = &mut self.left.core.home {
            note("the core's label says so", home.void());
        }
        if let (Some(image), Some(held)) = (&mut self.left.image, &self.left.held) {
            note("the image's metadata says so", rbd::void(image, held));
        }
        if let (Some(memory), Some(cache)) = (memory, self.last_cache()) {
            let void = LastCache { dirty_bytes: Some(0), void: true, ..cache };
            let remembered = memory.cache_is(&self.options.name, void);
            // A partner that takes the array reads nothing of this host.
            if self.options.reservation.is_none() || remembered.is_err() {
                note("the daemon remembers it", remembered);
            }
        }
        if let Some(held) = self.left.held.as_ref().filter(|_| answers && noted.is_empty()) {
            match wipe(&mut held.file.sync_io()) {
                Ok(()) => noted.push(WIPED),
                Err(why) => failed.push(format!("{WIPED}: {why:#}")),
            }
        }
        ensure!(
            !noted.is_empty(),
            keyed!(
                "nowhere could be noted that what it holds is void ({}). The daemon remembers it for its volumes, and a core made with \
             {DATA_OFFSET} in its label",
                failed.join("; ")
            )
        );
        Ok(noted)
    }
}

/// The words that say that the cache itself says so.
const WIPED: &str = "its superblocks are wiped";

/// Wipes the superblocks and looks whether they are.
fn wipe(dev: &mut dyn SyncIo) -> Result<()> {
    engine::wipe(dev).context("it does not take a write")?;
    for at in SUPERBLOCKS {
        let mut raw = vec![0xff; SUPERBLOCK];
        dev.read_at(at, &mut raw).context("it cannot be read")?;
        ensure!(raw.iter().all(|b| *b == 0), "what was written is not there");
    }
    Ok(())
}
