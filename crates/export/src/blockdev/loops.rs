//! One loop device: made, set up, let go of again, and known again by its sequence number, which the kernel gives to no
//! other binding of any device.

use super::error::BlockError;
use super::ioctl::{self, AUTOCLEAR};
use super::owner::Access;
use super::served::Traits;
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};

/// The node that gives free ones.
const CONTROL: &str = "/dev/loop-control";
/// Others may take the free one first; so often is the next one tried.
const TRIES: usize = 64;
/// KiB of the largest request: what the FUSE file takes in one.
const LARGEST_KIB: u32 = 1024;
/// KiB read ahead: the kernel's usual value. For a loop device it would choose a multiple of the largest request.
const READ_AHEAD_KIB: u32 = 128;
/// The kind of a queue whose flushes arrive.
const WRITE_BACK: &str = "write back";
/// Bytes discarded by one request, so that writes get their turn between the parts of a large discard.
const DISCARD: u32 = 256 << 20;

/// The result of letting go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Released {
    /// The device is free.
    Gone,
    /// Somebody has it open.
    Busy,
}

/// A bound device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LoopDevice {
    pub(super) number: u32,
    /// Unlike the number, never given twice while the system runs.
    pub(super) sequence: u64,
}

/// The kernel's folder of device `number`.
fn folder(number: u32) -> PathBuf {
    PathBuf::from(format!("/sys/block/loop{number}"))
}

fn read(number: u32, name: &str) -> Option<String> {
    fs::read_to_string(folder(number).join(name)).ok().map(|t| t.trim_end_matches('\n').to_owned())
}

/// The sequence number of whatever device `number` is bound to now.
pub(super) fn sequence(number: u32) -> Option<u64> {
    read(number, "diskseq")?.parse().ok()
}

/// The file that device `number` is bound to, as far as the kernel still knows its path.
pub(super) fn backing(number: u32) -> Option<PathBuf> {
    read(number, "loop/backing_file").map(PathBuf::from)
}

/// Checks that there is a loop driver, and this process may use it.
pub(super) fn control() -> Result<File, BlockError> {
    if !rustix::process::geteuid().is_root() {
        return Err(BlockError::NotRoot);
    }
    OpenOptions::new().read(true).write(true).open(CONTROL).map_err(BlockError::NoDriver)
}

/// The node of device `number`.
pub(super) fn node(number: u32) -> PathBuf {
    PathBuf::from(format!("/dev/loop{number}"))
}

fn failed(what: &'static str, why: Errno) -> BlockError {
    let mend = match why {
        Errno::NOTTY | Errno::INVAL if what == CONFIGURING => {
            "Loligo needs the loop driver of Linux 5.15 or later"
        }
        Errno::NOENT | Errno::NXIO => {
            "In a container, the nodes /dev/loopN of the host must be there; else raise the driver's max_loop"
        }
        Errno::NOSPC | Errno::NODEV => {
            "All loop devices are in use: detach some (losetup -l), or raise max_loop"
        }
        _ => "The kernel's log may say more (dmesg)",
    };
    BlockError::Loop { what, why, mend }
}

const CONFIGURING: &str = "binding the file to it";

/// Opens the node. Only for as long as a call takes: a process that has it open when it is killed would wait, at the close, for
/// what only it could answer.
fn open_node(number: u32) -> Result<rustix::fd::OwnedFd, Errno> {
    open(node(number), OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
}

impl LoopDevice {
    /// Binds the file at `path` to a free device. `before` is told its number first, so that it is found after a crash.
    pub(super) fn bind(
        path: &Path,
        label: &str,
        traits: &Traits,
        mut before: impl FnMut(u32) -> Result<(), BlockError>,
    ) -> Result<LoopDevice, BlockError> {
        let control = control()?;
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::DIRECT;
        let file = open(path, flags, Mode::empty()).map_err(|e| failed("opening the volume's file", e))?;
        for _ in 0..TRIES {
            let number = ioctl::get_free(&control).map_err(|e| failed("asking for a free one", e))?;
            if sequence(number).is_none() {
                return Err(BlockError::NoSequence);
            }
            before(number)?;
            let device = open_node(number).map_err(|e| failed("opening it", e))?;
            match ioctl::configure(&device, &file, traits.block, label) {
                Ok(()) => {}
                Err(Errno::BUSY) => continue,
                Err(e) => return Err(failed(CONFIGURING, e)),
            }
            let sequence = sequence(number).ok_or(BlockError::NoSequence)?;
            return Ok(LoopDevice { number, sequence });
        }
        Err(failed("asking for a free one", Errno::BUSY))
    }

    /// Sets the queue up. A former use leaves settings in a device.
    pub(super) fn set_up(&self, traits: &Traits) -> Result<(), BlockError> {
        if read(self.number, "loop/dio").as_deref() != Some("1") {
            return Err(BlockError::NotDirect(node(self.number)));
        }
        // Told otherwise, the kernel drops flushes and answers them.
        let cache = folder(self.number).join("queue/write_cache");
        let written = fs::write(&cache, WRITE_BACK);
        if read(self.number, "queue/write_cache").as_deref() != Some(WRITE_BACK) {
            return Err(BlockError::NotFlushed { node: node(self.number), why: written.err() });
        }
        let settings = [
            ("rotational", if traits.rotational { "1" } else { "0" }.to_owned()),
            ("max_sectors_kb", LARGEST_KIB.to_string()),
            ("discard_max_bytes", DISCARD.to_string()),
            // The volume orders what it sends to the disk.
            ("scheduler", "none".to_owned()),
            // Last: the kernel derives it anew from the limits above.
            ("read_ahead_kb", READ_AHEAD_KIB.to_string()),
        ];
        for (name, value) in settings {
            let path = folder(self.number).join("queue").join(name);
            if let Err(why) = fs::write(&path, &value) {
                tracing::warn!(%why, "cannot write {value} to {}", path.display());
            }
        }
        Ok(())
    }

    /// Takes the size that the file at `path` has by now.
    pub(super) fn follow(&self, path: &Path) -> Result<(), Errno> {
        // The driver looks at what the kernel knows of the file.
        rustix::fs::stat(path)?;
        let device = open_node(self.number)?;
        if self.is_bound() { ioctl::set_capacity(&device) } else { Err(Errno::NXIO) }
    }

    /// True if the device still is what it was bound as.
    pub(super) fn is_bound(&self) -> bool {
        sequence(self.number) == Some(self.sequence) && backing(self.number).is_some()
    }

    /// Lets go of it if nobody has it open; changes nothing otherwise. Its node is made what it was `before`.
    pub(super) fn release(&self, before: Option<Access>) -> Result<Released, Errno> {
        self.clear(false, before)
    }

    /// Lets go of it now or with its last user.
    pub(super) fn abandon(&self, before: Option<Access>) -> Result<Released, Errno> {
        self.clear(true, before)
    }

    fn clear(&self, even_later: bool, before: Option<Access>) -> Result<Released, Errno> {
        let device = match open_node(self.number) {
            Ok(device) => device,
            Err(Errno::NXIO | Errno::NOENT) => return Ok(Released::Gone),
            Err(e) => return Err(e),
        };
        // While it is open here it can be let go of, but not bound to anything else.
        if !self.is_bound() {
            return Ok(Released::Gone);
        }
        match ioctl::clear(&device) {
            Ok(()) => {}
            Err(Errno::NXIO) => return Ok(Released::Gone),
            Err(e) => return Err(e),
        }
        let released = match ioctl::status(&device) {
            Err(Errno::NXIO) => Released::Gone,
            Ok(mut info) if !even_later => {
                // Others are there. What was asked comes to pass with the last of them, which this takes back; until `device`
                // is closed none of them is the last.
                info.flags &= !AUTOCLEAR;
                ioctl::set_status(&device, info)?;
                return Ok(Released::Busy);
            }
            // With an error the file below is dead: the device cannot say how it is bound.
            Ok(_) | Err(_) => Released::Busy,
        };
        // While `device` is open nobody else gets the number.
        if let Some(Err(why)) = before.map(|before| before.put(&node(self.number))) {
            tracing::warn!("{} keeps its owner: {why}", node(self.number).display());
        }
        Ok(released)
    }
}
