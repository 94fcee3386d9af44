//! Calls of this process that are not answered yet. An array changes keys at the beginning of a preemption and answers it
//! seconds later, once the victim's writes have ended.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Calls by device.
static CALLS: Mutex<BTreeMap<Device, usize>> = Mutex::new(BTreeMap::new());

/// The same for all names of a block device, or of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Device(u64, u64);

impl Device {
    pub(super) fn of(meta: &Metadata) -> Device {
        match meta.file_type().is_block_device() {
            true => Device(meta.rdev(), u64::MAX),
            false => Device(meta.dev(), meta.ino()),
        }
    }

    /// True if a call on it is not answered.
    pub(super) fn is_pending(self) -> bool {
        calls().contains_key(&self)
    }

    /// A call on it begins, and lasts until the drop.
    pub(super) fn call(self) -> Call {
        *calls().entry(self).or_default() += 1;
        Call(self)
    }
}

/// A call that is not answered.
#[derive(Debug)]
pub(super) struct Call(Device);

impl Drop for Call {
    fn drop(&mut self) {
        let mut calls = calls();
        if let Some(count) = calls.get_mut(&self.0) {
            *count -= 1;
            if *count == 0 {
                calls.remove(&self.0);
            }
        }
    }
}

fn calls() -> MutexGuard<'static, BTreeMap<Device, usize>> {
    // Each change is whole by itself, so a panic elsewhere spoils nothing.
    CALLS.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_pending_until_its_last_call_ends() {
        let file = std::fs::metadata("/proc/self/exe").unwrap();
        let device = Device::of(&file);
        let (first, second) = (device.call(), device.call());
        drop(first);
        assert!(device.is_pending());
        drop(second);
        assert!(!device.is_pending());
    }
}
