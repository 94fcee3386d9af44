//! The reason why there is no mount, and what helps.

use std::io;
use std::path::PathBuf;

/// The reason why a volume cannot be mounted.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The kernel offers no FUSE.
    #[error(
        "cannot mount: /dev/fuse is missing. Load the kernel's module (modprobe fuse), or give the container the device"
    )]
    NoDevice,
    /// The kernel offers it to others.
    #[error(
        "cannot mount: /dev/fuse cannot be opened: {0}. Run as root, or let this user read and write /dev/fuse"
    )]
    Denied(io::Error),
    /// No folder.
    #[error("cannot mount on {}: {why}. Make an empty folder for the mount: mkdir -p {}", .path.display(), .path.display())]
    NoFolder {
        /// Its place.
        path: PathBuf,
        /// The finding.
        why: String,
    },
    /// It would hide something.
    #[error("cannot mount on {}: the folder is not empty, and what lies in it would be hidden. Give an empty one", .0.display())]
    NotEmpty(PathBuf),
    /// Somebody is mounted there.
    #[error(
        "cannot mount on {}: it is in use, '{source_name}' is mounted there. Stop what serves it or unmount it, or choose \
         another folder",
        .path.display()
    )]
    InUse {
        /// Its place.
        path: PathBuf,
        /// The mount's own name.
        source_name: String,
    },
    /// The remains of a killed process cannot be removed.
    #[error(
        "cannot mount on {}: the mount of a process that is gone is still there: {why}. Remove it as root: umount -l {}",
        .path.display(), .path.display()
    )]
    Dead {
        /// Its place.
        path: PathBuf,
        /// The reason why it stays.
        why: String,
    },
    /// The kernel refused.
    #[error(
        "cannot mount on {}: {why}. Run as root, or install what mounts for other users (apt-get install fuse3)",
        .path.display()
    )]
    Os {
        /// Its place.
        path: PathBuf,
        /// The kernel's reason, or fusermount3's.
        why: io::Error,
    },
}
