//! The mount itself, from the kernel's handshake to the unmount.

use super::attributes::FILE;
use super::counters::Counters;
use super::device::FuseDevice;
use super::error::MountError;
use super::mountpoint::{self, Mountpoint, detach, fusermount, mounted};
use super::session::Session;
use super::wire::{InvalInodeOut, NOTIFY_INVAL_INODE};
use crate::nbd::Export;
use loligo_block::mounts;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use std::ffi::CString;
use std::fmt;
use std::io::{Error, ErrorKind, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use zerocopy::IntoBytes;

/// In place of an offset: no pages are meant.
const ATTRIBUTES_ONLY: i64 = -1;

/// The end of a mount.
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
    /// The kernel's entry for it, so that nobody else's mount is taken for it.
    listed: Option<mounts::Mount>,
    /// The session's alone to keep: with it goes whoever still waits.
    device: Weak<FuseDevice>,
    size: Arc<AtomicU64>,
    over: bool,
}

impl Mount {
    /// Mounts a volume on `at`. Requests of programs arrive at the session, which `serve` gives to whoever
    /// carries it out; it must not wait for a request of the mount.
    ///
    /// # Errors
    /// If the kernel refuses, or the folder is no longer fit.
    pub fn new(
        at: &Mountpoint,
        export: &Export,
        counters: Arc<Counters>,
        serve: impl FnOnce(Session),
    ) -> Result<Mount, MountError> {
        let path = Mountpoint::claim(at.path())?.path().to_owned();
        let failed = |why: Error| MountError::Os { path: path.clone(), why };
        let name = format!("loligo:{}", export.name);
        let fd = match by_kernel(&path, &name) {
            Err(MountError::Os { why, .. }) if why.kind() == ErrorKind::PermissionDenied => {
                by_helper(&path, &name).map_err(failed)
            }
            other => other,
        }?;
        let listed = mounted(&path);
        let greeted = FuseDevice::open(fd).map_err(|why| failed(why.into()));
        let mut mount =
            Mount { path: path.clone(), listed, device: Weak::new(), size: Arc::default(), over: false };
        let device = Arc::new(greeted?);
        mount.device = Arc::downgrade(&device);
        let session = Session::new(device, export, counters);
        mount.size = session.attributes.shared_size();
        serve(session);
        Ok(mount)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file has so many bytes from now on, which the volume has already.
    pub fn resize(&self, bytes: u64) {
        self.size.store(bytes, Ordering::Relaxed);
        let Some(device) = self.device.upgrade() else { return };
        let file = InvalInodeOut { node: FILE, offset: ATTRIBUTES_ONLY, len: 0 };
        if let Err(why) = device.notify(NOTIFY_INVAL_INODE, file.as_bytes()) {
            // It asks again by itself a second later.
            tracing::debug!(%why, "the kernel keeps the size of the file for a moment");
        }
    }

    /// Unmounts. Requests that the volume has not answered yet should be answered before.
    ///
    /// # Errors
    /// If the kernel does not let go.
    pub fn unmount(mut self) -> Result<Unmounted, String> {
        self.end()
    }

    fn end(&mut self) -> Result<Unmounted, String> {
        if std::mem::replace(&mut self.over, true) {
            return Ok(Unmounted::Gone);
        }
        if self.listed.is_some() && mounted(&self.path) == self.listed {
            take_away(&self.path)
        } else {
            // Somebody was faster.
            Ok(Unmounted::Gone)
        }
    }
}

/// Mounts as root may.
fn by_kernel(path: &Path, name: &str) -> Result<OwnedFd, MountError> {
    let device = mountpoint::device()?;
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    // Root hands the file to other users by its owner and mode.
    let others = if uid == 0 { ",allow_other" } else { "" };
    let data = format!(
        "fd={},rootmode=40000,user_id={uid},group_id={gid},default_permissions{others}",
        device.as_raw_fd()
    );
    let data = CString::new(data).map_err(|e| MountError::Os { path: path.to_owned(), why: e.into() })?;
    rustix::mount::mount(name, path, "fuse", MountFlags::NOSUID | MountFlags::NODEV, data.as_c_str())
        .map_err(|e| MountError::Os { path: path.to_owned(), why: e.into() })?;
    Ok(device.into())
}

/// Has the system's helper mount for a user who may not. It hands the descriptor over through a socket, which it knows by a number in
/// its environment. Others may not even try without the administrator's leave in /etc/fuse.conf.
fn by_helper(path: &Path, name: &str) -> Result<OwnedFd, Error> {
    let (ours, theirs) = UnixStream::pair()?;
    let out = Command::new("fusermount3")
        .args(["-o", &format!("fsname={name},default_permissions"), "--"])
        .arg(path)
        .env("_FUSE_COMMFD", "0")
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .output()?;
    if !out.status.success() {
        let said = String::from_utf8_lossy(&out.stderr).trim().replace('\n', " / ");
        return Err(Error::new(ErrorKind::PermissionDenied, said));
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0; 1];
    recvmsg(ours.as_fd(), &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let fds = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    fds.ok_or_else(|| Error::other("fusermount3 mounted it and gave no descriptor"))
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
