//! How a volume is reached: the NBD server.
//!
//! No thread and no event loop live here. [`nbd::Conn`] is one connection without its socket; [`Server`] holds the
//! sockets of many and is called by whoever waits for them; [`Listener`] makes them.

pub mod listen;
pub mod nbd;
pub mod server;
pub mod tls;

pub use listen::{ListenAddr, ListenError, Listener};
pub use nbd::{Export, Limits};
pub use server::{ConnId, Interest, Server};
pub use tls::{Credentials, TlsContext, TlsError};
