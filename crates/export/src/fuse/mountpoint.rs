//! Folders that something can be mounted on, and what the kernel says is mounted there already.

use super::error::MountError;
use rustix::fs::statfs;
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
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
    /// Where something cannot be mounted there, with the mend.
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

/// A line of the kernel's list of mounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mounted {
    /// The file system's own number.
    device: String,
    /// Its type.
    kind: String,
    /// Its own name.
    source: String,
}

/// The mount on `path`, on top of everything else there.
pub(super) fn mounted(path: &Path) -> Option<Mounted> {
    let all = std::fs::read("/proc/self/mountinfo").ok()?;
    parse(&all, path)
}

fn parse(all: &[u8], path: &Path) -> Option<Mounted> {
    let mut lines = all.split(|b| *b == b'\n').filter_map(|line| {
        let mut words = line.split(|b| *b == b' ');
        let device = words.nth(2)?;
        let target = words.nth(1)?;
        // Some optional fields, closed by a dash, precede these two.
        let mut rest = words.skip_while(|w| *w != b"-").skip(1);
        let (kind, source) = (rest.next()?, rest.next()?);
        let text = |raw: &[u8]| String::from_utf8_lossy(&unescaped(raw)).into_owned();
        let same = unescaped(target) == path.as_os_str().as_bytes();
        same.then(|| Mounted { device: text(device), kind: text(kind), source: text(source) })
    });
    lines.next_back()
}

/// The kernel writes blanks and the like as three octal digits after a backslash.
fn unescaped(raw: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(raw.len());
    let mut at = 0;
    while at < raw.len() {
        let digits = raw.get(at + 1..at + 4).and_then(|d| std::str::from_utf8(d).ok());
        match digits.and_then(|d| u8::from_str_radix(d, 8).ok()).filter(|_| raw[at] == b'\\') {
            Some(byte) => {
                out.push(byte);
                at += 4;
            }
            None => {
                out.push(raw[at]);
                at += 1;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_topmost_mount_of_a_folder_is_found_also_under_odd_names() {
        let list = b"22 1 254:0 / / rw shared:1 - ext4 /dev/root rw\n\
            31 22 0:45 / /mnt/a\\040b rw,nosuid shared:7 master:2 - fuse loligo:vol rw,user_id=0\n\
            32 31 0:46 / /mnt/a\\040b rw - tmpfs none rw\n";
        let at = |path: &str| parse(list, Path::new(path));
        let top = at("/mnt/a b").expect("mounted");
        assert_eq!((&top.device[..], &top.kind[..], &top.source[..]), ("0:46", "tmpfs", "none"));
        assert_eq!(at("/").expect("the root").source, "/dev/root");
        assert_eq!(at("/mnt"), None);
    }

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
