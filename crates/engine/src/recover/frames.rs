//! Reading the journal's ring at recovery.

use super::{CHUNK, Plan, RecoverError};
use loligo_block::{IoError, SECTOR, SyncIo};
use loligo_format::page::Root;
use loligo_format::record::{FRAME_HEADER, FRAME_MAX, FrameError, FrameHeader, Record, claim, parse};
use std::collections::BTreeSet;

/// Bytes that are read again at a time where a stretch cannot be read.
const PIECE: usize = 4096;

/// Walks the frames of a ring in order.
pub(super) struct Frames<'a> {
    dev: &'a mut dyn SyncIo,
    plan: &'a Plan,
    /// A stretch of the ring in memory.
    from: u64,
    bytes: Vec<u8>,
    /// Sectors of the ring that cannot be read; they stand for zeros.
    bad: BTreeSet<u64>,
}

impl<'a> Frames<'a> {
    /// Nothing of the ring is in memory yet.
    pub(super) fn new(dev: &'a mut dyn SyncIo, plan: &'a Plan) -> Frames<'a> {
        Frames { dev, plan, from: 0, bytes: Vec::new(), bad: BTreeSet::new() }
    }

    fn at(&mut self, pos: u64) -> Result<&[u8], IoError> {
        let len = self.plan.layout.journal_len;
        let want = (FRAME_MAX as u64).min(len - pos);
        let have = self.from + self.bytes.len() as u64;
        if pos < self.from || pos + want > have {
            self.from = pos;
            self.bytes.resize((CHUNK as u64).min(len - pos) as usize, 0);
            if let Err(e) = self.dev.read_at(self.plan.layout.journal + pos, &mut self.bytes) {
                self.read_in_pieces(e)?;
            }
        }
        Ok(&self.bytes[(pos - self.from) as usize..])
    }

    /// The same stretch, which failed with `error` as a whole: what is bad of it stands alone.
    fn read_in_pieces(&mut self, error: IoError) -> Result<(), IoError> {
        if error.is_final() {
            return Err(error);
        }
        let at = self.plan.layout.journal + self.from;
        for (n, piece) in (0u64..).zip(self.bytes.chunks_mut(PIECE)) {
            let first = n * PIECE as u64;
            if self.dev.read_at(at + first, piece).is_ok() {
                continue;
            }
            for (k, sector) in (0u64..).zip(piece.chunks_mut(SECTOR as usize)) {
                let offset = first + k * SECTOR;
                match self.dev.read_at(at + offset, sector) {
                    Ok(()) => {}
                    Err(e) if e.is_final() => return Err(e),
                    Err(_) => {
                        sector.fill(0);
                        self.bad.insert((self.from + offset) / SECTOR);
                    }
                }
            }
        }
        Ok(())
    }

    /// The byte of the device at which the frame `seq` may be and cannot be read, at `pos` or at the start of the ring.
    pub(super) fn unreadable(
        &mut self,
        pos: u64,
        seq: u64,
        root: Option<&Root>,
    ) -> Result<Option<u64>, IoError> {
        let len = self.plan.layout.journal_len;
        let pos = pos % len;
        let wraps = len - pos < FRAME_MAX as u64;
        for at in [Some(pos), wraps.then_some(0)].into_iter().flatten() {
            let id = self.plan.id;
            let total = claim(self.at(at)?, id)
                .filter(|h| h.seq == seq && root.is_none_or(|r| r.epoch_of(seq) == h.epoch))
                .map_or(FRAME_HEADER as u64, |h| u64::from(h.total));
            if let Some(sector) = self.bad.range(at / SECTOR..(at + total).div_ceil(SECTOR)).next() {
                return Ok(Some(self.plan.layout.journal + sector * SECTOR));
            }
        }
        Ok(None)
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

    /// A readable frame of this epoch that says that frame `missing` was durable.
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
