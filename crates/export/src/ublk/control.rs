//! `/dev/ublk-control`: commands that make devices, start and end them.
//!
//! Its commands need a ring of 128-byte entries, which is made for each of them: they are few, and the data path has rings
//! of its own.

use super::error::UblkError;
use super::uapi::{self, Command, ControlCommand, DeviceInfo, Parameters};
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use loligo_block::io_uring;
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind};
use std::os::fd::AsRawFd;
use std::time::Duration;
use zerocopy::{FromZeros, IntoBytes};

const PATH: &str = "/dev/ublk-control";
/// Between two looks at whether a command is still worth waiting for.
const LOOK: Duration = Duration::from_millis(50);

/// Checks that this kernel and this user can have ublk devices that outlive their service.
///
/// # Errors
/// If it cannot be done.
pub fn available() -> Result<(), UblkError> {
    Control::open().map(drop)
}

/// The control device.
#[derive(Debug)]
pub(super) struct Control {
    file: File,
    features: u64,
}

impl Control {
    /// Opens it, where this kernel has what is needed.
    pub(super) fn open() -> Result<Control, UblkError> {
        let file = OpenOptions::new().read(true).write(true).open(PATH).map_err(|e| match e.kind() {
            ErrorKind::NotFound => UblkError::NoDriver,
            _ if matches!(Errno::from_io_error(&e), Some(Errno::NODEV | Errno::NXIO)) => UblkError::NoDriver,
            _ => UblkError::Denied(e),
        })?;
        let mut control = Control { file, features: 0 };
        let mut features = 0u64;
        control.command(uapi::GET_FEATURES, u32::MAX, features.as_mut_bytes(), 0).map_err(|e| match e {
            Errno::OPNOTSUPP | Errno::INVAL => UblkError::TooOld("GET_FEATURES"),
            Errno::PERM | Errno::ACCESS => UblkError::NotPermitted,
            e => failed(uapi::GET_FEATURES, e),
        })?;
        for (flag, name) in [
            (uapi::F_USER_RECOVERY, "USER_RECOVERY"),
            (uapi::F_USER_RECOVERY_REISSUE, "USER_RECOVERY_REISSUE"),
            (uapi::F_USER_COPY, "USER_COPY"),
            (uapi::F_CMD_IOCTL_ENCODE, "CMD_IOCTL_ENCODE"),
        ] {
            if features & flag == 0 {
                return Err(UblkError::TooOld(name));
            }
        }
        control.features = features;
        Ok(control)
    }

    pub(super) fn can_resize(&self) -> bool {
        self.features & uapi::F_UPDATE_SIZE != 0
    }

    /// The description of the device `id`; nothing where there is none.
    pub(super) fn info(&self, id: u32) -> Result<Option<DeviceInfo>, UblkError> {
        let mut info = DeviceInfo::default();
        match self.command(uapi::GET_DEV_INFO, id, info.as_mut_bytes(), 0) {
            Ok(()) => Ok(Some(info)),
            Err(Errno::NODEV) => Ok(None),
            // Another user's unprivileged device: not ours.
            Err(Errno::INVAL | Errno::PERM | Errno::ACCESS) => Ok(None),
            Err(e) => Err(failed(uapi::GET_DEV_INFO, e)),
        }
    }

    /// A new device like `info`, which becomes what the kernel made of it.
    pub(super) fn add(&self, info: &mut DeviceInfo) -> Result<(), UblkError> {
        let id = info.id;
        self.command(uapi::ADD_DEV, id, info.as_mut_bytes(), 0).map_err(|e| match e {
            Errno::PERM => UblkError::NotPermitted,
            e => failed(uapi::ADD_DEV, e),
        })
    }

    pub(super) fn set_parameters(&self, id: u32, parameters: &Parameters) -> Result<(), UblkError> {
        let mut copy = *parameters;
        self.command(uapi::SET_PARAMS, id, copy.as_mut_bytes(), 0).map_err(|e| failed(uapi::SET_PARAMS, e))
    }

    pub(super) fn parameters(&self, id: u32) -> Result<Parameters, UblkError> {
        let mut all = Parameters::new_zeroed();
        all.len = size_of::<Parameters>() as u32;
        self.command(uapi::GET_PARAMS, id, all.as_mut_bytes(), 0).map_err(|e| failed(uapi::GET_PARAMS, e))?;
        Ok(all)
    }

    /// A command without anything but a number.
    pub(super) fn plain(&self, what: Command, id: u32, data: u64) -> Result<(), Errno> {
        self.command(what, id, &mut [], data)
    }

    /// One that waits for the threads of the device; given up with `ECANCELED` once `hopeless`.
    pub(super) fn patient(
        &self,
        what: Command,
        id: u32,
        data: u64,
        hopeless: impl Fn() -> bool,
    ) -> Result<(), Errno> {
        self.run(what, id, &mut [], data, &hopeless)
    }

    fn command(&self, what: Command, id: u32, bytes: &mut [u8], data: u64) -> Result<(), Errno> {
        self.run(what, id, bytes, data, &|| false)
    }

    fn run(
        &self,
        what: Command,
        id: u32,
        bytes: &mut [u8],
        data: u64,
        hopeless: &dyn Fn() -> bool,
    ) -> Result<(), Errno> {
        let errno = |e: Error| Errno::from_io_error(&e).unwrap_or(Errno::IO);
        let mut ring: IoUring<squeue::Entry128, cqueue::Entry> =
            IoUring::builder().dontfork().build(4).map_err(errno)?;
        let passed = ControlCommand {
            device: id,
            queue: u16::MAX,
            len: bytes.len() as u16,
            addr: if bytes.is_empty() { 0 } else { bytes.as_mut_ptr().expose_provenance() as u64 },
            data,
            path_len: 0,
            pad: 0,
            reserved: 0,
        };
        let mut inline = [0u8; 80];
        inline[..size_of::<ControlCommand>()].copy_from_slice(passed.as_bytes());
        let entry = opcode::UringCmd80::new(types::Fd(self.file.as_raw_fd()), what.code).cmd(inline).build();
        // SAFETY: the entry points to `bytes`, which is borrowed until this function returns, and that is after the
        // completion: also a command that is given up is waited for once it is cancelled.
        unsafe { ring.submission().push(&entry) }.expect("an empty ring has room");
        let mut cancelled = false;
        loop {
            let limit = types::Timespec::from(LOOK);
            match ring.submitter().submit_with_args(1, &types::SubmitArgs::new().timespec(&limit)) {
                Ok(_) => {}
                Err(e) => match errno(e) {
                    Errno::TIME | Errno::INTR => {}
                    e => return Err(e),
                },
            }
            let done = ring.completion().find(|c| c.user_data() == 0);
            if let Some(done) = done {
                return match done.result() {
                    0.. => Ok(()),
                    _ if cancelled => Err(Errno::CANCELED),
                    n => Err(Errno::from_raw_os_error(-n)),
                };
            }
            if !cancelled && hopeless() {
                cancelled = true;
                let _ = ring.submitter().register_sync_cancel(None, types::CancelBuilder::any());
            }
        }
    }
}

pub(super) fn failed(what: Command, why: Errno) -> UblkError {
    UblkError::os(what.name, why)
}
