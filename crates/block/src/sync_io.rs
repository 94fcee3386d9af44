//! Blocking access to a device, for what happens before and after service: format, recovery, inspection.

use crate::{Buf, IoError, IoKind};

/// A device read and written in order by one caller. The simulator implements it with crashes and faults, the
/// service with `pread`/`pwrite` on the very descriptor that later does the I/O.
pub trait SyncIo {
    /// Bytes; fixed while open.
    fn size(&self) -> u64;
    /// Fills `buf` from `offset`.
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), IoError>;
    /// The next reads will be these ranges (offset and bytes) in this order, and nothing is written to them before: a
    /// device that can may read ahead.
    fn read_next(&mut self, _ranges: Vec<(u64, usize)>) {}
    /// `len` bytes from `offset` in a buffer of their own; `spare` may become it, or one for later.
    fn read_owned(&mut self, offset: u64, len: usize, spare: Option<Buf>) -> Result<Buf, IoError> {
        let mut buf = Buf::reused(spare, len);
        self.read_at(offset, &mut buf)?;
        Ok(buf)
    }
    /// Writes all of `data` at `offset` (not yet durable).
    fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<(), IoError>;
    /// Makes every write before it durable.
    fn flush(&mut self) -> Result<(), IoError>;
}

/// A device in memory, for what is built or examined without a disk. It forgets nothing, so a flush has nothing to do.
impl SyncIo for Vec<u8> {
    fn size(&self) -> u64 {
        self.len() as u64
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), IoError> {
        buf.copy_from_slice(&self[within(self.len(), offset, buf.len())?]);
        Ok(())
    }

    fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<(), IoError> {
        let range = within(self.len(), offset, data.len())?;
        self[range].copy_from_slice(data);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), IoError> {
        Ok(())
    }
}

fn within(size: usize, offset: u64, len: usize) -> Result<std::ops::Range<usize>, IoError> {
    let end = offset.checked_add(len as u64).filter(|e| *e <= size as u64);
    let end = end
        .ok_or_else(|| IoError::new(IoKind::Invalid, format!("{len} bytes at {offset} are past the end")))?;
    Ok(offset as usize..end as usize)
}
