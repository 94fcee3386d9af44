//! Blocking I/O on a masked device.

use super::{HEAD, LABEL_TRIES, MaskedHead, in_head};
use crate::op::check_range;
use crate::{Buf, IoError, SyncIo};
use std::sync::Arc;

/// `inner` behind a masked head, read and written in order.
#[derive(Debug)]
pub struct MaskedIo<I> {
    inner: I,
    masked: Arc<MaskedHead>,
}

impl<I: SyncIo> MaskedIo<I> {
    /// `inner`, whose first block on the disk is that of `masked`.
    pub fn new(inner: I, masked: Arc<MaskedHead>) -> MaskedIo<I> {
        MaskedIo { inner, masked }
    }

    /// Writes the label again that a write of the head which failed may have gone over.
    fn write_label_again(&mut self) {
        for _ in 0..LABEL_TRIES {
            if !self.masked.label_is_doubtful() {
                return;
            }
            self.look();
            let Ok(change) = self.masked.change(0..0, None) else { return };
            let written = self.inner.write_at(0, &change.block).and_then(|()| self.inner.flush());
            let _ = self.masked.changed(change, written.is_ok());
        }
    }

    /// Looks at what a write of the head that failed has left.
    fn look(&mut self) {
        if let Some(labels) = self.masked.unsure() {
            let mut block = vec![0; HEAD as usize];
            // Failing that it is asked again, and the head before counts.
            if self.inner.read_at(0, &mut block).is_ok() {
                self.masked.looked(&block, labels);
            }
        }
    }
}

impl<I: SyncIo> SyncIo for MaskedIo<I> {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), IoError> {
        check_range(offset, buf.len() as u64, self.size())?;
        let (head, rest) = buf.split_at_mut(in_head(offset, buf.len() as u64));
        if !head.is_empty() {
            self.look();
            self.masked.read(offset as usize, head)?;
        }
        if rest.is_empty() { Ok(()) } else { self.inner.read_at(offset.max(HEAD), rest) }
    }

    fn read_next(&mut self, ranges: Vec<(u64, usize)>) {
        let rest = |(offset, len): (u64, usize)| (offset.max(HEAD), len - in_head(offset, len as u64));
        self.inner.read_next(ranges.into_iter().map(rest).filter(|(_, len)| *len > 0).collect());
    }

    fn read_owned(&mut self, offset: u64, len: usize, spare: Option<Buf>) -> Result<Buf, IoError> {
        if offset >= HEAD {
            return self.inner.read_owned(offset, len, spare);
        }
        let mut buf = Buf::reused(spare, len);
        self.read_at(offset, &mut buf)?;
        Ok(buf)
    }

    fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<(), IoError> {
        check_range(offset, data.len() as u64, self.size())?;
        let (head, rest) = data.split_at(in_head(offset, data.len() as u64));
        if !head.is_empty() {
            self.look();
            let mut change = self.masked.change(offset as usize..offset as usize + head.len(), Some(head))?;
            loop {
                let written = self.inner.write_at(0, &change.block);
                let again = self.masked.changed(change, written.is_ok());
                if written.is_err() {
                    self.write_label_again();
                }
                written?;
                if !again {
                    break;
                }
                change = self.masked.change(0..0, None)?;
            }
        }
        if rest.is_empty() { Ok(()) } else { self.inner.write_at(offset.max(HEAD), rest) }
    }

    fn flush(&mut self) -> Result<(), IoError> {
        self.inner.flush()
    }
}
