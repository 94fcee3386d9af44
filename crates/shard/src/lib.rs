//! One thread, one ring: reap, step, carry out, submit.
//!
//! [`start`] takes an opened volume and its listening sockets and runs it on one thread per shard; [`Handle`] is how
//! everybody else talks to these threads. A request travels: socket → `export` → router → the shard that owns its
//! window (this thread, or another's mailbox) → engine → devices, and back the same way. The requests
//! of a mount and of a block device's queue come to the thread by its ring, too; [`Local`] is the way in for clients in the
//! same process.

mod clients;
mod command_error;
mod devices;
mod engine_driver;
mod engine_setup;
mod exchange;
mod message;
mod reactor;
mod sockets;
mod standalone;
mod start;
mod status;
mod uncached;

pub use clients::{Leases, Local};
pub use command_error::CommandError;
pub use engine_setup::EngineSetup;
pub use exchange::Paused;
pub use message::{Command, Handle, Response, Snapshot};
pub use standalone::StandaloneShard;
pub use start::{Backend, CoreSource, Ended, Plan, Running, start};
