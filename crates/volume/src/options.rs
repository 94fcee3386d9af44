//! Options that a volume is started with.

mod block;
mod check;
mod rbd;
mod reservation_key;

use crate::core::CoreSpec;
use crate::labelled_core::Wanted;
use crate::last_cache::LastCache;
use loligo_export::{Credentials, ExportSpec};
use loligo_format::mode::Mode;
use loligo_format::superblock::Superblock;
use std::net::SocketAddr;
use std::path::PathBuf;

pub use block::{BlockOptions, Rotational};
pub(crate) use check::check;
pub use rbd::RbdOptions;
pub use reservation_key::ReservationKey;

/// The most shards of an image's cache: one thread has all of them.
pub(crate) const IMAGE_SHARDS: u16 = 32;

/// The volume to serve, and how. Sizes are in bytes. An option that is `None` comes from the superblock, or is the default of a
/// new cache.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// The volume's name.
    pub name: String,
    /// The core.
    pub core: CoreSpec,
    /// The options of its attach, if it is an RBD image.
    pub rbd: RbdOptions,
    /// The cache; `None` exports the core as it is.
    pub cache: Option<CacheOptions>,
    /// The key by which this controller holds the arrays that cache and core lie on, if they are shared.
    pub reservation: Option<ReservationKey>,
    /// The name by which others know who has an image; nothing: that of the host.
    pub identity: Option<String>,
    /// Give up what a cache holds that the core lacks, where that is served without one.
    pub force: bool,
    /// The exports through which clients come.
    pub listen: Vec<ExportSpec>,
    /// Properties of the block devices among these.
    pub block: BlockOptions,
    /// With it, clients must use TLS.
    pub tls: Option<Credentials>,
    /// The address at which Prometheus text is served.
    pub metrics: Option<SocketAddr>,
    /// The file that is rewritten every second.
    pub stats_json: Option<PathBuf>,
    /// Destage everything before the end.
    pub flush_on_stop: bool,
    /// Tunables that are not to have their default, by key.
    pub params: Vec<(String, String)>,
    /// Bytes of a new core that are kept for a label, before its content. Without a cache only 0: the core is all content, whatever
    /// it begins with.
    pub data_offset: Option<u64>,
}

/// The cache of a volume.
#[derive(Debug, Clone)]
pub struct CacheOptions {
    /// File or device.
    pub path: PathBuf,
    /// Bytes of it.
    pub size: Option<u64>,
    /// Do not write a new file whole.
    pub sparse: bool,
    /// The mode from now on.
    pub mode: Mode,
    /// Bytes of a cache line.
    pub line_size: Option<u32>,
    /// Shards: threads, but for an RBD image, which has one.
    pub shards: Option<u16>,
    /// Percent of the core that is not exported.
    pub core_reserve: Option<u8>,
    /// A second device that holds the same.
    pub mirror: Option<MirrorOptions>,
    /// Insist on a new cache.
    pub create: bool,
    /// Overwrite, or give up, what stands in the way.
    pub force: bool,
    /// The cache of this UUID holds nothing that may be believed: a new one is made in its place.
    pub replace: Option<String>,
    /// The cache that this volume was last served through, where that is known.
    pub expected: Option<LastCache>,
    /// The reason why the core may be another cache's: asked where nothing in this one can be compared with
    /// it.
    pub disputed: Option<String>,
}

/// The mirror of a cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MirrorOptions {
    /// Device or file on the partner's array.
    pub path: PathBuf,
    /// Without it nothing is written.
    pub required: bool,
    /// At this start one device is believed although the other cannot be seen.
    pub alone: bool,
}

impl ServeOptions {
    /// The requirements on the label of its core.
    pub(crate) fn wanted(&self) -> Wanted {
        let (home, bare) = (self.data_offset, self.cache.is_none());
        Wanted { home, bare, force: self.cache.as_ref().map_or(self.force, |c| c.force) }
    }
}

impl CacheOptions {
    /// True if a new cache is to be made in place of this one, whatever it says of itself.
    pub(crate) fn replaces(&self, sb: &Superblock) -> bool {
        self.replace.as_ref() == Some(&sb.uuid_text())
    }

    /// True if this one was being attached when its service ended, so that a label that does not name it was not
    /// reached.
    pub(crate) fn was_attaching(&self, sb: &Superblock) -> bool {
        self.expected.as_ref().is_some_and(|last| last.attaching && last.uuid == sb.uuid_text())
    }
}
