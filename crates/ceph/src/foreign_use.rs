//! The header of an image, as others leave it.

use crate::CephError;
use crate::attached_image::AttachedImage;
use crate::cluster::{Cluster, Purpose};
use crate::header_lock::HeaderLock;
use crate::lock_record::LockRecord;
use crate::snapc::SnapContext;
use std::sync::Arc;

/// The lock record that a fenced client leaves in its image, asked by another. Nothing: the lock is not its
/// any more.
pub(crate) fn left_by(image: &AttachedImage) -> Result<Option<LockRecord>, CephError> {
    let cluster = Arc::new(Cluster::connect(&image.spec, Purpose::Look)?);
    let id = &image.identity;
    let pool = cluster.pool_number(id.pool, &id.namespace)?;
    let (SnapContext { seq, .. }, version) = SnapContext::read_with_version(&pool, &id.id)?;
    // In this order: whoever breaks the lock after the version was read is seen by the next start.
    let lock = HeaderLock::read(&pool, &id.id)?;
    let its = lock.is_some_and(|l| l.client == image.holder().client);
    Ok(its.then(|| LockRecord { seq, version: Some(version), rests_at: Some(version), ..image.record() }))
}
