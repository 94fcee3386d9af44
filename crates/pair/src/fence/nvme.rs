//! Keys and holder of an NVMe namespace by its Reservation Report (NVM Express base specification 2.0, section 7.6), for
//! kernels without `IOC_PR_READ_KEYS`; and the end of a registration, for which no kernel has a call.
//!
//! The commands go to the device by `NVME_IOCTL_IO_CMD`. The parser takes the bytes of the answer.

use super::scsi::CommandError;
use super::shown::Shown;
use crate::reservation::{Key, Kind};
use libc::c_ulong;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::{io, ptr};

/// `NVME_IOCTL_ID` of `<linux/nvme_ioctl.h>`.
const ID: c_ulong = 0x4e40;
/// `NVME_IOCTL_IO_CMD`.
const IO_COMMAND: c_ulong = 3 << 30 | (size_of::<Command>() as c_ulong) << 16 | 0x4e43;
/// Opcodes of a Reservation Report and a Reservation Register.
const REPORT: u8 = 0x0e;
const REGISTER: u8 = 0x0d;
/// The action of a register that ends the registration.
const UNREGISTER: u32 = 1;
/// Bytes that an answer may have: 63 registrants.
const ROOM: usize = 4096;
/// Statuses (type and code) of a command.
const INVALID_OPCODE: i32 = 0x01;
const INVALID_FIELD: i32 = 0x02;
const INCONSISTENT_FORMAT: i32 = 0x18;
const CONFLICT: i32 = 0x83;
const STATUS: i32 = 0x7ff;

/// `struct nvme_passthru_cmd`.
#[repr(C)]
#[derive(Default)]
struct Command {
    opcode: u8,
    flags: u8,
    reserved: u16,
    namespace: u32,
    words_2_3: [u32; 2],
    metadata: u64,
    data: u64,
    metadata_len: u32,
    data_len: u32,
    words_10_15: [u32; 6],
    timeout: u32,
    result: u32,
}

/// The number of the namespace that the device of `file` is; nothing where that is none.
pub(super) fn namespace(file: BorrowedFd<'_>) -> Option<u32> {
    // SAFETY: the call has no argument.
    let number = unsafe { libc::ioctl(file.as_raw_fd(), ID) };
    u32::try_from(number).ok().filter(|number| *number > 0)
}

/// Reads both from `namespace`, the device of `file`.
///
/// # Errors
/// If the device cannot tell, or what it says is not to be understood.
pub(super) fn read(file: BorrowedFd<'_>, namespace: u32) -> Result<Shown, CommandError> {
    // Hosts have names of 16 bytes over fabrics, and of 8 on some drives: each kind has a form of the report.
    let (extended, answer) = match ask(file, namespace, true)? {
        Some(answer) => (true, answer),
        None => (false, ask(file, namespace, false)?.ok_or(CommandError::Unknown)?),
    };
    report(&answer, extended)
}

/// Ends the registration of this host, whose key is `key`. `IOC_PR_REGISTER` with no new key does not: it leaves the host
/// registered, with key 0 (7.2).
///
/// # Errors
/// If it has another key, or the path fails.
pub(super) fn unregister(file: BorrowedFd<'_>, namespace: u32, key: Key) -> Result<(), CommandError> {
    // The present key, and a new one that means nothing here.
    let mut keys = [key.0.to_le(), 0];
    let command = Command {
        opcode: REGISTER,
        namespace,
        data: keys.as_mut_ptr() as u64,
        data_len: size_of_val(&keys) as u32,
        words_10_15: [UNREGISTER, 0, 0, 0, 0, 0],
        ..Command::default()
    };
    send(file, command)
}

/// The bytes of an answer; nothing where hosts have names of the other length.
fn ask(file: BorrowedFd<'_>, namespace: u32, extended: bool) -> Result<Option<Vec<u8>>, CommandError> {
    let mut data = vec![0u8; ROOM];
    let command = Command {
        opcode: REPORT,
        namespace,
        data: data.as_mut_ptr() as u64,
        data_len: ROOM as u32,
        words_10_15: [ROOM as u32 / 4 - 1, u32::from(extended), 0, 0, 0, 0],
        ..Command::default()
    };
    match send(file, command) {
        Ok(()) => Ok(Some(data)),
        Err(CommandError::HostNames) => Ok(None),
        Err(why) => Err(why),
    }
}

/// Sends `command`, whose data is memory that lives through this call and has the length it says.
fn send(file: BorrowedFd<'_>, mut command: Command) -> Result<(), CommandError> {
    // SAFETY: the command is `struct nvme_passthru_cmd`, and both callers keep its data until this returns.
    match unsafe { libc::ioctl(file.as_raw_fd(), IO_COMMAND, ptr::from_mut(&mut command)) } {
        0 => Ok(()),
        status if status < 0 => Err(io::Error::last_os_error().into()),
        status => Err(failure(status)),
    }
}

/// The failure that a command's status stands for.
fn failure(status: i32) -> CommandError {
    match status & STATUS {
        INCONSISTENT_FORMAT => CommandError::HostNames,
        INVALID_OPCODE | INVALID_FIELD => CommandError::Unknown,
        CONFLICT => CommandError::Conflict,
        _ => io::Error::other(format!("the device answered with status {status:#x}")).into(),
    }
}

/// The state in a report, of the form with names of 16 bytes if `extended`.
fn report(answer: &[u8], extended: bool) -> Result<Shown, CommandError> {
    // (bytes of the head and of each registrant, place of the key in it)
    let (size, key_at) = if extended { (64, 8) } else { (24, 16) };
    let Some((head, list)) = answer.split_at_checked(size) else {
        return Err(CommandError::Garbage("it is too short"));
    };
    let generation = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
    let count = usize::from(u16::from_le_bytes([head[5], head[6]]));
    let list = list.get(..count * size).ok_or(CommandError::Garbage("it is cut off"))?;
    let key =
        |one: &[u8]| one[key_at..key_at + 8].try_into().map_or(Key::NONE, |k| Key(u64::from_le_bytes(k)));
    let keys: Vec<Key> = list.chunks_exact(size).map(key).collect();
    let mut holders = list.chunks_exact(size).filter(|one| one[2] & 1 != 0);
    let kind = Kind::of(u32::from(head[4]));
    let held = match (kind, holders.next()) {
        (None, None) if head[4] == 0 => None,
        (Some(kind @ (Kind::WriteExclusiveAll | Kind::ExclusiveAccessAll)), _) => Some((Key::NONE, kind)),
        (Some(kind), Some(holder)) => {
            if holders.any(|other| key(other) != key(holder)) {
                return Err(CommandError::Garbage("two hold it"));
            }
            Some((key(holder), kind))
        }
        (Some(_), None) => return Err(CommandError::Garbage("it has a type and no holder")),
        (None, _) => return Err(CommandError::Garbage("the type of its reservation has no meaning")),
    };
    Ok(Shown { generation, keys, held })
}

#[cfg(test)]
mod tests;
