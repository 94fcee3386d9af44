//! Copies of one structure at several places of a device.

use loligo_block::{IoError, SyncIo};

/// Writes `raw` at each of `places` that holds something else or cannot be read. Each copy is durable before the next is touched,
/// so that one is whole at any time.
///
/// # Errors
/// The device is gone, or cannot be written.
pub(crate) fn write_missing(dev: &mut dyn SyncIo, places: [u64; 2], raw: &[u8]) -> Result<(), IoError> {
    let mut have = vec![0; raw.len()];
    for at in places {
        let same = match dev.read_at(at, &mut have) {
            Ok(()) => have == raw,
            Err(e) if e.is_final() => return Err(e),
            // Writing it may heal it.
            Err(_) => false,
        };
        if !same {
            dev.write_at(at, raw)?;
            dev.flush()?;
        }
    }
    Ok(())
}
