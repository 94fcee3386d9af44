//! The request for an attach, and its result.

use crate::attached_image::{AttachedImage, Notice};
use crate::lock_record::LockRecord;
use crate::spec::ImageSpec;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

/// The way of dirty data to the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Destage {
    /// By object where the image allows it, else through librbd.
    #[default]
    Auto,
    /// By object, or not at all.
    Grouped,
    /// Through librbd, extent by extent.
    Librbd,
}

impl FromStr for Destage {
    type Err = String;

    fn from_str(text: &str) -> Result<Destage, String> {
        match text {
            "auto" => Ok(Destage::Auto),
            "grouped" => Ok(Destage::Grouped),
            "librbd" => Ok(Destage::Librbd),
            _ => Err(format!("'{text}' is no way to destage: use auto, grouped or librbd")),
        }
    }
}

/// The cache that comes with an attach.
#[derive(Debug, Clone)]
pub struct Cache {
    /// Its UUID; empty where it is yet to be made.
    pub cache: String,
    /// The volume's name.
    pub volume: String,
    /// The core it was made for, as [`ImageIdentity`](crate::ImageIdentity) is written; nothing: it is yet to be made.
    pub core: Option<String>,
    /// It may hold data newer than the image's.
    pub dirty: bool,
    /// The amount, bytes; nothing: it was not stopped and does not say.
    pub dirty_bytes: Option<u64>,
    /// Its last hold on the image.
    pub record: Option<LockRecord>,
    /// Use it although somebody else had the image.
    pub force: bool,
    /// Its device is this process's alone: by a lock of a device that is this host's alone, or by the reservation of the array that
    /// it lies on. A lock says nothing of another host.
    pub is_alone: bool,
}

/// The request for an attach.
pub struct AttachRequest<'a> {
    /// The image.
    pub spec: &'a ImageSpec,
    /// The cache; without one the image is served bare.
    pub cache: Option<Cache>,
    /// Take the image away from who has it.
    pub steal: bool,
    /// Open an image whose dirty data another cache holds.
    pub without_cache: bool,
    /// The way of dirty data to the image.
    pub destage: Destage,
    /// Attempts of 5 s that a client waits before its snapshot.
    pub quiesce_attempts: u32,
    /// The validity of a word that the image is ours.
    pub lease: Duration,
    /// Writes down in the cache who holds, or is about to hold, the image.
    pub remember: &'a mut dyn FnMut(&LockRecord) -> Result<(), String>,
}

impl std::fmt::Debug for AttachRequest<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AttachRequest({}, {:?})", self.spec, self.cache)
    }
}

/// An attached image, and what its quiescer is to hear.
#[derive(Debug)]
pub struct Attachment {
    /// The image.
    pub image: Arc<AttachedImage>,
    /// The events of its life.
    pub notices: Receiver<Notice>,
    /// Others may have written to the image since the cache was attached: what is clean in it is not the image's any more.
    pub changed: bool,
    /// Words for the operator.
    pub warnings: Vec<String>,
}
