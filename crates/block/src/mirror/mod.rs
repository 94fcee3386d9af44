//! A device on two legs: one on this controller's array, one on its partner's. A write is acknowledged once both have it.
//!
//! [`Machine`] decides, without any I/O; [`decide`] says at an open which leg may be believed. The note of a leg is a
//! [`Mark`]; its bytes are in `loligo-format`.

mod access;
mod device;
mod flaw;
mod io;
mod legs;
mod live;
mod machine;
mod mark;
mod setup;

pub use access::{Access, OpId, Time};
pub use device::MirroredDevice;
pub use flaw::{Flaw, Flaws};
pub use io::MirroredIo;
pub use legs::Mirror;
pub use machine::{Action, Change, Machine, MirrorState, Policy, Settings};
pub use mark::{Leg, Mark, MarkState, Opening, Refused, Seen, decide};
pub use setup::{MirrorView, Setup, StoreMark, Tell};
