//! A device in memory for code that reads and writes in order.

use loligo_block::{IoError, IoKind, SyncIo};

/// Its bytes.
#[derive(Clone)]
pub struct Ram(pub Vec<u8>);

impl Ram {
    /// `size` zeros.
    pub fn new(size: usize) -> Ram {
        Ram(vec![0; size])
    }

    fn range(&self, offset: u64, len: usize) -> Result<std::ops::Range<usize>, IoError> {
        let end = offset.checked_add(len as u64).filter(|e| *e <= self.size());
        let end = end.ok_or_else(|| IoError::new(IoKind::Invalid, "past the end"))?;
        Ok(offset as usize..end as usize)
    }
}

impl std::fmt::Debug for Ram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ram({} bytes)", self.0.len())
    }
}

impl SyncIo for Ram {
    fn size(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), IoError> {
        buf.copy_from_slice(&self.0[self.range(offset, buf.len())?]);
        Ok(())
    }

    fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<(), IoError> {
        let range = self.range(offset, data.len())?;
        self.0[range].copy_from_slice(data);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), IoError> {
        Ok(())
    }
}
