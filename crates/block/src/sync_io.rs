//! Blocking access to a device, for what happens before and after service: format, recovery, inspection.

use crate::IoError;

/// A device read and written in order by one caller. The simulator implements it with crashes and faults, the
/// service with `pread`/`pwrite` on the very descriptor that later does the I/O.
pub trait SyncIo {
    /// Bytes; fixed while open.
    fn size(&self) -> u64;
    /// Fills `buf` from `offset`.
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), IoError>;
    /// Writes all of `data` at `offset` (not yet durable).
    fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<(), IoError>;
    /// Makes every write before it durable.
    fn flush(&mut self) -> Result<(), IoError>;
}
