//! The NBD protocol without sockets: everything here turns bytes into requests and answers into bytes.

pub mod conn;
pub mod export;
mod in_flight;
pub mod limits;
mod negotiate;
mod output;
pub mod proto;
pub mod share;
mod transmission;
mod watch;
mod wholes;

pub use conn::{Closed, Conn};
pub use export::Export;
pub use limits::Limits;
pub use output::MAX_SLICES;
pub use share::{Budget, PeerUse, Share};
pub use watch::Watch;
