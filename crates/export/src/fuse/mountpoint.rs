//! Folders that something can be mounted on, and what the kernel says is mounted there already.

use super::error::MountError;
use loligo_block::mounts::{self, Mount};
use rustix::fs::statfs;
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The kernel's device.
const DEVICE: &str = "/dev/fuse";
/// Dead mounts removed from one folder; more lie there only if somebody piles them up on purpose.
const MOST_DEAD: usize = 16;

/// An empty folder that nothing is mounted on.
#[derive(Debug)]
pub struct Mountpoint {
    /// Without links, so that it is the name the kernel knows it by.
    path: PathBuf,
}

impl Mountpoint {
    /// Looks at `path`. The mount of a process that is gone is removed, as a socket that nobody listens on is.
    ///
    /// # Errors
    /// If something cannot be mounted there, with the mend.
    pub fn claim(path: &Path) -> Result<Mountpoint, MountError> {
        device()?;
        for _ in 0..MOST_DEAD {
            match statfs(path) {
                Ok(_) => return living(path),
                Err(Errno::NOTCONN | Errno::CONNABORTED) => {
                    tracing::warn!(path = %path.display(), "the mount of a process that is gone is removed");
                    detach(path).map_err(|why| MountError::Dead { path: path.to_owned(), why })?;
                }
                Err(e) => return Err(no_folder(path, e.into())),
            }
        }
        Err(MountError::Dead { path: path.to_owned(), why: "there are many of them".to_owned() })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Takes away the dead mount of a volume on `path`, and the folder with it if it is empty then; leaves anything else.
pub(crate) fn clear_dead(path: &Path) -> Result<(), MountError> {
    for _ in 0..MOST_DEAD {
        let dead = matches!(statfs(path), Err(Errno::NOTCONN | Errno::CONNABORTED));
        if !dead || !mounted(path).is_some_and(|m| m.source.starts_with("loligo:")) {
            break;
        }
        detach(path).map_err(|why| MountError::Dead { path: path.to_owned(), why })?;
    }
    let _ = std::fs::remove_dir(path);
    Ok(())
}

fn no_folder(path: &Path, why: std::io::Error) -> MountError {
    let why = match why.kind() {
        ErrorKind::NotFound => "it does not exist".to_owned(),
        _ => why.to_string(),
    };
    MountError::NoFolder { path: path.to_owned(), why }
}

pub(super) fn device() -> Result<File, MountError> {
    OpenOptions::new().read(true).write(true).open(DEVICE).map_err(|e| match e.kind() {
        ErrorKind::NotFound => MountError::NoDevice,
        // The node is there, what it stands for is not.
        _ if matches!(Errno::from_io_error(&e), Some(Errno::NODEV | Errno::NXIO)) => MountError::NoDevice,
        _ => MountError::Denied(e),
    })
}

/// Claims `path`, which answers, if it is a folder, empty and nobody's mount.
fn living(path: &Path) -> Result<Mountpoint, MountError> {
    let no = |e| no_folder(path, e);
    if !std::fs::metadata(path).map_err(no)?.is_dir() {
        return Err(MountError::NoFolder { path: path.to_owned(), why: "it is not a folder".to_owned() });
    }
    let real = path.canonicalize().map_err(no)?;
    // Only those of FUSE: on the root of an empty disk one may well mount.
    if let Some(there) = mounted(&real).filter(|m| m.kind.starts_with("fuse")) {
        return Err(MountError::InUse { path: real, source_name: there.source });
    }
    if std::fs::read_dir(&real).map_err(no)?.next().is_some() {
        return Err(MountError::NotEmpty(real));
    }
    Ok(Mountpoint { path: real })
}

/// Takes a mount out of sight; the kernel lets it go when nobody uses it any more.
pub(super) fn detach(path: &Path) -> Result<(), String> {
    match rustix::mount::unmount(path, UnmountFlags::DETACH) {
        Err(Errno::PERM) => fusermount(path, &["-u", "-z"]),
        other => other.map_err(|e| e.to_string()),
    }
}

/// Has the system's helper unmount what this user may not.
pub(super) fn fusermount(path: &Path, how: &[&str]) -> Result<(), String> {
    let out = Command::new("fusermount3").args(how).arg("--").arg(path).stdin(Stdio::null()).output();
    match out {
        Ok(out) if out.status.success() => Ok(()),
        Ok(out) => Err(String::from_utf8_lossy(&out.stderr).trim().replace('\n', " / ")),
        Err(e) => Err(format!("fusermount3: {e}")),
    }
}

/// The mount on `path`, on top of everything else there.
pub(super) fn mounted(path: &Path) -> Option<Mount> {
    mounts::on(&mounts::all().ok()?, path).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_mounted_on_is_refused_with_the_mend() {
        if device().is_err() {
            return println!("SKIP: mountpoints: /dev/fuse cannot be opened");
        }
        let dir = tempfile::tempdir().unwrap();
        let refused = |path: &Path| Mountpoint::claim(path).unwrap_err().to_string();
        let (missing, file) = (dir.path().join("missing"), dir.path().join("file"));
        assert!(refused(&missing).contains("mkdir -p"), "{}", refused(&missing));
        std::fs::write(&file, "x").unwrap();
        assert!(refused(&file).contains("not a folder"), "{}", refused(&file));
        assert!(refused(dir.path()).contains("not empty"), "{}", refused(dir.path()));
        std::fs::remove_file(&file).unwrap();
        let fit = Mountpoint::claim(dir.path()).unwrap();
        assert_eq!(fit.path(), dir.path().canonicalize().unwrap());
    }
}
