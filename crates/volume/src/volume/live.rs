//! A cache that comes or goes while the volume is served: clients stay connected, and wait for as long as the engines are exchanged.
//!
//! A crash at any moment leaves what the next start takes for one of two things: the volume as it was before, or as it is after.
//! [`Change`] says what must be durable before what, and what is taken back; the simulator runs the same. In words:
//!
//! **Detach.** While clients are served: everything dirty goes to the core, written through meanwhile so that it does not grow back.
//! Then, with nothing under way and all requests held:
//! 1. the last dirty blocks go to the core, and the engines flush it, which know of every flush before: from here on
//!    the cache holds nothing that the core lacks;
//! 2. the core's label, if it has one, and the daemon's state say so ("0 dirty bytes");
//! 3. the superblocks are wiped: the core will change without this cache, which no later start may believe then. Up to here a crash comes
//!    back with the cache as it is; from here on with a new one, as the definition still names its device;
//! 4. the daemon's state says that the volume is bare: a crash comes back bare;
//! 5. the engines stop, bare ones take their place, requests go on, the device is let go of.
//!
//! Only then is anything written that the cache does not see. A failure in 1 to 3 is taken back (the label
//! and the state say "may be dirty" again before a request goes on), and the volume keeps its cache. If the
//! state cannot say so, since its folder has died meanwhile, the cache stays in mode wt, which keeps what the
//! state may say true: another mode is noted first, and the state with it.
//!
//! **Attach.** While clients are served: the device is opened, refused or made an empty cache. Then, with all requests held:
//! 1. the core is flushed: the new engines know of no write before them that a flush would have to cover;
//! 2. the daemon's state names the cache as this volume's, as one that may be dirty, and, where the core has a label,
//!    as one that is being attached: a crash comes back with it, and it is empty;
//! 3. the core's label, if it has one, names it likewise: not before the state, since a bare start would be refused
//!    by it. A label that does not name it says that a crash came between the two, and nobody was served through it;
//! 4. the engines are exchanged, and requests go on;
//! 5. the state says no more that the cache is being attached.
//!
//! A failure in 1 to 3 is taken back, the state last: a state that cannot be written names a cache that is there, and empty. It may
//! name it also where the volume stays bare, so that such a cache is not wiped: it holds nothing that could be believed wrongly.
//!
//! **An exchange that breaks off.** Once a thread may have another engine there is no way back: every request fails, and the volume is
//! started anew as after a crash (decision 0035). So it is where something durable could not be taken back.
//!
//! **A cache that answers nothing.** The steps above need a device that answers, and it is looked at first,
//! and again where something takes too long. If it does not, and the core has everything, the volume goes on
//! without it as without one that failed (decision 0028): requests that wait for it are done by the core. If
//! the core lacks anything, the cache stays, and they wait.

mod attach;

use super::Volume;
use super::trouble::{Cancellable, Trouble};
use crate::change::Wanted;
use crate::held_cache::HeldCache;
use crate::hung_device;
use crate::labelled_core::LabelledCore;
use crate::last_cache::LastCache;
use crate::memory::Memory;
use crate::options::ServeOptions;
use crate::signals::StopSignals;
use crate::volume_state::cached_by;
use anyhow::{Context, Result, anyhow, bail, ensure};
use loligo_client::outcome::{Ended, OrRefused};
use loligo_engine::api::Control;
use loligo_engine::exchange::{Change, Deed, Verdict};
use loligo_engine::{FallbackState, open as engine};
use loligo_format::mode::Mode;
use loligo_log::say;
use loligo_shard::{Backend, Command, Paused};
use std::time::{Duration, Instant};

/// The time that requests are held for devices, or for a note, that do not answer before it is given up.
pub const LIMIT: Duration = Duration::from_secs(10);

/// The state of a volume after a change was tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum After {
    /// It is served.
    Served,
    /// Somebody wants it to stop.
    Stopping,
    /// It cannot go on: as after a crash, the next start finds what is right.
    Broken,
    /// Its devices are silent: it is to be ended with [`Volume::end`].
    Silent,
}

impl Volume {
    /// Does what is wanted, and notes how that ended.
    pub fn change(&mut self, wanted: Wanted, memory: &dyn Memory, signals: &StopSignals) -> After {
        let done = match wanted {
            Wanted::Attach(options, keys) => self.attach(*options, &keys, memory, signals),
            Wanted::Detach => self.detach(memory, signals),
            Wanted::Resize(bytes) => self.resize(bytes).map_err(Trouble::Unchanged),
            Wanted::Share(bytes) => self.resize_share(bytes, memory, signals),
        };
        let (after, result) = match done {
            Ok(done) => {
                say!("{done}");
                (After::Served, Ok(done))
            }
            Err(Trouble::Unchanged(why) | Trouble::Through(why) | Trouble::Named(why)) => {
                (After::Served, Err(why))
            }
            Err(Trouble::Silent) => (After::Served, Err(anyhow!("the cache device answers nothing"))),
            Err(Trouble::Stop) => (After::Stopping, Err(anyhow!("the volume is being stopped"))),
            Err(Trouble::Broken(why)) => {
                say!("error: the volume cannot go on and is started anew: {why:#}");
                (After::Broken, Err(why))
            }
        };
        self.app.changes.ended(result);
        after
    }

    /// Holds requests while `exchange` is done, which ends the pause: what it gives up lets them go on, and what it cannot take back
    /// fails them.
    fn paused<T>(
        &mut self,
        exchange: impl FnOnce(&mut Volume, Paused) -> Result<T, Trouble>,
    ) -> Result<T, Trouble> {
        let app = self.app.clone();
        let _alone = app.set_by_nobody();
        let begun = Instant::now();
        let pause = app.handle.pause(LIMIT).map_err(|why| anyhow!("{why}: nothing is changed"))?;
        let done = exchange(self, pause);
        app.changes.held(begun.elapsed().as_secs_f64() * 1e3);
        done
    }

    /// The same where something is to be noted meanwhile. It is tried first, so that nobody is held for a
    /// dead file system; and again with all requests held, for which the daemon's folder may wait itself. The
    /// note then is true: there is nothing to be taken back.
    fn paused_to_note<T>(
        &mut self,
        memory: &dyn Memory,
        exchange: impl FnOnce(&mut Volume, Paused) -> Result<T, Trouble>,
    ) -> Result<T, Trouble> {
        memory.can_note()?;
        self.paused(|v, pause| {
            memory.can_note()?;
            exchange(v, pause)
        })
    }

    fn detach(&mut self, memory: &dyn Memory, signals: &StopSignals) -> Result<String, Trouble> {
        ensure_exchangeable(self).or_refused()?;
        let Some(held) = &self.left.held else {
            return Err(Ended::refused("this volume is served bare: it has no cache to detach").into());
        };
        if self.core_only {
            self.ensure_acknowledging()?;
            // Nothing is to be flushed, and the cache was declared void when it went.
            let Some(cache) = self.last_cache() else { return Err(anyhow!("it has no cache").into()) };
            return self.paused_to_note(memory, |v, pause| v.go_bare(pause, &cache, memory));
        }
        let home = held.superblock.lock().data_start;
        if home != 0 {
            let why = format!("its content begins at byte {home} of the core for the cache only: stop it");
            return Err(Ended::refused(why).into());
        }
        // Before what may take hours.
        memory.can_note()?;
        let mode = self.app.handle.snapshots().first().and_then(|s| s.mode).unwrap_or(Mode::Wt);
        let set = |mode| {
            let _alone = self.app.set_by_nobody();
            self.app.handle.control(&Control::SetMode(mode)).map_err(|why| anyhow!(why))
        };
        set(Mode::Wt)?;
        let done = match self.detach_with_its_help(memory, signals) {
            Err(Trouble::Silent) => self.detach_without_it(memory),
            done => done,
        };
        if matches!(done, Err(Trouble::Unchanged(_) | Trouble::Stop)) {
            let _alone = self.app.set_by_nobody();
            let restored = self.app.handle.control(&Control::SetMode(mode));
            // A cache that has failed meanwhile takes no mode: what becomes of it is settled by whoever minds it.
            let failed = self.app.handle.snapshots().iter().any(|s| s.poisoned.is_some());
            restored.or_else(|why| if failed { Ok(()) } else { Err(Trouble::Broken(anyhow!(why))) })?;
        }
        done
    }

    /// Another engine would not know of a flush of the core that failed.
    fn ensure_acknowledging(&self) -> anyhow::Result<()> {
        let snapshots = self.app.handle.snapshots();
        let failed =
            snapshots.iter().find(|s| s.fallback != Some(FallbackState::Serving) && s.poisoned.is_some());
        match failed.and_then(|s| s.poisoned.as_ref()) {
            Some(why) => Err(anyhow!(
                "volume {}: it acknowledges nothing any more: {why}. Stop it and start it again first",
                self.options.name
            )),
            None => Ok(()),
        }
    }

    fn cache_answers(&self) -> bool {
        self.left.held.as_ref().is_none_or(|held| hung_device::answers(&held.file))
    }

    /// With a cache device that answers.
    fn detach_with_its_help(
        &mut self,
        memory: &dyn Memory,
        signals: &StopSignals,
    ) -> Result<String, Trouble> {
        if !self.cache_answers() {
            return Err(Trouble::Silent);
        }
        self.flush_for_detach(memory, signals)?;
        // The flush may have taken hours, or none of its blocks. From here on all requests wait for the device.
        if !self.cache_answers() {
            return Err(Trouble::Silent);
        }
        match self.paused_to_note(memory, |v, pause| v.take_cache_away(pause, memory)) {
            Err(Trouble::Unchanged(_)) if !self.cache_answers() => Err(Trouble::Silent),
            done => done,
        }
    }

    /// With one that answers nothing, if the core has everything.
    fn detach_without_it(&mut self, memory: &dyn Memory) -> Result<String, Trouble> {
        let Some(held) = &self.left.held else { return Err(anyhow!("it has no cache").into()) };
        let why = hung_device::silence(&held.file);
        let snapshots = self.app.handle.snapshots();
        if let Some(lacks) = snapshots.iter().find_map(|s| s.needs_cache.as_ref()) {
            return Err(anyhow!(
                "{why}, and {lacks}: it stays this volume's cache, and nothing of it is given up. Requests wait for it. Bring it back; or stop the volume ('loligo volume stop {}'): what was acknowledged is safe on it until it answers",
                self.options.name
            )
            .into());
        }
        self.forsake(why, Some(memory), false).map_err(Trouble::Unchanged)?;
        let Some(cache) = self.last_cache() else { return Err(anyhow!("it has no cache").into()) };
        self.paused_to_note(memory, |v, pause| v.go_bare(pause, &cache, memory))
    }

    /// Everything dirty to the core while clients are served.
    fn flush_for_detach(&mut self, memory: &dyn Memory, signals: &StopSignals) -> Result<(), Trouble> {
        let app = self.app.clone();
        let total = app.dirty_bytes();
        let (mut still, mut next) = (hung_device::Standstill::begins(), Instant::now() + super::LOOK);
        let asked = app.handle.send_all(|| Command::Control(Control::FlushDirty));
        let flushed = app.handle.wait_while(asked, hung_device::LOOK, || {
            let dirty = app.dirty_bytes();
            app.changes.progress(total, dirty);
            if signals.within(Duration::ZERO) {
                return Err(Cancellable(Trouble::Stop));
            }
            if app.changes.is_given_up() {
                return Err("given up: the volume keeps its cache, and what was flushed is flushed"
                    .to_owned()
                    .into());
            }
            still.goes_on(dirty);
            if still.is_long() && !self.cache_answers() {
                return Err(Cancellable(Trouble::Silent));
            }
            if Instant::now() >= next {
                next += super::LOOK;
                self.look(Some(memory));
            }
            Ok(())
        });
        flushed.map_err(|Cancellable(trouble)| match trouble {
            Trouble::Unchanged(why) => {
                Trouble::Unchanged(why.context("the core does not have everything, so the cache stays"))
            }
            other => other,
        })
    }

    /// Does one deed of a change after the other until it is over. Clients go on then, or are failed, as it ended.
    fn carry_out(
        &mut self,
        mut change: Change,
        mut pause: Paused,
        mut deed: impl FnMut(&mut Volume, Deed, &mut Paused) -> Result<()>,
    ) -> Result<(), Trouble> {
        let mut why = None;
        let verdict = loop {
            match change.next() {
                Ok(next) => {
                    let done = deed(self, next, &mut pause);
                    why = change.did(done, pause.state()).or(why);
                }
                Err(verdict) => break verdict,
            }
        };
        drop(pause);
        let why = why.unwrap_or_else(|| anyhow!("nothing failed"));
        match verdict {
            Verdict::Done => Ok(()),
            Verdict::Kept => Err(Trouble::Unchanged(why)),
            Verdict::Named => Err(Trouble::Named(why)),
            Verdict::Broken => {
                self.fails = true;
                Err(Trouble::Broken(why))
            }
        }
    }

    /// The part of a detach that is done while nothing is under way.
    fn take_cache_away(&mut self, pause: Paused, memory: &dyn Memory) -> Result<String, Trouble> {
        let Some(cache) = self.last_cache() else { return Err(anyhow!("it has no cache").into()) };
        let Some(HeldCache { file, superblock, .. }) = &self.left.held else { unreachable!("asked above") };
        let (file, superblock) = (file.clone(), superblock.clone());
        let mut dev = file.sync_io();
        let mut superblock = Some(superblock.lock());
        let name = self.options.name.clone();
        let (mut unwiped, mut unnoted) = (None, None);
        let done = self.carry_out(Change::detach(None), pause, |v, deed, pause| match deed {
            Deed::FlushDirty => v.flush_last(),
            Deed::FlushCore => v.flush_core().context("the core cannot be flushed, so the cache stays"),
            Deed::LabelClean => {
                let label = v.left.core.home.as_mut().map_or(Ok(()), |home| home.detach(0, &file));
                label.context("the cache stays")
            }
            Deed::StateClean => {
                let clean = LastCache { dirty_bytes: Some(0), ..cache.clone() };
                memory.cache_is(&name, clean).context("the cache stays")
            }
            Deed::Wipe => engine::wipe(&mut dev)
                .inspect_err(|why| unwiped = Some(why.to_string()))
                .context("the cache cannot be wiped")
                .context("the cache stays"),
            Deed::NoteVoid => {
                // Its superblocks are whole. Whoever starts it elsewhere has nobody to ask but the core.
                let label = v.left.core.home.as_mut().map_or(Ok(()), |home| home.void());
                label.context("the cache cannot be wiped, and stays")?;
                ensure!(
                    v.left.core.home.is_some() || v.options.reservation.is_none(),
                    "the cache cannot be wiped, and stays: this host's memory says nothing to a partner that shares its array"
                );
                let void = LastCache { dirty_bytes: Some(0), void: true, ..cache.clone() };
                memory.cache_is(&name, void).context("the cache cannot be wiped, and stays")
            }
            Deed::Restore => Ok(superblock.as_mut().map_or(Ok(()), |s| s.store(&mut dev))?),
            Deed::StateDirty => {
                unnoted = memory.cache_is(&name, cache.clone()).err();
                Ok(())
            }
            Deed::LabelDirty => match (&mut v.left.core.home, &superblock) {
                (Some(home), Some(superblock)) => home.attach(superblock, &file, false),
                _ => Ok(()),
            },
            deed => {
                superblock = None;
                v.turn_bare(deed, pause, &cache, memory)
            }
        });
        done.map_err(|trouble| match (trouble, unnoted) {
            (Trouble::Unchanged(why), Some(unnoted)) => Trouble::Through(why.context(format!(
                "volume '{name}' keeps its cache, and stays in mode wt until another is set, because the daemon may remember that \
                 nothing in it is dirty ({unnoted:#}). Mend the file system of its state-dir, then 'loligo mode {name} MODE'"
            ))),
            (other, _) => other,
        })?;
        let done = self.is_bare(&cache);
        Ok(match unwiped {
            Some(why) => format!(
                "{done}. It took no write ({why}), so that its superblocks are still there; the daemon remembers that what it holds is void"
            ),
            None => done,
        })
    }

    /// The last dirty blocks.
    fn flush_last(&self) -> Result<()> {
        let handle = &self.app.handle;
        let flushed = handle.wait_within(handle.send_all(|| Command::Control(Control::FlushDirty)), LIMIT);
        flushed.map_err(|why| anyhow!("the core does not have everything, so the cache stays: {why}"))?;
        let dirty = self.app.dirty_bytes();
        ensure!(dirty == 0, "{dirty} bytes are still dirty, so the cache stays: try again");
        Ok(())
    }

    /// By the engines: one that has had a flush fail knows that the next would say nothing of what was lost.
    fn flush_core(&self) -> Result<()> {
        let handle = &self.app.handle;
        let flushed = handle.wait_within(handle.send_all(|| Command::Control(Control::FlushCore)), LIMIT);
        flushed
            .map_err(|why| anyhow!("{why}. Mend the core, and 'loligo volume restart {}'", self.options.name))
    }

    /// A cache goes that is void already.
    fn go_bare(&mut self, pause: Paused, cache: &LastCache, memory: &dyn Memory) -> Result<String, Trouble> {
        self.carry_out(Change::detach_void(), pause, |v, deed, pause| {
            v.turn_bare(deed, pause, cache, memory)
        })?;
        Ok(self.is_bare(cache))
    }

    /// The deeds of a detach once the cache is void.
    fn turn_bare(
        &mut self,
        deed: Deed,
        pause: &mut Paused,
        cache: &LastCache,
        memory: &dyn Memory,
    ) -> Result<()> {
        let handle = self.app.handle.clone();
        match deed {
            Deed::StateBare => memory.detached(&self.options.name).inspect_err(|why| {
                say!(
                    "warning: it is served bare from now on, but that cannot be remembered: the next start makes a new cache on {} ({why:#})",
                    cache.path.display()
                );
            }),
            Deed::Stop => {
                // Its superblocks are not to be written again if this ends the volume.
                self.left.void = true;
                let stopped = handle.wait_within(handle.send_all(|| Command::Control(Control::Stop)), LIMIT);
                // What the cache could not be told nobody misses.
                let misses = || self.core_only || handle.snapshots().iter().any(|s| s.core_flush_failed);
                stopped.map_err(|why| anyhow!(why)).or_else(|why| if misses() { Err(why) } else { Ok(()) })
            }
            Deed::Exchange => {
                let extent = (self.app.info().size, self.told.block);
                let exchanged = pause.exchange(self.left.core.source(), Backend::Uncached, extent, LIMIT);
                exchanged.map_err(|why| anyhow!(why))
            }
            deed => bail!("{deed:?} is no part of a detach"),
        }
    }

    /// The arrays are asked of the devices that it is served from now.
    pub(super) fn asks_of_its_arrays(&self) {
        let Some(holding) = &self.holding else { return };
        let cache = self.options.cache.clone().filter(|_| !self.core_only);
        if let Err(why) = holding.cover(&ServeOptions { cache, ..self.options.clone() }) {
            say!(
                "warning: the arrays are asked of the devices that it had before: {why:#}. Requests may wait; start the volume again"
            );
        }
    }

    /// Notes that the engines are bare; the result, in words.
    fn is_bare(&mut self, cache: &LastCache) -> String {
        let size = self.app.info().size;
        self.left.void = false;
        self.governing = None;
        self.left.held = None;
        (self.core_only, self.poisoned) = (false, false);
        let o = &mut self.options;
        (o.cache, o.data_offset) = (None, None);
        o.params.clear();
        self.asks_of_its_arrays();
        self.app.is_now(|info| cached_by(info, &self.options, None));
        let more = self.left.core.identity.size - size;
        match more {
            0 => format!("detached: the core has everything, {} is no cache any more", cache.path.display()),
            n => format!(
                "detached: the core has everything, {} is no cache any more; the volume gets {n} bytes larger with its next start",
                cache.path.display()
            ),
        }
    }
}

fn ensure_exchangeable(v: &Volume) -> Result<()> {
    ensure!(
        !v.left.core.home.as_ref().is_some_and(LabelledCore::is_masked),
        "the first block of the core is veiled, and its cache keeps copies of that: 'loligo osd adopt' and 'loligo osd release' put a cache \
         under an OSD and take it away"
    );
    ensure!(
        v.left.image.is_none(),
        "the core is an RBD image, whose lock and metadata name the cache: stop the volume ('loligo volume stop {0} --flush'), change its \
         definition, and start it",
        v.options.name
    );
    Ok(())
}
