//! A taken image from the start of its volume to the end: given back then, or left with its lock as a witness.

use super::lock_text::encode;
use super::start_io::PATIENCE;
use anyhow::{Context, Result};
use loligo_block::CacheDevice;
use loligo_block::keys::STEAL;
use loligo_block::silence::Silence;
use loligo_ceph::cancel::Cancellable;
use loligo_ceph::lease::Poller;
use loligo_ceph::lock_record::LockRecord;
use loligo_ceph::{AttachedImage, CephError, Notice};
use loligo_format::superblock::Superblock;
use loligo_log::say;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Weak};

/// A taken image until it is given back. One whose cache may be dirty keeps its lock whatever becomes of this process.
#[derive(Debug)]
pub(crate) struct HeldImage {
    pub(super) image: Option<Arc<AttachedImage>>,
    pub(super) notices: Option<Receiver<Notice>>,
    /// It is asked from the beginning whether the image is still ours, while the cache is being opened as well.
    pub(super) poller: Option<Poller>,
    pub(crate) may_be_dirty: bool,
    /// The image's metadata names this cache.
    pub(super) marked: bool,
    /// The cache's contents are void: its superblock is not written any more.
    pub(super) void: Arc<AtomicBool>,
    /// The cache, until the image is served through it.
    pub(super) unserved: Option<Unserved>,
    /// Of the volume's devices: once they are silent nothing is sent to the cluster either.
    pub(super) silence: Silence,
    /// The name of this controller in the image's metadata.
    pub(super) identity: String,
}

/// A cache through which nobody was served yet, as it was found.
#[derive(Debug)]
pub(super) struct Unserved {
    pub(super) file: CacheDevice,
    pub(super) uuid: [u8; 16],
    /// Others may have written to the image since it was attached.
    pub(super) suspect: bool,
}

impl Unserved {
    /// Says in it how its image was left: what it has clean still counts then. One that was made anew, or is not known to be clean,
    /// is left as it is.
    fn note_left(&self, witness: LockRecord) -> Result<()> {
        let mut device = self.file.sync_io();
        let mut stored = Superblock::load(&mut device)?;
        if stored.uuid == self.uuid && stored.clean && stored.dirty_blocks == 0 {
            stored.core_record = encode(&LockRecord { suspect: self.suspect, ..witness });
            stored.store(&mut device)?;
        }
        Ok(())
    }
}

impl HeldImage {
    pub(crate) fn image(&self) -> &Arc<AttachedImage> {
        self.image.as_ref().expect("only the end takes it")
    }

    pub(crate) fn weak(&self) -> Weak<AttachedImage> {
        Arc::downgrade(self.image())
    }

    /// Lets go of it at once: nothing is sent, and nothing waited for. The lock stays as that of a client that has died.
    pub(crate) fn end(mut self) {
        self.poller = None;
        if let Some(image) = self.image.take() {
            image.end();
            image.abandon();
        }
    }

    /// It is served: from here on the cache is for the stop to close.
    pub(crate) fn begin_service(&mut self) {
        self.unserved = None;
    }

    /// True if others must not have it before this client is refused by the cluster: it has what the image lacks, or something
    /// that it sent may still be carried out.
    fn keeps_lock(&self, image: &AttachedImage) -> bool {
        self.may_be_dirty || image.is_lost() || image.is_being_cut()
    }

    /// Ends the attach. Without dirty data the lock is given back; with it the lock stays as that of a dead
    /// client. The record that is given is for the cache to keep: it shows at the next start that nobody has
    /// written to the image.
    pub(crate) fn give_back(mut self) -> Result<Option<String>> {
        if self.silence.cause().is_some() {
            self.end();
            return Ok(None);
        }
        let Some(image) = self.image.take() else { return Ok(None) };
        // A lock that is given back looks like one that was taken away.
        self.poller = None;
        if self.keeps_lock(&image) {
            return Ok(retire(image).as_ref().map(encode));
        }
        let Some(left) = detach(image, self.marked) else {
            say!(
                "warning: the cluster does not answer, so that the image may keep this client's lock: nothing is lost. A start of \
                 the same daemon or with the same cache takes it back; any other needs {STEAL}"
            );
            return Ok(None);
        };
        let left = left.context("the image's metadata still names this cache; the next attach mends that")?;
        Ok(Some(encode(&left)))
    }
}

/// Closes an image whose cache has dirty data. The result is how the image was left, if that is known.
fn retire(image: Arc<AttachedImage>) -> Option<LockRecord> {
    ends(image, AttachedImage::retire)?
}

/// Closes an image. The result is how it was left.
fn detach(image: Arc<AttachedImage>, marked: bool) -> Option<Result<LockRecord, CephError>> {
    let witness = image.record();
    let left_at = ends(image, move |image| image.detach(marked))?;
    Some(left_at.map(|left_at| LockRecord { left_at, ..witness }))
}

/// Ends an attach by `close`; nothing: the cluster does not answer. It is not waited for: what it holds of this client goes with
/// the process, and the client says nothing more.
fn ends<T: Send + 'static>(
    image: Arc<AttachedImage>,
    close: impl FnOnce(Arc<AttachedImage>) -> T + Send + 'static,
) -> Option<T> {
    let left = Arc::downgrade(&image);
    let ended = Cancellable::begin(move || close(image)).ok()?.within(PATIENCE).ok()?;
    if let (None, Some(left)) = (&ended, left.upgrade()) {
        left.give_up();
    }
    ended
}

impl Drop for HeldImage {
    fn drop(&mut self) {
        self.poller = None;
        match self.image.take() {
            Some(image) if self.silence.cause().is_some() => {
                image.end();
                image.abandon();
            }
            Some(image) if self.keeps_lock(&image) => drop(retire(image)),
            Some(image) => {
                if let (Some(Ok(left)), Some(cache)) = (detach(image, self.marked), self.unserved.take())
                    && left.left_at.is_some()
                    && let Err(why) = cache.note_left(left)
                {
                    say!("warning: what the cache has clean is dropped by the next start: {why:#}");
                }
            }
            None => {}
        }
    }
}
