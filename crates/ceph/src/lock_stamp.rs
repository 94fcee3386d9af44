//! The lock of an image that is taken from its holder, so that it shows afterwards whether anybody else came meanwhile.
//!
//! Between breaking a lock and taking it lies a moment in which nobody holds it, and a client that dies in it
//! leaves no lock as its record. The header's version shows then that nobody was there: it moves with every
//! change, and whoever writes to the image takes its lock first, which is one; watching moves it not. But a
//! client may die before it has noted the version that its breaking made, and nobody can tell that number
//! before. So the operation that breaks the lock carries a *stamp* in place of the time: while the header's
//! time of change is exactly that, nobody has changed it since (nor begun to watch it).

use crate::CephError;
use crate::cluster::{Pool, text};
use crate::error::check;
use crate::image::LockHolder;
use std::ffi::CString;
use std::hash::{BuildHasher, RandomState};
use std::ptr::null_mut;

/// librbd's name for the lock.
pub(crate) const LOCK: &str = "rbd_lock";
/// RADOS' number for a client (`CEPH_ENTITY_TYPE_CLIENT`).
const CLIENT: u8 = 8;
/// Stamps are seconds before this, in 2001: no clock says that.
const STAMPS: u64 = 1_000_000_000;

/// A stamp that nobody else has, as far as chance allows.
pub(crate) fn draw() -> i64 {
    (RandomState::new().hash_one("stamp") % STAMPS) as i64 + 1
}

fn header(id: &str) -> Result<CString, CephError> {
    text(&format!("rbd_header.{id}"))
}

/// True if the last change of the header of image `id` was made with `stamp`.
///
/// # Errors
/// If the header cannot be read.
pub(crate) fn is_last(pool: &Pool, id: &str, stamp: i64) -> Result<bool, CephError> {
    let oid = header(id)?;
    let (mut size, mut time) = (0, 0);
    // SAFETY: the pool's handle is live, and both numbers are written.
    let code = unsafe { (pool.cluster.lib.rados_stat)(pool.io, oid.as_ptr(), &raw mut size, &raw mut time) };
    check(|| "reading the header's time of change".to_owned(), code)?;
    Ok(time == stamp)
}

/// Takes the lock of image `id` away from `holder`, who is fenced or lets it go, and leaves `stamp` in its place. Gives the header's
/// version then.
///
/// # Errors
/// ENOENT where `holder` does not have it any more.
pub(crate) fn break_lock(pool: &Pool, id: &str, holder: &LockHolder, stamp: i64) -> Result<u64, CephError> {
    let oid = header(id)?;
    let Some(request) = request(holder) else {
        return Err(CephError::named(format!("the lock's holder '{}' is no client", holder.client)));
    };
    let lib = pool.cluster.lib;
    let mut time = stamp as libc::time_t;
    // SAFETY: the operation is made, carried out and given back here, and copies what it is told; the pool's handle is live.
    let code = unsafe {
        let op = (lib.rados_create_write_op)();
        let (class, method) = (c"lock", c"break_lock");
        (lib.rados_write_op_exec)(
            op,
            class.as_ptr(),
            method.as_ptr(),
            request.as_ptr().cast(),
            request.len(),
            null_mut(),
        );
        let code = (lib.rados_write_op_operate)(op, pool.io, oid.as_ptr(), &raw mut time, 0);
        (lib.rados_release_write_op)(op);
        code
    };
    check(|| format!("breaking the lock of {} at {}", holder.client, holder.address), code)?;
    // SAFETY: the pool's handle is live; this is of the operation just done, as nobody else uses that handle.
    Ok(unsafe { (lib.rados_get_last_version)(pool.io) })
}

/// `cls_lock_break_op`: version, length, the lock's name, the client, its cookie.
fn request(holder: &LockHolder) -> Option<Vec<u8>> {
    let number: i64 = holder.client.strip_prefix("client.")?.parse().ok()?;
    let mut body = Vec::new();
    let put = |body: &mut Vec<u8>, s: &str| {
        body.extend((s.len() as u32).to_le_bytes());
        body.extend(s.as_bytes());
    };
    put(&mut body, LOCK);
    body.push(CLIENT);
    body.extend(number.to_le_bytes());
    put(&mut body, &holder.cookie);
    let mut all = vec![1, 1];
    all.extend((body.len() as u32).to_le_bytes());
    all.extend(body);
    Some(all)
}
