//! Reservations by the kernel's own calls, `IOC_PR_*` of `<linux/pr.h>`: on block devices, and on the file of a model that
//! answers the same calls.

use super::calls::{
    CONFLICT, PREEMPT_ABORT, Preemption, READ_KEYS, READ_RESERVATION, REGISTER, RELEASE, RESERVE, ReadKeys,
    ReadReservation, Registration, Reservation,
};
use super::nvme;
use super::path::{Fence, FenceError, KIND};
use super::pending::Device;
use super::scsi::{self, CommandError};
use super::shown::{SHOWN, Shown};
use crate::reservation::{Key, Kind};
use libc::c_ulong;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Tries of a call that the device answers with a status of its own. Several unit attentions may be due to a path, and a call
/// may be aborted by another's preemption.
const TRIES: usize = 8;
/// Keys that are read at most.
const MOST_KEYS: usize = 64;

/// A LUN by one path of this host.
#[derive(Debug, Clone)]
pub struct BlockFence {
    path: PathBuf,
    file: Arc<File>,
}

impl BlockFence {
    /// The LUN at `path`, a block device or the file of a model. Nothing of it is read or written.
    ///
    /// # Errors
    /// If it cannot be opened. Calls need root.
    pub fn open(path: &Path) -> Result<BlockFence, FenceError> {
        // Root may call by a descriptor that only reads. udev looks at a device whenever one that may write is closed.
        let file = File::open(path);
        let name = path.display().to_string();
        let file = file.map_err(|why| FenceError::Io { lun: name, why })?;
        Ok(BlockFence { path: path.to_owned(), file: Arc::new(file) })
    }

    /// Makes the call `number` with `arg`, again where the device had something else to say first.
    fn ask<T>(&self, number: c_ulong, arg: &mut T) -> Result<(), FenceError> {
        let mut last = 0;
        for _ in 0..TRIES {
            // SAFETY: the number says the size of `arg`, which is plain numbers and lives through the call, as does the list of
            // keys that one of them points to.
            match unsafe { libc::ioctl(self.file.as_raw_fd(), number, std::ptr::from_mut(arg)) } {
                0 => return Ok(()),
                CONFLICT => return Err(FenceError::Conflict { lun: self.name() }),
                -1 => return Err(self.failed(io::Error::last_os_error())),
                status => last = status,
            }
        }
        Err(self.failed(io::Error::other(format!("the device answered {TRIES} times with status {last:#x}"))))
    }

    fn failed(&self, why: io::Error) -> FenceError {
        let lun = self.name();
        match why.raw_os_error() {
            Some(libc::ENOTTY | libc::EOPNOTSUPP | libc::EINVAL | libc::ENOSYS) => {
                FenceError::Unsupported { lun, why }
            }
            _ => FenceError::Io { lun, why },
        }
    }

    /// The attribute of a model's file.
    fn read_shown(&self) -> Result<Shown, FenceError> {
        let mut raw = vec![0; 64 << 10];
        let name = std::ffi::CString::new(SHOWN).expect("no zero byte in it");
        let read = rustix::fs::fgetxattr(&*self.file, name.as_c_str(), &mut raw[..]);
        let len = read.map_err(|why| self.failed(why.into()))?;
        serde_json::from_slice(&raw[..len]).map_err(|why| self.failed(why.into()))
    }

    /// By the kernel's calls, where it has them.
    fn read_kernel(&self) -> Result<Shown, FenceError> {
        for _ in 0..TRIES {
            let (generation, keys) = self.read_keys()?;
            let mut held = ReadReservation { key: 0, generation: 0, kind: 0 };
            self.ask(READ_RESERVATION, &mut held)?;
            let kind = Kind::of(held.kind);
            // Of a SCSI LUN that nobody holds the second call leaves the generation out (7.2).
            let again = if kind.is_some() { held.generation } else { self.read_keys()?.0 };
            if generation == again {
                return Ok(Shown { generation, keys, held: kind.map(|kind| (Key(held.key), kind)) });
            }
        }
        Err(self.unclear("its registrations change while they are read".to_owned()))
    }

    fn read_keys(&self) -> Result<(u32, Vec<Key>), FenceError> {
        let mut keys = [0u64; MOST_KEYS];
        let keys_ptr = keys.as_mut_ptr() as u64;
        let mut list = ReadKeys { generation: 0, num_keys: MOST_KEYS as u32, keys_ptr };
        self.ask(READ_KEYS, &mut list)?;
        match keys.get(..list.num_keys as usize) {
            Some(keys) => Ok((list.generation, keys.iter().map(|key| Key(*key)).collect())),
            None => Err(self.unclear(format!("it has {} keys", list.num_keys))),
        }
    }

    /// By the device's own commands, past a kernel without calls for it: `SG_IO` or `NVME_IOCTL_IO_CMD`.
    ///
    /// # Errors
    /// If the device cannot tell, or what it says is not to be understood.
    pub fn read_passed_through(&self) -> Result<Shown, FenceError> {
        let file = self.file.as_fd();
        let read = match nvme::namespace(file) {
            Some(namespace) => nvme::read(file, namespace),
            None => scsi::read(file),
        };
        read.map_err(|why| self.command_failed(why))
    }

    fn command_failed(&self, why: CommandError) -> FenceError {
        match why {
            CommandError::Failed(why) => self.failed(why),
            CommandError::Unknown | CommandError::HostNames => {
                FenceError::Unsupported { lun: self.name(), why: io::Error::other(why) }
            }
            CommandError::Conflict => FenceError::Conflict { lun: self.name() },
            why @ (CommandError::Unsteady | CommandError::Garbage(_)) => self.unclear(why.to_string()),
        }
    }

    fn unclear(&self, why: String) -> FenceError {
        FenceError::NotConfirmed { lun: self.name(), why }
    }

    fn device(&self) -> Option<Device> {
        self.file.metadata().ok().map(|meta| Device::of(&meta))
    }
}

impl Fence for BlockFence {
    fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn register(&mut self, old: Key, new: Key) -> Result<(), FenceError> {
        if let Some(namespace) = nvme::namespace(self.file.as_fd()).filter(|_| new == Key::NONE) {
            let done = nvme::unregister(self.file.as_fd(), namespace, old);
            return done.map_err(|why| self.command_failed(why));
        }
        self.ask(REGISTER, &mut Registration { old_key: old.0, new_key: new.0, flags: 0, pad: 0 })
    }

    fn reserve(&mut self, mine: Key) -> Result<(), FenceError> {
        self.ask(RESERVE, &mut Reservation { key: mine.0, kind: KIND as u32, flags: 0 })
    }

    fn release(&mut self, mine: Key) -> Result<(), FenceError> {
        self.ask(RELEASE, &mut Reservation { key: mine.0, kind: KIND as u32, flags: 0 })
    }

    fn preempt_and_abort(&mut self, mine: Key, victim: Key) -> Result<(), FenceError> {
        // `old_key` is the caller's own; the other way round the call is a conflict.
        let arg = &mut Preemption { old_key: mine.0, new_key: victim.0, kind: KIND as u32, flags: 0 };
        let _call = self.device().map(Device::call);
        self.ask(PREEMPT_ABORT, arg)
    }

    fn read(&mut self) -> Result<Shown, FenceError> {
        let meta = self.file.metadata().map_err(|why| self.failed(why))?;
        if !meta.file_type().is_block_device() {
            return self.read_shown();
        }
        match self.read_kernel() {
            Err(FenceError::Unsupported { .. }) => self.read_passed_through(),
            read => read,
        }
    }

    fn is_pending(&self) -> bool {
        self.device().is_some_and(Device::is_pending)
    }
}
