//! State that the management side shares: who this is, the threads, and a flush that may be under way.

use crate::change::Changes;
use crate::doors::Doors;
use crate::held_cache::HeldCache;
use crate::options::ServeOptions;
use crate::rbd::ImageGuard;
use crate::refusals;
use crate::served_label::ServedLabel;
use anyhow::Result;
use loligo_block::keyed;
use loligo_block::lease::{Hold, Lease};
use loligo_block::mirror::{Mirror, MirrorView};
use loligo_block::silence::{Cause, Silence};
use loligo_ceph::AttachedImage;
use loligo_client::api::volume::{FlushState, Info};
use loligo_client::outcome::{Ended, Outcome};
use loligo_engine::api::Control;
use loligo_engine::params::Params;
use loligo_export::fuse::Counters;
use loligo_export::{TlsContext, TlsError};
use loligo_format::mode::Mode;
use loligo_format::units::BLOCK;
use loligo_shard::{Command, Handle};
use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;

/// Describes the volume that `o` starts.
pub(crate) fn info_of(o: &ServeOptions, held: Option<&HeldCache>, listen: Vec<String>, size: u64) -> Info {
    let mut info = Info {
        name: o.name.clone(),
        version: env!("CARGO_PKG_VERSION"),
        pid: std::process::id(),
        core: o.core.to_string(),
        cache: None,
        size,
        line_size: None,
        shards: 1,
        core_reserve: None,
        uuid: None,
        listen,
    };
    cached_by(&mut info, o, held);
    info
}

/// Says in `info` what the cache is, if there is one.
pub(crate) fn cached_by(info: &mut Info, o: &ServeOptions, held: Option<&HeldCache>) {
    let sb = held.map(|h| h.superblock.lock());
    let sb = sb.as_deref();
    info.cache = o.cache.as_ref().map(|c| c.path.display().to_string());
    info.line_size = sb.map(|s| s.line_size);
    // Without a cache the volume keeps the threads that it has.
    info.shards = sb.map_or(info.shards, |s| s.layout.shards);
    info.core_reserve = sb.map(|s| s.core_reserve);
    info.uuid = held.map(|h| h.uuid.clone());
}

/// The volume as management sees it.
#[derive(Debug)]
pub struct VolumeState {
    /// Its name.
    pub name: String,
    /// Its description; what changes in it while it is served is changed here.
    info: Mutex<Info>,
    /// Its threads.
    pub handle: Handle,
    /// The image that is the core, and whether it is still ours.
    rbd: Mutex<Option<ImageGuard>>,
    /// The core's label, if it has one; the volume itself keeps it.
    mark: Option<Weak<ServedLabel>>,
    /// Counters of what came through mounts.
    pub fuse: Arc<Counters>,
    /// The time at which its start ended.
    pub started: Instant,
    /// The credentials that TLS clients are shown, and know.
    tls: Option<TlsContext>,
    /// Held while the tunables are read, changed and handed out again, so that of two changes at once none is lost.
    setting: Mutex<()>,
    /// Other changes that are to be made.
    pub changes: Changes,
    /// The last flushes, oldest first.
    flushes: Mutex<VecDeque<FlushState>>,
    /// The memory of what an administrator changes.
    remembers: OnceLock<Remembers>,
    /// The mirror that its cache lies on.
    mirror: Option<Mirror>,
    /// The parts by which it is ended at once.
    ends: Ends,
    /// The lease of the arrays that it lies on, if two controllers share them.
    array: Option<Arc<Lease>>,
    /// The sockets that clients may come by.
    doors: Doors,
}

/// The parts of a volume that an end at once must reach, from whatever thread.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    /// Of its devices.
    pub(crate) silence: Silence,
    /// The image that is its core.
    pub(crate) image: Option<Weak<AttachedImage>>,
}

/// Ends the keeping of a volume's image with it, on every way out: a client that is closed on purpose looks like one that lost its
/// image to whoever still asks.
#[derive(Debug)]
pub(crate) struct Keeping(pub(crate) Arc<VolumeState>);

impl Drop for Keeping {
    fn drop(&mut self) {
        self.0.end_rbd();
    }
}

/// A change that an administrator has made in a running volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The mode.
    Mode(Mode),
    /// A tunable, and what it is now.
    Param(String, String),
}

/// Told of every change once it holds.
pub(crate) struct Remembers(pub(crate) Box<dyn Fn(Change) -> Result<()> + Send + Sync>);

impl std::fmt::Debug for Remembers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Remembers")
    }
}

impl VolumeState {
    pub(crate) fn new(
        info: Info,
        handle: Handle,
        rbd: Option<ImageGuard>,
        mark: Option<Weak<ServedLabel>>,
    ) -> VolumeState {
        VolumeState {
            name: info.name.clone(),
            info: Mutex::new(info),
            handle,
            rbd: Mutex::new(rbd),
            mark,
            fuse: Arc::default(),
            started: Instant::now(),
            setting: Mutex::default(),
            changes: Changes::default(),
            flushes: Mutex::default(),
            remembers: OnceLock::new(),
            tls: None,
            mirror: None,
            ends: Ends::default(),
            array: None,
            doors: Doors::default(),
        }
    }

    /// The same with the sockets that it may be told to bind.
    pub(crate) fn listening(self, doors: Doors) -> VolumeState {
        VolumeState { doors, ..self }
    }

    /// Listens on the sockets of its definition that wait to be told, or on the one named `which`; those that it listens on
    /// by then. Nothing happens to those that are bound already.
    ///
    /// # Errors
    /// If none is meant, or one cannot be bound: those before it stay.
    pub fn bind(&self, which: Option<&str>) -> Result<Vec<String>, Ended> {
        self.doors
            .bind(which, &self.handle, |spec| self.is_now(|info| info.listen.push(spec.to_string())))?;
        Ok(self.info().listen)
    }

    /// Lets go of such sockets, and hangs up on the clients that came by them: their address can go when this returns.
    ///
    /// # Errors
    /// If none is meant, or a thread does not answer.
    pub fn unbind(&self, which: Option<&str>) -> Result<Vec<String>, Ended> {
        self.doors.unbind(which, &self.handle, |spec| {
            self.is_now(|info| info.listen.retain(|listed| *listed != spec.to_string()));
        })?;
        Ok(self.info().listen)
    }

    /// The same over a mirror.
    pub(crate) fn mirrored_by(self, mirror: Option<Mirror>) -> VolumeState {
        VolumeState { mirror, ..self }
    }

    /// The state of the mirror that its cache lies on.
    pub fn mirror(&self) -> Option<MirrorView> {
        self.mirror.as_ref()?.view()
    }

    /// The same with what an end at once must reach.
    pub(crate) fn ended_by(self, ends: Ends) -> VolumeState {
        VolumeState { ends, ..self }
    }

    /// The same on arrays that two controllers share.
    pub(crate) fn held_by(self, array: Option<Arc<Lease>>) -> VolumeState {
        VolumeState { array, ..self }
    }

    /// The worth of the array's last word that this controller holds it; nothing: it lies on no array that others share.
    pub(crate) fn array_lease(&self) -> Option<Hold> {
        self.array.as_ref().map(|lease| lease.now())
    }

    /// The reason why its devices are not asked for anything any more, once that is so.
    pub fn silent(&self) -> Option<&Cause> {
        self.ends.silence.cause()
    }

    /// Ends it at once, whatever its devices do and whatever it is about: nothing more is written or sent, clients are hung up on,
    /// and nobody is waited for. Its threads end by themselves.
    pub fn end_now(&self) {
        // First, so that no client hears the errors of what follows.
        if let Some(array) = &self.array {
            array.lose();
        }
        self.ends.silence.begin(Cause::Ended);
        self.silence_image();
        drop(self.handle.send_all(|| Command::Abort("the volume was ended at once".to_owned())));
    }

    /// Nothing of the client that has the image is sent any more.
    pub(crate) fn silence_image(&self) {
        if let Some(image) = self.ends.image.as_ref().and_then(Weak::upgrade) {
            image.end();
        }
    }

    /// The same for a volume that is served by TLS.
    pub(crate) fn with_tls(self, tls: Option<TlsContext>) -> VolumeState {
        VolumeState { tls, ..self }
    }

    /// Reads certificates and keys again, for clients that come from now on. True if there are any.
    ///
    /// # Errors
    /// If a file cannot be used; the old ones hold then.
    pub fn renew_tls(&self) -> Result<bool, TlsError> {
        self.tls.as_ref().map_or(Ok(false), |tls| tls.renew().map(|()| true))
    }

    /// The volume's description now.
    pub fn info(&self) -> Info {
        self.info.lock().clone()
    }

    /// Notes what it is from now on.
    pub(crate) fn is_now(&self, change: impl FnOnce(&mut Info)) {
        change(&mut self.info.lock());
    }

    /// Nobody sets anything while this is held.
    pub(crate) fn set_by_nobody(&self) -> MutexGuard<'_, ()> {
        self.setting.lock()
    }

    /// The image that is the core, if it is one and still kept.
    pub fn with_image<T>(&self, look: impl FnOnce(&ImageGuard) -> T) -> Option<T> {
        self.rbd.lock().as_ref().map(look)
    }

    /// Snapshots by others are refused from now on, so that none holds the stop up.
    pub(crate) fn refuse_snapshots(&self) {
        self.with_image(|kept| kept.quiescer.refuse_snapshots());
    }

    /// The state of the lease of the image that is the core; nothing: the core is no image.
    pub(crate) fn lease(&self) -> Option<Hold> {
        self.with_image(|kept| kept.image.lease.now())
    }

    /// Sets who is to hear of changes from now on.
    pub fn remember_by(&self, by: impl Fn(Change) -> Result<()> + Send + Sync + 'static) {
        // One volume has one daemon: nobody comes second.
        let _ = self.remembers.set(Remembers(Box::new(by)));
    }

    /// Has a change remembered that holds; why it must not hold otherwise.
    fn remember(&self, change: Change) -> Result<(), Ended> {
        let Some(Remembers(by)) = self.remembers.get() else { return Ok(()) };
        by(change)
            .map_err(|why| failed(format!("nothing is changed, because it could not be remembered: {why:#}")))
    }

    /// Switches the mode for new requests.
    ///
    /// # Errors
    /// The error that the engine gives.
    pub fn set_mode(&self, mode: Mode) -> Result<(), Ended> {
        let _alone = self.set_by_nobody();
        if self.changes.detaches() {
            return Err(Ended::refused(
                "its cache is being detached: wait until that is over, or give it up",
            ));
        }
        if self.has_lost_image() {
            return Err(Ended::refused(
                "the image is another client's now, and no request is answered in any mode: the mode stays as it is. Stop the volume; what \
                 is dirty stays on its cache",
            ));
        }
        if mode.is_ahead_of_core()
            && let Some(mark) = &self.mark
        {
            // Before anything is acknowledged that the core does not have.
            let mark = mark.upgrade().ok_or_else(stopping)?;
            mark.may_be_ahead().map_err(|why| failed(format!("the mode stays as it is: {why:#}")))?;
        }
        let before = self.handle.snapshots().iter().find_map(|s| s.mode);
        // Before anything is acknowledged that the core does not have, too: what is noted may say that there is nothing.
        self.remember(Change::Mode(mode))?;
        if let Err(why) = self.handle.control(&Control::SetMode(mode)).map_err(failed) {
            // One whose cache has failed refuses: the others are not to be ahead of the core where it cannot be.
            if let Some(before) = before {
                let _ = self.handle.control(&Control::SetMode(before));
                let _ = self.remember(Change::Mode(before));
            }
            return Err(why);
        }
        Ok(())
    }

    /// The tunables; nothing where the volume is stopping.
    pub fn params(&self) -> Option<Params> {
        self.handle.snapshots().into_iter().next().map(|s| s.params)
    }

    /// Sets one tunable; all of them by then.
    ///
    /// # Errors
    /// Keys or range, where it is not one of them.
    pub fn set_param(&self, key: &str, value: &str) -> Result<Params, Ended> {
        let _alone = self.set_by_nobody();
        let before = self.params().ok_or_else(stopping)?;
        let mut params = before;
        params.set(key, value).map_err(|why| Ended::refused(why.to_string()))?;
        if let Some(why) = self.with_image(|kept| kept.refuse_deadline(params.snapshot_deadline)).flatten() {
            return Err(Ended::refused(why));
        }
        self.handle.control(&Control::SetParams(params)).map_err(failed)?;
        if let Err(why) = self.remember(Change::Param(key.to_owned(), value.to_owned())) {
            self.handle.control(&Control::SetParams(before)).map_err(failed)?;
            return Err(why);
        }
        Ok(params)
    }

    /// Sets those that a volume starts with.
    ///
    /// # Errors
    /// If one of them cannot be; the error says which.
    pub(crate) fn set_params(&self, wanted: &[(String, String)]) -> Result<()> {
        for (key, value) in wanted {
            self.set_param(key, value).map_err(|why| keyed!("the tunable {key} = {value}: {why}"))?;
        }
        Ok(())
    }

    /// True if the core is an image that another client has taken.
    pub(crate) fn has_lost_image(&self) -> bool {
        self.lease() == Some(Hold::Lost)
    }

    /// Nobody keeps the image any more; a snapshot that is being taken is waited for.
    pub(crate) fn end_rbd(&self) {
        let kept = self.rbd.lock().take();
        drop(kept);
    }

    fn flushes(&self) -> MutexGuard<'_, VecDeque<FlushState>> {
        self.flushes.lock()
    }

    /// Bytes that the core does not have yet.
    pub(crate) fn dirty_bytes(&self) -> u64 {
        self.handle.snapshots().iter().map(|s| s.stats.dirty_bytes).sum()
    }

    /// The byte of the core's device at which what is served begins: behind the core's label, where it has one.
    pub(crate) fn core_start(&self) -> u64 {
        self.mark.as_ref().and_then(Weak::upgrade).map_or(0, |mark| mark.label().data_start)
    }

    /// The reason why a flush failed, with the sectors that the core refuses where there are any: a thread
    /// knows only its own.
    pub(crate) fn with_sectors(&self, why: String) -> String {
        match refusals::told(&self.handle.snapshots(), self.core_start()) {
            Some(told) => format!("{why}. To be exact, {told}"),
            None => why,
        }
    }

    /// Starts to destage everything that is dirty now. One that is under way already does not do: it knows nothing of what
    /// was written since it began.
    pub fn start_flush(self: &Arc<VolumeState>) -> FlushState {
        let total = self.dirty_bytes();
        let mut flushes = self.flushes();
        let number = flushes.back().map_or(0, |f| f.number) + 1;
        let state =
            FlushState { number, running: true, total_bytes: total, remaining_bytes: total, error: None };
        if flushes.len() >= FLUSHES_KEPT {
            flushes.pop_front();
        }
        flushes.push_back(state.clone());
        drop(flushes);
        let app = self.clone();
        std::thread::spawn(move || {
            let result = app.handle.control(&Control::FlushDirty).map_err(|why| app.with_sectors(why.into()));
            if let Some(state) = app.flushes().iter_mut().find(|f| f.number == number) {
                state.running = false;
                state.error = result.err();
            }
        });
        state
    }

    /// The progress of flush `number`, or of the last one.
    pub fn flush_progress(&self, number: Option<u64>) -> FlushState {
        let remaining: u64 = self.handle.snapshots().iter().filter_map(|s| s.flush_remaining).sum();
        let mut flushes = self.flushes();
        let found = match number {
            Some(n) => flushes.iter_mut().find(|f| f.number == n),
            None => flushes.back_mut(),
        };
        let Some(state) = found else { return FlushState::default() };
        // Later flushes wait behind earlier ones; what is left never seems to grow.
        let left = if state.running { remaining * BLOCK } else { 0 };
        state.remaining_bytes = state.remaining_bytes.min(left);
        state.clone()
    }
}

fn failed(why: impl Into<String>) -> Ended {
    Ended::with(Outcome::Failed, Into::<String>::into(why))
}

/// Nothing can be changed of a volume that ends.
pub fn stopping() -> Ended {
    Ended::waiting("the volume is stopping")
}

/// Flushes whose outcome can still be asked for.
const FLUSHES_KEPT: usize = 256;
