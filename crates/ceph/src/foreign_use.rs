//! Whether anybody else has had an image since a cache was attached to it.

use crate::attach::{AttachRequest, Cache, refuse};
use crate::attached_image::{AttachedImage, ImageIdentity};
use crate::cluster::{Cluster, Pool, Purpose};
use crate::header_lock::HeaderLock;
use crate::image::{Image, LockHolder};
use crate::lock_record::{LockRecord, Loss};
use crate::snapc::SnapContext;
use crate::spec::ImageSpec;
use crate::{CephError, lock_stamp};
use std::sync::Arc;

/// Whether the breaking of the lock that `record` speaks of is the last thing that happened to the header.
pub(crate) fn is_stamped(
    header: &Pool,
    identity: &ImageIdentity,
    record: &LockRecord,
) -> Result<bool, CephError> {
    record.broken.map_or(Ok(false), |s| lock_stamp::is_last(header, &identity.id, s))
}

/// How a client that was fenced leaves its image, asked by another. Nothing: the lock is not its any more.
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

/// Names the snapshots that were taken while the cache was not attached, and what they lack.
fn taken_meanwhile(look: &Image, seq: u64, cache: &Cache) -> Result<String, CephError> {
    let all = look.snapshots()?;
    let names: Vec<&str> = all.iter().filter(|(id, _)| *id > seq).map(|(_, name)| name.as_str()).collect();
    let lack = cache
        .dirty_bytes
        .map_or("the dirty data of this cache".to_owned(), |n| format!("{n} dirty bytes of this cache"));
    Ok(match names.as_slice() {
        [] => format!(" Snapshots were taken meanwhile, without {lack}, and removed again."),
        names => format!(" Snapshots were taken meanwhile, without {lack}: {}.", names.join(", ")),
    })
}

/// Dirty data of a cache that lost its image while it was served.
fn lost_before(
    loss: &Loss,
    spec: &ImageSpec,
    cache: &Cache,
    warnings: &mut Vec<String>,
) -> Result<bool, CephError> {
    let dirty = cache
        .dirty_bytes
        .map_or("dirty data (how much is not known)".to_owned(), |n| format!("{n} dirty bytes"));
    let said = format!(
        "somebody else had image {spec} since this cache was attached: the cache lost it {} ago ({}) and has held {dirty} since",
        loss.ago(),
        loss.why
    );
    if cache.force {
        warnings.push(format!(
            "{said}. Its dirty data goes over whatever was written meanwhile, as --force ordered"
        ));
        return Ok(true);
    }
    refuse(format!(
        "{said}. They may be older than what was written to the image: --force writes them all the same; or make a new cache \
         (--create --force) and lose them"
    ))
}

/// Dirty data of a cache whose lock stands on a header that is not as it was left.
fn changed_meanwhile(
    spec: &ImageSpec,
    cache: &Cache,
    why: &str,
    warnings: &mut Vec<String>,
) -> Result<bool, CephError> {
    let said = format!("image {spec} was changed since this cache was attached: {why}.");
    if cache.force {
        warnings.push(format!(
            "{said} Its dirty data goes over whatever was written meanwhile, as --force ordered"
        ));
        return Ok(true);
    }
    refuse(format!(
        "{said} If nobody has written to the image, --force is right; else make a new cache (--create --force) and lose its dirty data"
    ))
}

/// Refuses dirty data where somebody else has had the image since the cache was attached. True: somebody may have written to it.
pub(crate) fn check_record(
    cluster: &Arc<Cluster>,
    look: &Image,
    identity: &ImageIdentity,
    holder: Option<&LockHolder>,
    request: &AttachRequest<'_>,
    warnings: &mut Vec<String>,
) -> Result<bool, CephError> {
    let (spec, Some(cache)) = (request.spec, &request.cache) else { return Ok(false) };
    let Some(record) = &cache.record else {
        if !cache.dirty || cache.force {
            // A cache that was attached always has one, unless it could not be written down.
            return Ok(cache.core.is_some());
        }
        return refuse(format!(
            "the cache holds dirty data and does not say as whom it had image {spec}: nobody can tell whether others had it since. \
             --force writes the data all the same"
        ));
    };
    let header = cluster.pool(&spec.pool, &spec.namespace)?;
    let (SnapContext { seq, .. }, version) = SnapContext::read_with_version(&header, &identity.id)?;
    if !cache.dirty {
        return Ok(record.suspect || record.left_at != Some(version));
    }
    if let Some(loss) = &record.lost {
        return lost_before(loss, spec, cache, warnings);
    }
    // An earlier start broke that lock, and died before it had one.
    let left_free =
        holder.is_none() && (record.free_at == Some(version) || is_stamped(&header, identity, record)?);
    if left_free || holder.is_some_and(|h| record.knows(h)) {
        let record = match left_free {
            true => &LockRecord { rests_at: None, ..record.clone() },
            false => record,
        };
        return match record.contradicts(seq, version) {
            None => Ok(record.suspect),
            Some(why) => changed_meanwhile(spec, cache, &why, warnings),
        };
    }
    let now = holder.map_or("nobody".to_owned(), |h| format!("{} at {}", h.client, h.address));
    let snapshots = if seq > record.seq { taken_meanwhile(look, record.seq, cache)? } else { String::new() };
    let said = format!(
        "somebody else had image {spec} since this cache was attached: its lock was {} at {}'s and is {now}'s now.{snapshots}",
        record.holder.client, record.holder.address
    );
    if cache.force {
        warnings.push(format!(
            "{said} Its dirty data goes over whatever was written meanwhile, as --force ordered"
        ));
        return Ok(true);
    }
    refuse(format!(
        "{said} The cache holds dirty data that may be older than what was written to the image since: --force writes it all the \
         same; or make a new cache (--create --force) and lose it"
    ))
}
