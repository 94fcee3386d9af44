//! An open image.

use crate::CephError;
use crate::cluster::{Pool, string, text};
use crate::error::check;
use crate::ffi::{ConfigOption, ImageT, Library, Watcher};
use std::ffi::{CStr, c_char, c_int};
use std::ptr::{null, null_mut};

/// Feature bits of images (`rbd/features.h`).
pub mod feature {
    /// The object map and snapshots are guarded by one writer at a time.
    pub const EXCLUSIVE_LOCK: u64 = 1 << 2;
    /// Which objects exist.
    pub const OBJECT_MAP: u64 = 1 << 3;
    /// Which objects changed since a snapshot.
    pub const FAST_DIFF: u64 = 1 << 4;
    /// Every write goes to a journal first.
    pub const JOURNALING: u64 = 1 << 6;
    /// The image is being moved.
    pub const MIGRATING: u64 = 1 << 9;
    /// The image follows another cluster's.
    pub const NON_PRIMARY: u64 = 1 << 10;
    /// A client's persistent cache holds newer data.
    pub const DIRTY_CACHE: u64 = 1 << 11;
}

/// Who watches an image: every client that has it open for writing.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct WatcherInfo {
    /// Its address, as `ip:port/nonce`.
    pub address: String,
    /// Its client number.
    pub client: i64,
}

/// Who holds an image's lock.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct LockHolder {
    /// As `client.4123`.
    pub client: String,
    /// What it calls its hold: `auto NUMBER` where librbd took it.
    pub cookie: String,
    /// Its address, as `ip:port/nonce`.
    pub address: String,
}

/// Where an option of an image has its value from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// The client's configuration.
    Config,
    /// The pool.
    Pool,
    /// The image itself.
    Image,
}

/// An image that is open.
#[derive(Debug)]
pub struct Image {
    lib: &'static Library,
    handle: ImageT,
    /// Declared after the handle's users: the pool is closed last.
    _pool: Pool,
}

// SAFETY: librbd handles may be used from any thread.
unsafe impl Send for Image {}

impl Image {
    /// Opens an image to look at it: no lock is asked for and nobody is disturbed.
    ///
    /// # Errors
    /// Where there is no such image, or the client may not read it.
    pub fn look(pool: Pool, name: &str) -> Result<Image, CephError> {
        let lib = pool.cluster.lib;
        let raw = text(name)?;
        let mut handle: ImageT = null_mut();
        // SAFETY: the pool's handle is live; `handle` is written before it is read; no snapshot is named.
        let code = unsafe { (lib.rbd_open_read_only)(pool.io, raw.as_ptr(), &raw mut handle, null()) };
        check(|| format!("opening image {name} ('rbd ls POOL' lists them)"), code)?;
        Ok(Image { lib, handle, _pool: pool })
    }

    fn number(
        &self,
        what: &str,
        get: unsafe extern "C" fn(ImageT, *mut u64) -> c_int,
    ) -> Result<u64, CephError> {
        let mut value = 0;
        // SAFETY: the handle is live, and the function writes one number.
        let code = unsafe { get(self.handle, &raw mut value) };
        check(|| format!("asking for the image's {what}"), code)?;
        Ok(value)
    }

    /// Bytes.
    pub fn size(&self) -> Result<u64, CephError> {
        self.number("size", self.lib.rbd_get_size)
    }

    /// [`feature`] bits.
    pub fn features(&self) -> Result<u64, CephError> {
        self.number("features", self.lib.rbd_get_features)
    }

    /// Bit 0: the object map is invalid; bit 1: fast-diff is.
    pub fn flags(&self) -> Result<u64, CephError> {
        self.number("flags", self.lib.rbd_get_flags)
    }

    /// Bytes that lie together, and over how many objects they are spread.
    pub fn striping(&self) -> Result<(u64, u64), CephError> {
        let unit = self.number("stripe unit", self.lib.rbd_get_stripe_unit)?;
        Ok((unit, self.number("stripe count", self.lib.rbd_get_stripe_count)?))
    }

    /// Whether it is of the first format, which has no features.
    pub fn is_old(&self) -> Result<bool, CephError> {
        let mut old = 0;
        // SAFETY: the handle is live, and the function writes one byte.
        let code = unsafe { (self.lib.rbd_get_old_format)(self.handle, &raw mut old) };
        check(|| "asking for the image's format".to_owned(), code)?;
        Ok(old != 0)
    }

    /// Its id, which a rename does not change.
    pub fn id(&self) -> Result<String, CephError> {
        let mut buf = [0 as c_char; 256];
        // SAFETY: the handle is live, and the buffer is as long as is said.
        let code = unsafe { (self.lib.rbd_get_id)(self.handle, buf.as_mut_ptr(), buf.len()) };
        check(|| "asking for the image's id".to_owned(), code)?;
        Ok(string(&buf))
    }

    /// The number of the pool that holds its data.
    pub fn data_pool(&self) -> i64 {
        // SAFETY: the handle is live.
        unsafe { (self.lib.rbd_get_data_pool_id)(self.handle) }
    }

    /// Who holds its lock: read from the image's header, so that the lock itself is not asked for.
    pub fn lock_holder(&self) -> Result<Option<LockHolder>, CephError> {
        let mut room = 1024;
        loop {
            let mut exclusive: c_int = 0;
            // Tag, clients, cookies, addresses.
            let mut texts: [Vec<c_char>; 4] = std::array::from_fn(|_| vec![0; room]);
            let mut lens = [room; 4];
            let [tag, clients, cookies, addresses] = &mut texts;
            let [tag_len, clients_len, cookies_len, addresses_len] = &mut lens;
            // SAFETY: the handle is live; each text is as long as the length beside it says.
            let code = unsafe {
                (self.lib.rbd_list_lockers)(
                    self.handle,
                    &raw mut exclusive,
                    tag.as_mut_ptr(),
                    tag_len,
                    clients.as_mut_ptr(),
                    clients_len,
                    cookies.as_mut_ptr(),
                    cookies_len,
                    addresses.as_mut_ptr(),
                    addresses_len,
                )
            };
            if code == -(libc::ERANGE as isize) {
                room = lens.into_iter().max().unwrap_or(room).max(room * 2);
                continue;
            }
            check(|| "asking for the lock's holder".to_owned(), code as i32)?;
            if code == 0 {
                return Ok(None);
            }
            // One after the other, each with its ending zero: an exclusive lock has one holder.
            let [client, cookie, address] = [&texts[1], &texts[2], &texts[3]].map(|t| string(t));
            return Ok(Some(LockHolder { client, cookie, address }));
        }
    }

    /// Everybody who watches it.
    pub fn watchers(&self) -> Result<Vec<WatcherInfo>, CephError> {
        let none = Watcher { addr: null_mut(), id: 0, cookie: 0 };
        let mut list = vec![none; 16];
        loop {
            let mut count = list.len();
            // SAFETY: the handle is live; as many are written as `count` says there is room for.
            let code =
                unsafe { (self.lib.rbd_watchers_list)(self.handle, list.as_mut_ptr(), &raw mut count) };
            if code == -libc::ERANGE {
                list.resize(count.max(list.len() * 2), none);
                continue;
            }
            check(|| "asking for the image's watchers".to_owned(), code)?;
            let read = |w: &Watcher| {
                // SAFETY: written by librbd: a C string that lives until the cleanup below.
                WatcherInfo { address: unsafe { owned(w.addr) }, client: w.id }
            };
            let watchers = list[..count].iter().map(read).collect();
            // SAFETY: what librbd wrote is given back, once.
            unsafe { (self.lib.rbd_watchers_list_cleanup)(list.as_mut_ptr(), count) };
            return Ok(watchers);
        }
    }

    /// All options of librbd as they hold for this image: name, value, source.
    pub fn options(&self) -> Result<Vec<(String, String, Source)>, CephError> {
        let none = ConfigOption { name: null_mut(), value: null_mut(), source: 0 };
        let mut list = vec![none; 256];
        loop {
            let mut count = list.len() as c_int;
            // SAFETY: the handle is live; as many are written as `count` says there is room for.
            let code =
                unsafe { (self.lib.rbd_config_image_list)(self.handle, list.as_mut_ptr(), &raw mut count) };
            if code == -libc::ERANGE {
                list.resize((count as usize).max(list.len() * 2), none);
                continue;
            }
            check(|| "asking for the image's options".to_owned(), code)?;
            let read = |o: &ConfigOption| {
                let source = match o.source {
                    1 => Source::Pool,
                    2 => Source::Image,
                    _ => Source::Config,
                };
                // SAFETY: both written by librbd: C strings that live until the cleanup below.
                unsafe { (owned(o.name), owned(o.value), source) }
            };
            let options = list[..count as usize].iter().map(read).collect();
            // SAFETY: what librbd wrote is given back, once.
            unsafe { (self.lib.rbd_config_image_list_cleanup)(list.as_mut_ptr(), count) };
            return Ok(options);
        }
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        // An image opened to be read has nothing to lose.
        // SAFETY: the handle is live and not used again.
        unsafe { (self.lib.rbd_close)(self.handle) };
    }
}

/// A copy of a C string.
///
/// # Safety
/// `raw` is null or points to one.
unsafe fn owned(raw: *const c_char) -> String {
    if raw.is_null() {
        return String::new();
    }
    // SAFETY: the caller's word.
    unsafe { CStr::from_ptr(raw) }.to_string_lossy().into_owned()
}
