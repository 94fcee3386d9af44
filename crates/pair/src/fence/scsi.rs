//! Keys and holder of a SCSI LUN by PERSISTENT RESERVE IN (SPC-5, section 6.16), for kernels without `IOC_PR_READ_KEYS`.
//!
//! The command goes to the device by `SG_IO`. The parsers take the bytes of the answer.

use super::shown::Shown;
use crate::reservation::{Key, Kind};
use libc::{c_int, c_ulong, c_void};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::{io, ptr};
use thiserror::Error;

/// `SG_IO` of `<scsi/sg.h>`.
const SG_IO: c_ulong = 0x2285;
/// `SG_DXFER_FROM_DEV`.
const FROM_DEVICE: c_int = -3;
/// Milliseconds that the kernel gives the command before it ends it.
const LIMIT_MS: u32 = 30_000;
/// Bytes that an answer may have: 1,023 keys.
const ROOM: usize = 8192;
/// Tries of a command before which the device has something else to say.
const TRIES: usize = 4;
/// Tries of both commands, until nothing changes between them.
const ROUNDS: usize = 3;
/// Service actions.
const READ_KEYS: u8 = 0;
const READ_RESERVATION: u8 = 1;
/// Statuses of a command.
const GOOD: u8 = 0;
const CHECK_CONDITION: u8 = 0x02;
const BUSY: u8 = 0x08;
const RESERVATION_CONFLICT: u8 = 0x18;
/// Sense keys.
const ILLEGAL_REQUEST: u8 = 5;
const UNIT_ATTENTION: u8 = 6;

/// `struct sg_io_hdr`.
#[repr(C)]
struct Header {
    interface_id: c_int,
    direction: c_int,
    command_len: u8,
    sense_room: u8,
    iovec_count: u16,
    data_len: u32,
    data: *mut c_void,
    command: *const u8,
    sense: *mut u8,
    timeout: u32,
    flags: u32,
    pack_id: c_int,
    user: *mut c_void,
    status: u8,
    masked_status: u8,
    message_status: u8,
    sense_len: u8,
    host_status: u16,
    driver_status: u16,
    residual: c_int,
    duration: u32,
    info: u32,
}

/// The failure of a command that was sent past the kernel's calls.
#[derive(Debug, Error)]
pub(super) enum CommandError {
    /// The command did not reach the device, or not its end.
    #[error(transparent)]
    Failed(#[from] io::Error),
    /// A reservation forbids the command.
    #[error("a reservation forbids it")]
    Conflict,
    /// The device does not know the command.
    #[error("the device does not know the command")]
    Unknown,
    /// Hosts have names of another length than the command was told.
    #[error("hosts have names of another length than a report can have")]
    HostNames,
    /// Registrations changed between two commands, again and again.
    #[error("its registrations change while they are read")]
    Unsteady,
    /// The bytes are none that a standard describes.
    #[error("its answer cannot be understood: {0}")]
    Garbage(&'static str),
}

/// Reads both from the device of `file`.
///
/// # Errors
/// If the device cannot tell, or what it says is not to be understood.
pub(super) fn read(file: BorrowedFd<'_>) -> Result<Shown, CommandError> {
    for _ in 0..ROUNDS {
        let (generation, keys) = keys(&ask(file, READ_KEYS)?)?;
        let (again, held) = reservation(&ask(file, READ_RESERVATION)?)?;
        if generation == again {
            return Ok(Shown { generation, keys, held });
        }
    }
    Err(CommandError::Unsteady)
}

/// The bytes of one answer.
fn ask(file: BorrowedFd<'_>, action: u8) -> Result<Vec<u8>, CommandError> {
    let mut data = vec![0u8; ROOM];
    for _ in 0..TRIES {
        let [high, low] = (ROOM as u16).to_be_bytes();
        let command = [0x5e, action, 0, 0, 0, 0, 0, high, low, 0];
        let mut sense = [0u8; 64];
        let mut header = Header {
            interface_id: c_int::from(b'S'),
            direction: FROM_DEVICE,
            command_len: command.len() as u8,
            sense_room: sense.len() as u8,
            iovec_count: 0,
            data_len: ROOM as u32,
            data: data.as_mut_ptr().cast(),
            command: command.as_ptr(),
            sense: sense.as_mut_ptr(),
            timeout: LIMIT_MS,
            flags: 0,
            pack_id: 0,
            user: ptr::null_mut(),
            status: 0,
            masked_status: 0,
            message_status: 0,
            sense_len: 0,
            host_status: 0,
            driver_status: 0,
            residual: 0,
            duration: 0,
            info: 0,
        };
        // SAFETY: the header is `struct sg_io_hdr`; command, data and sense live through the call and have the lengths it says.
        if unsafe { libc::ioctl(file.as_raw_fd(), SG_IO, ptr::from_mut(&mut header)) } != 0 {
            return Err(io::Error::last_os_error().into());
        }
        let sense_len = usize::from(header.sense_len).min(sense.len());
        match outcome(header.status, header.host_status, &sense[..sense_len])? {
            Outcome::Again => {}
            Outcome::Answered => {
                data.truncate(ROOM - usize::try_from(header.residual).unwrap_or(0).min(ROOM));
                return Ok(data);
            }
        }
    }
    Err(io::Error::from_raw_os_error(libc::EIO).into())
}

/// The use of an answer.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// It is there.
    Answered,
    /// The device had something else to say first.
    Again,
}

/// The outcome of a command by its statuses and sense data.
fn outcome(status: u8, host: u16, sense: &[u8]) -> Result<Outcome, CommandError> {
    if host != 0 {
        return Err(io::Error::from_raw_os_error(libc::EIO).into());
    }
    // Descriptor format (72h, 73h) has the key in its second byte, fixed format (70h, 71h) in its third.
    let place = if sense.first().is_some_and(|code| code & 0x7e == 0x72) { 1 } else { 2 };
    match (status & 0x3e, sense.get(place).map(|byte| byte & 0xf)) {
        (GOOD, _) => Ok(Outcome::Answered),
        (CHECK_CONDITION, Some(UNIT_ATTENTION)) | (BUSY, _) => Ok(Outcome::Again),
        (CHECK_CONDITION, Some(ILLEGAL_REQUEST)) => Err(CommandError::Unknown),
        (RESERVATION_CONFLICT, _) => Err(CommandError::Conflict),
        _ => Err(io::Error::from_raw_os_error(libc::EIO).into()),
    }
}

/// Generation and rest of an answer, whose second word says how long the rest is.
fn body(answer: &[u8]) -> Result<(u32, &[u8]), CommandError> {
    let word =
        |at: usize| answer.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_be_bytes);
    let (Some(generation), Some(len)) = (word(0), word(4)) else {
        return Err(CommandError::Garbage("it is too short"));
    };
    let rest = answer[8..].get(..len as usize).ok_or(CommandError::Garbage("it is cut off"))?;
    Ok((generation, rest))
}

/// The answer to READ KEYS: generation and keys.
fn keys(answer: &[u8]) -> Result<(u32, Vec<Key>), CommandError> {
    let (generation, list) = body(answer)?;
    let (list, rest) = list.as_chunks::<8>();
    match rest {
        [] => Ok((generation, list.iter().map(|bytes| Key(u64::from_be_bytes(*bytes))).collect())),
        _ => Err(CommandError::Garbage("its last key is cut off")),
    }
}

/// The answer to READ RESERVATION: generation, and the holder's key with the type.
fn reservation(answer: &[u8]) -> Result<(u32, Option<(Key, Kind)>), CommandError> {
    let (generation, rest) = body(answer)?;
    if rest.is_empty() {
        return Ok((generation, None));
    }
    let short = CommandError::Garbage("its reservation is cut off");
    let Some((key, rest)) = rest.split_first_chunk::<8>() else { return Err(short) };
    // Four obsolete bytes and a reserved one, then scope and type.
    let Some(byte) = rest.get(5) else { return Err(short) };
    if byte >> 4 != 0 {
        return Err(CommandError::Garbage("its reservation is not for the whole LUN"));
    }
    let kind = kind(byte & 0xf).ok_or(CommandError::Garbage("the type of its reservation has no meaning"))?;
    Ok((generation, Some((Key(u64::from_be_bytes(*key)), kind))))
}

/// The type with SCSI's number.
fn kind(number: u8) -> Option<Kind> {
    Some(match number {
        1 => Kind::WriteExclusive,
        3 => Kind::ExclusiveAccess,
        5 => Kind::WriteExclusiveRegistrants,
        6 => Kind::ExclusiveAccessRegistrants,
        7 => Kind::WriteExclusiveAll,
        8 => Kind::ExclusiveAccessAll,
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
