//! Has the clients of a volume notice that its server is gone, as Samba's CTDB does.
//!
//! A client that waits for an answer of a host that died has nothing to send, and its kernel would wait for long. A bare ACK from the
//! server's address and port, with a number that fits nothing, makes that kernel say what it expects (RFC 5961 section 5). The new
//! host knows of no such connection and resets it. The client connects again at once.

use crate::again::now_and_again;
use crate::peers::Peer;
use std::io;
use std::net::SocketAddrV4;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// Bytes of a TCP header without options.
const SEGMENT: usize = 20;
/// It is sent so long after the first, as one may be lost, or come before its client knows where the address is.
const AGAIN: [Duration; 3] =
    [Duration::from_millis(100), Duration::from_millis(400), Duration::from_millis(1500)];

/// Sends to each of `peers`, and again some times in the background.
///
/// # Errors
/// If nothing can be sent.
pub fn tickle(peers: Vec<Peer>) -> io::Result<()> {
    now_and_again("tickle", &AGAIN, move || peers.iter().try_for_each(|peer| send(*peer)))
}

fn send(peer: Peer) -> io::Result<()> {
    // SAFETY: no pointer is given; the descriptor is ours alone.
    let socket = unsafe {
        let fd = libc::socket(libc::AF_INET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::IPPROTO_TCP);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        OwnedFd::from_raw_fd(fd)
    };
    let (from, to) = (address(peer.local), address(peer.remote));
    let len = size_of_val(&from) as libc::socklen_t;
    // SAFETY: the address lives through the call, with the length that is given.
    if unsafe { libc::bind(socket.as_raw_fd(), (&raw const from).cast(), len) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let bytes = segment(peer);
    // SAFETY: segment and address live through the call, with the lengths that are given.
    let sent = unsafe {
        libc::sendto(socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), 0, (&raw const to).cast(), len)
    };
    if sent == SEGMENT as isize { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The address as the kernel has it. A raw socket has no port.
fn address(of: SocketAddrV4) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: 0,
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(of.ip().octets()) },
        sin_zero: [0; 8],
    }
}

/// An ACK without data, with the numbers 0 (RFC 9293 section 3.1).
fn segment(peer: Peer) -> [u8; SEGMENT] {
    let mut bytes = [0; SEGMENT];
    bytes[0..2].copy_from_slice(&peer.local.port().to_be_bytes());
    bytes[2..4].copy_from_slice(&peer.remote.port().to_be_bytes());
    // Five words of header; ACK; some window.
    bytes[12..16].copy_from_slice(&[5 << 4, 0x10, 0x10, 0]);
    let sum = checksum(peer, &bytes);
    bytes[16..18].copy_from_slice(&sum.to_be_bytes());
    bytes
}

/// The Internet checksum of a segment with its pseudo header.
fn checksum(peer: Peer, bytes: &[u8; SEGMENT]) -> u16 {
    let mut all = [peer.local.ip().octets(), peer.remote.ip().octets()].concat();
    all.extend([0, libc::IPPROTO_TCP as u8, 0, SEGMENT as u8]);
    all.extend(bytes);
    let mut sum: u32 =
        all.chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_is_an_ack_whose_sum_is_right() {
        let peer =
            Peer { local: "192.0.2.50:10809".parse().unwrap(), remote: "192.0.2.7:40000".parse().unwrap() };
        let bytes = segment(peer);
        assert_eq!(bytes[..4], [0x2a, 0x39, 0x9c, 0x40]);
        assert_eq!((bytes[12] >> 4, bytes[13]), (5, 0x10));
        // Summed with its own sum, a segment gives zero.
        assert_eq!(checksum(peer, &bytes), 0);
    }
}
