//! The daemon that mirrors an image to another cluster: `rbd-mirror` of that cluster has the image open,
//! watches it, and never writes to its data.
//!
//! It is known by what only such a daemon does: it writes the state of the copy into the pool's
//! `rbd_mirroring` object, where the OSD notes by itself which client that was. Client numbers are never
//! given again. A client that cannot be known so is a user like any other.

use crate::cluster::{Pool, text};
use crate::ffi::{Library, OmapIterT};
use crate::image::WatcherInfo;
use std::ffi::{CStr, c_char};
use std::ptr::null_mut;

/// Keeps what a pool knows of its mirroring.
const OBJECT: &CStr = c"rbd_mirroring";
/// Values that are read at a time.
const MANY: u64 = 512;
/// `MirrorImageState` of an image that is mirrored.
const ENABLED: u8 = 1;
/// RADOS' number for a client (`CEPH_ENTITY_TYPE_CLIENT`).
const CLIENT: u8 = 8;

/// Marks those of `watchers` of image `id` that mirror it. True if the image is mirrored at all.
pub(crate) fn find(pool: &Pool, id: &str, watchers: &mut [WatcherInfo]) -> bool {
    let key = format!("image_{id}");
    let Some(global) =
        values(pool, &key).into_iter().find(|(k, _)| *k == key.as_bytes()).and_then(|(_, v)| mirrored(&v))
    else {
        return false;
    };
    if !watchers.is_empty() {
        let states = values(pool, &format!("remote_status_global_{global}_"));
        let daemons: Vec<i64> = states.iter().filter_map(|(_, v)| origin(v)).collect();
        watchers.iter_mut().for_each(|w| w.mirrors = daemons.contains(&w.client));
    }
    true
}

/// `MirrorImage`: version, length, the image's name among all clusters, its state. Nothing: it is not mirrored.
fn mirrored(raw: &[u8]) -> Option<String> {
    let (length, rest) = raw.get(6..)?.split_at_checked(4)?;
    let (name, rest) = rest.split_at_checked(u32::from_le_bytes(length.try_into().ok()?) as usize)?;
    (*rest.first()? == ENABLED).then(|| String::from_utf8(name.to_vec()).ok())?
}

/// `MirrorImageSiteStatusOnDisk`: version, length, the kind and number of whoever wrote it, and more.
fn origin(raw: &[u8]) -> Option<i64> {
    let (kind, rest) = raw.get(6..)?.split_first()?;
    let number = rest.get(..8)?.try_into().ok()?;
    (*kind == CLIENT).then(|| i64::from_le_bytes(number))
}

/// All values whose keys begin with `prefix`. Those that cannot be read are none: who would be known by them is a user then.
fn values(pool: &Pool, prefix: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
    let lib = pool.cluster.lib;
    let mut all: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    loop {
        let after = all.last().map_or(String::new(), |(k, _)| String::from_utf8_lossy(k).into_owned());
        let (Ok(after), Ok(prefix)) = (text(&after), text(prefix)) else { return all };
        let (mut iter, mut more, mut code): (OmapIterT, u8, i32) = (null_mut(), 0, 0);
        // SAFETY: the operation is made, carried out and given back here; what it is told and writes lives until then.
        let done = unsafe {
            let op = (lib.rados_create_read_op)();
            (lib.rados_read_op_omap_get_vals2)(
                op,
                after.as_ptr(),
                prefix.as_ptr(),
                MANY,
                &raw mut iter,
                &raw mut more,
                &raw mut code,
            );
            let done = (lib.rados_read_op_operate)(op, pool.io, OBJECT.as_ptr(), 0);
            (lib.rados_release_read_op)(op);
            done
        };
        let before = all.len();
        if done >= 0 && code >= 0 && !iter.is_null() {
            // SAFETY: written by the operation just done, and given back once.
            unsafe { take(lib, iter, &mut all) };
        }
        if more == 0 || all.len() == before {
            return all;
        }
    }
}

/// Copies what an iterator has, and gives it back.
///
/// # Safety
/// `iter` was written by an operation of `lib` that succeeded, and is not used again.
unsafe fn take(lib: &Library, iter: OmapIterT, all: &mut Vec<(Vec<u8>, Vec<u8>)>) {
    loop {
        let (mut key, mut value): (*mut c_char, *mut c_char) = (null_mut(), null_mut());
        let (mut key_len, mut value_len) = (0, 0);
        // SAFETY: the iterator is live; pointers and lengths are written, and their bytes live as long as it does.
        let (key, value) = unsafe {
            let code = (lib.rados_omap_get_next2)(
                iter,
                &raw mut key,
                &raw mut value,
                &raw mut key_len,
                &raw mut value_len,
            );
            if code < 0 || key.is_null() {
                return (lib.rados_omap_get_end)(iter);
            }
            let copy = |raw: *mut c_char, len| match len {
                0 => Vec::new(),
                _ => std::slice::from_raw_parts(raw.cast::<u8>().cast_const(), len).to_vec(),
            };
            (copy(key, key_len), copy(value, value_len))
        };
        all.push((key, value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_counts_as_mirrored_only_where_its_state_says_so() {
        let entry = |state: u8| {
            let mut raw = vec![2, 1, 0, 0, 0, 0, 3, 0, 0, 0];
            raw.extend(b"abc");
            raw.extend([state, 1]);
            raw
        };
        assert_eq!(mirrored(&entry(ENABLED)), Some("abc".to_owned()));
        assert_eq!(mirrored(&entry(0)), None, "about to end");
        (0..14).for_each(|n| assert_eq!(mirrored(&entry(ENABLED)[..n]), None, "{n}"));
    }

    #[test]
    fn a_daemon_is_the_client_that_wrote_the_state() {
        let mut raw = vec![1, 1, 40, 0, 0, 0, CLIENT];
        raw.extend(4123i64.to_le_bytes());
        raw.extend([7; 31]);
        assert_eq!(origin(&raw), Some(4123));
        assert_eq!(origin(&raw[..14]), None);
        raw[6] = 4;
        assert_eq!(origin(&raw), None, "an OSD");
    }
}
