//! The reason why there is no block device, and what helps.

use crate::fuse::MountError;
use loligo_block::keys::DEV_NAME;
use rustix::io::Errno;
use std::io;
use std::path::PathBuf;

/// The reason why a volume cannot be a block device.
#[derive(Debug, thiserror::Error)]
pub enum BlockError {
    /// Only root makes loop devices.
    #[error("cannot make a block device: this takes root. Start as root, or use fuse:MOUNTPOINT for a file")]
    NotRoot,
    /// The kernel has no loop driver.
    #[error(
        "cannot make a block device: /dev/loop-control cannot be opened: {0}. Load the kernel's module (modprobe loop), or \
         give the container the device"
    )]
    NoDriver(io::Error),
    /// Another process has the name.
    #[error(
        "/dev/loligo/{name} is in use: {who} serves it. Stop that one first, or choose another name (block:NAME)"
    )]
    InUse {
        /// The name.
        name: String,
        /// The holder of the device.
        who: String,
    },
    /// A device of the kernel's own, whose users wait for it, has the name.
    #[error(
        "/dev/loligo/{name} is /dev/{node}, a ublk device that outlived its service: who has it open waits for its volume, and would find another \
         device under its name. Serve that volume as ublk:{name} (or block:{name}) again, end who uses it, and stop it; or choose another name; \
         or give it up with 'ublk del' (of ublksrv), which fails what its users wait for"
    )]
    Waits {
        /// The name.
        name: String,
        /// The device.
        node: String,
    },
    /// Something that is not Loligo's stands at the name.
    #[error("{} is not a link of Loligo's: it is {what}. Remove it, or choose another name", .path.display())]
    Foreign {
        /// Its place.
        path: PathBuf,
        /// The finding.
        what: String,
    },
    /// A further name is another volume's.
    #[error("{} is a name of /dev/loligo/{owner}, which is being served, or waits for its service. Choose another {dev_name}", .path.display(), dev_name = DEV_NAME)]
    Taken {
        /// Its place.
        path: PathBuf,
        /// The owner.
        owner: String,
    },
    /// Not a name.
    #[error(
        "'{0}' cannot name a block device: use 1 to 64 letters, digits, dots, dashes and underscores, no dot first"
    )]
    BadName(String),
    /// A path could not be used.
    #[error("{}: {why}. Make sure that root may write there", .path.display())]
    Path {
        /// Its place.
        path: PathBuf,
        /// The kernel's reason.
        why: io::Error,
    },
    /// The file below cannot be mounted.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// No device could be had or configured.
    #[error("cannot make a loop device for the volume: {what}: {why}. {mend}")]
    Loop {
        /// The wish.
        what: &'static str,
        /// The kernel's reason.
        why: Errno,
        /// The mend.
        mend: &'static str,
    },
    /// The kernel does not number the bindings of its disks.
    #[error(
        "cannot make a block device: this kernel gives disks no sequence numbers (diskseq), by which a service knows its own \
         loop device again. It takes Linux 5.15 or later; use fuse:MOUNTPOINT for a file instead"
    )]
    NoSequence,
    /// The device is not what was asked for.
    #[error(
        "the loop device {} does not do direct I/O on this kernel: writes would lie in a second page cache. Use \
         fuse:MOUNTPOINT for a file instead",
        .0.display()
    )]
    NotDirect(PathBuf),
    /// The kernel would drop the flushes of the device's users.
    #[error(
        "the loop device {} was set to take writes without a cache (write_cache is not 'write back'), and it cannot be set back{}: the \
         kernel would drop its users' flushes. Write 'write back' to /sys/block/{}/queue/write_cache as root, then start \
         again; or use fuse:MOUNTPOINT for a file instead",
        .node.display(),
        .why.as_ref().map(|why| format!(" ({why})")).unwrap_or_default(),
        .node.file_name().unwrap_or_default().display()
    )]
    NotFlushed {
        /// The device.
        node: PathBuf,
        /// The kernel's reason.
        why: Option<io::Error>,
    },
}
