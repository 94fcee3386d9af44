//! The fence around a LUN: a dead or silent controller is kept from writing before anybody else opens what it had.
//!
//! Success of a call proves nothing (nvmet answers it and does nothing). A fence counts once keys and holder were read back.
//!
//! | call | its success says |
//! |---|---|
//! | [`take`] | the partner's key is gone, mine is the only one and holds the LUN. [`Confirmed::is_drained`]: nor can a write land that the array had taken |
//! | [`race`] | the same on a LUN that nobody held: of two that race, one wins. The loser's writes in the array may land |
//! | [`confirm`] | at this moment my key is the only one and holds the LUN |
//! | [`confirm_held`] | at this moment I hold the LUN, and none but the partner is registered beside me: the owner in normal times |
//!
//! [`FenceError::is_lost`] is true of the loser's answer. No call here registers: an array lets a victim register again, and write.

pub mod calls;
mod ioctl;
mod nvme;
mod path;
mod pending;
mod proof;
mod scsi;
mod shown;
mod taking;

pub use ioctl::BlockFence;
pub use path::{Fence, FenceError, KIND};
pub use proof::{Confirmed, Ownership, confirm, confirm_held, race, race_while, take};
pub use shown::{SHOWN, Shown};
pub use taking::{Taking, take_within};

#[cfg(test)]
mod tests;
