//! Pools that volumes of the daemon are served from: what is done to their other cores meanwhile.

use crate::daemon::Daemon;
use anyhow::{Context, Result, anyhow};
use loligo_client::api::pool::PoolView;
use loligo_client::outcome::InUse;
use loligo_log::say;
use loligo_volume::pool::{Attach, CoreName, Pool, PoolSpec, Resize};
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
