//! The devices of a volume that another controller may share, and their array's word on them.

use crate::cache;
use crate::options::ServeOptions;
use crate::pool::PoolSpec;
use anyhow::Result;
use loligo_pair::fence::{BlockFence, Fence, FenceError, KIND, Shown};
use loligo_pair::reservation::Key;
use std::path::{Path, PathBuf};

/// The devices of `o` that others may share: a pool stands for its shares.
pub(super) fn devices(o: &ServeOptions) -> Result<Vec<PathBuf>> {
    let mirror = o.cache.as_ref().and_then(|c| c.mirror.as_ref()).map(|m| m.path.clone());
    // A leg that is not there is not opened; the other's label says whether it may be done without.
    let mirror = mirror.filter(|path| path.exists());
    let cache = o.cache.as_ref().filter(|c| cache::is_there(c)).map(|c| c.path.clone());
    let cache = cache.filter(|path| path.exists() || o.cache.as_ref().is_some_and(|c| c.mirror.is_none()));
    let cache = cache.map(|path| Ok::<_, anyhow::Error>(PoolSpec::of(&path)?.map_or(path, |pool| pool.path)));
    let core = o.core.path().filter(|path| path.exists()).map(Path::to_owned);
    Ok(cache.transpose()?.into_iter().chain(mirror).chain(core).collect())
}

/// Keys and holder of a device, by its array. Waits as long as that takes.
pub(super) fn shown_of(path: &Path) -> Result<Shown, FenceError> {
    BlockFence::open(path).and_then(|mut fence| fence.read())
}

/// Tells whether `mine` holds a LUN; the error is the reason if it does not.
pub(super) fn holds(mine: Key, shown: &Shown) -> Result<(), String> {
    let key = mine.0;
    match shown.held {
        Some((holder, kind)) if holder == mine && kind == KIND && shown.keys.contains(&mine) => Ok(()),
        Some((holder, kind)) if holder == mine && kind != KIND => {
            Err(format!("this controller holds it as {kind:?}"))
        }
        Some((holder, _)) => Err(format!("key {:#x} holds it, and this controller's is {key:#x}", holder.0)),
        None => Err(format!("nobody holds it, and this controller's key is {key:#x}")),
    }
}
