//! What a volume asks of the daemon that it belongs to.

use crate::cache_config::CacheConfig;
use crate::last_cache::{CoreNames, LastCache};
use crate::serve::ServeOptions;
use crate::volume_config::{Leave, VolumeConfig};
use crate::volume_state::VolumeState;
use std::sync::Arc;

/// A start that is about to serve, and what was known when it was allowed.
pub(crate) struct Begins<'a> {
    /// The core, which it has to itself by now.
    pub(crate) core: &'a CoreNames,
    /// The cache in front of it; nothing: it is served bare.
    pub(crate) cache: Option<LastCache>,
    /// Whatever stands in the way is given up.
    pub(crate) forced: bool,
    /// The cache that was asked for.
    pub(crate) expected: Option<&'a LastCache>,
}

/// The daemon's memory of its volumes, as these ask for it and change it.
pub(crate) trait Memory: Send + Sync {
    /// The options of a start, with what was set by command.
    fn options(&self, name: &str, config: &VolumeConfig, leave: Leave) -> anyhow::Result<ServeOptions>;
    /// Its start is about to serve this, and other caches of the core are void. Durable when this returns, as are the next four.
    fn begins(&self, name: &str, begins: Begins<'_>) -> anyhow::Result<()>;
    /// Its cache is like this. Requests of clients wait for this and the next two, and no longer than for its limit.
    fn cache_is(&self, name: &str, cache: LastCache) -> anyhow::Result<()>;
    /// From now on its cache is what `keys` say.
    fn attached(&self, name: &str, keys: &CacheConfig, cache: LastCache) -> anyhow::Result<()>;
    /// From now on it has no cache.
    fn detached(&self, name: &str) -> anyhow::Result<()>;
    /// Its cache was stopped so, and no client waits.
    fn cache_was(&self, name: &str, cache: LastCache) -> anyhow::Result<()>;
    /// Whether something can be noted: refuses what would have to be taken back.
    fn can_note(&self) -> anyhow::Result<()>;
    /// `app` is served: changes are to be remembered.
    fn follow(&self, app: &Arc<VolumeState>);
}
