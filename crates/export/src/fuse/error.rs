//! Why there is no mount, and what helps.

use std::io;
use std::path::PathBuf;

/// Why a volume cannot be mounted.
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
        /// Where.
        path: PathBuf,
        /// What was found.
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
        /// Where.
        path: PathBuf,
        /// What the mount calls itself.
        source_name: String,
    },
    /// What a killed process left cannot be removed.
    #[error(
        "cannot mount on {}: the mount of a process that is gone is still there: {why}. Remove it as root: umount -l {}",
        .path.display(), .path.display()
    )]
    Dead {
        /// Where.
        path: PathBuf,
        /// Why it stays.
        why: String,
    },
    /// The kernel refused.
    #[error(
        "cannot mount on {}: {why}. Run as root, or install what mounts for other users (apt-get install fuse3)",
        .path.display()
    )]
    Os {
        /// Where.
        path: PathBuf,
        /// The kernel's reason, or fusermount3's.
        why: io::Error,
    },
}
