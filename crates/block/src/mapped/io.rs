//! Blocking I/O on a share.

use super::ExtentMap;
use crate::op::check_range;
use crate::{Buf, IoError, SyncIo};
use std::sync::Arc;

/// The extents of a share on `inner`, read and written in order.
#[derive(Debug)]
pub struct MappedIo<I> {
    inner: I,
    map: Arc<ExtentMap>,
}

impl<I: SyncIo> MappedIo<I> {
    /// The share that `map` describes, on `inner`.
    pub fn new(inner: I, map: Arc<ExtentMap>) -> MappedIo<I> {
        MappedIo { inner, map }
    }
}

impl<I: SyncIo> SyncIo for MappedIo<I> {
    fn size(&self) -> u64 {
        self.map.size()
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), IoError> {
        check_range(offset, buf.len() as u64, self.size())?;
        let mut done = 0;
        while done < buf.len() {
            let run = self.map.run(offset + done as u64, (buf.len() - done) as u64)?;
            self.inner.read_at(run.offset, &mut buf[done..done + run.len as usize])?;
            done += run.len as usize;
        }
        Ok(())
    }

    fn read_next(&mut self, ranges: Vec<(u64, usize)>) {
        let runs = ranges.into_iter().map(|(offset, len)| self.map.runs(offset, len as u64));
        // A range without an extent is an error when it is asked for; until then nothing is read ahead.
        if let Ok(runs) = runs.collect::<Result<Vec<_>, _>>() {
            self.inner.read_next(runs.into_iter().flatten().map(|r| (r.offset, r.len as usize)).collect());
        }
    }

    fn read_owned(&mut self, offset: u64, len: usize, spare: Option<Buf>) -> Result<Buf, IoError> {
        check_range(offset, len as u64, self.size())?;
        if len > 0 {
            let run = self.map.run(offset, len as u64)?;
            if run.len == len as u64 {
                return self.inner.read_owned(run.offset, len, spare);
            }
        }
        let mut buf = Buf::reused(spare, len);
        self.read_at(offset, &mut buf)?;
        Ok(buf)
    }

    fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<(), IoError> {
        check_range(offset, data.len() as u64, self.size())?;
        let mut done = 0;
        while done < data.len() {
            let run = self.map.run(offset + done as u64, (data.len() - done) as u64)?;
            self.inner.write_at(run.offset, &data[done..done + run.len as usize])?;
            done += run.len as usize;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), IoError> {
        self.inner.flush()
    }
}
