//! A volume from its options to its end.

mod core_only;
pub mod live;
mod size;
mod start;
mod trouble;
mod undo;

use crate::core::OpenCore;
use crate::held_cache::HeldCache;
use crate::last_cache::{CoreNames, LastCache};
use crate::memory::{Memory, ServedApi};
use crate::options::ServeOptions;
use crate::pool::Governing;
use crate::rbd::HeldImage;
use crate::refusals::{self, Refusals};
use crate::reservation::Holding;
use crate::signals::StopSignals;
use crate::ublk::Devices;
use crate::volume_state::{Keeping, VolumeState};
use crate::{block, stats, stop};
use anyhow::Result;
use loligo_block::lease::Hold;
use loligo_block::silence::Cause;
use loligo_engine::FallbackState;
use loligo_engine::api::Control;
use loligo_export::blockdev::BlockDevice;
use loligo_export::fuse::Mount;
use loligo_log::say;
use loligo_shard::{Command, Running, Snapshot};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Between two looks at a served volume.
pub const LOOK: Duration = Duration::from_secs(1);

/// Between two glances at what cannot wait for a look: somebody may stand there.
pub const GLANCE: Duration = Duration::from_millis(50);

/// A served volume.
#[derive(Debug)]
pub struct Volume {
    options: ServeOptions,
    running: Running,
    /// The volume as management knows it.
    pub app: Arc<VolumeState>,
    mounts: Vec<Mount>,
    devices: Vec<BlockDevice>,
    kernel: Devices,
    left: Shutdown,
    /// The names of its core.
    known_as: CoreNames,
    told: Promised,
    /// An exchange of engines broke off: every request fails.
    fails: bool,
    /// It has been said that the cache is poisoned.
    poisoned: bool,
    /// Messages about sectors that the core refuses.
    refusals: Refusals,
    /// Its cache is gone, and the core serves alone.
    core_only: bool,
    /// Its clients and its image know that the array has fenced this controller.
    told_fenced: bool,
    /// It has been said that the lease is over.
    expired: bool,
    /// Its control socket; the name is somebody else's to have when it is gone.
    _api: Box<dyn ServedApi>,
    /// With a share of a pool: it grows and shrinks as long.
    governing: Option<Governing>,
    /// Its hold on arrays that two controllers share, until it has ended.
    holding: Option<Holding>,
}

/// Promises made to its clients at the start, which hold whatever is put under them.
#[derive(Debug, Clone, Copy)]
struct Promised {
    /// Bytes of a block.
    block: u32,
    /// Answered writes may be lost until they are flushed.
    volatile: bool,
}

impl Volume {
    /// True if a thread has ended by itself: [`Volume::stop`] says why.
    pub fn has_failed(&self) -> bool {
        self.running.has_failed()
    }

    /// To be called some times a second: the reason why it is to be ended at once, with [`Volume::end`]. One that the array has
    /// fenced fails every request until the next call, so that its clients hear of it.
    pub fn silent(&mut self) -> Option<Cause> {
        let cause = self.app.silent()?.clone();
        if matches!(cause, Cause::Ended) || self.told_fenced {
            return Some(cause);
        }
        self.told_fenced = true;
        say!("error: {cause}. Every request fails, and nothing more is written, here or elsewhere");
        self.app.silence_image();
        // A thread whose answer is late has nothing to ask its devices either.
        drop(self.app.handle.send_all(|| Command::Control(Control::Expel(cause.to_string()))));
        None
    }

    /// Ends it at once, as the death of the process would: nothing is written or noted anywhere, and no device, cluster or client is
    /// waited for. Mounts and devices of the kernel go in the background: as long as the result has not finished, the kernel may
    /// have writes to its devices.
    pub fn end(self) -> Option<JoinHandle<()>> {
        let Volume { running, app, mounts, devices, mut kernel, left, governing, .. } = self;
        app.end_now();
        let Shutdown { keeping, core, held, image, void: _ } = left;
        let name = app.name.clone();
        let let_go = move || {
            // They answer nobody, by whichever thread that has not ended yet.
            let staying = running.end_now();
            if let Some(image) = image {
                image.end();
            }
            drop(keeping);
            stop::unmount(mounts);
            drop(devices);
            kernel.let_go();
            kernel.end();
            staying.wait();
            // The last to have a device waits for what the kernel has of it.
            drop((governing, core, held));
        };
        let ending = std::thread::Builder::new().name(format!("end-{name}")).spawn(let_go);
        let unended =
            |why| tracing::warn!(%why, name, "what a volume had that was ended goes with the process");
        ending.map_err(unended).ok()
    }

    /// To be called every second or so: says what has changed for the worse, settles what is to become of a cache that is gone, and
    /// rewrites the statistics.
    pub fn look(&mut self, memory: Option<&dyn Memory>) {
        if self.app.silent().is_some() {
            return;
        }
        let snapshots = self.app.handle.snapshots();
        let waits = snapshots.iter().any(|s| s.fallback == Some(FallbackState::Waiting));
        // Before anything is said, for which somebody may have to be waited.
        if !waits {
            self.fail_together(&snapshots);
        }
        if let Some(why) = snapshots
            .iter()
            .find_map(|s| s.poisoned.as_ref())
            .filter(|_| !(self.poisoned || self.core_only || waits || self.left.held.is_none()))
        {
            self.poisoned = true;
            say!(
                "error: the cache no longer acknowledges anything: {why}. Everything acknowledged before is on it: stop the service, mend \
                 the device and start it again"
            );
        }
        if let Some(why) = snapshots
            .iter()
            .filter(|s| s.fallback == Some(FallbackState::Failed) || self.left.held.is_none())
            .find_map(|s| s.poisoned.as_ref())
            .filter(|_| (self.core_only || self.left.held.is_none()) && !self.poisoned)
        {
            self.poisoned = true;
            say!(
                "error: the volume has no cache and acknowledges nothing any more: {why}. Writes since the last flush may be lost: mend                  the core and start the volume again"
            );
        }
        let refused = refusals::told(&snapshots, self.app.core_start());
        if let Some(line) = self.refusals.line(Instant::now(), refused) {
            say!("{line}");
        }
        if let Some(now) = self.app.lease().filter(|now| (*now == Hold::Expired) != self.expired) {
            self.expired = !self.expired;
            say!(
                "{}",
                match now {
                    Hold::Expired =>
                        "warning: no word from the cluster for as long as the lease: requests wait until there is one",
                    Hold::Valid => "the cluster has answered: requests go on",
                    Hold::Lost => "the cluster has answered, and the image is somebody else's",
                }
            );
        }
        self.kernel.look();
        stats::rewrite(&self.options, &self.app, true);
        if waits {
            self.mind_cache(&snapshots, memory);
        }
    }

    /// To be called some times a second: makes its block device what the kernel would not while it was open.
    ///
    /// # Errors
    /// If the device is lost by that: the volume is to be started again.
    pub fn glance(&mut self) -> Result<()> {
        let app = &self.app;
        // Whoever opens or stops a device waits for what its volume answers.
        self.kernel.renew(&app.handle, || {
            let waits = |s: &Snapshot| s.poisoned.is_some() || s.fallback == Some(FallbackState::Waiting);
            let is_held = |lease: Option<Hold>| lease.is_none_or(|now| now == Hold::Valid);
            is_held(app.lease()) && is_held(app.array_lease()) && !app.handle.snapshots().iter().any(waits)
        })
    }

    /// The cache it is served through; nothing where it is bare.
    pub fn last_cache(&self) -> Option<LastCache> {
        let held = self.left.held.as_ref()?;
        let path = &self.options.cache.as_ref()?.path;
        Some(self.known_as.cache(path, held.uuid.clone(), None, self.core_only))
    }

    /// The options it is served by now.
    pub fn options(&self) -> &ServeOptions {
        &self.options
    }

    /// True if the stop writes everything dirty to the core.
    pub fn flushes_on_stop(&self) -> bool {
        self.options.flush_on_stop
    }

    /// Has the stop do so, or not.
    pub fn flush_on_stop(&mut self, flush: bool) {
        self.options.flush_on_stop = flush;
    }

    /// Ends it: accepted requests are answered, everything acknowledged is made durable.
    ///
    /// # Errors
    /// If something of that failed; what was acknowledged is safe on the cache all the same, and the next start recovers.
    pub fn stop(self, signals: &StopSignals) -> Result<u64> {
        let Volume {
            options, running, app, mut mounts, mut devices, kernel, mut left, core_only, fails, ..
        } = self;
        left.void |= core_only;
        // Its users get errors anyway.
        let fails = || fails || running.has_failed();
        mounts.extend(block::let_go(&mut devices, &options, signals, fails, &app));
        stop::stop(&options, signals, running, (mounts, kernel), &app, left)
    }
}

/// The parts that are ended after the threads.
#[derive(Debug)]
pub(crate) struct Shutdown {
    /// Ends before the image is closed.
    pub(crate) keeping: Keeping,
    pub(crate) core: OpenCore,
    pub(crate) held: Option<HeldCache>,
    pub(crate) image: Option<HeldImage>,
    /// The cache's contents are void.
    pub(crate) void: bool,
}
