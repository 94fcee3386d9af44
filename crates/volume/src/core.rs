//! The core: opened, locked, and known again.

use crate::cache::place::Place;
use crate::labelled_core::{CacheView, LabelledCore, Wanted};
use crate::last_cache::CoreNames;
use anyhow::{Result, bail};
use loligo_block::keys::CORE;
use loligo_block::silence::Silence;
use loligo_block::{
    CoreFile, DeviceFile, DeviceSpec, Geometry, Identity, IoError, OpenOptions, SyncIo, keyed, names_of,
};
use loligo_ceph::spec::ImageSpec;
use loligo_ceph::sync_io::ImageIo;
use loligo_ceph::{AttachedImage, RbdDevice};
use loligo_client::outcome::Absent;
use loligo_engine::params::Params;
use loligo_format::superblock::{CoreIdentity, Superblock};
use loligo_log::say;
use loligo_shard::CoreSource;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

/// A core as users name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CoreSpec {
    /// A file, block device or modelled disk.
    Device(DeviceSpec),
    /// `rbd:POOL[/NAMESPACE]/IMAGE[?conf=..&id=..&keyring=..]`.
    Image(ImageSpec),
}

impl FromStr for CoreSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<CoreSpec, String> {
        match text.strip_prefix("rbd:") {
            Some(image) => {
                image.parse().map(CoreSpec::Image).map_err(|e: loligo_ceph::CephError| e.to_string())
            }
            None => text.parse().map(CoreSpec::Device).map_err(|e: IoError| e.to_string()),
        }
    }
}

impl std::fmt::Display for CoreSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CoreSpec::Device(d @ DeviceSpec::Hdd { .. }) => write!(f, "hdd:{}", d.path().display()),
            CoreSpec::Device(d) => write!(f, "{}", d.path().display()),
            CoreSpec::Image(i) => write!(f, "rbd:{i}"),
        }
    }
}

impl CoreSpec {
    /// The file or device, if it is one of this host's.
    pub fn path(&self) -> Option<&Path> {
        match self {
            CoreSpec::Device(d) => Some(d.path()),
            CoreSpec::Image(_) => None,
        }
    }

    /// The names by which it is known again.
    pub fn names(&self) -> CoreNames {
        CoreNames { text: self.to_string(), names: self.path().map(names_of).unwrap_or_default() }
    }

    /// The reason why its cache must have one shard.
    pub(crate) fn single_shard(&self) -> Option<&'static str> {
        match self {
            CoreSpec::Device(DeviceSpec::Hdd { .. }) => Some("a modelled disk (hdd:) has one set of heads"),
            CoreSpec::Device(DeviceSpec::File(_)) | CoreSpec::Image(_) => None,
        }
    }

    /// True if one thread has all shards of its cache: a snapshot of an image is one moment of all of them.
    pub(crate) fn is_one_threads(&self) -> bool {
        matches!(self, CoreSpec::Image(_))
    }
}

/// The file or image that holds the bytes of an open core.
#[derive(Debug, Clone)]
pub(crate) enum Backing {
    File(CoreFile),
    Image(Arc<AttachedImage>),
}

impl Backing {
    pub(crate) fn geometry(&self) -> Geometry {
        match self {
            Backing::File(f) => f.geometry(),
            Backing::Image(i) => loligo_ceph::geometry(i.reach()),
        }
    }

    /// Blocking access.
    pub(crate) fn sync_io(&self) -> Box<dyn SyncIo> {
        match self {
            Backing::File(f) => f.sync_io(),
            Backing::Image(i) => Box::new(ImageIo(i.clone())),
        }
    }
}

/// The core of a volume, open and locked.
#[derive(Debug)]
pub(crate) struct OpenCore {
    pub(crate) spec: CoreSpec,
    pub(crate) backing: Backing,
    pub(crate) identity: CoreIdentity,
    /// Its label, if its content begins behind one.
    pub(crate) home: Option<LabelledCore>,
    /// The cache's device, where the core could not be taken without looking at it.
    pub(crate) cache_file: Option<Place>,
    /// It is known that what a cache has clean of it may be older than it is.
    pub(crate) changed: bool,
    /// Tunables that a cache in front of it starts with.
    pub(crate) params: Params,
}

impl OpenCore {
    /// True if many writes may go to it as one.
    pub(crate) fn takes_groups(&self) -> bool {
        matches!(&self.backing, Backing::Image(image) if image.why_librbd().is_none())
    }

    /// True if others may take snapshots of it.
    pub(crate) fn has_snapshots(&self) -> bool {
        matches!(self.backing, Backing::Image(_))
    }

    /// For the threads of the volume.
    pub(crate) fn source(&self) -> CoreSource {
        match (&self.spec, &self.backing) {
            (CoreSpec::Device(spec), Backing::File(file)) => CoreSource::File(spec.clone(), file.clone()),
            (_, Backing::Image(image)) => CoreSource::Device(Box::new(RbdDevice::new(image.clone()))),
            (CoreSpec::Image(_), Backing::File(_)) => unreachable!("an image is no file"),
        }
    }
}

/// Opens and locks a device of this host, which is to be as `wanted`. `of_cache` is asked for its cache, and whether that keeps a copy of
/// a first block.
///
/// # Errors
/// If it is not there, or in use.
pub(crate) fn open(
    spec: DeviceSpec,
    wanted: Wanted,
    silence: &Silence,
    of_cache: impl FnOnce() -> Result<Option<(Superblock, bool)>>,
) -> Result<OpenCore> {
    let file = match DeviceFile::open(spec.path(), &OpenOptions::default()) {
        Ok(file) => file.silenced_by(silence),
        Err(e) if !spec.path().exists() => {
            let text =
                keyed!("the core cannot be opened: {e}; check {CORE} (an RBD image is rbd:POOL/IMAGE)");
            return Err(Absent(text).into());
        }
        Err(e) => bail!("the core cannot be opened: {e}"),
    };
    for warning in file.warnings() {
        say!("warning: {warning}");
    }
    let known_as = file.identity().clone();
    let known = || {
        let Some((sb, keeps)) = of_cache()? else { return Ok(None) };
        let begins = start_of(&sb.core, &known_as);
        Ok(begins.map(|begins| CacheView { begins, uuid: sb.uuid, name: sb.name, keeps }))
    };
    let (file, home) = LabelledCore::find(file, wanted, known)?;
    let start = home.as_ref().map_or(0, LabelledCore::start);
    let identity = CoreIdentity { size: file.geometry().size, id: identity_text(&known_as, start) };
    Ok(OpenCore {
        spec: CoreSpec::Device(spec),
        backing: Backing::File(file),
        identity,
        home,
        cache_file: None,
        changed: false,
        params: Params::default(),
    })
}

/// Before the first byte of the content of a file that begins behind a label.
const BEHIND: &str = "behind+";

/// The text by which the superblock remembers a core whose content begins at `start`. For files, which are known by their size,
/// it is nothing but that start.
fn identity_text(identity: &Identity, start: u64) -> String {
    match (identity, start) {
        (Identity::Device { id, offset }, start) => format!("{id}+{}", offset + start),
        (Identity::Size(_), 0) => String::new(),
        (Identity::Size(_), start) => format!("{BEHIND}{start}"),
    }
}

/// The byte at which the content of the core remembered as `was` begins; nothing if that is another core.
fn start_of(was: &CoreIdentity, is: &Identity) -> Option<u64> {
    match is {
        Identity::Device { id, offset } => {
            was.id.strip_prefix(&format!("{id}+"))?.parse::<u64>().ok()?.checked_sub(*offset)
        }
        Identity::Size(_) if was.id.is_empty() => Some(0),
        Identity::Size(_) => was.id.strip_prefix(BEHIND)?.parse().ok(),
    }
}

/// True if nothing but its size says which core it is.
pub fn is_known_by_size(core: &CoreIdentity) -> bool {
    core.id.is_empty() || core.id.starts_with(BEHIND)
}

/// The core in words.
pub(crate) fn describe(core: &CoreIdentity) -> String {
    if core.id.is_empty() {
        format!("one of {} bytes", core.size)
    } else if let Some(start) = core.id.strip_prefix(BEHIND) {
        format!("one of {} bytes from byte {start} on", core.size)
    } else if core.id.starts_with("rbd:") {
        format!("image {} of {} bytes", core.id, core.size)
    } else {
        format!("device {} of {} bytes", core.id, core.size)
    }
}
