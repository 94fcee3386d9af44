//! Calls that the fence never makes: `IOC_PR_*` of `<linux/pr.h>`, as a rescue system or another program makes them.

use std::fs::File;
use std::io::{Error, Result};
use std::os::fd::AsRawFd;

const REGISTER: libc::c_ulong = 0x4018_70c8;
const RESERVE: libc::c_ulong = 0x4010_70c9;
const PREEMPT: libc::c_ulong = 0x4018_70cb;
const CLEAR: libc::c_ulong = 0x4010_70cd;
/// `PR_STS_RESERVATION_CONFLICT`.
const CONFLICT: i32 = 24;
const TRIES: usize = 8;

/// Makes the call `number`, again after a unit attention.
fn ask<const WORDS: usize>(file: &File, number: libc::c_ulong, mut words: [u64; WORDS]) -> Result<()> {
    for _ in 0..TRIES {
        // SAFETY: the number says the size of the argument, which is as many plain words and lives through the call.
        match unsafe { libc::ioctl(file.as_raw_fd(), number, words.as_mut_ptr()) } {
            0 => return Ok(()),
            CONFLICT => return Err(Error::from_raw_os_error(libc::EBADE)),
            -1 => return Err(Error::last_os_error()),
            _ => {}
        }
    }
    Err(Error::from_raw_os_error(libc::EIO))
}

/// Takes all registrations and the reservation away.
pub(super) fn clear(file: &File) -> Result<()> {
    const KEY: u64 = 0xc1ea2;
    // The third word has `PR_FL_IGNORE_KEY`. By the first, NVMe registers what has no key and replaces what has one.
    ask(file, REGISTER, [0, KEY, 1]).or_else(|_| ask(file, REGISTER, [KEY, KEY, 1]))?;
    ask(file, CLEAR, [KEY, 0])
}

/// Preempts without abort.
pub(super) fn preempt(file: &File, mine: u64, victim: u64, kind: u32) -> Result<()> {
    ask(file, PREEMPT, [mine, victim, u64::from(kind)])
}

/// Reserves with another type than the pair's.
pub(super) fn reserve(file: &File, mine: u64, kind: u32) -> Result<()> {
    ask(file, RESERVE, [mine, u64::from(kind)])
}
