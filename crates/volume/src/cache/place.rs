//! The place of a cache.

use crate::pool::Share;
use loligo_block::silence::Silence;
use loligo_block::{CacheDevice, DeviceFile};
use std::sync::Arc;

/// The place of a cache: a device of its own, or a share of a pool's.
#[derive(Debug, Clone)]
pub struct Place {
    pub(crate) file: CacheDevice,
    pub(crate) share: Option<Arc<Share>>,
}

impl Place {
    /// The same, silent with all others that `silence` was given to.
    pub(crate) fn silenced_by(self, silence: &Silence) -> Place {
        Place { file: self.file.silenced_by(silence), share: self.share }
    }
}

impl From<DeviceFile> for Place {
    fn from(file: DeviceFile) -> Place {
        Place { file: file.into(), share: None }
    }
}
