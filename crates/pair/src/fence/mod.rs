//! The fence around a LUN: a dead or silent controller is kept from writing before anybody else opens what it had.
//!
//! Success of a call proves nothing (nvmet answers it and does nothing). A fence counts once keys and holder were read back:
//! [`take`] and [`confirm`] give a [`Confirmed`], and nothing else does.

pub mod calls;
mod ioctl;
mod path;
mod shown;

pub use ioctl::BlockFence;
pub use path::{Fence, FenceError, KIND};
pub use shown::{SHOWN, Shown};

use crate::reservation::Key;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// The proof that a LUN is this controller's alone. Only [`take`] and [`confirm`] give it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Confirmed {
    lun: String,
    generation: u32,
}

impl Confirmed {
    /// The path to the LUN.
    pub fn lun(&self) -> &str {
        &self.lun
    }

    /// The generation of its registrations when it was read back.
    pub fn generation(&self) -> u32 {
        self.generation
    }
}

/// Takes the LUN from `victim`, and reads back whether that is so. It may be said again after a failure.
///
/// # Errors
/// If it is not confirmed, whatever the reason: then the LUN is not fenced.
pub fn take(lun: &mut impl Fence, mine: Key, victim: Key) -> Result<Confirmed, FenceError> {
    match lun.preempt_and_abort(mine, victim) {
        // Nobody has the victim's key: it may have been taken already, which the keys say.
        Ok(()) | Err(FenceError::Conflict { .. }) => confirm(lun, mine),
        Err(why) => Err(why),
    }
}

/// Reads back that the LUN is this controller's alone: its key is the only one, and holds the reservation.
///
/// # Errors
/// If it is not so, or cannot be read.
pub fn confirm(lun: &mut impl Fence, mine: Key) -> Result<Confirmed, FenceError> {
    let shown = lun.read()?;
    let not = |why: String| Err(FenceError::NotConfirmed { lun: lun.name(), why });
    if !shown.keys.contains(&mine) {
        return not(format!("this controller's key {:#x} is not registered", mine.0));
    }
    if let Some(other) = shown.keys.iter().find(|key| **key != mine) {
        return not(format!("key {:#x} is registered too", other.0));
    }
    match shown.held {
        Some((key, kind)) if key == mine && kind == KIND => {
            Ok(Confirmed { lun: lun.name(), generation: shown.generation })
        }
        Some((key, kind)) => not(format!("key {:#x} holds it, as {kind:?}", key.0)),
        None => not("nobody holds it".to_owned()),
    }
}

/// The same as [`take`], within `limit`. A call that has not come back by then is left behind with its thread, and counts as no fence.
///
/// # Errors
/// As [`take`], and if the time is over.
pub fn take_within<F: Fence + Send + 'static>(
    mut lun: F,
    mine: Key,
    victim: Key,
    limit: Duration,
) -> Result<Confirmed, FenceError> {
    let name = lun.name();
    let (send, done) = channel();
    let work = move || drop(send.send(take(&mut lun, mine, victim)));
    let spawned = std::thread::Builder::new().name("fence".to_owned()).spawn(work);
    if let Err(why) = spawned {
        return Err(FenceError::Io { lun: name, why });
    }
    match done.recv_timeout(limit) {
        Ok(result) => result,
        Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
            Err(FenceError::TimedOut { lun: name, limit })
        }
    }
}

#[cfg(test)]
mod tests;
