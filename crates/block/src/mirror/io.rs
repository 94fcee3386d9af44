//! Blocking access to a mirror.

use super::live::{Deed, Guard};
use super::mark::Leg;
use crate::file::{DeviceFile, SyncFile};
use crate::op::check_range;
use crate::{Buf, IoError, IoKind, SyncIo};
use std::sync::{Arc, OnceLock};

/// A mirror read and written in order. Before somebody has begun to use it, it can be read alone.
#[derive(Debug)]
pub struct MirroredIo {
    live: Arc<OnceLock<Guard>>,
    contents: [Option<DeviceFile>; 2],
    /// The leg that is read while nobody has begun; none: there is nothing on either.
    first: Option<Leg>,
    size: u64,
    /// The leg that was read last.
    read: Option<(Leg, SyncFile)>,
}

impl MirroredIo {
    pub(super) fn new(
        live: Arc<OnceLock<Guard>>,
        contents: [Option<DeviceFile>; 2],
        (first, size): (Option<Leg>, u64),
    ) -> MirroredIo {
        MirroredIo { live, contents, first, size, read: None }
    }

    /// The leg that is to be read.
    fn reader(&mut self, leg: Leg) -> Result<&mut SyncFile, IoError> {
        let gone = || IoError::new(IoKind::Gone, format!("the {leg} leg is not there"));
        if self.read.as_ref().is_none_or(|(last, _)| *last != leg) {
            let file = self.contents[leg.index()].clone().ok_or_else(gone)?;
            self.read = Some((leg, SyncFile::new(file)));
        }
        self.read.as_mut().map(|(_, file)| file).ok_or_else(gone)
    }

    /// The leg to read; with it, whether the other may be read as well. Nothing: both are blank.
    fn source(&self) -> Option<(Leg, bool)> {
        match self.live.get().map(Guard::live) {
            Some(live) => Some((live.primary(), live.is_in_step())),
            None => self.first.map(|leg| (leg, false)),
        }
    }

    /// Reads from the leg that may be believed, or from the other where both may.
    fn read<T>(
        &mut self,
        (leg, both): (Leg, bool),
        mut what: impl FnMut(&mut SyncFile) -> Result<T, IoError>,
    ) -> Result<T, IoError> {
        match self.reader(leg).and_then(&mut what) {
            Err(why) if both && !why.is_final() => self.reader(leg.other()).and_then(what).map_err(|_| why),
            done => done,
        }
    }

    fn change(&mut self, deed: Deed) -> Result<(), IoError> {
        let unused = || IoError::new(IoKind::Invalid, "the mirror is not in use yet");
        self.live.get().map(Guard::live).ok_or_else(unused)?.wait_for(deed).map(drop)
    }
}

impl SyncIo for MirroredIo {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), IoError> {
        check_range(offset, buf.len() as u64, self.size())?;
        let Some(source) = self.source() else {
            buf.fill(0);
            return Ok(());
        };
        self.read(source, |file| file.read_at(offset, buf))
    }

    fn read_next(&mut self, ranges: Vec<(u64, usize)>) {
        let Some((leg, _)) = self.source() else { return };
        // Without it, reads are done when they are asked for.
        if let Ok(file) = self.reader(leg) {
            file.read_next(ranges);
        }
    }

    fn read_owned(&mut self, offset: u64, len: usize, spare: Option<Buf>) -> Result<Buf, IoError> {
        let Some(source) = self.source() else { return Ok(Buf::zeroed(len)) };
        let mut spare = spare;
        self.read(source, |file| file.read_owned(offset, len, spare.take()))
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
