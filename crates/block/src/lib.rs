//! What a block device is: geometry, owned operations, aligned buffers and the devices themselves.
//! Knows nothing of caching; everything above builds on it.

mod buf;
mod crc;
mod error;
mod geometry;
mod op;
mod sync_io;
mod volume;

pub use buf::{Buf, Shared, alignment};
pub use crc::crc32c;
pub use error::{IoError, IoKind};
pub use geometry::{Geometry, SECTOR};
pub use op::{Completion, Op, OpKind, Submit, Tag};
pub use sync_io::SyncIo;
pub use volume::{Answer, Extent, Reply, ReqError, ReqId, ReqKind, Request, Segments};
