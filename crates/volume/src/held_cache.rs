//! The cache of a volume while it is served.

use crate::pool::Share;
use loligo_block::CacheDevice;
use loligo_format::superblock::Superblock;
use parking_lot::Mutex;
use std::sync::Arc;

/// The superblock of a cache in use, shared by whoever must write it down.
pub(crate) type SharedSuperblock = Arc<Mutex<Superblock>>;

/// The cache device while the engine has it, and what its superblock says.
#[derive(Debug)]
pub(crate) struct HeldCache {
    pub(crate) file: CacheDevice,
    /// With it the cache can grow and shrink.
    pub(crate) share: Option<Arc<Share>>,
    /// Held while it is written, which a device that answers nothing may make last.
    pub(crate) superblock: SharedSuperblock,
    /// It never changes: nobody waits for the superblock to be told it.
    pub(crate) uuid: String,
}

impl HeldCache {
    pub(crate) fn new(file: CacheDevice, share: Option<Arc<Share>>, superblock: Superblock) -> HeldCache {
        let uuid = superblock.uuid_text();
        HeldCache { file, share, superblock: Arc::new(Mutex::new(superblock)), uuid }
    }
}
