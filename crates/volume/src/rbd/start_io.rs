//! An image while its volume starts: read as long as nobody stops the start.

use super::while_ours;
use crate::signals::StopSignals;
use loligo_block::{IoError, IoKind, SyncIo};
use loligo_ceph::AttachedImage;
use loligo_ceph::cancel::Cancellable;
use loligo_ceph::spec::ImageSpec;
use loligo_ceph::sync_io::ImageIo;
use std::cell::Cell;
use std::sync::Arc;

/// Blocking access that fails once somebody stops the start: OSDs that do not answer are waited for until then.
pub(crate) struct StartIo<'a> {
    image: Arc<AttachedImage>,
    spec: &'a ImageSpec,
    signals: &'a StopSignals,
    stopped: &'a Cell<bool>,
}

impl<'a> StartIo<'a> {
    /// To an image that was taken. `stopped` says afterwards whether somebody stopped the start.
    pub(crate) fn new(
        image: Arc<AttachedImage>,
        spec: &'a ImageSpec,
        signals: &'a StopSignals,
        stopped: &'a Cell<bool>,
    ) -> StartIo<'a> {
        StartIo { image, spec, signals, stopped }
    }

    fn wait<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut ImageIo) -> Result<T, IoError> + Send + 'static,
    ) -> Result<T, IoError> {
        let mut io = ImageIo(self.image.clone());
        let done = match self.stopped.get() {
            true => None,
            false => Cancellable::begin(move || work(&mut io))
                .map_err(anyhow::Error::from)
                .and_then(|work| while_ours(&self.image, self.spec, self.signals, work))
                .map_err(|why| IoError::new(IoKind::Io, why.to_string()))?,
        };
        self.stopped.set(done.is_none());
        done.unwrap_or_else(|| Err(IoError::new(IoKind::Gone, "the start is being stopped")))
    }
}

impl SyncIo for StartIo<'_> {
    fn size(&self) -> u64 {
        self.image.reach()
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), IoError> {
        let len = buf.len();
        let read = self.wait(move |io| {
            let mut read = vec![0; len];
            io.read_at(offset, &mut read).map(|()| read)
        })?;
        buf.copy_from_slice(&read);
        Ok(())
    }

    fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<(), IoError> {
        let data = data.to_vec();
        self.wait(move |io| io.write_at(offset, &data))
    }

    fn flush(&mut self) -> Result<(), IoError> {
        self.wait(SyncIo::flush)
    }
}
