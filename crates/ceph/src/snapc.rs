//! The snapshot context of an image: what an OSD must know to keep snapshots apart from what is written after them.

use crate::CephError;
use crate::bug::{Step, is_left_out};
use crate::cluster::{Pool, text};
use crate::error::check;
use std::ffi::c_char;

/// Room for the answer: 4,095 snapshots.
const ROOM: usize = 12 + 8 * 4095;

/// `{seq, ids}`, as the image's header has it. `seq` is not the newest snapshot's: it stays when that is removed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SnapContext {
    /// The highest number ever given.
    pub seq: u64,
    /// Snapshots there are, newest first.
    pub ids: Vec<u64>,
}

impl SnapContext {
    /// Reads it from the header of image `id` in `pool`.
    ///
    /// # Errors
    /// If the header cannot be read, or holds more snapshots than an answer has room for.
    pub(crate) fn read(pool: &Pool, id: &str) -> Result<SnapContext, CephError> {
        let oid = text(&format!("rbd_header.{id}"))?;
        let mut out = vec![0u8; ROOM];
        // SAFETY: the pool's handle is live; the names are C strings; the buffer is as long as is said.
        let code = unsafe {
            (pool.cluster.lib.rados_exec)(
                pool.io,
                oid.as_ptr(),
                c"rbd".as_ptr(),
                c"get_snapcontext".as_ptr(),
                std::ptr::null(),
                0,
                out.as_mut_ptr().cast::<c_char>(),
                out.len(),
            )
        };
        let len = check(|| "reading the image's snapshot context".to_owned(), code)? as usize;
        let mut read = SnapContext::decode(out.get(..len).unwrap_or_default())
            .ok_or_else(|| CephError::named("the image's snapshot context makes no sense"))?;
        if is_left_out(Step::Sequence) {
            read.seq = read.ids.first().copied().unwrap_or_default();
        }
        Ok(read)
    }

    /// The same with the version of the header, which moves with every change of it and with nothing else. A
    /// client that writes to the image takes its lock before, which is such a change.
    ///
    /// # Errors
    /// As [`SnapContext::read`].
    pub(crate) fn read_with_version(pool: &Pool, id: &str) -> Result<(SnapContext, u64), CephError> {
        let context = SnapContext::read(pool, id)?;
        // SAFETY: the pool's handle is live; this is of the read just done, as nobody else uses that handle.
        Ok((context, unsafe { (pool.cluster.lib.rados_get_last_version)(pool.io) }))
    }

    /// le64 seq, le32 count, le64 ids in descending order.
    fn decode(raw: &[u8]) -> Option<SnapContext> {
        let (head, rest) = raw.split_at_checked(12)?;
        let seq = u64::from_le_bytes(head[..8].try_into().ok()?);
        let count = u32::from_le_bytes(head[8..].try_into().ok()?) as usize;
        let ids: Vec<u64> = rest
            .chunks_exact(8)
            .take(count)
            .map(|c| u64::from_le_bytes(c.try_into().expect("of 8")))
            .collect();
        (ids.len() == count && ids.is_sorted_by(|a, b| a > b) && ids.first().is_none_or(|n| *n <= seq))
            .then_some(SnapContext { seq, ids })
    }

    /// Has every write through `pool` carry it. Nothing may be under way there.
    ///
    /// # Errors
    /// If librados refuses it.
    pub(crate) fn set(&self, pool: &Pool) -> Result<(), CephError> {
        let mut ids = self.ids.clone();
        // SAFETY: the handle is live; the numbers are copied before the call returns.
        let code = unsafe {
            (pool.cluster.lib.rados_ioctx_selfmanaged_snap_set_write_ctx)(
                pool.io,
                self.seq,
                ids.as_mut_ptr(),
                ids.len() as i32,
            )
        };
        check(|| "setting the snapshot context".to_owned(), code).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(seq: u64, ids: &[u64]) -> Vec<u8> {
        let mut o = seq.to_le_bytes().to_vec();
        o.extend((ids.len() as u32).to_le_bytes());
        ids.iter().for_each(|n| o.extend(n.to_le_bytes()));
        o
    }

    #[test]
    fn the_sequence_is_the_headers_own_and_garbage_is_refused() {
        let read = SnapContext::decode(&raw(73, &[72, 4])).unwrap();
        assert_eq!((read.seq, read.ids), (73, vec![72, 4]));
        assert_eq!(SnapContext::decode(&raw(0, &[])), Some(SnapContext::default()));
        assert!(SnapContext::decode(&raw(9, &[3, 4])).is_none(), "ascending");
        assert!(SnapContext::decode(&raw(9, &[10])).is_none(), "newer than the sequence");
        assert!(SnapContext::decode(&raw(9, &[3, 2])[..20]).is_none(), "cut off");
        assert!(SnapContext::decode(&[]).is_none());
    }
}
