//! One thread, one ring: reap, step, carry out, submit.
//!
//! [`start`] takes an opened volume and its listening sockets and runs it on one thread per shard; [`Handle`] is how
//! everybody else talks to these threads. A request travels: socket → `export` → router → the shard that owns its
//! window (this thread, or another's mailbox) → engine → devices, and back the same way. The requests
//! of a mount and of a block device's queue come to the thread by its ring, too; [`Local`] is the way in for clients in the
//! same process.

mod alone;
mod bare;
mod cached;
mod draft;
mod exchange;
mod locals;
mod looper;
mod mail;
mod port;
mod sockets;
mod start;
mod status;

pub use alone::Alone;
pub use draft::Draft;
pub use exchange::Paused;
pub use locals::Local;
pub use mail::{Ask, Handle, Said, Snapshot};
pub use start::{Backend, CoreSource, Ended, Plan, Running, start};
