//! Reading the journal's ring at recovery.

use super::{CHUNK, Plan, RecoverError};
use crate::page::Root;
use crate::record::{FRAME_HEADER, FRAME_MAX, FrameError, FrameHeader, Record, parse};
use loligo_block::{IoError, SyncIo};

/// Walks the frames of a ring in order.
pub(super) struct Frames<'a> {
    dev: &'a mut dyn SyncIo,
    plan: &'a Plan,
    /// A stretch of the ring in memory.
    from: u64,
    bytes: Vec<u8>,
}

impl<'a> Frames<'a> {
    /// Nothing of the ring is in memory yet.
    pub(super) fn new(dev: &'a mut dyn SyncIo, plan: &'a Plan) -> Frames<'a> {
        Frames { dev, plan, from: 0, bytes: Vec::new() }
    }

    fn at(&mut self, pos: u64) -> Result<&[u8], IoError> {
        let len = self.plan.layout.journal_len;
        let want = (FRAME_MAX as u64).min(len - pos);
        let have = self.from + self.bytes.len() as u64;
        if pos < self.from || pos + want > have {
            self.from = pos;
            self.bytes.resize((CHUNK as u64).min(len - pos) as usize, 0);
            self.dev.read_at(self.plan.layout.journal + pos, &mut self.bytes)?;
        }
        Ok(&self.bytes[(pos - self.from) as usize..])
    }

    /// The frame `seq` at `pos` or, where none fits there any more, at the start of the ring.
    pub(super) fn read(
        &mut self,
        pos: u64,
        seq: u64,
        root: Option<&Root>,
        records: &mut Vec<Record>,
    ) -> Result<Option<(u64, FrameHeader)>, RecoverError> {
        for at in [pos % self.plan.layout.journal_len, 0] {
            records.clear();
            let id = self.plan.id;
            match parse(self.at(at)?, id, |r| records.push(r)) {
                Ok(h) if h.seq == seq && root.is_none_or(|r| r.epoch_of(seq) == h.epoch) => {
                    return Ok(Some((at, h)));
                }
                Ok(_) | Err(FrameError::NotAFrame) => {}
                Err(e) => return Err(e.into()),
            }
        }
        records.clear();
        Ok(None)
    }

    /// A frame of this epoch that says that frame `missing` was durable.
    pub(super) fn witness(&mut self, missing: u64, epoch: u64) -> Result<Option<u64>, RecoverError> {
        let len = self.plan.layout.journal_len;
        let mut pos = 0;
        while pos + FRAME_HEADER as u64 <= len {
            let id = self.plan.id;
            match parse(self.at(pos)?, id, |_| ()) {
                Ok(h) => {
                    if h.epoch == epoch && h.seq > missing && h.watermark >= missing {
                        return Ok(Some(h.watermark));
                    }
                    pos += u64::from(h.total);
                }
                Err(_) => pos += 512,
            }
        }
        Ok(None)
    }
}
