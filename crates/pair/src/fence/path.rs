//! A path to a LUN: the calls that change its reservation, and the ways in which they fail.

use super::shown::Shown;
use crate::reservation::{Key, Kind};
use std::io;
use std::time::Duration;
use thiserror::Error;

/// The type of every reservation of a pair: whoever is registered writes, everybody reads.
pub const KIND: Kind = Kind::WriteExclusiveRegistrants;

/// The reason why a LUN is not fenced, or not known to be.
#[derive(Debug, Error)]
pub enum FenceError {
    /// The reservation forbids it: the caller's key is gone, or another holds the LUN.
    #[error(
        "{lun}: the reservation forbids it: this controller's key is not registered, or another holds it"
    )]
    Conflict {
        /// The path to the LUN.
        lun: String,
    },
    /// The LUN has no holder, and this path was left out when the pair was set up, or its registration was lost alone.
    #[error(
        "{lun}: this path is not registered, and nobody holds the LUN: 'loligo pair setup' on this controller registers it"
    )]
    Unregistered {
        /// The path to the LUN.
        lun: String,
    },
    /// Others are registered, and the caller is not: its partner has taken the LUN from it.
    #[error(
        "{lun}: this controller's key {:#x} is not registered, and others are: the LUN was taken from it; \
         end what writes to it, and do not register again before it is given back",
        .key.0
    )]
    KeyGone {
        /// The path to the LUN.
        lun: String,
        /// The caller's key.
        key: Key,
    },
    /// The partner has reserved the LUN first. It is about to take the caller's key.
    #[error("{lun}: the race is lost: the partner, whose key is {:#x}, reserved it first", .partner.0)]
    RaceLost {
        /// The path to the LUN.
        lun: String,
        /// The winner's key.
        partner: Key,
    },
    /// Nobody is registered: nobody has set the LUN up, or the array has lost its registrations.
    #[error(
        "{lun}: nobody is registered, so the array has lost its registrations or never had any; \
         stop both controllers' programs on it, then set the pair up again"
    )]
    NoKeys {
        /// The path to the LUN.
        lun: String,
    },
    /// The device has no reservations, or the kernel does not pass them on.
    #[error("{lun} has no reservations that this kernel passes on: {why}")]
    Unsupported {
        /// The path to the LUN.
        lun: String,
        /// The kernel's answer.
        why: io::Error,
    },
    /// The path failed.
    #[error("{lun}: its reservation cannot be reached: {why}")]
    Io {
        /// The path to the LUN.
        lun: String,
        /// The kernel's answer.
        why: io::Error,
    },
    /// The call was answered, and what the array says of itself afterwards is no fence.
    #[error("{lun} is not fenced: {why}; read its keys and find out who has it before anything is opened")]
    NotConfirmed {
        /// The path to the LUN.
        lun: String,
        /// The difference.
        why: String,
    },
    /// An earlier call of this process is not answered yet. The keys may say already that it had effect, while writes that the
    /// array had taken go on.
    #[error("{lun} is not fenced: an earlier call is not answered yet; wait for it")]
    Pending {
        /// The path to the LUN.
        lun: String,
    },
    /// No answer came in time. It may come later, and with effect.
    #[error("{lun} is not fenced: no answer in {} s", .limit.as_secs_f64())]
    TimedOut {
        /// The path to the LUN.
        lun: String,
        /// The time that it had.
        limit: Duration,
    },
}

impl FenceError {
    /// True if the partner has the LUN, or is about to. A failed path, a time-out and a refused command are something else.
    pub fn is_lost(&self) -> bool {
        matches!(self, FenceError::KeyGone { .. } | FenceError::RaceLost { .. })
    }
}

/// The registrations and the reservation of one LUN by one path.
pub trait Fence {
    /// The path to the LUN, as people name it.
    fn name(&self) -> String;
    /// Registers this path with `new` in place of `old`. [`Key::NONE`] as `new` ends the registration.
    ///
    /// # Errors
    /// If `old` is not its key, or the path fails.
    fn register(&mut self, old: Key, new: Key) -> Result<(), FenceError>;
    /// Reserves the LUN. Nothing changes if `mine` holds it.
    ///
    /// # Errors
    /// If `mine` is not this path's key, another reservation stands, or the path fails.
    fn reserve(&mut self, mine: Key) -> Result<(), FenceError>;
    /// Gives the reservation back.
    ///
    /// # Errors
    /// If `mine` is not this path's key, or the path fails.
    fn release(&mut self, mine: Key) -> Result<(), FenceError>;
    /// Takes registration and reservation of `victim`. If `victim` held the LUN, returns once its writes that the array had
    /// taken are ended or cancelled; else they may still land.
    ///
    /// # Errors
    /// If `mine` is not this path's key, nobody is registered with `victim`, or the path fails.
    fn preempt_and_abort(&mut self, mine: Key, victim: Key) -> Result<(), FenceError>;
    /// Registered keys and the reservation, as the array has them now.
    ///
    /// # Errors
    /// If the path fails, or cannot tell.
    fn read(&mut self) -> Result<Shown, FenceError>;
    /// True while a [`Fence::preempt_and_abort`] of this process is not answered, by any handle of the same path. Keys and
    /// holder prove nothing until then.
    fn is_pending(&self) -> bool {
        false
    }
}
