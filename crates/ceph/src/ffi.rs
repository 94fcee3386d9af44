//! The functions of librados and librbd that are used, with their C signatures (`rados/librados.h`, `rbd/librbd.h`).
//!
//! Everything is found once, at the first use; a library that lacks one of them is refused by name, so that no call can
//! miss later.

use crate::CephError;
use std::ffi::{c_char, c_int, c_void};
use std::sync::OnceLock;

/// A cluster's handle.
pub(crate) type RadosT = *mut c_void;
/// A pool's handle.
pub(crate) type IoCtxT = *mut c_void;
/// An image's handle.
pub(crate) type ImageT = *mut c_void;

/// An operation that reads one object.
pub(crate) type ReadOpT = *mut c_void;
/// Keys and values of an object.
pub(crate) type OmapIterT = *mut c_void;
/// An operation that writes one object.
pub(crate) type WriteOpT = *mut c_void;
/// An operation under way, of either library.
pub(crate) type CompletionT = *mut c_void;
/// Called when one is over (`rados_callback_t`, `rbd_callback_t`).
pub(crate) type Callback = unsafe extern "C" fn(CompletionT, *mut c_void);
/// Called when somebody tells those who watch an object something (`rados_watchcb2_t`).
pub(crate) type WatchCallback = unsafe extern "C" fn(*mut c_void, u64, u64, u64, *mut c_void, usize);
/// Called when a watch breaks (`rados_watcherrcb_t`).
pub(crate) type WatchError = unsafe extern "C" fn(*mut c_void, u64, c_int);
/// Called when something about an image changes (`rbd_update_callback_t`).
pub(crate) type Notify = unsafe extern "C" fn(*mut c_void);

/// `rbd_image_watcher_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Watcher {
    pub(crate) addr: *mut c_char,
    pub(crate) id: i64,
    pub(crate) cookie: u64,
}

/// `rbd_config_option_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConfigOption {
    pub(crate) name: *mut c_char,
    pub(crate) value: *mut c_char,
    /// The source of the value: 0 the configuration, 1 the pool, 2 the image.
    pub(crate) source: c_int,
}

/// `rbd_snap_info_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct SnapInfo {
    pub(crate) id: u64,
    pub(crate) size: u64,
    pub(crate) name: *const c_char,
}

/// `rbd_image_info_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct ImageInfo {
    pub(crate) size: u64,
    pub(crate) obj_size: u64,
    pub(crate) num_objs: u64,
    pub(crate) order: c_int,
    pub(crate) block_name_prefix: [c_char; 24],
    pub(crate) parent_pool: i64,
    pub(crate) parent_name: [c_char; 96],
}

/// `rbd_image_spec_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct ListedImage {
    pub(crate) id: *mut c_char,
    pub(crate) name: *mut c_char,
}

/// `rbd_mirror_image_info_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct MirrorInfo {
    pub(crate) global_id: *mut c_char,
    /// `rbd_mirror_image_state_t`.
    pub(crate) state: c_int,
    pub(crate) primary: bool,
}

macro_rules! table {
    ($($library:literal => $($name:ident ( $($arg:ty),* ) $(-> $ret:ty)?;)+)+) => {
        /// Both libraries, with what is used of them.
        #[derive(Debug)]
        #[allow(missing_docs, reason = "the functions are documented by the libraries' own headers")]
        pub struct Library {
            $($(pub(crate) $name: unsafe extern "C" fn($($arg),*) $(-> $ret)?,)+)+
            /// In the order of the table.
            libraries: Vec<libloading::Library>,
        }

        impl Library {
            fn load() -> Result<Library, CephError> {
                let mut libraries = Vec::new();
                $(
                    let library = open($library)?;
                    $(
                        let $name = {
                            let symbol = concat!(stringify!($name), "\0").as_bytes();
                            // SAFETY: the type is that of the function in the library's header, and the pointer is kept
                            // no longer than the library, which is never closed.
                            let found = unsafe {
                                library.get::<unsafe extern "C" fn($($arg),*) $(-> $ret)?>(symbol)
                            };
                            *found.map_err(|e| CephError::Library { library: $library, why: e.to_string() })?
                        };
                    )+
                    libraries.push(library);
                )+
                Ok(Library { $($($name,)+)+ libraries })
            }
        }
    };
}

table! {
    "librados.so.2" =>
    rados_create(*mut RadosT, *const c_char) -> c_int;
    rados_conf_read_file(RadosT, *const c_char) -> c_int;
    rados_conf_set(RadosT, *const c_char, *const c_char) -> c_int;
    rados_conf_get(RadosT, *const c_char, *mut c_char, usize) -> c_int;
    rados_connect(RadosT) -> c_int;
    rados_shutdown(RadosT);
    rados_get_instance_id(RadosT) -> u64;
    rados_cluster_fsid(RadosT, *mut c_char, usize) -> c_int;
    rados_ioctx_create(RadosT, *const c_char, *mut IoCtxT) -> c_int;
    rados_ioctx_destroy(IoCtxT);
    rados_ioctx_set_namespace(IoCtxT, *const c_char);
    rados_ioctx_get_id(IoCtxT) -> i64;
    rados_get_last_version(IoCtxT) -> u64;
    rados_ioctx_create2(RadosT, i64, *mut IoCtxT) -> c_int;
    rados_ioctx_selfmanaged_snap_set_write_ctx(IoCtxT, u64, *mut u64, c_int) -> c_int;
    rados_stat(IoCtxT, *const c_char, *mut u64, *mut libc::time_t) -> c_int;
    rados_exec(
        IoCtxT, *const c_char, *const c_char, *const c_char, *const c_char, usize, *mut c_char, usize
    ) -> c_int;
    rados_lock_exclusive(
        IoCtxT, *const c_char, *const c_char, *const c_char, *const c_char, *mut libc::timeval, u8
    ) -> c_int;
    rados_unlock(IoCtxT, *const c_char, *const c_char, *const c_char) -> c_int;
    rados_break_lock(IoCtxT, *const c_char, *const c_char, *const c_char, *const c_char) -> c_int;
    rados_list_lockers(
        IoCtxT, *const c_char, *const c_char, *mut c_int, *mut c_char, *mut usize, *mut c_char, *mut usize, *mut c_char,
        *mut usize, *mut c_char, *mut usize
    ) -> isize;
    rados_blocklist_add(RadosT, *const c_char, u32) -> c_int;
    rados_wait_for_latest_osdmap(RadosT) -> c_int;
    rados_mon_command(
        RadosT, *mut *const c_char, usize, *const c_char, usize, *mut *mut c_char, *mut usize, *mut *mut c_char, *mut usize
    ) -> c_int;
    rados_mgr_command(
        RadosT, *mut *const c_char, usize, *const c_char, usize, *mut *mut c_char, *mut usize, *mut *mut c_char, *mut usize
    ) -> c_int;
    rados_osd_command(
        RadosT, c_int, *mut *const c_char, usize, *const c_char, usize, *mut *mut c_char, *mut usize, *mut *mut c_char, *mut usize
    ) -> c_int;
    rados_buffer_free(*mut c_char);
    rados_create_write_op() -> WriteOpT;
    rados_release_write_op(WriteOpT);
    rados_write_op_assert_exists(WriteOpT);
    rados_write_op_exec(WriteOpT, *const c_char, *const c_char, *const c_char, usize, *mut c_int);
    rados_write_op_write(WriteOpT, *const c_char, usize, u64);
    rados_write_op_truncate(WriteOpT, u64);
    rados_write_op_operate(WriteOpT, IoCtxT, *const c_char, *mut libc::time_t, c_int) -> c_int;
    rados_watch2(
        IoCtxT, *const c_char, *mut u64, WatchCallback, WatchError, *mut c_void
    ) -> c_int;
    rados_unwatch2(IoCtxT, u64) -> c_int;
    rados_watch_check(IoCtxT, u64) -> c_int;
    rados_watch_flush(RadosT) -> c_int;
    rados_notify_ack(IoCtxT, *const c_char, u64, u64, *const c_char, c_int) -> c_int;
    rados_create_read_op() -> ReadOpT;
    rados_release_read_op(ReadOpT);
    rados_read_op_omap_get_vals2(
        ReadOpT, *const c_char, *const c_char, u64, *mut OmapIterT, *mut u8, *mut c_int
    );
    rados_read_op_operate(ReadOpT, IoCtxT, *const c_char, c_int) -> c_int;
    rados_omap_get_next2(OmapIterT, *mut *mut c_char, *mut *mut c_char, *mut usize, *mut usize) -> c_int;
    rados_omap_get_end(OmapIterT);
    rados_aio_create_completion2(*mut c_void, Callback, *mut CompletionT) -> c_int;
    rados_aio_get_return_value(CompletionT) -> c_int;
    rados_aio_release(CompletionT);
    rados_aio_write_op_operate(
        WriteOpT, IoCtxT, CompletionT, *const c_char, *mut libc::time_t, c_int
    ) -> c_int;

    "librbd.so.1" =>
    rbd_open_read_only(IoCtxT, *const c_char, *mut ImageT, *const c_char) -> c_int;
    rbd_open(IoCtxT, *const c_char, *mut ImageT, *const c_char) -> c_int;
    rbd_close(ImageT) -> c_int;
    rbd_read(ImageT, u64, usize, *mut c_char) -> isize;
    rbd_write(ImageT, u64, usize, *const c_char) -> isize;
    rbd_flush(ImageT) -> c_int;
    rbd_aio_create_completion(*mut c_void, Callback, *mut CompletionT) -> c_int;
    rbd_aio_get_return_value(CompletionT) -> isize;
    rbd_aio_release(CompletionT);
    rbd_aio_read(ImageT, u64, usize, *mut c_char, CompletionT) -> c_int;
    rbd_aio_write(ImageT, u64, usize, *const c_char, CompletionT) -> c_int;
    rbd_aio_writev(ImageT, *const libc::iovec, c_int, u64, CompletionT) -> c_int;
    rbd_aio_write_zeroes(ImageT, u64, usize, CompletionT, c_int, c_int) -> c_int;
    rbd_aio_flush(ImageT, CompletionT) -> c_int;
    rbd_lock_acquire(ImageT, c_int) -> c_int;
    rbd_is_exclusive_lock_owner(ImageT, *mut c_int) -> c_int;
    rbd_metadata_get(ImageT, *const c_char, *mut c_char, *mut usize) -> c_int;
    rbd_metadata_set(ImageT, *const c_char, *const c_char) -> c_int;
    rbd_metadata_remove(ImageT, *const c_char) -> c_int;
    rbd_update_watch(ImageT, *mut u64, Notify, *mut c_void) -> c_int;
    rbd_update_unwatch(ImageT, u64) -> c_int;
    rbd_quiesce_watch(ImageT, Notify, Notify, *mut c_void, *mut u64) -> c_int;
    rbd_quiesce_complete(ImageT, u64, c_int);
    rbd_quiesce_unwatch(ImageT, u64) -> c_int;
    rbd_get_block_name_prefix(ImageT, *mut c_char, usize) -> c_int;
    rbd_stat(ImageT, *mut ImageInfo, usize) -> c_int;
    rbd_get_size(ImageT, *mut u64) -> c_int;
    rbd_get_features(ImageT, *mut u64) -> c_int;
    rbd_get_flags(ImageT, *mut u64) -> c_int;
    rbd_get_stripe_unit(ImageT, *mut u64) -> c_int;
    rbd_get_stripe_count(ImageT, *mut u64) -> c_int;
    rbd_list2(IoCtxT, *mut ListedImage, *mut usize) -> c_int;
    rbd_image_spec_list_cleanup(*mut ListedImage, usize);
    rbd_get_parent_info(ImageT, *mut c_char, usize, *mut c_char, usize, *mut c_char, usize) -> c_int;
    rbd_mirror_image_get_info(ImageT, *mut MirrorInfo, usize) -> c_int;
    rbd_mirror_image_get_info_cleanup(*mut MirrorInfo);
    rbd_get_old_format(ImageT, *mut u8) -> c_int;
    rbd_get_id(ImageT, *mut c_char, usize) -> c_int;
    rbd_get_data_pool_id(ImageT) -> i64;
    rbd_list_lockers(
        ImageT, *mut c_int, *mut c_char, *mut usize, *mut c_char, *mut usize, *mut c_char, *mut usize, *mut c_char, *mut usize
    ) -> isize;
    rbd_watchers_list(ImageT, *mut Watcher, *mut usize) -> c_int;
    rbd_watchers_list_cleanup(*mut Watcher, usize);
    rbd_snap_list(ImageT, *mut SnapInfo, *mut c_int) -> c_int;
    rbd_snap_list_end(*mut SnapInfo);
    rbd_config_image_list(ImageT, *mut ConfigOption, *mut c_int) -> c_int;
    rbd_config_image_list_cleanup(*mut ConfigOption, c_int);
}

impl Library {
    /// The libraries of this host.
    ///
    /// # Errors
    /// If one is missing, or is so old that it lacks a function.
    pub fn get() -> Result<&'static Library, CephError> {
        static LOADED: OnceLock<Result<Library, CephError>> = OnceLock::new();
        LOADED.get_or_init(Library::load).as_ref().map_err(Clone::clone)
    }

    /// The release that they are of, in their own words. No function of either says it; one of C++ below both does, and it may
    /// be missing in another release.
    pub(crate) fn version(&self) -> Option<&'static str> {
        let rados = self.libraries.first()?;
        // SAFETY: `const char* ceph_version_to_str()` takes nothing and gives a text that is as old as the library, which is
        // never closed (Ceph's `common/version.h`).
        unsafe {
            let version = rados.get::<unsafe extern "C" fn() -> *const c_char>(b"_Z19ceph_version_to_strv\0");
            let text = version.ok()?();
            if text.is_null() { None } else { std::ffi::CStr::from_ptr(text).to_str().ok() }
        }
    }
}

fn open(name: &'static str) -> Result<libloading::Library, CephError> {
    // SAFETY: Ceph's libraries run no more than ordinary initialisers when loaded, and are never unloaded.
    unsafe { libloading::Library::new(name) }
        .map_err(|e| CephError::Library { library: name, why: e.to_string() })
}
