//! Checks that a volume could be started as it is defined now, before it is stopped for that.

use crate::daemon::Daemon;
use crate::supervisor::Supervisor;
use crate::{missing_pool, ownership, void};
use anyhow::{Result, anyhow, ensure};
use loligo_block::keyed;
use loligo_client::api::definition::Leave;
use loligo_volume::cache;
use loligo_volume::identity::device_id;
use loligo_volume::options::ServeOptions;

impl Daemon {
    /// Refuses to stop a served volume that could not be started again. Causes that only a start can see, on devices that are in
    /// use now, are left to that. A volume that is not served has nothing to lose.
    ///
    /// # Errors
    /// An error says what stands in the way.
    pub(crate) fn check_restart(&self, name: &str) -> Result<()> {
        let supervisor = self.supervisor(name)?;
        let Some(app) = supervisor.app() else { return Ok(()) };
        let dirty = app.handle.snapshots().iter().map(|s| s.stats.dirty_bytes).sum();
        let right = supervisor
            .fault()
            .map_or(Ok(()), |why| Err(anyhow!("its section of the file is not right: {why}")));
        right.and_then(|()| self.foresee(name, dirty)).map_err(|why| {
            let why = keyed!("{why:#}").for_file();
            anyhow!("volume '{name}' is not stopped, because it could not start as it is defined now: {why}")
        })
    }

    fn foresee(&self, name: &str, dirty: u64) -> Result<()> {
        let next = self.effective(name)?;
        // What nobody is served through stands in no way of this.
        let counts = |other: &Supervisor| other.app().is_some();
        self.refuse_taken(name, &next, &self.look_beside(&next, counts), counts)?;
        let mut options = ServeOptions::of(&next, name, Leave::default())?;
        if let Some(core) = options.core.path() {
            ensure!(core.exists(), "the core {} is not there", core.display());
        }
        let state = self.memory.state.lock().clone();
        let core = options.core.names();
        if let Some(cache) = &mut options.cache {
            cache.expected = ownership::expected(name, &cache.path, &core, None, &state);
        }
        ownership::refuse_anothers(name, &options, &core, None, &state)?;
        let last = state.volumes.get(name).and_then(|r| r.cache.clone());
        let Some(cache) = &options.cache else {
            ensure!(
                dirty == 0,
                "it is defined without a cache now, and the one that it is served through holds {dirty} bytes that its core does not have: \
                 'loligo volume detach {name}' writes them and takes the cache away while it is served"
            );
            return Ok(());
        };
        // One that has failed is done without.
        if last.as_ref().is_some_and(|last| void::is_done_without(cache, last)) {
            return Ok(());
        }
        missing_pool::refuse(&options, &state)?;
        if let (Some(last), true) = (&last, dirty > 0)
            && let (Some(was), Some(next)) = (device_id(&last.path), device_id(&cache.path))
        {
            ensure!(
                was == next,
                "its cache is to be {}, and the one that it is served through, {}, holds {dirty} bytes that its core does not have: \
                 'loligo flush {name}' first",
                cache.path.display(),
                last.path.display()
            );
        }
        cache::foresee(cache)
    }
}
