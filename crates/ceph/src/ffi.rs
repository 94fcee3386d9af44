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
    /// Where the value comes from: 0 the configuration, 1 the pool, 2 the image.
    pub(crate) source: c_int,
}

macro_rules! table {
    ($($library:literal => $($name:ident ( $($arg:ty),* ) $(-> $ret:ty)?;)+)+) => {
        /// Both libraries, with what is used of them.
        #[derive(Debug)]
        #[allow(missing_docs, reason = "the functions are documented by the libraries' own headers")]
        pub struct Library {
            $($(pub(crate) $name: unsafe extern "C" fn($($arg),*) $(-> $ret)?,)+)+
            _libraries: Vec<libloading::Library>,
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
                Ok(Library { $($($name,)+)+ _libraries: libraries })
            }
        }
    };
}

table! {
    "librados.so.2" =>
    rados_create(*mut RadosT, *const c_char) -> c_int;
    rados_conf_read_file(RadosT, *const c_char) -> c_int;
    rados_conf_set(RadosT, *const c_char, *const c_char) -> c_int;
    rados_connect(RadosT) -> c_int;
    rados_shutdown(RadosT);
    rados_cluster_fsid(RadosT, *mut c_char, usize) -> c_int;
    rados_ioctx_create(RadosT, *const c_char, *mut IoCtxT) -> c_int;
    rados_ioctx_destroy(IoCtxT);
    rados_ioctx_set_namespace(IoCtxT, *const c_char);
    rados_ioctx_get_id(IoCtxT) -> i64;

    "librbd.so.1" =>
    rbd_open_read_only(IoCtxT, *const c_char, *mut ImageT, *const c_char) -> c_int;
    rbd_close(ImageT) -> c_int;
    rbd_get_size(ImageT, *mut u64) -> c_int;
    rbd_get_features(ImageT, *mut u64) -> c_int;
    rbd_get_flags(ImageT, *mut u64) -> c_int;
    rbd_get_stripe_unit(ImageT, *mut u64) -> c_int;
    rbd_get_stripe_count(ImageT, *mut u64) -> c_int;
    rbd_get_old_format(ImageT, *mut u8) -> c_int;
    rbd_get_id(ImageT, *mut c_char, usize) -> c_int;
    rbd_get_data_pool_id(ImageT) -> i64;
    rbd_list_lockers(
        ImageT, *mut c_int, *mut c_char, *mut usize, *mut c_char, *mut usize, *mut c_char, *mut usize, *mut c_char, *mut usize
    ) -> isize;
    rbd_watchers_list(ImageT, *mut Watcher, *mut usize) -> c_int;
    rbd_watchers_list_cleanup(*mut Watcher, usize);
    rbd_config_image_list(ImageT, *mut ConfigOption, *mut c_int) -> c_int;
    rbd_config_image_list_cleanup(*mut ConfigOption, c_int);
}

/// What only some releases have: its presence says what a host's librbd can do.
const QUIESCE: &[u8] = b"rbd_quiesce_watch\0";

impl Library {
    /// The libraries of this host.
    ///
    /// # Errors
    /// Where one is missing, or is so old that it lacks a function.
    pub fn get() -> Result<&'static Library, CephError> {
        static LOADED: OnceLock<Result<Library, CephError>> = OnceLock::new();
        LOADED.get_or_init(Library::load).as_ref().map_err(Clone::clone)
    }

    /// Whether librbd tells owners of an image before a snapshot is taken (16 and newer).
    pub fn quiesces(&self) -> bool {
        // SAFETY: only the presence of the symbol is asked for; what it points to is not used.
        self._libraries.iter().any(|l| unsafe { l.get::<unsafe extern "C" fn()>(QUIESCE) }.is_ok())
    }
}

fn open(name: &'static str) -> Result<libloading::Library, CephError> {
    // SAFETY: Ceph's libraries run no more than ordinary initialisers when loaded, and are never unloaded.
    unsafe { libloading::Library::new(name) }
        .map_err(|e| CephError::Library { library: name, why: e.to_string() })
}
