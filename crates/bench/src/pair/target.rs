//! The targets of the client's operations: an image by librbd, or a volume by NBD.

use super::op::Done;
use super::volume::{Volume, VolumeAddress};
use anyhow::Result;
use loligo_ceph::cluster::{Cluster, Purpose};
use loligo_ceph::image::Image;
use loligo_ceph::spec::ImageSpec;
use std::sync::Arc;
use std::sync::mpsc::channel;

/// A target.
#[derive(Debug)]
pub(crate) enum Target {
    /// An image.
    Image(Arc<Image>),
    /// A volume.
    Volume(Volume),
}

impl Target {
    /// An image, and its bytes. Each has a client of its own: what waits on one image holds nothing of another up.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub(crate) fn image(spec: &ImageSpec) -> Result<(Target, u64)> {
        let cluster = Arc::new(Cluster::connect(spec, Purpose::Use)?);
        let image = Image::open(cluster.pool(&spec.pool, &spec.namespace)?, &spec.image)?;
        let size = image.size()?;
        Ok((Target::Image(Arc::new(image)), size))
    }

    /// A volume, and its bytes.
    ///
    /// # Errors
    /// If nobody serves it.
    pub(crate) fn volume(at: &VolumeAddress) -> Result<(Target, u64)> {
        let (volume, size) = Volume::connect(at)?;
        Ok((Target::Volume(volume), size))
    }

    /// Begins to read.
    pub(crate) fn begin_read(&self, offset: u64, len: usize, done: Done<Vec<u8>>) {
        match self {
            Target::Image(image) => {
                image.begin_read(
                    offset,
                    len,
                    Box::new(move |result| done(result.map_err(|why| why.to_string()))),
                );
            }
            Target::Volume(volume) => volume.begin_read(offset, len, done),
        }
    }

    /// Begins to write.
    pub(crate) fn begin_write(&self, offset: u64, content: Vec<u8>, done: Done<()>) {
        match self {
            Target::Image(image) => {
                image.begin_write(
                    offset,
                    content,
                    Box::new(move |result| done(result.map_err(|why| why.to_string()))),
                );
            }
            Target::Volume(volume) => volume.begin_write(offset, content, done),
        }
    }

    /// Reads, and waits for the answer.
    ///
    /// # Errors
    /// If the read fails.
    pub(crate) fn read(&self, offset: u64, len: usize) -> Result<Vec<u8>, String> {
        let (send, answer) = channel();
        self.begin_read(offset, len, Box::new(move |result| drop(send.send(result))));
        answer.recv().unwrap_or_else(|_| Err("the read has no answer".to_owned()))
    }
}
