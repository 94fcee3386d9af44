//! Whether a volume could be started as it is defined now: asked before it is stopped for that.

use super::config::Leave;
use super::words::of_file;
use super::{Daemon, exchange, lock, pools};
use crate::cache;
use anyhow::{Result, anyhow, ensure};
use std::path::Path;

impl Daemon {
    /// Refuses to stop a served volume that could not be started again. What only a start can see, on devices that are in use now, is left to
    /// that; one that is not served has nothing to lose.
    ///
    /// # Errors
    /// What stands in the way.
    pub(crate) fn check_restart(&self, name: &str) -> Result<()> {
        if self.entry(name)?.app().is_none() {
            return Ok(());
        }
        self.foresee(name).map_err(|why| {
            let why = of_file(&format!("{why:#}"));
            anyhow!("volume '{name}' is not stopped, because it could not start as it is defined now: {why}")
        })
    }

    fn foresee(&self, name: &str) -> Result<()> {
        let next = self.effective(name)?;
        self.refuse_taken(name, &next)?;
        let mut options = next.options(name, Leave::default())?;
        if let Some(core) = options.core.path() {
            ensure!(core.exists(), "the core {} is not there", core.display());
        }
        let state = lock(&self.memory.state).clone();
        exchange::refuse_anothers(name, &options, &state)?;
        let last = state.volumes.get(name).and_then(|r| r.cache.clone());
        let is_void = |path: &Path| last.as_ref().is_some_and(|last| last.void && last.path == path);
        // One that has failed is done without.
        if options.cache.as_ref().is_none_or(|cache| is_void(&cache.path)) {
            return Ok(());
        }
        pools::refuse_missing(&options, &state)?;
        if let Some(cache) = &mut options.cache {
            cache.expected = last;
            cache::foresee(cache)?;
        }
        Ok(())
    }
}
