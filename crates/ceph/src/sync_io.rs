//! Blocking access to an image, for what comes before and after service.

use crate::CephError;
use crate::attached_image::AttachedImage;
use loligo_block::{IoError, IoKind, SyncIo};
use std::sync::Arc;

/// An image read and written in order by one caller.
#[derive(Debug)]
pub struct ImageIo(pub Arc<AttachedImage>);

impl SyncIo for ImageIo {
    fn size(&self) -> u64 {
        self.0.reach()
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), IoError> {
        self.0.image.read_at(offset, buf).map_err(as_io)
    }

    fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<(), IoError> {
        self.0.image.write_at(offset, data).map_err(as_io)
    }

    fn flush(&mut self) -> Result<(), IoError> {
        self.0.image.flush().map_err(as_io)
    }
}

fn as_io(e: CephError) -> IoError {
    match e {
        CephError::Call { what, errno, .. } => IoError::from_errno(errno, what),
        other => IoError::new(IoKind::Io, other.to_string()),
    }
}
