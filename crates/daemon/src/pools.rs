//! Pools that volumes of the daemon are served from: what is done to their other cores meanwhile.

use crate::daemon::Daemon;
use crate::state::{Remembered, State};
use anyhow::{Context, Result, anyhow};
use loligo_client::api::pool::PoolView;
use loligo_client::outcome::{Absent, InUse};
use loligo_log::say;
use loligo_volume::options::ServeOptions;
use loligo_volume::pool::{self, Attach, CoreName, Pool, PoolSpec, Resize};
use std::io::ErrorKind;
use std::path::Path;

fn named(core: &str) -> Result<CoreName> {
    core.parse().map_err(anyhow::Error::msg)
}

/// The pool at `path`, which is the daemon's as long as a volume of it is served. It opens none for this: a command does what is
/// to be done to one that nobody has.
fn open(path: &Path) -> Result<Pool> {
    Pool::opened(path).with_context(|| {
        format!(
            "{}: loligod does not have this pool open; as long as no volume of it is served, 'loligo cache' does without loligod",
            path.display()
        )
    })
}

/// Refuses to start on a pool whose device is not there, with what is remembered of it: who reads that may be about to make another one.
pub(super) fn refuse_missing(options: &ServeOptions, state: &State) -> Result<()> {
    let cache = options.cache.as_ref().map(|cache| PoolSpec::of(&cache.path)).transpose()?.flatten();
    let Some(PoolSpec { path, .. }) = cache else { return Ok(()) };
    match std::fs::metadata(&path) {
        Err(why) if why.kind() == ErrorKind::NotFound => {
            Err(Absent(pool::missing(&path, &held_by(&path, state), "no such file or device").into()).into())
        }
        // Whatever else is wrong with it, the start finds.
        _ => Ok(()),
    }
}

/// The contents of the pool at `path` when its cores were last served, in words.
fn held_by(path: &Path, state: &State) -> String {
    let of = |name: &String, remembered: &Remembered| {
        let last = remembered.cache.as_ref().filter(|last| !last.void)?;
        let spec = PoolSpec::of(&last.path).ok()?.filter(|spec| spec.path == path)?;
        let lost = last.lost().unwrap_or_else(|| format!("nothing that core {} does not have", last.core));
        Some(format!("of volume '{name}' (core {} of the pool): {lost}", spec.core))
    };
    let held: Vec<String> = state.volumes.iter().filter_map(|(name, r)| of(name, r)).collect();
    match held.is_empty() {
        true => "nothing is remembered of what it held".to_owned(),
        false => format!("it held, as far as is remembered, the caches {}", held.join("; ")),
    }
}

impl Daemon {
    /// Every pool that is open, or that at `path`.
    ///
    /// # Errors
    /// If a device cannot be read.
    pub(crate) fn pools(&self, path: Option<&Path>) -> Result<Vec<PoolView>> {
        let pools = match path {
            Some(path) => Pool::opened(path).into_iter().collect(),
            None => Pool::all_opened(),
        };
        pools.iter().map(Pool::view).collect()
    }

    /// Gives a core a share, unless it `is_off` by then; its number.
    ///
    /// # Errors
    /// If there is no room, or it is there already.
    pub(crate) fn attach_core(&self, path: &Path, a: &Attach, is_off: &dyn Fn() -> bool) -> Result<u16> {
        open(path)?.attach_unless(a, is_off)
    }

    /// Takes the share of a core that is not served; what was lost by that, if it was ordered.
    ///
    /// # Errors
    /// If it is served, or its cache holds what the core does not have.
    pub(crate) fn detach_core(&self, path: &Path, core: &str, force: bool) -> Result<Option<String>> {
        let (pool, core) = (open(path)?, named(core)?);
        let lost = pool.detach(&core, force).map_err(|why| {
            self.or_its_user(&pool, &core, why, |volume| {
                format!(
                    "volume '{volume}' is served from it: 'loligo volume stop {volume}' first; or 'loligo volume detach {volume}', and its \
                     clients go on without a cache"
                )
            })
        })?;
        if let Some(lost) = &lost {
            say!("{}: {lost}", path.display());
        }
        Ok(lost)
    }

    /// Changes the share of a core; the pool as it is then.
    ///
    /// # Errors
    /// If that cannot be; its size: where it is served.
    pub(crate) fn resize_core(&self, path: &Path, core: &str, to: &Resize) -> Result<PoolView> {
        let (pool, core) = (open(path)?, named(core)?);
        pool.resize(&core, to).map_err(|why| {
            self.or_its_user(&pool, &core, why, |volume| {
                format!("volume '{volume}' is served from it: its size is to be asked of that volume")
            })
        })?;
        pool.view()
    }

    /// `why`, with what to do about the volume that is served from `core`, where it is that.
    fn or_its_user(
        &self,
        pool: &Pool,
        core: &CoreName,
        why: anyhow::Error,
        mend: impl Fn(&str) -> String,
    ) -> anyhow::Error {
        if !why.is::<InUse>() {
            return why;
        }
        match self.user_of(pool, core) {
            Some(volume) => anyhow!("{why:#}: {}", mend(&volume)),
            None => anyhow!("{why:#}: a volume is just coming or going; try again"),
        }
    }

    /// The volume that is served from `core`.
    fn user_of(&self, pool: &Pool, core: &CoreName) -> Option<String> {
        let number = pool.number_of(core).ok()?;
        let is_it = |name: &str| {
            let spec = PoolSpec::of(&self.effective(name).ok()?.cache?).ok()??;
            let same = Pool::opened(&spec.path)?.is(pool);
            Some(same && pool.number_of(&spec.core).ok()? == number)
        };
        let served = self.supervisors().into_iter().filter(|e| e.app().is_some());
        served.map(|e| e.name.clone()).find(|name| is_it(name) == Some(true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loligo_client::api::definition::Leave;
    use loligo_client::api::definition::VolumeConfig;
    use loligo_volume::last_cache::LastCache;

    #[test]
    fn a_pool_that_is_missing_is_told_of_with_what_it_held_and_what_another_in_its_place_gives_up() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pool");
        let share = |core: &str| format!("pool:{}#{core}", path.display());
        let remembered = |core: &str, dirty_bytes, void| {
            let cache = LastCache {
                core_names: Vec::new(),
                path: share(core).into(),
                uuid: core.into(),
                core: format!("/dev/{core}"),
                dirty_bytes,
                void,
                attaching: false,
            };
            Remembered { cache: Some(cache), ..Remembered::default() }
        };
        let text =
            format!("core = \"/dev/a\"\ncache = \"{}\"\nmode = \"wb\"\nlisten = [\"block:a\"]", share("a"));
        let config: VolumeConfig = toml::from_str(&text).unwrap();
        let options = ServeOptions::of(&config, "a", Leave::default()).unwrap();
        let mut state = State::default();
        let why = |state: &State| {
            let why = refuse_missing(&options, state).unwrap_err();
            assert!(why.is::<Absent>(), "it is waited for: {why}");
            why.to_string()
        };
        assert!(why(&state).contains("nothing is remembered of what it held"), "{}", why(&state));
        state.volumes.insert("a".into(), remembered("a", Some(4096), false));
        state.volumes.insert("b".into(), remembered("b", None, false));
        state.volumes.insert("c".into(), remembered("c", Some(0), false));
        state.volumes.insert("d".into(), remembered("d", None, true));
        let why = why(&state);
        for said in [
            "volume 'a' (core a of the pool): 4096 bytes that core /dev/a does not have",
            "volume 'b' (core b of the pool): whatever core /dev/b did not have",
            "volume 'c' (core c of the pool): nothing that core /dev/c",
            "made anew in its place ('loligo cache create') has none of the caches",
        ] {
            assert!(why.contains(said), "{why}");
        }
        assert!(!why.contains("'d'"), "what is void is no loss: {why}");
        std::fs::write(&path, "").unwrap();
        refuse_missing(&options, &state).unwrap();
    }
}
