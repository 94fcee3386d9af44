//! The reason why there is no ublk device, and what helps.

use crate::blockdev::BlockError;
use loligo_block::keys::LISTEN;
use std::io;

/// The reason why a volume cannot be a ublk device.
#[derive(Debug, thiserror::Error)]
pub enum UblkError {
    /// No driver.
    #[error(
        "no ublk here: /dev/ublk-control is missing. Load the kernel's module (modprobe ublk_drv; Linux 6.5 or later, \
         built with CONFIG_BLK_DEV_UBLK), or use {listen} loop:NAME or fuse:MOUNTPOINT", listen = LISTEN
    )]
    NoDriver,
    /// Not this user's.
    #[error("/dev/ublk-control cannot be opened: {0}. Run as root, and in a container give it the device")]
    Denied(io::Error),
    /// Not allowed to make devices.
    #[error("the kernel does not let this process make ublk devices: run as root (CAP_SYS_ADMIN is needed)")]
    NotPermitted,
    /// Too old.
    #[error(
        "this kernel's ublk is too old: {0} is missing. Linux 6.5 or later has it; until then use {listen} loop:NAME or fuse:MOUNTPOINT", listen = LISTEN
    )]
    TooOld(&'static str),
    /// Another process serves the device of this volume.
    #[error("/dev/ublkb{id} is this volume's and is served by process {pid}: stop that first")]
    Served {
        /// The device's number.
        id: u32,
        /// The process that serves it.
        pid: i32,
    },
    /// The device of this volume has another form than the volume by now, and somebody uses it.
    #[error(
        "/dev/ublkb{id} is this volume's and is open, but {what}: its users would read and write another device than the \
         one they opened. Bring the volume back to its former form, or give the device up: end its users, then \
         start again"
    )]
    Changed {
        /// The device's number.
        id: u32,
        /// The difference.
        what: String,
    },
    /// The name cannot be had.
    #[error(transparent)]
    Name(#[from] BlockError),
    /// A live device cannot change its size here.
    #[error(
        "the size of a ublk device can be changed while it is open from Linux 6.16 on: here its users see the new one when all of \
         them have closed it and open it anew (restart them, and where there are several, all at once)"
    )]
    NoResize,
    /// Somebody holds on to a device that is stopped.
    #[error(
        "/dev/ublkb{0} is stopped, and not everybody has let go of it within a minute: start the volume again"
    )]
    Kept(u32),
    /// The kernel refused.
    #[error("ublk: {what} failed: {why}")]
    Os {
        /// The attempt.
        what: String,
        /// The reason why it failed.
        why: io::Error,
    },
}

impl UblkError {
    pub(super) fn os(what: impl Into<String>, why: impl Into<io::Error>) -> UblkError {
        UblkError::Os { what: what.into(), why: why.into() }
    }
}
