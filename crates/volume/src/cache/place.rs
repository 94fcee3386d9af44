//! The place of a cache.

use crate::pool::Share;
use loligo_block::{CacheDevice, DeviceFile};
use std::sync::Arc;

/// The place of a cache: a device of its own, or a share of a pool's.
#[derive(Debug, Clone)]
pub struct Place {
    pub(crate) file: CacheDevice,
    pub(crate) share: Option<Arc<Share>>,
}

impl From<DeviceFile> for Place {
    fn from(file: DeviceFile) -> Place {
        Place { file: file.into(), share: None }
    }
}
