//! An image while its volume starts: read as long as nobody stops the start.

use crate::signals::StopSignals;
use anyhow::{Result, bail};
use loligo_block::{IoError, IoKind, SyncIo};
use loligo_ceph::AttachedImage;
use loligo_ceph::cancel::Cancellable;
use loligo_ceph::spec::ImageSpec;
use loligo_ceph::sync_io::ImageIo;
use loligo_log::say;
use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The time that closing an image may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(15);

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

/// True if a start that waits for the cluster is to wait on: until somebody stops it. It says what it waits for where
/// that takes long.
pub(super) fn goes_on(spec: &ImageSpec, signals: &StopSignals) -> impl FnMut() -> bool {
    let begun = Instant::now();
    let mut told = false;
    move || {
        if !told && begun.elapsed() > PATIENCE {
            told = true;
            say!(
                "waiting for the OSDs of image {spec}, which have not answered for {} s",
                PATIENCE.as_secs()
            );
        }
        !signals.within(Duration::ZERO) && signals.silence().cause().is_none()
    }
}

/// The result of `work` for an image while its volume starts; nothing: somebody stopped the start.
///
/// # Errors
/// If the image is another's by now: its client says nothing any more, and hears nothing.
pub(crate) fn while_ours<T: Send + 'static>(
    image: &AttachedImage,
    spec: &ImageSpec,
    signals: &StopSignals,
    work: Cancellable<T>,
) -> Result<Option<T>> {
    let mut goes_on = goes_on(spec, signals);
    let done = work.while_waited_for(|| !image.is_lost() && goes_on())?;
    if done.is_none() && image.is_lost() {
        let why = image.why_lost().unwrap_or_default();
        bail!(
            "image {spec} became another client's while its volume was being started: {why}. Nobody was served yet"
        );
    }
    Ok(done)
}
