//! The kernel's calls, `IOC_PR_*` of `<linux/pr.h>`: their numbers and arguments, for who makes them and for a model that
//! answers them.

use crate::lun::Command;
use crate::reservation::{Key, Kind, Refusal};
use libc::{c_int, c_ulong};

/// `PR_STS_RESERVATION_CONFLICT`: the return value of a call, not an error number.
pub const CONFLICT: c_int = 24;
/// `PR_STS_IOERR`: the device has answered with another status, such as a unit attention.
pub const OTHER_STATUS: c_int = 2;
/// `PR_FL_IGNORE_KEY`.
const IGNORE_KEY: u32 = 1;

/// `struct pr_registration`.
#[repr(C)]
pub(super) struct Registration {
    pub(super) old_key: u64,
    pub(super) new_key: u64,
    pub(super) flags: u32,
    pub(super) pad: u32,
}

/// `struct pr_reservation`.
#[repr(C)]
pub(super) struct Reservation {
    pub(super) key: u64,
    pub(super) kind: u32,
    pub(super) flags: u32,
}

/// `struct pr_preempt`.
#[repr(C)]
pub(super) struct Preemption {
    pub(super) old_key: u64,
    pub(super) new_key: u64,
    pub(super) kind: u32,
    pub(super) flags: u32,
}

/// `struct pr_clear`.
#[repr(C)]
struct Clearing {
    key: u64,
    flags: u32,
    pad: u32,
}

/// `struct pr_read_keys`.
#[repr(C)]
pub(super) struct ReadKeys {
    pub(super) generation: u32,
    pub(super) num_keys: u32,
    pub(super) keys_ptr: u64,
}

/// `struct pr_read_reservation`.
#[repr(C)]
pub(super) struct ReadReservation {
    pub(super) key: u64,
    pub(super) generation: u32,
    pub(super) kind: u32,
}

/// The number of a call: its direction (1: in, 2: out), argument and place.
const fn call<T>(direction: c_ulong, place: c_ulong) -> c_ulong {
    direction << 30 | (size_of::<T>() as c_ulong) << 16 | (b'p' as c_ulong) << 8 | place
}

pub(super) const REGISTER: c_ulong = call::<Registration>(1, 200);
pub(super) const RESERVE: c_ulong = call::<Reservation>(1, 201);
pub(super) const RELEASE: c_ulong = call::<Reservation>(1, 202);
const PREEMPT: c_ulong = call::<Preemption>(1, 203);
pub(super) const PREEMPT_ABORT: c_ulong = call::<Preemption>(1, 204);
const CLEAR: c_ulong = call::<Clearing>(1, 205);
pub(super) const READ_KEYS: c_ulong = call::<ReadKeys>(3, 206);
pub(super) const READ_RESERVATION: c_ulong = call::<ReadReservation>(2, 207);

/// The command that the call `number` with the argument `raw` stands for; nothing for another call, or one that is not right.
pub fn decode(number: u32, raw: &[u8]) -> Option<Command> {
    let word = |at: usize| Some(u32::from_ne_bytes(raw.get(at..at + 4)?.try_into().ok()?));
    let key = |at: usize| Some(Key(u64::from_ne_bytes(raw.get(at..at + 8)?.try_into().ok()?)));
    let flags = |at: usize| word(at).filter(|flags| *flags == 0);
    Some(match c_ulong::from(number) {
        REGISTER => {
            let ignore = word(16).filter(|flags| flags & !IGNORE_KEY == 0)? != 0;
            // Linux asks every device to keep registrations over a loss of power.
            Command::Register { old: key(0)?, new: key(8)?, ignore, persistent: true }
        }
        RESERVE => {
            flags(12)?;
            Command::Reserve { key: key(0)?, kind: Kind::of(word(8)?)? }
        }
        RELEASE => {
            flags(12)?;
            Command::Release { key: key(0)?, kind: Kind::of(word(8)?)? }
        }
        call @ (PREEMPT | PREEMPT_ABORT) => {
            flags(20)?;
            let (kind, abort) = (Kind::of(word(16)?)?, call == PREEMPT_ABORT);
            Command::Preempt { key: key(0)?, victim: key(8)?, kind, abort }
        }
        CLEAR => {
            flags(8)?;
            Command::Clear { key: key(0)? }
        }
        _ => return None,
    })
}

/// The return value of a call that ends so.
pub fn status(done: Result<(), Refusal>) -> c_int {
    match done {
        Ok(()) => 0,
        Err(Refusal::Conflict) => CONFLICT,
        Err(Refusal::Illegal | Refusal::Attention(_)) => OTHER_STATUS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_numbers_are_the_kernels() {
        assert_eq!((REGISTER, RESERVE, RELEASE), (0x4018_70c8, 0x4010_70c9, 0x4010_70ca));
        assert_eq!((PREEMPT, PREEMPT_ABORT, CLEAR), (0x4018_70cb, 0x4018_70cc, 0x4010_70cd));
        assert_eq!((READ_KEYS, READ_RESERVATION), (0xc010_70ce, 0x8010_70cf));
    }

    #[test]
    fn the_first_key_of_a_preemption_is_the_callers() {
        let words = [0xb_u64, 0xa, 3].map(u64::to_ne_bytes).concat();
        let Some(Command::Preempt { key, victim, abort, .. }) = decode(PREEMPT_ABORT as u32, &words) else {
            panic!("it is one")
        };
        assert_eq!((key, victim, abort), (Key(0xb), Key(0xa), true));
    }

    proptest! {
        #[test]
        fn garbage_is_no_command_or_a_whole_one(number in any::<u32>(), raw in proptest::collection::vec(any::<u8>(), 0..40)) {
            for number in [number, REGISTER as u32, RESERVE as u32, PREEMPT as u32, CLEAR as u32] {
                let short = decode(number, &raw).is_some_and(|_| raw.len() < 12);
                prop_assert!(!short);
            }
        }
    }
}
