//! Blocking access to a mirror.

use super::legs::Mirror;
use super::live::Deed;
use super::mark::Leg;
use crate::file::{DeviceFile, SyncFile};
use crate::op::check_range;
use crate::{Buf, IoError, IoKind, SyncIo};

/// A mirror read and written in order. Before somebody has begun to use it, it can be read alone.
#[derive(Debug)]
pub struct MirroredIo {
    mirror: Mirror,
    /// The leg that is read while nobody has begun.
    first: Option<SyncFile>,
    /// There is nothing on it yet.
    blank: bool,
    /// The leg that was read last.
    read: Option<(Leg, SyncFile)>,
}

impl MirroredIo {
    pub(super) fn new(mirror: Mirror, first: Option<DeviceFile>, blank: bool) -> MirroredIo {
        MirroredIo { mirror, first: first.map(SyncFile::new), blank, read: None }
    }

    /// The leg that is to be read.
    fn reader(&mut self, leg: Leg) -> Result<&mut SyncFile, IoError> {
        if self.read.as_ref().is_none_or(|(last, _)| *last != leg) {
            let file = self.mirror.content(leg)?;
            self.read = Some((leg, SyncFile::new(file)));
        }
        let gone = || IoError::new(IoKind::Gone, format!("the {leg} leg is not there"));
        self.read.as_mut().map(|(_, file)| file).ok_or_else(gone)
    }

    /// Reads from the leg that may be believed, or from the other where both may.
    fn read<T>(&mut self, mut what: impl FnMut(&mut SyncFile) -> Result<T, IoError>) -> Result<T, IoError> {
        let Some(live) = self.mirror.live().cloned() else {
            let gone = || IoError::new(IoKind::Gone, "no leg of the mirror is there");
            return what(self.first.as_mut().ok_or_else(gone)?);
        };
        let leg = live.primary();
        match self.reader(leg).and_then(&mut what) {
            Err(why) if live.is_in_step() && !why.is_final() => {
                self.reader(leg.other()).and_then(what).map_err(|_| why)
            }
            done => done,
        }
    }

    fn change(&mut self, deed: Deed) -> Result<(), IoError> {
        let Some(live) = self.mirror.live() else {
            return Err(IoError::new(IoKind::Invalid, "the mirror is not in use yet"));
        };
        live.wait_for(deed).map(drop)
    }
}

impl SyncIo for MirroredIo {
    fn size(&self) -> u64 {
        self.mirror.size()
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), IoError> {
        check_range(offset, buf.len() as u64, self.size())?;
        if self.blank && self.mirror.live().is_none() {
            buf.fill(0);
            return Ok(());
        }
        self.read(|file| file.read_at(offset, buf))
    }

    fn read_next(&mut self, ranges: Vec<(u64, usize)>) {
        let Some(live) = self.mirror.live() else { return };
        let leg = live.primary();
        // Without it, reads are done when they are asked for.
        if let Ok(file) = self.reader(leg) {
            file.read_next(ranges);
        }
    }

    fn read_owned(&mut self, offset: u64, len: usize, spare: Option<Buf>) -> Result<Buf, IoError> {
        let mut spare = spare;
        self.read(|file| file.read_owned(offset, len, spare.take()))
    }

    fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<(), IoError> {
        check_range(offset, data.len() as u64, self.size())?;
        // What was read ahead may be older.
        self.read = None;
        if data.is_empty() {
            return Ok(());
        }
        self.change(Deed::Write(offset, data.into()))
    }

    fn flush(&mut self) -> Result<(), IoError> {
        self.change(Deed::Flush)
    }
}
