//! A new cache in front of a volume that is served bare. The order of the deeds stands in the file above.

use super::super::Volume;
use super::super::trouble::Trouble;
use super::{LIMIT, ensure_exchangeable};
use crate::cache;
use crate::held_cache::HeldCache;
use crate::last_cache::LastCache;
use crate::memory::Memory;
use crate::options::{CacheOptions, ServeOptions};
use crate::reservation;
use crate::signals::{CutOff, StopSignals};
use crate::volume_state::cached_by;
use anyhow::{Context, Result, anyhow, bail, ensure};
use loligo_block::keyed;
use loligo_block::keys::{CORE_RESERVE, FORCE, SHARDS};
use loligo_client::api::cache_config::CacheConfig;
use loligo_client::outcome::{Ended, OrRefused};
use loligo_engine::exchange::{Change, Deed};
use loligo_engine::open as engine;
use loligo_engine::params::Params;
use loligo_format::superblock::Superblock;
use loligo_log::say;
use loligo_shard::{Backend, Paused};
use std::time::Duration;

impl Volume {
    pub(super) fn attach(
        &mut self,
        options: ServeOptions,
        keys: &CacheConfig,
        memory: &dyn Memory,
        signals: &StopSignals,
    ) -> Result<String, Trouble> {
        self.ensure_acknowledging()?;
        reservation::check(&options).or_refused()?;
        let mut options = options;
        let Some(o) = &mut options.cache else { return Err(Ended::refused("no cache is given").into()) };
        self.may_attach(o).or_refused()?;
        // Before a cache is made.
        memory.can_note()?;
        // Where it could be another number it has been refused.
        o.shards = Some(self.app.handle.shards() as u16);
        let (o, core) = (&*o, &mut self.left.core);
        cache::refuse_same_device(o, core).or_refused()?;
        let look = CacheOptions { create: true, force: true, ..o.clone() };
        let (place, found) = cache::peek(&look).or_refused()?;
        refuse_used(o, found.as_ref()).or_refused()?;
        let volatile = place.as_ref().is_none_or(|p| p.file.geometry().volatile_cache);
        if volatile && !self.told.volatile && !self.kernel.is_empty() {
            return Err(Ended::refused(format!(
                "the block device was made for a volume whose core loses nothing that it completed, so that the kernel keeps flushes to \
                 itself; {} may lose what it completed: stop the volume, define the cache, start it",
                o.path.display()
            ))
            .into());
        }
        core.params = Params::default();
        for (key, value) in &options.params {
            let set = core.params.set(key, value);
            set.map_err(|why| Ended::refused(format!("the tunable {key} = {value}: {why}")))?;
        }
        core.cache_file = place;
        let app = self.app.clone();
        let mut watch = |done: u64, all: u64| -> Result<()> {
            app.changes.progress(all, all - done);
            if signals.within(Duration::ZERO) {
                return Err(CutOff.into());
            }
            ensure!(!app.changes.is_given_up(), "given up: the volume is served as before");
            Ok(())
        };
        let new = CacheOptions { create: true, ..o.clone() };
        let opened = cache::open(&options.name, &new, core, signals, &mut watch);
        core.cache_file = None;
        let opened = opened.map_err(|why| match why.is::<CutOff>() {
            true => Trouble::Stop,
            false => Trouble::Unchanged(why),
        });
        let cache::OpenCache { file, share, superblock, engines, made, .. } = opened?;
        let data_start = superblock.data_start;
        let backend = Backend::Cached { cache: file.clone(), engines, data_start };
        let held = HeldCache::new(file, share, superblock);
        let mode = o.mode;
        // Whatever else the definition says by now counts with the next start.
        let next = ServeOptions { cache: options.cache, params: options.params, ..self.options.clone() };
        let before = std::mem::replace(&mut self.options, next);
        self.left.held = Some(held);
        let done = self.paused_to_note(memory, |v, pause| v.put_cache(pause, keys, memory, backend));
        if let Err(trouble) = done {
            self.options = before;
            let held = self.left.held.take();
            match (&trouble, held, made) {
                // Nobody was served through it: the device is as blank as it was, and a file that was made goes.
                (Trouble::Unchanged(_) | Trouble::Stop, Some(held), _) => {
                    let _ = engine::wipe(&mut held.file.sync_io());
                }
                // The state may name it.
                (_, _, Some(made)) => made.keep(),
                _ => {}
            }
            return Err(trouble);
        }
        if let Some(made) = made {
            made.keep();
        }
        if self.left.core.home.is_some()
            && let Some(cache) = self.last_cache()
        {
            // The label names it already, which says the same of this core: nothing hangs on this note.
            let _ = memory.cache_is(&self.options.name, cache);
        }
        let share = self.left.held.as_ref().and_then(|h| h.share.clone());
        if let Some(share) = share {
            match share.pool().clone().govern(share, self.app.handle.clone()) {
                Ok(governing) => self.governing = Some(governing),
                Err(why) => say!("warning: the share keeps its size until the next start: {why:#}"),
            }
        }
        self.poisoned = false;
        self.asks_of_its_arrays();
        self.app.is_now(|info| cached_by(info, &self.options, self.left.held.as_ref()));
        let path = self.options.cache.as_ref().map(|c| c.path.display().to_string()).unwrap_or_default();
        Ok(format!("attached: {path}, mode {}", mode.name()))
    }

    /// Refuses what can be refused without a look at the device.
    fn may_attach(&self, o: &CacheOptions) -> Result<()> {
        ensure_exchangeable(self)?;
        ensure!(
            self.left.held.is_none(),
            "this volume has a cache: 'loligo volume detach {0}' first",
            self.options.name
        );
        let threads = self.app.handle.shards();
        ensure!(
            o.shards.is_none_or(|n| usize::from(n) == threads),
            keyed!(
                "the volume runs on {threads} thread(s), and a cache that is attached to it must have as many shards: leave {SHARDS} out; or \
             stop the volume, define the cache, start it"
            )
        );
        ensure!(
            o.core_reserve.is_none_or(|n| n == 0),
            keyed!(
                "a reserve would make the volume smaller than its clients know it: leave {CORE_RESERVE} out; or stop the volume, define the \
             cache, start it"
            )
        );
        let (core, served) = (self.left.core.identity.size, self.app.info().size);
        ensure!(
            core == served,
            "the core has {core} bytes and the volume {served}: 'loligo volume resize {}' first",
            self.options.name
        );
        Ok(())
    }

    /// The part of an attach that is done while nothing is under way.
    fn put_cache(
        &mut self,
        pause: Paused,
        keys: &CacheConfig,
        memory: &dyn Memory,
        backend: Backend,
    ) -> Result<(), Trouble> {
        let name = self.options.name.clone();
        let cache = self.last_cache().context("it has no cache")?;
        let held = self.left.held.as_ref().context("it has no cache")?;
        let (file, superblock) = (held.file.clone(), held.superblock.clone());
        // It is empty.
        let through = self.options.cache.as_ref().is_some_and(|o| !o.mode.is_ahead_of_core());
        let mut backend = Some(backend);
        let done = self.carry_out(Change::attach(None), pause, |v, deed, pause| match deed {
            // A client's flush may have failed while the cache was made: only the engines know.
            Deed::FlushCore => v
                .ensure_acknowledging()
                .and_then(|()| v.left.core.backing.sync_io().flush().context("the core cannot be flushed")),
            // Up to the label, a crash leaves a cache through which nobody was served. Without one nothing tells that
            // crash from a later one: a label that is found then may be what clients wrote, or another disk's.
            Deed::StateCached => {
                let attaching = v.left.core.home.is_some();
                memory.attached(&name, keys, LastCache { attaching, ..cache.clone() })
            }
            Deed::LabelCached => match &mut v.left.core.home {
                Some(home) => {
                    let sb = superblock.lock().clone();
                    home.attach(&sb, &file, through)
                }
                None => Ok(()),
            },
            Deed::LabelGone => v.left.core.home.as_mut().map_or(Ok(()), |home| home.detach(0, &file)),
            Deed::StateBare => memory.detached(&name),
            Deed::Exchange => {
                let extent = (v.app.info().size, v.told.block);
                let backend = backend.take().context("they were exchanged")?;
                let exchanged = pause.exchange(v.left.core.source(), backend, extent, LIMIT);
                exchanged.map_err(|why| anyhow!(why))
            }
            deed => bail!("{deed:?} is no part of an attach"),
        });
        done.map_err(|trouble| match trouble {
            Trouble::Named(why) => Trouble::Named(why.context(
                "the daemon may remember the new cache after all, so that it stays where it is, empty, although the volume is \
                 served as before: 'loligo release' lets go of it",
            )),
            other => other,
        })
    }
}

/// The core may have changed since anything was cached: what is attached is a new cache.
fn refuse_used(o: &CacheOptions, found: Option<&Superblock>) -> Result<()> {
    let Some(sb) = found.filter(|_| !o.force) else { return Ok(()) };
    bail!(keyed!(
        "{} holds the cache of volume '{}', and one that is attached must be new, since the core was written without it: 'loligo release' \
         lets go of it where nothing in it is dirty; {FORCE} replaces it all the same",
        o.path.display(),
        sb.name
    ))
}
