//! A connection to a cluster, and a pool of it.

use crate::CephError;
use crate::error::check;
use crate::ffi::{IoCtxT, Library, RadosT};
use crate::spec::ImageSpec;
use std::ffi::{CString, c_char};
use std::path::Path;
use std::ptr::null;
use std::sync::Arc;

/// Bytes of a cluster's id with its ending zero.
const FSID: usize = 37;
/// Seconds after which a monitor or OSD that does not answer makes an inspection fail.
const PATIENCE: &str = "15";

/// One client instance of a cluster. Fencing hits the whole instance, so each image that is written gets its own.
#[derive(Debug)]
pub struct Cluster {
    pub(crate) lib: &'static Library,
    handle: RadosT,
}

// SAFETY: librados handles may be used from any thread, and from several at once.
unsafe impl Send for Cluster {}
// SAFETY: as above.
unsafe impl Sync for Cluster {}

impl Cluster {
    /// Connects as `spec` says. An inspection gives up after a while where nobody answers.
    ///
    /// # Errors
    /// Where Ceph's libraries are missing, the configuration cannot be read, or the cluster refuses the client.
    pub fn connect(spec: &ImageSpec) -> Result<Cluster, CephError> {
        let lib = Library::get()?;
        let id = text(spec.id.as_deref().unwrap_or("admin"))?;
        let mut handle: RadosT = std::ptr::null_mut();
        // SAFETY: the handle is written before it is read; the name is a C string for the call.
        let code = unsafe { (lib.rados_create)(&raw mut handle, id.as_ptr()) };
        check(|| "starting a client of Ceph".to_owned(), code)?;
        let cluster = Cluster { lib, handle };
        let conf = spec.conf.clone().or_else(|| std::env::var_os("CEPH_CONF").map(Into::into));
        cluster.read_conf(conf.as_deref())?;
        if let Some(keyring) = &spec.keyring {
            cluster.set("keyring", &keyring.display().to_string())?;
        }
        for option in ["client_mount_timeout", "rados_mon_op_timeout", "rados_osd_op_timeout"] {
            cluster.set(option, PATIENCE)?;
        }
        // SAFETY: the handle is live.
        let code = unsafe { (lib.rados_connect)(cluster.handle) };
        check(
            || format!("connecting to the cluster as client.{}", spec.id.as_deref().unwrap_or("admin")),
            code,
        )?;
        Ok(cluster)
    }

    fn read_conf(&self, file: Option<&Path>) -> Result<(), CephError> {
        let path = file.map(|f| text(&f.display().to_string())).transpose()?;
        let raw = path.as_ref().map_or(null(), |p| p.as_ptr());
        // SAFETY: the handle is live; the path is a C string for the call, or null for the usual places.
        let code = unsafe { (self.lib.rados_conf_read_file)(self.handle, raw) };
        let what = || match file {
            Some(f) => format!("reading Ceph's configuration {}", f.display()),
            None => "reading Ceph's configuration, /etc/ceph/ceph.conf (set CEPH_CONF, or name another)"
                .to_owned(),
        };
        check(what, code).map(drop)
    }

    /// Sets an option of this client.
    ///
    /// # Errors
    /// Where Ceph does not know it, or refuses the value.
    pub fn set(&self, option: &str, value: &str) -> Result<(), CephError> {
        let (name, raw) = (text(option)?, text(value)?);
        // SAFETY: the handle is live; both are C strings for the call.
        let code = unsafe { (self.lib.rados_conf_set)(self.handle, name.as_ptr(), raw.as_ptr()) };
        check(|| format!("setting {option} to {value}"), code).map(drop)
    }

    /// The cluster's id.
    ///
    /// # Errors
    /// Where the connection is gone.
    pub fn fsid(&self) -> Result<String, CephError> {
        let mut buf = [0 as c_char; FSID];
        // SAFETY: the handle is live, and the buffer is as long as is said.
        let code = unsafe { (self.lib.rados_cluster_fsid)(self.handle, buf.as_mut_ptr(), buf.len()) };
        check(|| "asking for the cluster's id".to_owned(), code)?;
        Ok(string(&buf))
    }

    /// A pool, in a namespace of it.
    ///
    /// # Errors
    /// Where there is no such pool.
    pub fn pool(self: &Arc<Cluster>, name: &str, namespace: &str) -> Result<Pool, CephError> {
        let (raw, space) = (text(name)?, text(namespace)?);
        let mut io: IoCtxT = std::ptr::null_mut();
        // SAFETY: the handle is live; `io` is written before it is read.
        let code = unsafe { (self.lib.rados_ioctx_create)(self.handle, raw.as_ptr(), &raw mut io) };
        check(|| format!("opening pool {name} ('ceph osd pool ls' lists them)"), code)?;
        let pool = Pool { cluster: self.clone(), io };
        // SAFETY: the pool's handle is live; librados copies the name.
        unsafe { (self.lib.rados_ioctx_set_namespace)(io, space.as_ptr()) };
        Ok(pool)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // SAFETY: the handle is live, and pools hold the cluster, so that none is left.
        unsafe { (self.lib.rados_shutdown)(self.handle) };
    }
}

/// A pool of a cluster.
#[derive(Debug)]
pub struct Pool {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) io: IoCtxT,
}

// SAFETY: librados handles may be used from any thread.
unsafe impl Send for Pool {}

impl Pool {
    /// Its number.
    pub fn id(&self) -> i64 {
        // SAFETY: the handle is live.
        unsafe { (self.cluster.lib.rados_ioctx_get_id)(self.io) }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: the handle is live, and images hold the pool, so that none is left.
        unsafe { (self.cluster.lib.rados_ioctx_destroy)(self.io) };
    }
}

/// As a C string.
pub(crate) fn text(s: &str) -> Result<CString, CephError> {
    CString::new(s).map_err(|_| CephError::Named(format!("'{}' holds a zero byte", s.replace('\0', "\\0"))))
}

/// Up to the zero that ends a C string.
pub(crate) fn string(buf: &[c_char]) -> String {
    let bytes: Vec<u8> = buf.iter().take_while(|c| **c != 0).map(|c| *c as u8).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
