//! A look at a device without any known mark: does it hold anything?

use anyhow::Result;
use loligo_block::SyncIo;
use loligo_format::units::BLOCK;

/// Blocks looked at before a device without any known mark counts as blank.
const LOOKED_AT: u64 = 1024;
/// Bytes at the end of the device that are looked at whole.
const TAIL: u64 = 256 << 10;

/// True if any of the places looked at is not zero: the end, where partition tables and RAID keep copies, and samples all over.
pub(crate) fn holds_data(dev: &mut dyn SyncIo) -> Result<bool> {
    let size = dev.size();
    let step = (size / LOOKED_AT).max(BLOCK).next_multiple_of(BLOCK);
    let tail = size.saturating_sub(TAIL) / BLOCK * BLOCK;
    let mut raw = vec![0; BLOCK as usize];
    for at in (0..size).step_by(step as usize).chain((tail..size).step_by(BLOCK as usize)) {
        let raw = &mut raw[..BLOCK.min(size - at) as usize];
        dev.read_at(at, raw)?;
        if raw.iter().any(|b| *b != 0) {
            return Ok(true);
        }
    }
    Ok(false)
}
