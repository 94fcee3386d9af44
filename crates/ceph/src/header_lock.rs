//! The holder of an image's lock, asked of the header itself: by any client, and without opening the image.

use crate::CephError;
use crate::cluster::{Pool, text};
use crate::error::check;
use crate::lock_stamp::LOCK;
use std::ffi::c_char;

/// Room for the answer: an exclusive lock has one holder.
const ANSWER: usize = 4096;

/// A holder as the header names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HeaderLock {
    /// As `client.4123`.
    pub(crate) client: String,
    /// The name of its hold.
    pub(crate) cookie: String,
}

impl HeaderLock {
    /// Reads it from the header of image `id`; nothing: nobody holds it.
    ///
    /// # Errors
    /// If the header cannot be read.
    pub(crate) fn read(pool: &Pool, id: &str) -> Result<Option<HeaderLock>, CephError> {
        let oid = text(&format!("rbd_header.{id}"))?;
        // `cls_lock_get_info_op`: version, length, the lock's name.
        let mut request = vec![1, 1];
        request.extend((LOCK.len() as u32 + 4).to_le_bytes());
        request.extend((LOCK.len() as u32).to_le_bytes());
        request.extend(LOCK.as_bytes());
        let mut answer = vec![0u8; ANSWER];
        let (class, method) = (c"lock", c"get_info");
        // SAFETY: the pool's handle is live, and both buffers are as long as is said.
        let code = unsafe {
            (pool.cluster.lib.rados_exec)(
                pool.io,
                oid.as_ptr(),
                class.as_ptr(),
                method.as_ptr(),
                request.as_ptr().cast(),
                request.len(),
                answer.as_mut_ptr().cast::<c_char>(),
                answer.len(),
            )
        };
        let read = check(|| "asking who holds the image's lock".to_owned(), code)?;
        HeaderLock::decode(&answer[..read as usize])
            .ok_or_else(|| CephError::named("who holds the image's lock cannot be understood"))
    }

    /// `cls_lock_get_info_reply`: a map from `locker_id_t` to what is not needed here, then more of that.
    fn decode(raw: &[u8]) -> Option<Option<HeaderLock>> {
        let mut rest = raw.get(6..)?;
        let mut take = |n: usize| {
            let (head, tail) = rest.split_at_checked(n)?;
            rest = tail;
            Some(head)
        };
        if u32::from_le_bytes(take(4)?.try_into().ok()?) == 0 {
            return Some(None);
        }
        // Version and length of the id, and the kind of its entity.
        take(6 + 1)?;
        let client = i64::from_le_bytes(take(8)?.try_into().ok()?);
        let length = u32::from_le_bytes(take(4)?.try_into().ok()?);
        let cookie = String::from_utf8(take(length as usize)?.to_vec()).ok()?;
        Some(Some(HeaderLock { client: format!("client.{client}"), cookie }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_is_read_from_what_the_header_says() {
        let mut raw = vec![1, 1, 0, 0, 0, 0, 1, 0, 0, 0, 1, 1, 17, 0, 0, 0, 8];
        raw.extend(4123i64.to_le_bytes());
        raw.extend(6u32.to_le_bytes());
        raw.extend(b"auto 7");
        raw.extend([9; 40]);
        let holder = HeaderLock { client: "client.4123".to_owned(), cookie: "auto 7".to_owned() };
        assert_eq!(HeaderLock::decode(&raw), Some(Some(holder)));
        assert_eq!(HeaderLock::decode(&[1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1]), Some(None));
        for short in 0..35 {
            assert_eq!(HeaderLock::decode(&raw[..short]), None, "{short}");
        }
    }
}
