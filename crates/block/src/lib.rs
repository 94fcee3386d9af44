//! Block devices: geometry, owned operations, aligned buffers and the devices themselves.
//! Knows nothing of caching; everything above builds on it.

mod buf;
mod config_key;
mod crc;
mod device;
mod error;
mod file;
mod geometry;
mod hdd;
pub mod host_files;
mod keyed_text;
pub mod lease;
mod mailbox;
mod mapped;
pub mod masked_head;
pub mod mirror;
pub mod mounts;
mod op;
pub mod processes;
mod ram;
pub mod silence;
mod size;
mod spec;
mod splits;
mod sync_io;
mod uring;
mod volume;

pub use buf::{Buf, Shared, alignment};
pub use config_key::{ConfigKey, keys};
pub use crc::{Crc32cCode, crc32c, crc32c_append, crc32c_code};
pub use device::{AnyDevice, Device};
pub use error::{IoError, IoKind};
pub use file::{
    DeviceFile, DioAlign, Identity, OpenOptions, SIGNATURE_PROBE, SyncFile, foreign_signature, is_in_use,
    known_signature, names_of,
};
pub use geometry::{Geometry, SECTOR};
pub use hdd::{Finished, HddDevice, HddKind, HddModel, HddParams, Rpm};
pub use keyed_text::KeyedText;
pub use mailbox::Mailbox;
pub use mapped::{CacheDevice, CacheIo, ExtentMap, MappedDevice, MappedIo, Run};
pub use masked_head::{CoreFile, MaskedDevice, MaskedHead, MaskedIo};
pub use mirror::{Mark, MarkState};
pub use op::{Completion, Op, OpKind, Submit, Tag, refuse_invalid};
pub use ram::RamDevice;
pub use size::parse_size;
pub use spec::DeviceSpec;
pub use sync_io::SyncIo;
pub use uring::{DevId, Foreign, Ring, UringFile};
pub use volume::{Answer, Extent, Reply, ReqError, ReqId, ReqKind, Request, Segments};

/// The crate whose entries [`Ring::push_foreign`] takes.
pub use io_uring;
