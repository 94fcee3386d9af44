//! The volume as a block device of the kernel, through ublk.
//!
//! The kernel's requests arrive on the rings of the volume's own threads: a [`Queue`] per thread, no thread and no hop of its
//! own (decision 0022). The [`Device`] outlives its server: when that ends, in whatever way, the device stays as long as it
//! is open, requests wait, and whoever serves the volume next takes it over, with everything that was not answered.

mod control;
mod device;
mod error;
mod idle;
mod parameters;
mod queue;
mod uapi;
mod users;
mod watch;

pub use control::available;
pub use device::{Device, Left};
pub use error::UblkError;
pub use idle::{COMMAND as HOLD_DEVICE, hold};
pub use parameters::Traits;
pub use queue::Queue;
pub use watch::Watch;
