//! The label of a core while that is served: written by the thread that looks after the volume, and by whoever switches its mode.

use crate::first_block;
use anyhow::{Context, Result};
use loligo_block::{CacheDevice, DeviceFile, MaskedHead, SyncFile, SyncIo};
use loligo_format::core_label::CoreLabel;
use loligo_format::in_place_label::encode;
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;

/// The whole device of a core, and its label.
#[derive(Debug)]
pub(crate) struct ServedLabel {
    whole: DeviceFile,
    /// The first block, if the content begins at byte 0.
    masked: Option<Arc<MaskedHead>>,
    label: Mutex<CoreLabel>,
}

impl ServedLabel {
    pub(crate) fn new(whole: DeviceFile, masked: Option<Arc<MaskedHead>>, label: CoreLabel) -> ServedLabel {
        ServedLabel { whole, masked, label: Mutex::new(label) }
    }

    pub(crate) fn whole(&self) -> &DeviceFile {
        &self.whole
    }

    pub(crate) fn masked(&self) -> Option<&Arc<MaskedHead>> {
        self.masked.as_ref()
    }

    fn lock(&self) -> MutexGuard<'_, CoreLabel> {
        self.label.lock()
    }

    /// The label as it was written last, or found.
    pub(crate) fn label(&self) -> CoreLabel {
        self.lock().clone()
    }

    /// It was found to be another one after all.
    pub(crate) fn becomes(&self, label: CoreLabel) {
        *self.lock() = label;
    }

    /// Changes what it says, durably. `cache` keeps a copy of a first block while that is written; without one its head stays the same, and only
    /// the first sector changes.
    ///
    /// # Errors
    /// Those of the devices.
    pub(crate) fn write(
        &self,
        cache: Option<&CacheDevice>,
        change: impl FnOnce(&mut CoreLabel),
    ) -> Result<()> {
        let mut label = self.lock();
        change(&mut label);
        let mut whole = SyncFile::new(self.whole.clone());
        let failed = "the core's label cannot be written";
        let Some(masked) = &self.masked else { return label.store(&mut whole).context(failed) };
        label.generation += 1;
        // Whoever is served from the core alone may be writing the head at this moment.
        masked.write_label(&encode(&label), |block| {
            if let Some(cache) = cache.filter(|_| masked.head().is_some()) {
                first_block::save(&mut cache.sync_io(), block)?;
            }
            whole.write_at(0, block).and_then(|()| whole.flush()).context(failed)
        })
    }

    /// From now on the cache may get ahead of the core, and the label does not say any more that the core has everything. Durable when this
    /// returns.
    ///
    /// # Errors
    /// Those of the device: the cache must not get ahead then.
    pub(crate) fn may_be_ahead(&self) -> Result<()> {
        if !self.lock().through {
            return Ok(());
        }
        let changed = self.write(None, |label| label.through = false);
        if changed.is_err() {
            // What is on the disk is not known: it is tried again the next time.
            self.lock().through = true;
        }
        changed
    }
}
