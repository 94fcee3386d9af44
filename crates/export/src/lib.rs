//! The ways to reach a volume: the NBD server, the file in a FUSE mount, the block device over that file, and
//! the kernel's own.
//!
//! NBD has no thread and no event loop here. [`nbd::Conn`] is one connection without its socket; [`Server`] holds the
//! sockets of many and is called by whoever waits for them; [`Listener`] makes them. The requests
//! of a FUSE [`fuse::Mount`] arrive at a [`fuse::Session`], and those of a [`ublk::Device`] in its queues: both live on the rings of the
//! volume's threads. Clients in the same process ask a [`Volume`].

pub mod blockdev;
mod complaints;
pub mod export_spec;
pub mod fuse;
mod handshakes;
pub mod listen;
pub mod local;
mod names;
pub mod nbd;
pub mod peer;
pub mod server;
mod socket_spec;
mod source;
pub mod tls;
pub mod ublk;

pub use export_spec::ExportSpec;
pub use listen::{ListenAddr, ListenError, Listener};
pub use local::{Answered, Volume};
pub use nbd::{Export, Limits};
pub use peer::Peer;
pub use server::{ConnId, Interest, Server};
pub use socket_spec::SocketSpec;
pub use source::Source;
pub use tls::{Credentials, Guard, TlsContext, TlsError};
