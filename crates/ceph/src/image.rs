//! An open image.

use crate::CephError;
use crate::cluster::{Pool, string, text};
use crate::error::check;
use crate::ffi::{ConfigOption, ImageInfo, ImageT, Library, SnapInfo, Watcher};
use crate::layout::{Layout, ObjectSize, StripeUnit};
use std::ffi::{CStr, c_char, c_int};
use std::mem::MaybeUninit;
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
    /// It is the kernel of its host, which has the image as a block device.
    pub kernel: bool,
    /// It mirrors the image to another cluster and does not write to it.
    pub mirrors: bool,
}

/// The kernel's client (krbd) numbers its watches from here on; those of librbd are addresses in a process, which are lower. Both
/// put that number into the cookie of their lock.
const KERNEL: u64 = 0xffff_0000_0000_0000;

/// The mend for a kernel that has an image.
pub(crate) const UNMAP: &str = "the kernel of that host has it mapped (krbd): unmount it and 'rbd unmap' it there. --steal \
     cuts the device off: file systems on it fail with EIO until it is unmapped by 'rbd unmap -o force'";

/// Who holds an image's lock.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LockHolder {
    /// As `client.4123`.
    pub client: String,
    /// The name of its hold: `auto NUMBER` where librbd took it.
    pub cookie: String,
    /// Its address, as `ip:port/nonce`.
    pub address: String,
}

impl LockHolder {
    /// Whether it is the kernel of its host.
    pub(crate) fn is_kernel(&self) -> bool {
        let number = self.cookie.strip_prefix("auto ").and_then(|n| n.parse::<u64>().ok());
        number.is_some_and(|n| n >= KERNEL)
    }

    /// Whether it is one of these: a holder that does not watch its image is dead, or cut off.
    pub(crate) fn is_among(&self, watchers: &[WatcherInfo]) -> bool {
        watchers.iter().any(|w| w.address == self.address)
    }

    /// Whether it mirrors the image to another cluster. Such a daemon may take the lock to remove snapshots that it has copied, and
    /// lets it go when asked.
    pub(crate) fn mirrors(&self, watchers: &[WatcherInfo]) -> bool {
        watchers.iter().any(|w| w.mirrors && w.address == self.address)
    }
}

/// The source of an option's value.
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
    pub(crate) lib: &'static Library,
    pub(crate) handle: ImageT,
    /// Declared after the handle's users: the pool is closed last.
    _pool: Pool,
}

// SAFETY: librbd handles may be used from any thread, and from several at once.
unsafe impl Send for Image {}
// SAFETY: as above.
unsafe impl Sync for Image {}

/// The way of holding the lock that lets nobody else have it meanwhile (`RBD_LOCK_MODE_EXCLUSIVE`).
const EXCLUSIVE: c_int = 0;
/// The most bytes of a metadata value that are looked at.
const METADATA: usize = 4096;

impl Image {
    /// Opens an image to look at it: no lock is asked for and nobody is disturbed.
    ///
    /// # Errors
    /// If there is no such image, or the client may not read it.
    pub fn look(pool: Pool, name: &str) -> Result<Image, CephError> {
        let lib = pool.cluster.lib;
        let raw = text(name)?;
        let mut handle: ImageT = null_mut();
        // SAFETY: the pool's handle is live; `handle` is written before it is read; no snapshot is named.
        let code = unsafe { (lib.rbd_open_read_only)(pool.io, raw.as_ptr(), &raw mut handle, null()) };
        check(|| format!("opening image {name} ('rbd ls POOL[/NAMESPACE]' lists them)"), code)?;
        Ok(Image { lib, handle, _pool: pool })
    }

    /// Opens an image to write it: it is watched, and its lock can be asked for.
    ///
    /// # Errors
    /// If there is no such image, or the client may not write it.
    pub fn open(pool: Pool, name: &str) -> Result<Image, CephError> {
        let lib = pool.cluster.lib;
        let raw = text(name)?;
        let mut handle: ImageT = null_mut();
        // SAFETY: as in `look`.
        let code = unsafe { (lib.rbd_open)(pool.io, raw.as_ptr(), &raw mut handle, null()) };
        check(|| format!("opening image {name} to write it"), code)?;
        Ok(Image { lib, handle, _pool: pool })
    }

    /// Fills `buf` from `offset`.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), CephError> {
        // SAFETY: the handle is live and the buffer as long as is said.
        let code = unsafe { (self.lib.rbd_read)(self.handle, offset, buf.len(), buf.as_mut_ptr().cast()) };
        let got = check(|| format!("reading {} bytes at {offset} of the image", buf.len()), code as i32)?;
        if got as usize == buf.len() {
            return Ok(());
        }
        Err(CephError::Named(format!("the image ends before byte {}", offset + buf.len() as u64)))
    }

    /// Writes all of `data` at `offset`; the OSDs have it afterwards.
    pub fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), CephError> {
        // SAFETY: the handle is live and the data as long as is said.
        let code = unsafe { (self.lib.rbd_write)(self.handle, offset, data.len(), data.as_ptr().cast()) };
        check(|| format!("writing {} bytes at {offset} of the image", data.len()), code as i32).map(drop)
    }

    /// Waits for the writes under way.
    pub fn flush(&self) -> Result<(), CephError> {
        // SAFETY: the handle is live.
        check(|| "flushing the image".to_owned(), unsafe { (self.lib.rbd_flush)(self.handle) }).map(drop)
    }

    /// Takes the lock and keeps it until it is released: others' requests for it are refused.
    pub fn lock(&self) -> Result<(), CephError> {
        // SAFETY: the handle is live.
        let code = unsafe { (self.lib.rbd_lock_acquire)(self.handle, EXCLUSIVE) };
        check(|| "taking the image's exclusive lock".to_owned(), code).map(drop)
    }

    /// Whether this client holds the lock: an OSD is asked.
    pub fn is_owner(&self) -> Result<bool, CephError> {
        let mut owner = 0;
        // SAFETY: the handle is live, and one number is written.
        let code = unsafe { (self.lib.rbd_is_exclusive_lock_owner)(self.handle, &raw mut owner) };
        check(|| "asking whether the lock is still ours".to_owned(), code)?;
        Ok(owner != 0)
    }

    /// A value of the image's metadata.
    pub fn metadata(&self, key: &str) -> Result<Option<String>, CephError> {
        let raw = text(key)?;
        let mut buf = [0 as c_char; METADATA];
        let mut len = buf.len();
        // SAFETY: the handle is live; the buffer is as long as is said.
        let code =
            unsafe { (self.lib.rbd_metadata_get)(self.handle, raw.as_ptr(), buf.as_mut_ptr(), &raw mut len) };
        if code == -libc::ENOENT {
            return Ok(None);
        }
        check(|| format!("reading '{key}' of the image's metadata"), code)?;
        Ok(Some(string(&buf)))
    }

    /// Sets a value of the image's metadata.
    pub fn set_metadata(&self, key: &str, value: &str) -> Result<(), CephError> {
        let (raw, value) = (text(key)?, text(value)?);
        // SAFETY: the handle is live; both are C strings for the call.
        let code = unsafe { (self.lib.rbd_metadata_set)(self.handle, raw.as_ptr(), value.as_ptr()) };
        check(|| format!("writing '{key}' of the image's metadata"), code).map(drop)
    }

    /// Takes a value of the image's metadata away; it may be gone already.
    pub fn remove_metadata(&self, key: &str) -> Result<(), CephError> {
        let raw = text(key)?;
        // SAFETY: the handle is live; the key is a C string for the call.
        let code = unsafe { (self.lib.rbd_metadata_remove)(self.handle, raw.as_ptr()) };
        if code == -libc::ENOENT {
            return Ok(());
        }
        check(|| format!("removing '{key}' of the image's metadata"), code).map(drop)
    }

    /// The beginning of its objects' names.
    pub fn prefix(&self) -> Result<String, CephError> {
        let mut buf = [0 as c_char; 256];
        // SAFETY: the handle is live, and the buffer is as long as is said.
        let code = unsafe { (self.lib.rbd_get_block_name_prefix)(self.handle, buf.as_mut_ptr(), buf.len()) };
        check(|| "asking for the names of the image's objects".to_owned(), code)?;
        Ok(string(&buf))
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

    /// How its bytes lie in its objects.
    pub fn layout(&self) -> Result<Layout, CephError> {
        let mut info = MaybeUninit::<ImageInfo>::zeroed();
        // SAFETY: the handle is live, and what is written is as long as is said.
        let code = unsafe { (self.lib.rbd_stat)(self.handle, info.as_mut_ptr(), size_of::<ImageInfo>()) };
        check(|| "asking for the size of the image's objects".to_owned(), code)?;
        // SAFETY: numbers and characters, for which zeros are values too; librbd has written them.
        let object = unsafe { info.assume_init() }.obj_size;
        Ok(Layout {
            object: ObjectSize::new(object),
            unit: StripeUnit::new(self.number("stripe unit", self.lib.rbd_get_stripe_unit)?),
            count: self.number("stripe count", self.lib.rbd_get_stripe_count)?,
        })
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

    /// Everybody who watches it. Who of them mirrors it is not known yet.
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
                let address = unsafe { owned(w.addr) };
                WatcherInfo { address, client: w.id, kernel: w.cookie >= KERNEL, mirrors: false }
            };
            let watchers = list[..count].iter().map(read).collect();
            // SAFETY: what librbd wrote is given back, once.
            unsafe { (self.lib.rbd_watchers_list_cleanup)(list.as_mut_ptr(), count) };
            return Ok(watchers);
        }
    }

    /// Its snapshots of users, oldest first: number and name.
    pub fn snapshots(&self) -> Result<Vec<(u64, String)>, CephError> {
        let none = SnapInfo { id: 0, size: 0, name: null() };
        let mut list = vec![none; 16];
        loop {
            let mut most = list.len() as c_int;
            // SAFETY: the handle is live; as many are written as `most` says there is room for.
            let code = unsafe { (self.lib.rbd_snap_list)(self.handle, list.as_mut_ptr(), &raw mut most) };
            if code == -libc::ERANGE {
                list.resize((most.max(0) as usize).max(list.len() * 2), none);
                continue;
            }
            let count = check(|| "asking for the image's snapshots".to_owned(), code)? as usize;
            // SAFETY: written by librbd: C strings that live until the end below.
            let read = |s: &SnapInfo| (s.id, unsafe { owned(s.name) });
            let snapshots = list[..count].iter().map(read).collect();
            if count > 0 {
                // SAFETY: what librbd wrote is given back, once.
                unsafe { (self.lib.rbd_snap_list_end)(list.as_mut_ptr()) };
            }
            return Ok(snapshots);
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
        // Waits for what is under way, and gives the lock back.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_is_told_from_librbd_by_the_cookie_of_its_lock() {
        let holder = |cookie: &str| LockHolder {
            client: "client.4123".to_owned(),
            cookie: cookie.to_owned(),
            address: "10.0.0.1:0/4242".to_owned(),
        };
        assert!(holder("auto 18446462598732840961").is_kernel());
        assert!(!holder("auto 139873468645376").is_kernel());
        assert!(!holder("by hand").is_kernel());
    }
}
