//! Listens to an image's header while its lock changes hands: whoever takes the lock tells all who watch the header, before it
//! writes anything. A client that comes, writes and goes within that moment leaves nothing else that could be seen.

use crate::CephError;
use crate::cluster::{Cluster, Pool, text};
use crate::error::check;
use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Messages of librbd and krbd to all who watch a header (`NotifyOp`).
const ACQUIRED_LOCK: u32 = 0;
const REQUEST_LOCK: u32 = 2;

/// The messages that were heard.
#[derive(Debug)]
struct Notified {
    pool: Pool,
    header: CString,
    me: u64,
    /// Clients that may have the lock for a while: they do not write.
    let_be: Vec<i64>,
    came: AtomicBool,
}

/// A watch of the header, until it is dropped.
#[derive(Debug)]
pub(crate) struct HeaderWatch {
    /// On the heap: librados has its address.
    heard: Box<Notified>,
    watch: u64,
}

impl HeaderWatch {
    /// Listens from now on. `let_be`: clients that do not write.
    ///
    /// # Errors
    /// If the header cannot be watched.
    pub(crate) fn open(
        cluster: &Arc<Cluster>,
        pool: Pool,
        id: &str,
        let_be: Vec<i64>,
    ) -> Result<HeaderWatch, CephError> {
        let header = text(&format!("rbd_header.{id}"))?;
        let me = cluster.instance() as u64;
        let heard = Box::new(Notified { pool, header, me, let_be, came: AtomicBool::new(false) });
        let mut watch = 0;
        let arg = std::ptr::from_ref(&*heard).cast_mut().cast::<c_void>();
        // SAFETY: the pool's handle is live; what the callbacks are given lives until the watch has ended.
        let code = unsafe {
            (cluster.lib.rados_watch2)(
                heard.pool.io,
                heard.header.as_ptr(),
                &raw mut watch,
                on_notify,
                on_error,
                arg,
            )
        };
        check(|| "watching the image's header".to_owned(), code)?;
        Ok(HeaderWatch { heard, watch })
    }

    /// True if somebody else may have had the lock since: an OSD tells of that before it answers whoever takes it next.
    pub(crate) fn somebody_came(&self) -> bool {
        let lib = self.heard.pool.cluster.lib;
        self.flush();
        // SAFETY: the pool's handle and the watch are live.
        let alive = unsafe { (lib.rados_watch_check)(self.heard.pool.io, self.watch) };
        alive < 0 || self.heard.came.load(Ordering::Acquire)
    }

    /// Waits for the callbacks of what has arrived.
    fn flush(&self) {
        let cluster = &self.heard.pool.cluster;
        // SAFETY: the handle is live.
        unsafe { (cluster.lib.rados_watch_flush)(cluster.raw()) };
    }
}

impl Drop for HeaderWatch {
    fn drop(&mut self) {
        // SAFETY: the watch is live and not used again; no callback has its argument once the rest of them is over.
        unsafe { (self.heard.pool.cluster.lib.rados_unwatch2)(self.heard.pool.io, self.watch) };
        self.flush();
    }
}

/// The operation of a message: version and length come before it.
fn operation(raw: &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(raw.get(6..10)?.try_into().ok()?))
}

impl Notified {
    fn hear(&self, who: u64, message: &[u8]) {
        let let_be = |who: u64| self.let_be.contains(&(who as i64));
        let came = match operation(message) {
            Some(ACQUIRED_LOCK) => who != self.me && !let_be(who),
            // We have to ask for it: somebody has it.
            Some(REQUEST_LOCK) => who == self.me && self.let_be.is_empty(),
            _ => false,
        };
        if came {
            self.came.store(true, Ordering::Release);
        }
    }
}

/// Somebody tells all who watch something.
///
/// # Safety
/// `arg` is what the watch was given, and `data` has `len` bytes.
unsafe extern "C" fn on_notify(
    arg: *mut c_void,
    number: u64,
    watch: u64,
    who: u64,
    data: *mut c_void,
    len: usize,
) {
    // SAFETY: librados gives back what it was given, which lives as long as the watch.
    let heard = unsafe { &*arg.cast::<Notified>() };
    let message = match data.is_null() || len == 0 {
        true => &[][..],
        // SAFETY: librados's word; the bytes live for the call.
        false => unsafe { std::slice::from_raw_parts(data.cast::<u8>().cast_const(), len) },
    };
    heard.hear(who, message);
    let nothing: *const c_char = std::ptr::null();
    // SAFETY: the pool's handle is live. Whoever tells waits for this.
    unsafe {
        (heard.pool.cluster.lib.rados_notify_ack)(
            heard.pool.io,
            heard.header.as_ptr(),
            number,
            watch,
            nothing,
            0,
        )
    };
}

/// The watch broke: whatever was told since was not heard.
///
/// # Safety
/// `arg` is what the watch was given.
unsafe extern "C" fn on_error(arg: *mut c_void, _watch: u64, _code: c_int) {
    // SAFETY: as above.
    unsafe { &*arg.cast::<Notified>() }.came.store(true, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_operation_of_a_message_is_read() {
        assert_eq!(operation(&[6, 1, 20, 0, 0, 0, 2, 0, 0, 0, 9, 9]), Some(REQUEST_LOCK));
        assert_eq!(operation(&[6, 1, 20, 0, 0, 0, 0, 0, 0]), None);
        assert_eq!(operation(&[]), None);
    }
}
