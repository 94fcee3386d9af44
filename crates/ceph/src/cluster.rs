//! A connection to a cluster, and a pool of it.

use crate::CephError;
use crate::bug::{Step, is_left_out};
use crate::error::check;
use crate::fence::{self, Fence};
use crate::ffi::{IoCtxT, Library, RadosT};
use crate::spec::ImageSpec;
use std::ffi::{CStr, CString, c_char};
use std::path::Path;
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::time::Duration;

/// Bytes of a cluster's id with its ending zero.
const FSID: usize = 37;
/// Seconds after which a monitor or OSD that does not answer makes an inspection fail.
const PATIENCE: &str = "15";
/// The same while an OSD measures itself: thousands of writes to a slow disk, and files of 400 MiB before them.
const PATIENCE_WITH_BENCHMARKS: &str = "180";
/// Seconds for which the cluster refuses an instance that was fenced: longer than any host may sleep and come back.
const FENCED: u32 = 864_000;
/// The same for a client of our own that is about to end: longer than its end takes.
const ENDING: u32 = 3600;
/// The time that a client may send before anybody has said that its image is ours: until then its cache is
/// being opened.
const OPENING: Duration = Duration::from_secs(600);

/// A monitor whose host dies closes no connection: without these a client stays with it for 30 s.
const HURRY: [(&str, &str); 6] = [
    // A question that no majority of monitors answers fails after so many seconds.
    ("rados_mon_op_timeout", "2"),
    ("mon_client_ping_interval", "0.3"),
    ("mon_client_ping_timeout", "0.9"),
    ("mon_client_hunt_interval", "0.5"),
    ("mon_client_hunt_interval_max_multiple", "2"),
    ("mon_client_hunt_parallel", "3"),
];

/// An OSD whose host died closes no connection, and only another OSD or the monitors tell that it is elsewhere by now. A client asks
/// them for a newer map if something was not answered for so many seconds; Ceph's 10 s are longer than a takeover.
const MAP_AFTER: [(&str, &str); 2] = [("objecter_timeout", "0.5"), ("objecter_tick_interval", "0.5")];

/// Beyond these librados makes whoever submits wait.
const IN_FLIGHT_BYTES: &str = "4294967296";
const IN_FLIGHT_OPS: &str = "1048576";

/// The option by which a client that takes an image has its owner refused. Others go by it as well, so that a
/// client that looks sees what they see.
const BREAKS: &str = "rbd_blocklist_on_break_lock";

/// Options that a core needs as stated, whatever a file or the cluster's own configuration say (`ceph config set client ...`):
/// what a client sets for itself goes before both.
const NEEDED: [(&str, &str); 6] = [
    // Otherwise librbd answers before the OSDs have a write.
    ("rbd_cache", "false"),
    ("rbd_persistent_cache_mode", "disabled"),
    ("rbd_plugins", ""),
    // Otherwise reads of a clone's parent come from another daemon's cache.
    ("rbd_parent_cache_enabled", "false"),
    // Otherwise the thread that serves clients carries operations out itself.
    ("rbd_non_blocking_aio", "true"),
    // Otherwise whoever had the image goes on writing.
    (BREAKS, "true"),
];

/// Seconds after which OSDs forget a client that says nothing, where nobody has set it.
pub(crate) const WATCH: u64 = 30;
/// The option that says it.
const WATCH_TIMEOUT: &str = "osd_client_watch_timeout";
/// Bytes of an option's value that are looked at.
const VALUE: usize = 256;

/// The use of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To look: it gives up where nobody answers.
    Look,
    /// The same, and to have OSDs measure themselves, which takes minutes.
    Measure,
    /// To ask and tell the monitors: it goes to another where one says nothing, within about a second.
    Ask,
    /// To read and write as any client does: it waits as long as it takes, and nothing keeps it from sending.
    Use,
    /// To be the owner of an image: what is under way waits for OSDs as long as it takes. Before a snapshot its owner has so
    /// many times 5 s to get ready.
    Own {
        /// Attempts of 5 s.
        quiesce_attempts: u32,
    },
}

impl Purpose {
    /// It owns and writes nothing of an image.
    fn is_to_look(self) -> bool {
        matches!(self, Purpose::Look | Purpose::Measure)
    }
}

/// One client instance of a cluster. Fencing hits the whole instance, so each image that is written gets its own.
#[derive(Debug)]
pub struct Cluster {
    pub(crate) lib: &'static Library,
    pub(crate) handle: RadosT,
    /// Declared after the handle's users: its timers go after the threads that they are for. A client that only looks has none.
    fence: Option<Fence>,
}

// SAFETY: librados handles may be used from any thread, and from several at once.
unsafe impl Send for Cluster {}
// SAFETY: as above.
unsafe impl Sync for Cluster {}

impl Cluster {
    /// Connects as `spec` says.
    ///
    /// # Errors
    /// If Ceph's libraries are missing, the configuration cannot be read, or the cluster refuses the client.
    pub fn connect(spec: &ImageSpec, purpose: Purpose) -> Result<Cluster, CephError> {
        let lib = Library::get()?;
        let id = text(spec.id.as_deref().unwrap_or("admin"))?;
        let mut handle: RadosT = std::ptr::null_mut();
        // SAFETY: the handle is written before it is read; the name is a C string for the call.
        let code = unsafe { (lib.rados_create)(&raw mut handle, id.as_ptr()) };
        check(|| "starting a client of Ceph".to_owned(), code)?;
        let mut cluster = Cluster { lib, handle, fence: None };
        let conf = spec.conf.clone().or_else(|| std::env::var_os("CEPH_CONF").map(Into::into));
        cluster.read_conf(conf.as_deref())?;
        if let Some(keyring) = &spec.keyring {
            cluster.set("keyring", &keyring.display().to_string())?;
        }
        for (option, value) in NEEDED.into_iter().filter(|(o, _)| *o != BREAKS || !purpose.is_to_look()) {
            match cluster.set(option, value) {
                // A release that does not know it does not do it.
                Err(e) if e.errno() == Some(libc::ENOENT) => {}
                done => done?,
            }
        }
        cluster.set("client_mount_timeout", PATIENCE)?;
        match purpose {
            Purpose::Look | Purpose::Measure => {
                for (option, value) in MAP_AFTER {
                    cluster.set(option, value)?;
                }
                cluster.set("rados_mon_op_timeout", PATIENCE)?;
                let is_look = purpose == Purpose::Look;
                let of_osds = if is_look { PATIENCE } else { PATIENCE_WITH_BENCHMARKS };
                cluster.set("rados_osd_op_timeout", of_osds)?;
            }
            Purpose::Ask => {
                for (option, value) in HURRY {
                    cluster.set(option, value)?;
                }
            }
            Purpose::Use => {
                cluster.set("rados_osd_op_timeout", "0")?;
                cluster.set("objecter_inflight_op_bytes", IN_FLIGHT_BYTES)?;
                cluster.set("objecter_inflight_ops", IN_FLIGHT_OPS)?;
            }
            Purpose::Own { quiesce_attempts } => {
                // What a client gives up may be carried out all the same, after what it sent later.
                cluster.set("rados_osd_op_timeout", "0")?;
                // What is under way is bounded by who asks for it; a thread that serves clients must never wait here.
                cluster.set("objecter_inflight_op_bytes", IN_FLIGHT_BYTES)?;
                cluster.set("objecter_inflight_ops", IN_FLIGHT_OPS)?;
                // Its threads are those that the fence knows.
                cluster.set("ms_type", "async+posix")?;
                // OSDs hear of its watches as often: a watch outlives the lease, however short OSDs' memory is.
                for (option, value) in MAP_AFTER {
                    cluster.set(option, value)?;
                }
                // What was fenced and is open again has the lease's time to be heard.
                cluster.set("ms_max_backoff", "2")?;
                if is_left_out(Step::Fence) {
                    cluster.set("rbd_blocklist_on_break_lock", "false")?;
                }
                cluster.set("rbd_quiesce_notification_attempts", &quiesce_attempts.to_string())?;
            }
        }
        // SAFETY: the handle is live.
        let connect = || unsafe { (lib.rados_connect)(cluster.handle) };
        let code = match purpose {
            Purpose::Look | Purpose::Measure | Purpose::Ask | Purpose::Use => fence::unfenced(connect),
            Purpose::Own { .. } if is_left_out(Step::Silence) => fence::unfenced(connect),
            Purpose::Own { .. } => {
                let (code, fence) = Fence::around(connect, OPENING).map_err(|why| unfenceable(&why))?;
                if code >= 0 && !fence.found_any() {
                    return Err(unfenceable("no thread of librados was found that sends"));
                }
                cluster.fence = Some(fence);
                code
            }
        };
        if code < 0 {
            return Err(refused(spec, code));
        }
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
    /// If Ceph does not know it, or refuses the value.
    pub fn set(&self, option: &str, value: &str) -> Result<(), CephError> {
        let (name, raw) = (text(option)?, text(value)?);
        // SAFETY: the handle is live; both are C strings for the call.
        let code = unsafe { (self.lib.rados_conf_set)(self.handle, name.as_ptr(), raw.as_ptr()) };
        check(|| format!("setting {option} to {value}"), code).map(drop)
    }

    /// The value of an option of this client, from wherever it has it.
    ///
    /// # Errors
    /// If Ceph does not know it.
    pub(crate) fn option(&self, option: &str) -> Result<String, CephError> {
        let name = text(option)?;
        let mut buf = [0 as c_char; VALUE];
        // SAFETY: the handle is live, the name a C string for the call, and the buffer as long as is said.
        let code =
            unsafe { (self.lib.rados_conf_get)(self.handle, name.as_ptr(), buf.as_mut_ptr(), buf.len()) };
        check(|| format!("asking for the option {option}"), code)?;
        Ok(string(&buf))
    }

    /// Seconds after which OSDs forget a client that says nothing: the shorter of what the monitors say of OSDs, where this client
    /// may ask, and what they say to this client.
    pub(crate) fn watch_timeout(&self) -> u64 {
        let command = format!(r#"{{"prefix":"config get","who":"osd.0","key":"{WATCH_TIMEOUT}"}}"#);
        let said = [self.ask_monitor(&command), self.option(WATCH_TIMEOUT)];
        let seconds = |s: String| s.trim().parse::<f64>().ok().map(|n| n as u64);
        said.into_iter().filter_map(|s| s.ok().and_then(seconds)).min().unwrap_or(WATCH)
    }

    /// The cluster's id.
    ///
    /// # Errors
    /// If the connection is gone.
    pub fn fsid(&self) -> Result<String, CephError> {
        let mut buf = [0 as c_char; FSID];
        // SAFETY: the handle is live, and the buffer is as long as is said.
        let code = unsafe { (self.lib.rados_cluster_fsid)(self.handle, buf.as_mut_ptr(), buf.len()) };
        check(|| "asking for the cluster's id".to_owned(), code)?;
        Ok(string(&buf))
    }

    /// The handle, for calls of the library.
    pub(crate) fn raw(&self) -> RadosT {
        self.handle
    }

    /// The number of this client: it is `client.NUMBER` to others.
    pub(crate) fn instance(&self) -> i64 {
        // SAFETY: the handle is live.
        unsafe { (self.lib.rados_get_instance_id)(self.handle) as i64 }
    }

    /// Somebody has said that what this client owns is still its: it may send until `until`, nanoseconds since boot.
    pub(crate) fn may_send_until(&self, until: u64) {
        if let Some(fence) = &self.fence {
            fence.extend(until);
        }
    }

    /// True if this client may send: somebody has said lately that what it owns is still its.
    pub(crate) fn may_send(&self) -> bool {
        self.fence.as_ref().is_none_or(Fence::is_open)
    }

    /// This client never sends again.
    pub(crate) fn silence(&self) {
        if let Some(fence) = &self.fence {
            fence.shut();
        }
    }

    /// Has every OSD refuse the client at `address` (`ip:port/nonce`) from now on: what it still sends is not carried out.
    ///
    /// # Errors
    /// If the monitors cannot be reached, or the client may not do that (`profile rbd` may).
    pub fn fence(&self, address: &str) -> Result<(), CephError> {
        if is_left_out(Step::Fence) {
            return Ok(());
        }
        self.blocklist(address, FENCED)
    }

    /// Has every OSD refuse this client itself, at `address`, so that its end changes nothing.
    ///
    /// # Errors
    /// As [`Cluster::fence`].
    pub(crate) fn fence_itself(&self, address: &str) -> Result<(), CephError> {
        self.blocklist(address, ENDING)
    }

    fn blocklist(&self, address: &str, seconds: u32) -> Result<(), CephError> {
        let raw = text(address)?;
        // SAFETY: the handle is live; the address is a C string for the call, which does not change it.
        let code = unsafe { (self.lib.rados_blocklist_add)(self.handle, raw.as_ptr().cast_mut(), seconds) };
        check(|| format!("fencing the client at {address}"), code)?;
        // From here on whatever this client sends tells the OSDs of it first.
        // SAFETY: the handle is live.
        let code = unsafe { (self.lib.rados_wait_for_latest_osdmap)(self.handle) };
        check(|| "waiting for the map that fences".to_owned(), code).map(drop)
    }

    /// A pool by its number, in a namespace of it.
    ///
    /// # Errors
    /// If there is no such pool.
    pub fn pool_number(self: &Arc<Cluster>, id: i64, namespace: &str) -> Result<Pool, CephError> {
        let space = text(namespace)?;
        let mut io: IoCtxT = std::ptr::null_mut();
        // SAFETY: the handle is live; `io` is written before it is read.
        let code = unsafe { (self.lib.rados_ioctx_create2)(self.handle, id, &raw mut io) };
        check(|| format!("opening pool number {id}"), code)?;
        Ok(Pool::opened(self, io, &space))
    }

    /// A pool, in a namespace of it.
    ///
    /// # Errors
    /// If there is no such pool.
    pub fn pool(self: &Arc<Cluster>, name: &str, namespace: &str) -> Result<Pool, CephError> {
        let (raw, space) = (text(name)?, text(namespace)?);
        let mut io: IoCtxT = std::ptr::null_mut();
        // SAFETY: the handle is live; `io` is written before it is read.
        let code = unsafe { (self.lib.rados_ioctx_create)(self.handle, raw.as_ptr(), &raw mut io) };
        check(|| format!("opening pool {name} ('ceph osd pool ls' lists them)"), code)?;
        Ok(Pool::opened(self, io, &space))
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

// SAFETY: librados handles may be used from any thread, and from several at once.
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

impl Pool {
    /// Of a handle just made, which is given back with it.
    fn opened(cluster: &Arc<Cluster>, io: IoCtxT, namespace: &CStr) -> Pool {
        // SAFETY: the handle is live; librados copies the name.
        unsafe { (cluster.lib.rados_ioctx_set_namespace)(io, namespace.as_ptr()) };
        Pool { cluster: cluster.clone(), io }
    }

    /// Its number.
    pub fn id(&self) -> i64 {
        // SAFETY: the handle is live.
        unsafe { (self.cluster.lib.rados_ioctx_get_id)(self.io) }
    }

    /// Has an OSD carry out a write to an object that changes nothing. A pool that is full holds whoever opens an image to write
    /// it, for as long as it takes; a client that only looks gives up.
    ///
    /// # Errors
    /// If no write is taken.
    pub(crate) fn takes_writes(&self, object: &str) -> Result<(), CephError> {
        let (oid, lib) = (text(object)?, self.cluster.lib);
        // SAFETY: the operation is made, carried out and given back here; the pool's handle is live.
        let code = unsafe {
            let op = (lib.rados_create_write_op)();
            (lib.rados_write_op_assert_exists)(op);
            let code = (lib.rados_write_op_operate)(op, self.io, oid.as_ptr(), null_mut(), 0);
            (lib.rados_release_write_op)(op);
            code
        };
        if code == -libc::ETIMEDOUT {
            return Err(CephError::Call {
                what: "waiting for the image's pool to take a write".to_owned(),
                errno: libc::ETIMEDOUT,
                text: "it is full, or OSDs are down: 'ceph health detail' says which".to_owned(),
            });
        }
        check(|| "writing to the image's header".to_owned(), code).map(drop)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: the handle is live, and images hold the pool, so that none is left.
        unsafe { (self.cluster.lib.rados_ioctx_destroy)(self.io) };
    }
}

/// The reason why an image is not taken on a host whose late writes could reach it.
fn unfenceable(why: &str) -> CephError {
    CephError::named(format!(
        "nothing would keep this client's writes from going out after another took the image over: {why}. RBD cores need \
         timers on CLOCK_BOOTTIME and seccomp filters (CONFIG_SECCOMP_FILTER): see that no sandbox forbids prctl(PR_SET_SECCOMP)"
    ))
}

/// As a C string.
pub(crate) fn text(s: &str) -> Result<CString, CephError> {
    CString::new(s).map_err(|_| CephError::named(format!("'{}' holds a zero byte", s.replace('\0', "\\0"))))
}

/// Up to the zero that ends a C string.
pub(crate) fn string(buf: &[c_char]) -> String {
    let bytes: Vec<u8> = buf.iter().take_while(|c| **c != 0).map(|c| *c as u8).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The reason why a cluster did not let a client in, and the mend: librados says it with numbers that mean
/// something else elsewhere.
fn refused(spec: &ImageSpec, code: i32) -> CephError {
    let id = spec.id.as_deref().unwrap_or("admin");
    let keyring = match &spec.keyring {
        Some(path) => format!("{}", path.display()),
        None => "the keyring that the configuration names".to_owned(),
    };
    let mend = match -code {
        libc::ENOENT => format!(
            "no key was found: {keyring} is not there or has none for client.{id}; name it with '?id=NAME&keyring=FILE'"
        ),
        libc::EIO | libc::EACCES | libc::EPERM | libc::EINVAL => {
            format!("its key was refused: compare {keyring} with 'ceph auth get client.{id}'")
        }
        _ => return CephError::call(format!("connecting to the cluster as client.{id}"), code),
    };
    CephError::Call { what: format!("connecting to the cluster as client.{id}"), errno: -code, text: mend }
}
