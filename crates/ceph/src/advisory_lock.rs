//! A lock on an object that binds those who ask for it, and ends by itself unless it is renewed.

use crate::CephError;
use crate::cluster::{Pool, string, text};
use crate::error::check;
use std::ffi::{CString, c_char};
use std::time::Duration;

/// The lock may be taken once more by its holder, which makes it last anew (`LIBRADOS_LOCK_FLAG_MAY_RENEW`).
const MAY_RENEW: u8 = 1;
/// The lock is made to last anew only if it is held still (`LIBRADOS_LOCK_FLAG_MUST_RENEW`).
const MUST_RENEW: u8 = 2;
/// Bytes of names of holders that are looked at. An exclusive lock has one.
const NAMES: usize = 4096;

/// The holder of a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The client: `client.4123`.
    pub client: String,
    /// Its own words.
    pub cookie: String,
}

/// An exclusive lock on an object, which is made by it.
#[derive(Debug)]
pub struct AdvisoryLock {
    pool: Pool,
    object: CString,
    name: CString,
    cookie: CString,
}

impl AdvisoryLock {
    pub(crate) fn new(pool: Pool, object: &str, name: &str, cookie: &str) -> Result<AdvisoryLock, CephError> {
        Ok(AdvisoryLock { pool, object: text(object)?, name: text(name)?, cookie: text(cookie)? })
    }

    /// Takes it, or makes it last anew; false: another has it.
    ///
    /// # Errors
    /// If no OSD answers within 15 s, or the client may not write to the pool.
    pub fn take(&self, lasts: Duration) -> Result<bool, CephError> {
        self.lock(lasts, MAY_RENEW)
    }

    /// Makes it last anew; false: it ended meanwhile, or another has it.
    ///
    /// # Errors
    /// If no OSD answers within 15 s, or the client may not write to the pool.
    pub fn renew(&self, lasts: Duration) -> Result<bool, CephError> {
        self.lock(lasts, MUST_RENEW)
    }

    fn lock(&self, lasts: Duration, flags: u8) -> Result<bool, CephError> {
        let mut lasts = libc::timeval { tv_sec: lasts.as_secs() as libc::time_t, tv_usec: 0 };
        // SAFETY: the pool's handle is live; all texts are C strings for the call, and so is the time.
        let code = unsafe {
            (self.pool.cluster.lib.rados_lock_exclusive)(
                self.pool.io,
                self.object.as_ptr(),
                self.name.as_ptr(),
                self.cookie.as_ptr(),
                c"".as_ptr(),
                &raw mut lasts,
                flags,
            )
        };
        if code == -libc::EBUSY || (flags == MUST_RENEW && code == -libc::ENOENT) {
            return Ok(false);
        }
        check(|| self.what("taking"), code).map(|_| true)
    }

    /// Lets it go.
    ///
    /// # Errors
    /// If no OSD answers, or it was not held any more.
    pub fn let_go(&self) -> Result<(), CephError> {
        // SAFETY: the pool's handle is live; all texts are C strings for the call.
        let code = unsafe {
            (self.pool.cluster.lib.rados_unlock)(
                self.pool.io,
                self.object.as_ptr(),
                self.name.as_ptr(),
                self.cookie.as_ptr(),
            )
        };
        check(|| self.what("letting go of"), code).map(drop)
    }

    /// Its holder; nothing: it is free.
    ///
    /// # Errors
    /// If no OSD answers.
    pub fn holder(&self) -> Result<Option<Holder>, CephError> {
        let mut exclusive = 0;
        let mut names = [[0 as c_char; NAMES]; 4];
        let mut lens = [NAMES; 4];
        let [tag, client, cookie, address] = &mut names;
        let [tag_len, client_len, cookie_len, address_len] = &mut lens;
        // SAFETY: the pool's handle is live; the texts are C strings for the call, and each buffer is as long as its length says.
        let count = unsafe {
            (self.pool.cluster.lib.rados_list_lockers)(
                self.pool.io,
                self.object.as_ptr(),
                self.name.as_ptr(),
                &raw mut exclusive,
                tag.as_mut_ptr(),
                &raw mut *tag_len,
                client.as_mut_ptr(),
                &raw mut *client_len,
                cookie.as_mut_ptr(),
                &raw mut *cookie_len,
                address.as_mut_ptr(),
                &raw mut *address_len,
            )
        };
        if count == -(libc::ENOENT as isize) {
            return Ok(None);
        }
        let count = check(|| self.what("looking at"), count as i32)?;
        Ok((count > 0).then(|| Holder { client: string(client), cookie: string(cookie) }))
    }

    /// Takes it away from a holder that is dead. Nothing keeps one that lives from going on.
    ///
    /// # Errors
    /// If no OSD answers, or it is not that one's any more.
    pub fn take_from(&self, dead: &Holder) -> Result<(), CephError> {
        let (client, cookie) = (text(&dead.client)?, text(&dead.cookie)?);
        // SAFETY: the pool's handle is live; all texts are C strings for the call.
        let code = unsafe {
            (self.pool.cluster.lib.rados_break_lock)(
                self.pool.io,
                self.object.as_ptr(),
                self.name.as_ptr(),
                client.as_ptr(),
                cookie.as_ptr(),
            )
        };
        check(|| self.what("breaking"), code).map(drop)
    }

    fn what(&self, deed: &str) -> String {
        format!("{deed} the lock {} on {}", self.name.to_string_lossy(), self.object.to_string_lossy())
    }
}
