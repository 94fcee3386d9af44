//! Facts that only a try can tell.

use super::parts;
use loligo_block::host_files::HostFiles;
use loligo_block::io_uring::IoUring;
use loligo_ceph::release::Release;
use loligo_client::api::daemon::About;
use loligo_client::client::DaemonClient;
use loligo_client::names;
use loligo_daemon::config::Config;
use loligo_daemon::daemon;
use loligo_volume::probe::{Found, probe};
use rustix::fs::{Access, FileType, Mode, OFlags, access, fstat, open, stat, statvfs};
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The time that the clock is watched for a jump.
const WATCHED: Duration = Duration::from_millis(200);
/// The time that a daemon may take to say who it is.
const PATIENCE: Duration = Duration::from_secs(2);

/// The attempt.
#[derive(Debug, Default)]
pub(super) struct Facts {
    pub(super) is_root: bool,
    /// The result of making a ring; an error's number and words.
    pub(super) ring: Option<Result<(), (i32, String)>>,
    /// Soft limit of locked memory, bytes, and of open files; nothing: none.
    pub(super) memlock: Option<u64>,
    pub(super) nofile: Option<u64>,
    pub(super) clock: Option<Clock>,
    /// Paths of the configuration.
    pub(super) paths: BTreeMap<PathBuf, Thing>,
    /// Folders that must be written to, and why they cannot be.
    pub(super) folders: BTreeMap<PathBuf, Option<String>>,
    /// The daemon's runtime and state folders.
    pub(super) runtime_dir: Option<PathBuf>,
    pub(super) state_dir: Option<PathBuf>,
    /// The loader's word on Ceph's libraries; nothing: not asked.
    pub(super) ceph: Option<Result<(), String>>,
    /// The release of those libraries, and of the host's OSDs; nothing: not asked.
    pub(super) ceph_client: Option<Result<Release, String>>,
    pub(super) ceph_osd: Option<Result<Release, String>>,
    /// The running daemon.
    pub(super) daemon: Option<About>,
}

/// The kernel's word on its clock.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Clock {
    pub(super) synchronised: bool,
    pub(super) max_error_us: i64,
    /// The distance that it went in that time beside the one that cannot be set, microseconds.
    pub(super) jump_us: i64,
}

/// The thing at a path.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Thing {
    pub(super) kind: Kind,
    /// Without links.
    pub(super) real: PathBuf,
    /// Bytes, and bytes that a file has blocks for.
    pub(super) size: u64,
    pub(super) allocated: u64,
    /// Bytes that its file system has left.
    pub(super) available: u64,
    /// True if it can be opened for direct I/O; nothing: it could not be opened at all.
    pub(super) direct: Option<bool>,
    /// Major and minor number of a device.
    pub(super) number: Option<(u32, u32)>,
    /// Loligo's own content on it.
    pub(super) found: Option<Found>,
}

/// Its kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Kind {
    #[default]
    Missing,
    File,
    Device,
    Other,
}

impl Facts {
    /// Tries everything.
    pub(super) fn gather(host: &HostFiles, config: &Config) -> Facts {
        let paths = parts(config).into_iter().map(|p| (p.path.clone(), thing(host, &p.path))).collect();
        let runtime_dir = names::runtime_dir().ok();
        let state_dir = daemon::state_dir(config).ok();
        let folders =
            [&runtime_dir, &state_dir].into_iter().flatten().map(|d| (d.clone(), unwritable(d))).collect();
        let needs_ceph = config.volumes.values().any(|v| v.core.starts_with("rbd:"));
        Facts {
            is_root: rustix::process::geteuid().is_root(),
            ring: Some(IoUring::new(2).map(drop).map_err(|e| (e.raw_os_error().unwrap_or(0), e.to_string()))),
            memlock: getrlimit(Resource::Memlock).current,
            nofile: getrlimit(Resource::Nofile).current,
            clock: clock(),
            paths,
            folders,
            runtime_dir,
            state_dir,
            ceph: needs_ceph.then(|| loligo_ceph::Library::get().map(drop).map_err(|e| e.to_string())),
            ceph_client: needs_ceph.then(Release::loaded),
            ceph_osd: has_osds(host).then(osd_release),
            daemon: DaemonClient::new().map(|d| d.within(PATIENCE)).and_then(|d| d.about()).ok(),
        }
    }
}

/// True if this host has OSDs.
fn has_osds(host: &HostFiles) -> bool {
    !host.names("/var/lib/ceph/osd").is_empty()
}

/// The release of its OSDs, which say `ceph version 18.2.7 (...) reef (stable)`.
fn osd_release() -> Result<Release, String> {
    let said = Command::new("ceph-osd").arg("--version").output().map_err(|e| format!("ceph-osd: {e}"))?;
    let said = String::from_utf8_lossy(&said.stdout);
    let version = said.split_whitespace().nth(2).unwrap_or_default();
    version.parse().map_err(|()| format!("ceph-osd says '{}'", said.trim()))
}

/// The thing at `path`. Nothing of it is changed or waited for.
fn thing(host: &HostFiles, path: &Path) -> Thing {
    let mut thing = Thing { real: path.to_owned(), ..Thing::default() };
    let nearest = path.ancestors().skip(1).find(|p| host.has(p)).unwrap_or(Path::new("/"));
    if let Ok(space) = statvfs(if path.exists() { path } else { nearest }) {
        thing.available = space.f_bavail.saturating_mul(space.f_frsize);
    }
    let Ok(seen) = stat(path) else { return thing };
    thing.real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    thing.kind = match FileType::from_raw_mode(seen.st_mode) {
        FileType::RegularFile => Kind::File,
        FileType::BlockDevice => Kind::Device,
        _ => Kind::Other,
    };
    thing.size = seen.st_size as u64;
    thing.allocated = seen.st_blocks as u64 * 512;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let reads = open(path, flags, Mode::empty()).ok().and_then(|f| fstat(f).ok()).is_some();
    if reads && matches!(thing.kind, Kind::File | Kind::Device) {
        thing.direct = Some(open(path, flags | OFlags::DIRECT, Mode::empty()).is_ok());
        thing.found = probe(path).ok();
    }
    if thing.kind == Kind::Device {
        let number = (rustix::fs::major(seen.st_rdev), rustix::fs::minor(seen.st_rdev));
        thing.number = Some(number);
        let sectors = host.number(format!("/sys/dev/block/{}:{}/size", number.0, number.1));
        thing.size = sectors.unwrap_or(0) * 512;
    }
    thing
}

/// The reason why nothing can be made in a folder, or in the nearest one above it that is there.
fn unwritable(dir: &Path) -> Option<String> {
    let nearest = dir.ancestors().find(|p| p.exists())?;
    let denied = access(nearest, Access::WRITE_OK | Access::EXEC_OK).err()?;
    Some(format!("{}: {denied}", nearest.display()))
}

fn clock() -> Option<Clock> {
    let micros = |id| {
        let t = clock_gettime(id);
        t.tv_sec.saturating_mul(1_000_000).saturating_add(t.tv_nsec / 1000)
    };
    let (wall, steady) = (micros(ClockId::Realtime), micros(ClockId::Monotonic));
    std::thread::sleep(WATCHED);
    let jump_us = (micros(ClockId::Realtime) - wall) - (micros(ClockId::Monotonic) - steady);
    let (state, max_error_us) = kernel_clock()?;
    Some(Clock { synchronised: state, max_error_us, jump_us })
}

/// The state of the kernel's clock: true if somebody keeps it right, and how wrong it may be, microseconds.
fn kernel_clock() -> Option<(bool, i64)> {
    // SAFETY: the structure is plain numbers, for which zeros are values; with no mode set, nothing is changed.
    let (state, asked) = unsafe {
        let mut asked: libc::timex = std::mem::zeroed();
        (libc::adjtimex(&mut asked), asked)
    };
    (state >= 0)
        .then_some((state != libc::TIME_ERROR && asked.status & libc::STA_UNSYNC == 0, asked.maxerror))
}
