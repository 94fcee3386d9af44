//! What the daemon remembers of its volumes, as they ask for it and change it.

use super::config::{self, Leave, VolumeConfig};
use super::entry::Memory;
use super::exchange::{CacheConfig, Exchanged};
use super::state::{self, CoreNames, LastCache, Override, State, StateFile, effective};
use super::volumes::Volumes;
use super::{belongs, lock, pools, void};
use crate::absent::Absent;
use crate::app::{App, Change};
use crate::outcome::{Ended, Outcome};
use crate::serve::ServeOptions;
use anyhow::{Result, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, Weak};

/// What `State` says, kept on disk.
#[derive(Debug)]
pub(super) struct Notes {
    pub(super) file: StateFile,
    /// Of which some may still have what another one is to have.
    pub(super) volumes: Arc<Volumes>,
    /// Held for a look: who lists volumes does not wait for a disk.
    pub(super) state: Mutex<State>,
    /// Held while the next state is made and stored.
    pub(super) writing: Mutex<()>,
    pub(super) me: Weak<Notes>,
    /// What definitions say by now, so that a value set by command knows what it stands in for.
    pub(super) defined: Mutex<BTreeMap<String, VolumeConfig>>,
    /// The same without the caches that came or went by command.
    pub(super) plain: Mutex<BTreeMap<String, VolumeConfig>>,
    /// Volumes whose last start was told to give up what other caches hold.
    pub(super) forced: Mutex<BTreeSet<String>>,
}

impl Notes {
    /// Changes what is remembered, durably or not at all.
    fn edit(&self, edit: impl FnOnce(&mut State)) -> Result<()> {
        let _writing = lock(&self.writing);
        let now = lock(&self.state).clone();
        let mut next = now.clone();
        edit(&mut next);
        if next != now || self.file.is_uncertain() {
            let failed = |why: anyhow::Error| Ended::with(Outcome::Failed, format!("{why:#}"));
            self.file.store(&next).map_err(failed)?;
            *lock(&self.state) = next;
        }
        Ok(())
    }

    /// Changes what is remembered of `name`, durably or not at all.
    pub(super) fn change(&self, name: &str, change: impl FnOnce(&mut state::Remembered)) -> Result<()> {
        self.edit(|state| changed(state, name, change))
    }

    /// Forgets `name`. Its cache stays known by itself, for as long as its core does not change without it.
    pub(super) fn forget(&self, name: &str) -> Result<()> {
        self.edit(|state| {
            let cache = state.volumes.remove(name).and_then(|r| r.cache).filter(|c| !c.void);
            state.left.extend(cache.map(|c| (c.uuid.clone(), c)));
        })
    }

    /// Forgets which cache `name` was served through, and nothing else. The cache stays known by itself, as above.
    pub(super) fn forget_cache(&self, name: &str) -> Result<()> {
        self.edit(|state| {
            let cache = state.volumes.get_mut(name).and_then(|r| r.cache.take()).filter(|c| !c.void);
            state.left.extend(cache.map(|c| (c.uuid.clone(), c)));
        })
    }

    pub(super) fn of(&self, name: &str) -> state::Remembered {
        lock(&self.state).volumes.get(name).cloned().unwrap_or_default()
    }

    /// The definition of `name` is `config` from now on; what was exchanged by command counts as long as it speaks of the same.
    pub(super) fn is_defined(&self, name: &str, config: &VolumeConfig) {
        let defined = Exchanged::effective(self.of(name).exchanged.as_ref(), config);
        lock(&self.plain).insert(name.to_owned(), config.clone());
        lock(&self.defined).insert(name.to_owned(), defined);
    }

    fn may_begin(&self, name: &str, cache: &LastCache, state: &State) -> Result<()> {
        let uuid = &cache.uuid;
        ensure!(
            !state.voids.contains_key(uuid),
            "cache {uuid} is void: its core was served without it. The next start makes it anew"
        );
        self.may_pass(name, &cache.core(), Some(uuid), state)
    }

    /// Whether the start of `name`, which has locked `core`, may make every other cache of that void.
    fn may_pass(&self, name: &str, core: &CoreNames, uuid: Option<&str>, state: &State) -> Result<()> {
        if lock(&self.forced).contains(name) {
            return Ok(());
        }
        belongs::refuse_late(name, core, uuid, state)
    }

    /// Has volume `name` wait while one that leaves has what it is to have: one that was renamed in the file, say.
    /// However long that takes, it comes to its end by itself, and what it says of its cache then is to be known
    /// first.
    fn wait_for_leaving(&self, name: &str, volume: &VolumeConfig) -> Result<()> {
        for known in self.volumes.all().into_iter().filter(|known| known.leaving) {
            let (other, used) = (&known.entry.name, known.entry.used());
            let used = used.map(|used| with_overrides(&used, &self.of(other)));
            let shared = used.and_then(|used| config::shared((name, volume), (other, &used)));
            if let Some(shared) = shared.filter(|_| other != name) {
                let why = format!("{shared}. '{other}' is being stopped, and this one starts once it has");
                return Err(Absent(why).into());
            }
        }
        Ok(())
    }

    fn note(&self, name: &str, change: &Change) -> Result<()> {
        let defined = lock(&self.defined).get(name).cloned();
        self.change(name, |r| match change {
            Change::Mode(mode) => {
                let instead_of = defined.and_then(|d| d.mode);
                r.mode = Some(Override { value: mode.name().to_owned(), instead_of });
            }
            Change::Param(key, value) => {
                let instead_of = defined.and_then(|d| d.params.get(key).map(|w| w.0.clone()));
                r.params.insert(key.clone(), Override { value: value.clone(), instead_of });
            }
        })
    }
}

/// Changes what `state` says of `name`, and what follows from it for caches that are or were its own.
fn changed(state: &mut State, name: &str, change: impl FnOnce(&mut state::Remembered)) {
    let before = state.volumes.get(name).and_then(|r| r.cache.clone());
    change(state.volumes.entry(name.to_owned()).or_default());
    void::note(state, name, before.as_ref());
}

impl Memory for Notes {
    fn options(&self, name: &str, config: &VolumeConfig, leave: Leave) -> Result<ServeOptions> {
        let remembered = self.of(name);
        self.is_defined(name, config);
        match leave.force {
            true => lock(&self.forced).insert(name.to_owned()),
            false => lock(&self.forced).remove(name),
        };
        let effective = with_overrides(config, &remembered);
        self.wait_for_leaving(name, &effective)?;
        let mut o = effective.options(name, leave)?;
        // A copy: what is asked of the devices may take its time.
        let (core, mut state) = (o.core.names(), lock(&self.state).clone());
        if let Some(last) = state.volumes.get_mut(name).and_then(|r| r.cache.as_mut()) {
            belongs::settle_attach(last, o.core.path());
        }
        let remembered = state.volumes.get(name).cloned().unwrap_or_default();
        match &mut o.cache {
            Some(_) => {
                let found = void::settle(&mut o, remembered.cache.as_ref(), &state.voids);
                if let Some(cache) = &mut o.cache {
                    cache.expected = belongs::expected(name, &cache.path, &core, found.as_ref(), &state);
                }
                if !leave.force {
                    belongs::refuse_anothers(name, &o, &core, found.as_ref(), &state)?;
                }
            }
            None if leave.force => {}
            None => {
                belongs::refuse_bare(name, &remembered)?;
                belongs::refuse_anothers(name, &o, &core, None, &state)?;
            }
        }
        pools::refuse_missing(&o, &state)?;
        Ok(o)
    }

    fn cache_is(&self, name: &str, cache: LastCache) -> Result<()> {
        let begins = cache.dirty_bytes.is_none() && !cache.void;
        let mut may = Ok(());
        self.edit(|state| {
            // Looked at where it is decided: another volume's start may have made it void meanwhile, or begun.
            may = if begins { self.may_begin(name, &cache, state) } else { Ok(()) };
            if may.is_ok() {
                changed(state, name, |r| r.cache = Some(cache));
            }
        })?;
        may
    }

    fn is_bare(&self, name: &str, core: &CoreNames) -> Result<()> {
        let mut may = Ok(());
        self.edit(|state| {
            may = self.may_pass(name, core, None, state);
            if may.is_ok() {
                changed(state, name, state::Remembered::forget_cache);
                void::core_changes(state, name, core, None);
            }
        })?;
        may
    }

    fn attached(&self, name: &str, keys: &CacheConfig, cache: LastCache) -> Result<()> {
        self.note_attached(name, keys, cache)
    }

    fn detached(&self, name: &str) -> Result<()> {
        self.note_detached(name)
    }

    fn follow(&self, app: &Arc<App>) {
        let (me, name) = (self.me.clone(), app.name.clone());
        app.remember_by(move |change| me.upgrade().map_or(Ok(()), |me| me.note(&name, &change)));
    }
}

/// A definition with what was set by command.
pub(super) fn with_overrides(config: &VolumeConfig, remembered: &state::Remembered) -> VolumeConfig {
    let mut config = Exchanged::effective(remembered.exchanged.as_ref(), config);
    if config.cache.is_none() {
        return config;
    }
    config.mode = effective(config.mode.as_deref(), remembered.mode.as_ref()).map(str::to_owned);
    for (key, set) in &remembered.params {
        let defined = config.params.get(key).map(|w| w.0.clone());
        if let Some(value) = effective(defined.as_deref(), Some(set)) {
            config.params.insert(key.clone(), config::Word(value.to_owned()));
        }
    }
    config
}
