//! Who is at the other end of a connection.

use rustix::net::{getpeername, sockopt};
use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;

/// Whoever connections are counted for. One host may have many connections and many ports; one with IPv6 has many
/// addresses, of which the first 64 bits are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Peer {
    /// A host, or a network of 64 bits of IPv6.
    Host(IpAddr),
    /// A process of this host, by its number and user.
    Process(i32, u32),
    /// The kernel does not say.
    Unknown,
}

impl Peer {
    /// The peer of a connected socket.
    pub fn of(socket: impl AsFd) -> Peer {
        let fd = socket.as_fd();
        match address(fd).map(|a| a.ip().to_canonical()) {
            Some(IpAddr::V6(a)) => {
                let network = u128::from(a) & !u128::from(u64::MAX);
                // Loopback and link-local addresses have no network that says whose they are.
                let whole = a.is_loopback() || a.is_unicast_link_local();
                Peer::Host(IpAddr::V6(if whole { a } else { Ipv6Addr::from(network) }))
            }
            Some(v4) => Peer::Host(v4),
            None => match sockopt::socket_peercred(fd) {
                Ok(c) => Peer::Process(c.pid.as_raw_nonzero().get(), c.uid.as_raw()),
                Err(_) => Peer::Unknown,
            },
        }
    }
}

/// The address at the other end of a TCP socket, with its port.
pub(crate) fn address(socket: impl AsFd) -> Option<SocketAddr> {
    getpeername(socket.as_fd()).ok().flatten().and_then(|a| SocketAddr::try_from(a).ok())
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Host(IpAddr::V6(a)) if a.segments()[4..] == [0; 4] => write!(f, "{a}/64"),
            Peer::Host(a) => a.fmt(f),
            Peer::Process(pid, uid) => write!(f, "process {pid} of user {uid}"),
            Peer::Unknown => f.write_str("an unknown peer"),
        }
    }
}
