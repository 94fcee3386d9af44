//! A cache that was attached or detached by command: the keys of a definition that speak of it, and what counts of them.

use crate::daemon::Daemon;
use crate::registry::Registry;
use crate::remembered::with_overrides;
use crate::writer_lock::Limit;
use anyhow::{Context, Result, anyhow, ensure};
use loligo_client::api::cache_config::CacheConfig;
use loligo_client::api::definition::{Leave, VolumeConfig};
use loligo_client::api::volume::ChangeState;
use loligo_volume::change::Wanted;
use loligo_volume::last_cache::LastCache;
use loligo_volume::options::ServeOptions;

impl Registry {
    /// The definition of `name` without anything set by command.
    fn plain(&self, name: &str) -> Result<VolumeConfig> {
        self.plain.lock().get(name).cloned().context("the volume has no definition any more")
    }

    pub(super) fn note_attached(&self, name: &str, keys: &CacheConfig, cache: LastCache) -> Result<()> {
        let (config, keys) = (self.plain(name)?, keys.clone());
        let defined = keys.put(&config);
        self.change_within(Limit::PAUSED, name, |r| {
            r.exchange(&config, keys);
            r.cache = Some(cache);
        })?;
        self.defined.lock().insert(name.to_owned(), defined);
        Ok(())
    }

    pub(super) fn note_detached(&self, name: &str) -> Result<()> {
        let config = self.plain(name)?;
        let bare = CacheConfig::default();
        let defined = bare.put(&config);
        self.change_within(Limit::PAUSED, name, |r| {
            r.exchange(&config, bare);
            r.forget_cache();
        })?;
        self.defined.lock().insert(name.to_owned(), defined);
        Ok(())
    }
}

impl Daemon {
    /// The definition that counts now.
    pub(super) fn effective(&self, name: &str) -> Result<VolumeConfig> {
        Ok(with_overrides(&self.supervisor(name)?.config(), &self.memory.of(name)))
    }

    /// Has something changed about a served volume.
    fn ask(&self, name: &str, wanted: Wanted) -> Result<ChangeState> {
        let supervisor = self.supervisor(name)?;
        let app = supervisor.app().ok_or_else(|| supervisor.status().refuse(name))?;
        app.changes.ask(wanted).map_err(|why| anyhow!(why))
    }

    /// Starts to put a cache in front of a served volume.
    ///
    /// # Errors
    /// If it can be refused at once; everything else is said of the change.
    pub(crate) fn attach(&self, name: &str, cache: CacheConfig, force: bool) -> Result<ChangeState> {
        // Nobody else is given the device meanwhile.
        let (_turn, looked) = self.turn_beside([&cache.put(&self.effective(name)?)]);
        let now = self.effective(name)?;
        // By what is served: one that was started without its failed cache is defined with that.
        let supervisor = self.supervisor(name)?;
        let app = supervisor.app().ok_or_else(|| supervisor.status().refuse(name))?;
        let has_one = app.info().cache.is_some();
        ensure!(!has_one, "volume '{name}' has a cache: 'loligo volume detach {name}' first");
        ensure!(cache.cache.is_some(), "no cache is given");
        let cache = cache.like(CacheConfig::of(&supervisor.config()));
        let next = cache.put(&now);
        self.refuse_taken(name, &next, &looked, |_| true)?;
        let options = ServeOptions::of(&next, name, Leave { force, ..Leave::default() })?;
        self.ask(name, Wanted::Attach(Box::new(options), cache))
    }

    /// Starts to take the cache of a served volume away.
    ///
    /// # Errors
    /// If that is refused at once.
    pub(crate) fn detach(&self, name: &str) -> Result<ChangeState> {
        self.ask(name, Wanted::Detach)
    }

    /// Starts to have a served volume take the size of its core.
    ///
    /// # Errors
    /// If that is refused at once.
    pub(crate) fn resize(&self, name: &str, bytes: Option<u64>) -> Result<ChangeState> {
        self.ask(name, Wanted::Resize(bytes))
    }

    /// Starts to give the share that a served volume's cache lies in another size.
    ///
    /// # Errors
    /// If that is refused at once.
    pub(crate) fn resize_share(&self, name: &str, bytes: u64) -> Result<ChangeState> {
        self.ask(name, Wanted::Share(bytes))
    }

    /// The last change of a served volume.
    ///
    /// # Errors
    /// If it is not served.
    pub(crate) fn last_change(&self, name: &str) -> Result<ChangeState> {
        let supervisor = self.supervisor(name)?;
        let app = supervisor.app().ok_or_else(|| supervisor.status().refuse(name))?;
        Ok(app.changes.last())
    }

    /// Gives up a change that is under way, where it still can be.
    ///
    /// # Errors
    /// If the volume is not served.
    pub(crate) fn give_up_change(&self, name: &str) -> Result<ChangeState> {
        let supervisor = self.supervisor(name)?;
        let app = supervisor.app().ok_or_else(|| supervisor.status().refuse(name))?;
        Ok(app.changes.give_up())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remembered::Remembered;

    fn config(text: &str) -> VolumeConfig {
        toml::from_str(text).unwrap()
    }

    const BARE: &str = "core = \"/dev/sdb\"\nlisten = [\"unix:/x\"]";
    const CACHED: &str = "core = \"/dev/sdb\"\nlisten = [\"unix:/x\"]\ncache = \"/dev/nv\"\nmode = \"wb\"\nparams = { destage-low = 5 }";

    #[test]
    fn a_changed_cache_counts_until_the_definition_names_another() {
        let mut r = Remembered::default();
        let effective = |r: &Remembered, c: &VolumeConfig| with_overrides(c, r);
        r.exchange(&config(CACHED), CacheConfig::default());
        assert_eq!(effective(&r, &config(CACHED)), config(BARE));
        let elsewhere = config(&CACHED.replace("unix:/x", "unix:/y"));
        assert_eq!(effective(&r, &elsewhere).cache, None, "of the cache it says the same");
        let edited = config(&CACHED.replace("/dev/nv", "/dev/other"));
        assert_eq!(effective(&r, &edited), edited);
        r.exchange(&config(CACHED), CacheConfig::of(&config(CACHED)));
        assert_eq!(r.exchanged, None, "it is what the definition says");
        r.exchange(&config(BARE), CacheConfig::of(&config(CACHED)));
        assert_eq!(effective(&r, &config(BARE)), config(CACHED));
        r.mode = Some(crate::remembered::Override { value: "wt".into(), instead_of: Some("wb".into()) });
        assert_eq!(effective(&r, &config(BARE)).mode.as_deref(), Some("wt"));
        r.exchange(&config(BARE), CacheConfig::default());
        assert_eq!(effective(&r, &config(BARE)), config(BARE), "nor is a mode left without a cache");
    }
}
