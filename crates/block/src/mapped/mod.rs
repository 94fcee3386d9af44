//! The device of a cache, and one made of extents of another: the share of a cache device that one core has.
//!
//! A *pool* cuts a device into extents of equal size; who has which is the business of whoever keeps its table. Here is
//! only the way from an offset of the share to one of the device, and I/O along it.

mod device;
mod io;
mod map;

pub use device::MappedDevice;
pub use io::MappedIo;
pub use map::{ExtentMap, Run};

use crate::file::{DeviceFile, SyncFile};
use crate::mirror::{Mirror, MirroredIo};
use crate::silence::Silence;
use crate::uring::{DevId, UringFile};
use crate::{AnyDevice, Buf, Geometry, IoError, SyncIo};
use std::path::Path;
use std::sync::Arc;

/// The device of a cache: one of its own, extents of one that several share, or two that hold the same. Clones share the descriptors, the lock
/// and the map.
#[derive(Debug, Clone)]
pub enum CacheDevice {
    /// All of it.
    Whole(DeviceFile),
    /// Some extents of it.
    Share(DeviceFile, Arc<ExtentMap>),
    /// Two of them.
    Mirrored(Mirror),
}

impl CacheDevice {
    /// The device below; of two the one that is read.
    pub fn file(&self) -> &DeviceFile {
        match self {
            CacheDevice::Whole(file) | CacheDevice::Share(file, _) => file,
            CacheDevice::Mirrored(mirror) => mirror.file(),
        }
    }

    /// The same, silent with all others that `silence` was given to. Other shares of its device are not.
    pub fn silenced_by(self, silence: &Silence) -> CacheDevice {
        match self {
            CacheDevice::Whole(file) => CacheDevice::Whole(file.silenced_by(silence)),
            CacheDevice::Share(file, map) => CacheDevice::Share(file.silenced_by(silence), map),
            CacheDevice::Mirrored(mirror) => CacheDevice::Mirrored(mirror.silenced_by(silence)),
        }
    }

    /// Size and traits: a share is as large as it may become.
    pub fn geometry(&self) -> Geometry {
        match self {
            CacheDevice::Whole(file) => file.geometry(),
            CacheDevice::Share(file, map) => Geometry { size: map.size(), ..file.geometry() },
            CacheDevice::Mirrored(mirror) => mirror.geometry(),
        }
    }

    /// The device's path.
    pub fn path(&self) -> &Path {
        self.file().path()
    }

    /// Warnings about the device for the operator.
    pub fn warnings(&self) -> &[String] {
        self.file().warnings()
    }

    /// The mirror, if there are two devices.
    pub fn mirror(&self) -> Option<&Mirror> {
        match self {
            CacheDevice::Mirrored(mirror) => Some(mirror),
            CacheDevice::Whole(_) | CacheDevice::Share(..) => None,
        }
    }

    /// The numbers that a device may have on a ring where it was given `id`.
    pub fn ids(id: DevId) -> [DevId; 2] {
        Mirror::ids(id)
    }

    /// Blocking access.
    pub fn sync_io(&self) -> CacheIo {
        match self {
            CacheDevice::Whole(file) => CacheIo::Whole(SyncFile::new(file.clone())),
            CacheDevice::Share(file, map) => {
                CacheIo::Share(MappedIo::new(SyncFile::new(file.clone()), map.clone()))
            }
            CacheDevice::Mirrored(mirror) => CacheIo::Mirrored(mirror.sync_io()),
        }
    }

    /// Access through the ring of a thread, as its device `id` and a user of its own.
    ///
    /// # Errors
    /// If the device cannot be opened once more.
    pub fn on_ring(&self, id: DevId) -> Result<AnyDevice, IoError> {
        let io = |file: &DeviceFile| Ok::<_, IoError>(UringFile::new(file.separate()?, id));
        match self {
            CacheDevice::Whole(file) => Ok(AnyDevice::File(io(file)?)),
            CacheDevice::Share(file, map) => {
                Ok(AnyDevice::Mapped(Box::new(MappedDevice::new(io(file)?, map.clone()))))
            }
            CacheDevice::Mirrored(mirror) => mirror.on_ring(id),
        }
    }
}

impl From<DeviceFile> for CacheDevice {
    fn from(file: DeviceFile) -> CacheDevice {
        CacheDevice::Whole(file)
    }
}

/// Blocking access to a [`CacheDevice`].
#[derive(Debug)]
pub enum CacheIo {
    /// All of a device.
    Whole(SyncFile),
    /// Some extents of one.
    Share(MappedIo<SyncFile>),
    /// Two devices.
    Mirrored(MirroredIo),
}

macro_rules! each {
    ($self:ident, $d:ident => $e:expr) => {
        match $self {
            CacheIo::Whole($d) => $e,
            CacheIo::Share($d) => $e,
            CacheIo::Mirrored($d) => $e,
        }
    };
}

impl SyncIo for CacheIo {
    fn size(&self) -> u64 {
        each!(self, d => d.size())
    }
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), IoError> {
        each!(self, d => d.read_at(offset, buf))
    }
    fn read_next(&mut self, ranges: Vec<(u64, usize)>) {
        each!(self, d => d.read_next(ranges))
    }
    fn read_owned(&mut self, offset: u64, len: usize, spare: Option<Buf>) -> Result<Buf, IoError> {
        each!(self, d => d.read_owned(offset, len, spare))
    }
    fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<(), IoError> {
        each!(self, d => d.write_at(offset, data))
    }
    fn flush(&mut self) -> Result<(), IoError> {
        each!(self, d => d.flush())
    }
}
