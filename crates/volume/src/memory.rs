//! Requests of a volume to the daemon that it belongs to.

use crate::last_cache::{CoreNames, LastCache};
use crate::options::ServeOptions;
use crate::volume_state::VolumeState;
use loligo_client::api::cache_config::CacheConfig;
use loligo_client::api::definition::{Leave, VolumeConfig};
use loligo_export::Listener;
use std::sync::Arc;

/// A start that is about to serve, and what was known when it was allowed.
#[derive(Debug)]
pub struct Begins<'a> {
    /// The core, which it has to itself by now.
    pub core: &'a CoreNames,
    /// The cache in front of it; nothing: it is served bare.
    pub cache: Option<LastCache>,
    /// The start gives up whatever stands in the way.
    pub forced: bool,
    /// The cache that was asked for.
    pub expected: Option<&'a LastCache>,
}

/// The daemon's memory of its volumes, as these ask for it and change it.
pub trait Memory: Send + Sync {
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
    /// The array has given its devices to another controller, in these words: it is not started by itself any more. Durable
    /// when this returns. Nothing else is noted of it.
    fn lost(&self, name: &str, why: &str) -> anyhow::Result<()>;
    /// Checks that something can be noted: refuses what would have to be taken back.
    fn can_note(&self) -> anyhow::Result<()>;
    /// `app` is served: changes are to be remembered.
    fn follow(&self, app: &Arc<VolumeState>);
}

/// The control API of one volume while it is served; dropping it ends that.
pub trait ServedApi: std::fmt::Debug + Send {}

/// A server of control APIs.
pub trait ControlApi: Send + Sync {
    /// Serves the API of `volume` on its own socket.
    ///
    /// # Errors
    /// If the socket cannot be used.
    fn serve_volume(&self, socket: Listener, volume: Arc<VolumeState>) -> anyhow::Result<Box<dyn ServedApi>>;
}
