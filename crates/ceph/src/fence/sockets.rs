//! Bytes that were sent and not acknowledged: how long the kernel goes on with them, also after the death of the process.
//!
//! Librados does not let its sockets be seen. Every connection that this program makes over TCP is one of its, though: all
//! others are made to ports that it listens on.

use loligo_block::lease::boottime;
use std::collections::HashSet;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Between two looks, nanoseconds, however many images there are.
const EVERY: u64 = 900_000_000;

/// The time of the last look, nanoseconds since boot.
static LOOKED: AtomicU64 = AtomicU64::new(0);

/// The shortest limit that was asked for, milliseconds: nobody can tell whose image a connection is for.
static SHORTEST: AtomicU64 = AtomicU64::new(u64::MAX);

/// Has the kernel give connections up that make no progress for `limit`, with all that was to be sent over them. Those that have
/// a shorter limit keep it.
pub(crate) fn bound(limit: Duration) {
    let millis = limit.as_millis() as u64;
    let limit = SHORTEST.fetch_min(millis, Ordering::Relaxed).min(millis);
    let (now, last) = (boottime(), LOOKED.load(Ordering::Relaxed));
    if now < last + EVERY || LOOKED.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_err()
    {
        return;
    }
    let limit = c_int::try_from(limit).unwrap_or(c_int::MAX).max(1);
    let sockets = of_tcp();
    let listens = |s: &&c_int| get(**s, libc::SOL_SOCKET, libc::SO_ACCEPTCONN) == Some(1);
    let ours: HashSet<u16> = sockets.iter().filter(listens).filter_map(|s| port(*s)).collect();
    for socket in &sockets {
        if port(*socket).is_none_or(|p| ours.contains(&p)) {
            continue;
        }
        let old = get(*socket, libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT);
        if old.is_some_and(|old| old == 0 || old > limit) {
            set(*socket, limit);
        }
    }
}

/// Descriptors of this process that are of TCP. One may be another's by the time it is used, which does no harm.
fn of_tcp() -> Vec<c_int> {
    let Ok(all) = std::fs::read_dir("/proc/self/fd") else { return Vec::new() };
    let numbers = all.filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok());
    numbers.filter(|s| get(*s, libc::SOL_SOCKET, libc::SO_PROTOCOL) == Some(libc::IPPROTO_TCP)).collect()
}

fn get(socket: c_int, level: c_int, option: c_int) -> Option<c_int> {
    let mut value: c_int = 0;
    let mut size = size_of::<c_int>() as libc::socklen_t;
    // SAFETY: one number is written, whatever the descriptor is.
    let code = unsafe { libc::getsockopt(socket, level, option, (&raw mut value).cast(), &raw mut size) };
    (code == 0).then_some(value)
}

fn set(socket: c_int, limit: c_int) {
    let size = size_of::<c_int>() as libc::socklen_t;
    // SAFETY: one number is read. Where it is refused the connection has ended.
    unsafe {
        libc::setsockopt(socket, libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, (&raw const limit).cast(), size)
    };
}

/// The local port.
fn port(socket: c_int) -> Option<u16> {
    // SAFETY: all zeroes is an address, and the kernel writes no more than its size.
    unsafe {
        let mut address: libc::sockaddr_in6 = std::mem::zeroed();
        let mut size = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
        let code = libc::getsockname(socket, (&raw mut address).cast(), &raw mut size);
        // Both families have their port in the same place.
        (code == 0).then(|| u16::from_be(address.sin6_port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    #[test]
    fn connections_out_are_bounded_and_those_of_clients_are_not() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let out = TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
        let (accepted, _) = listener.accept().expect("a connection");
        LOOKED.store(0, Ordering::Relaxed);
        bound(Duration::from_secs(7));
        let limit = |s: c_int| get(s, libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT);
        assert_eq!(limit(out.as_raw_fd()), Some(7000));
        assert_eq!(limit(accepted.as_raw_fd()), Some(0));
        // Another image's shorter limit holds, whoever looks next.
        bound(Duration::from_secs(5));
        LOOKED.store(0, Ordering::Relaxed);
        bound(Duration::from_secs(7));
        assert_eq!(limit(out.as_raw_fd()), Some(5000));
    }
}
