//! The mount itself, from the kernel's handshake to the unmount.

use super::attributes::FILE;
use super::counters::Counters;
use super::error::MountError;
use super::fs::VolumeFs;
use super::mountpoint::{Mounted, Mountpoint, detach, fusermount, mounted};
use crate::local::Volume;
use crate::nbd::Export;
use fuser::{BackgroundSession, Config, MountOption, SessionACL};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Threads that take requests from the kernel. They only decode and copy, so two keep a volume's thread busy.
const THREADS: usize = 2;
/// How long these threads may take to notice the unmount.
const ENDING: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(5);
/// In place of an offset: no pages are meant.
const ATTRIBUTES_ONLY: i64 = -1;

/// How a mount ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unmounted {
    /// Wholly.
    Gone,
    /// It is out of sight; who still has the file open gets errors from it.
    Busy,
}

/// A volume mounted as a file; dropping it unmounts.
pub struct Mount {
    path: PathBuf,
    /// How the kernel lists it, so that nobody else's mount is taken for it.
    listed: Option<Mounted>,
    session: Option<BackgroundSession>,
    size: Arc<AtomicU64>,
}

impl Mount {
    /// Mounts `volume` on `at`. Programs may come when this returns.
    ///
    /// # Errors
    /// Where the kernel refuses, or the folder is no longer fit.
    pub fn new(
        at: &Mountpoint,
        export: &Export,
        volume: Arc<dyn Volume>,
        counters: Arc<Counters>,
    ) -> Result<Mount, MountError> {
        let path = Mountpoint::claim(at.path())?.path().to_owned();
        let mut config = Config::default();
        config.mount_options =
            vec![MountOption::FSName(format!("loligo:{}", export.name)), MountOption::DefaultPermissions];
        // Root hands the file to other users by its owner and mode; others may not even try without the administrator's
        // leave in /etc/fuse.conf.
        config.acl = if rustix::process::geteuid().is_root() { SessionACL::All } else { SessionACL::Owner };
        config.n_threads = Some(THREADS);
        config.clone_fd = true;
        let fs = VolumeFs::new(export, volume, counters);
        let size = fs.shared_size();
        let session = fuser::spawn_mount(fs, &path, &config)
            .map_err(|why| MountError::Os { path: path.clone(), why })?;
        let listed = mounted(&path);
        Ok(Mount { path, listed, session: Some(session), size })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file has so many bytes from now on, which the volume has already.
    pub fn resize(&self, bytes: u64) {
        self.size.store(bytes, Ordering::Relaxed);
        if let Some(session) = &self.session
            && let Err(why) = session.notifier().inval_inode(FILE, ATTRIBUTES_ONLY, 0)
        {
            // It asks again by itself a second later.
            tracing::debug!(%why, "the kernel keeps the size of the file for a moment");
        }
    }

    /// Unmounts. What the volume has not answered yet should be answered before.
    ///
    /// # Errors
    /// Where the kernel does not let go.
    pub fn unmount(mut self) -> Result<Unmounted, String> {
        self.end()
    }

    fn end(&mut self) -> Result<Unmounted, String> {
        let Some(session) = self.session.take() else { return Ok(Unmounted::Gone) };
        let result = if self.listed.is_some() && mounted(&self.path) == self.listed {
            take_away(&self.path)
        } else {
            // Somebody was faster.
            Ok(Unmounted::Gone)
        };
        let deadline = Instant::now() + ENDING;
        while result == Ok(Unmounted::Gone) && !session.guard.is_finished() && Instant::now() < deadline {
            std::thread::sleep(PAUSE);
        }
        // Joining or dropping it would unmount once more, by the path alone: by now that may be somebody else's mount. Threads that
        // are left end with the last user of the file, or with this process, as all of this does.
        std::mem::forget(session);
        result
    }
}

fn take_away(path: &Path) -> Result<Unmounted, String> {
    match rustix::mount::unmount(path, UnmountFlags::empty()) {
        Ok(()) => Ok(Unmounted::Gone),
        Err(Errno::BUSY) => detach(path).map(|()| Unmounted::Busy),
        Err(Errno::PERM) if fusermount(path, &["-u"]).is_ok() => Ok(Unmounted::Gone),
        Err(Errno::PERM) => detach(path).map(|()| Unmounted::Busy),
        Err(e) => Err(e.to_string()),
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Err(why) = self.end() {
            tracing::warn!(path = %self.path.display(), %why, "cannot unmount");
        }
    }
}

impl fmt::Debug for Mount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mount({})", self.path.display())
    }
}
