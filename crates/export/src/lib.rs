//! How a volume is reached: the NBD server, the file in a FUSE mount, the block device over that file, and the kernel's own.
//!
//! NBD has no thread and no event loop here. [`nbd::Conn`] is one connection without its socket; [`Server`] holds the
//! sockets of many and is called by whoever waits for them; [`Listener`] makes them. A FUSE [`fuse::Mount`] has threads of its
//! own, which hand what they are asked to a [`Volume`] and never wait for it. The queues of a [`ublk::Device`] live on the rings of
//! the volume's threads.

pub mod blockdev;
pub mod fuse;
pub mod listen;
pub mod local;
mod names;
pub mod nbd;
pub mod server;
pub mod tls;
pub mod ublk;
pub mod way;

pub use listen::{ListenAddr, ListenError, Listener};
pub use local::{Answered, Volume};
pub use nbd::{Export, Limits};
pub use server::{ConnId, Interest, LOCAL_IDS, Server};
pub use tls::{Credentials, TlsContext, TlsError};
pub use way::Way;
