//! The peer at the other end of a connection.

use rustix::net::getpeername;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};

/// The party that connections are counted for. One host may have many connections and many ports; one with IPv6 has many
/// addresses, of which the first 64 bits are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Peer {
    /// A host, or a network of 64 bits of IPv6.
    Host(IpAddr),
    /// A process of this host, by its number and user. Those that this pid namespace does not see have number 0, and
    /// count as one for each user.
    Process(i32, u32),
    /// The kernel does not say.
    Unknown,
}

/// Bits of the networks of IPv6 that are given out to one hand: to a provider, and to a site. Who has one is as many peers
/// as it likes.
const WIDTHS: [u32; 2] = [32, 48];

impl Peer {
    /// True if `other` is the same host, is of the same site, or is a process of the same user.
    pub(crate) fn is_akin(self, other: Peer) -> bool {
        match (self, other) {
            (Peer::Process(_, one), Peer::Process(_, two)) => one == two,
            (one, two) => one.circles()[1] == two.circles()[1],
        }
    }

    /// The networks that it is in and itself, the widest first. One that has none is alone in each.
    pub(crate) fn circles(self) -> [Peer; 3] {
        let within = |bits: u32| match self {
            Peer::Host(IpAddr::V6(a)) if !is_of_no_network(a) => {
                Peer::Host(IpAddr::V6(Ipv6Addr::from(u128::from(a) & !(u128::MAX >> bits))))
            }
            alone => alone,
        };
        [within(WIDTHS[0]), within(WIDTHS[1]), self]
    }

    /// The peer of a connected socket.
    pub fn of(socket: impl AsFd) -> Peer {
        let fd = socket.as_fd();
        match address(fd).map(|a| a.ip().to_canonical()) {
            Some(IpAddr::V6(a)) => {
                let network = u128::from(a) & !u128::from(u64::MAX);
                Peer::Host(IpAddr::V6(if is_of_no_network(a) { a } else { Ipv6Addr::from(network) }))
            }
            Some(v4) => Peer::Host(v4),
            None => credentials(fd).map_or(Peer::Unknown, |(pid, uid)| Peer::Process(pid, uid)),
        }
    }
}

/// Loopback and link-local addresses have no network that says whose they are.
fn is_of_no_network(a: Ipv6Addr) -> bool {
    a.is_loopback() || a.is_unicast_link_local()
}

/// Number and user of the process at the other end of a unix socket. The number is 0 where this pid namespace does not
/// see that process: none of rustix's, which takes every number for one that is.
pub(crate) fn credentials(socket: impl AsFd) -> io::Result<(i32, u32)> {
    let mut found = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes at `found`, of which every pattern is a ucred.
    let done = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut found).cast(),
            &raw mut len,
        )
    };
    if done == 0 { Ok((found.pid, found.uid)) } else { Err(io::Error::last_os_error()) }
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
            Peer::Process(0, uid) => write!(f, "a process of user {uid} in another pid namespace"),
            Peer::Process(pid, uid) => write!(f, "process {pid} of user {uid}"),
            Peer::Unknown => f.write_str("an unknown peer"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::path::Path;
    use std::process::Command;
    use std::time::{Duration, Instant};

    /// Names the socket that the test listens on in another pid namespace.
    const INSIDE: &str = "LOLIGO_TEST_PEER_SOCKET";

    #[test]
    fn a_peer_is_counted_with_its_site_and_its_provider() {
        let peer = |text: &str| Peer::Host(text.parse().unwrap());
        let [provider, site, own] = peer("2001:db8:1:2::").circles();
        assert_eq!((provider, site, own), (peer("2001:db8::"), peer("2001:db8:1::"), peer("2001:db8:1:2::")));
        assert!(own.is_akin(peer("2001:db8:1:ffff::")) && !own.is_akin(peer("2001:db8:2:2::")));
        for alone in [peer("192.0.2.1"), peer("::1"), peer("fe80::1"), Peer::Process(1, 2), Peer::Unknown] {
            assert_eq!(alone.circles(), [alone; 3]);
        }
        assert!(!peer("fe80::1").is_akin(peer("fe80::2")));
    }

    #[test]
    fn a_peer_of_this_namespace_has_its_number() {
        let (one, _other) = UnixStream::pair().unwrap();
        let uid = rustix::process::getuid().as_raw();
        assert_eq!(Peer::of(&one), Peer::Process(std::process::id() as i32, uid));
    }

    #[test]
    fn a_peer_of_another_pid_namespace_has_number_0() {
        let uid = rustix::process::getuid().as_raw();
        if let Some(path) = std::env::var_os(INSIDE) {
            let listener = UnixListener::bind(path).unwrap();
            let (socket, _) = listener.accept().unwrap();
            assert_eq!(Peer::of(&socket), Peer::Process(0, uid));
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let unshare = |program: &Path| {
            let mut command = Command::new("unshare");
            command.args(["--pid", "--fork", "--kill-child"]).arg(program);
            command
        };
        if !unshare(Path::new("true")).status().is_ok_and(|s| s.success()) {
            // Only root has a pid namespace to give.
            return;
        }
        let mut inside = unshare(&std::env::current_exe().unwrap());
        inside
            .args(["--exact", "peer::tests::a_peer_of_another_pid_namespace_has_number_0"])
            .env(INSIDE, &path);
        let mut inside = inside.spawn().unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        let client = loop {
            if let Ok(client) = UnixStream::connect(&path) {
                break client;
            }
            assert!(Instant::now() < deadline && inside.try_wait().unwrap().is_none(), "nobody listens");
            std::thread::sleep(Duration::from_millis(20));
        };
        assert!(inside.wait().unwrap().success());
        drop(client);
    }
}
