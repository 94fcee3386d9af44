//! The largest packet that reaches another host in one piece, by echo requests that must not be split.

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, connect, ipproto, recv, send, socket};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::time::{Duration, Instant};

/// Bytes of the headers of IP and of an echo.
const HEADERS: i64 = 28;
/// The least packet that every link carries whole.
const LEAST: i64 = 576;
/// The time that an answer may take. Hosts of a cluster answer within a millisecond.
const ANSWER: Duration = Duration::from_millis(300);
/// A packet that is not answered is sent so many times.
const TRIES: u16 = 2;
/// `ICMP_ECHO` and `ICMP_ECHOREPLY`.
const REQUEST: u8 = 8;
const REPLY: u8 = 0;

/// The largest packet of at most `mtu` bytes that comes to `address` whole, bytes.
///
/// # Errors
/// If this process may not send echo requests, or `address` answers none.
pub(super) fn proven(address: Ipv4Addr, mtu: i64) -> Result<i64, String> {
    let mut echo = Echo::new(address, None)?;
    if echo.passes(mtu)? {
        return Ok(mtu);
    }
    if !echo.passes(LEAST)? {
        return Err("it answers no echo request: a firewall may drop them".to_owned());
    }
    search(LEAST, mtu, |size| echo.passes(size))
}

/// True if a packet of `size` bytes that goes out by the interface `nic` comes to `address` whole.
///
/// # Errors
/// If this process may not send echo requests.
pub(crate) fn passes(address: Ipv4Addr, nic: &str, size: i64) -> Result<bool, String> {
    Echo::new(address, Some(nic))?.passes(size)
}

/// The largest size that passes, of which `good` does and `bad` does not.
fn search(good: i64, bad: i64, mut passes: impl FnMut(i64) -> Result<bool, String>) -> Result<i64, String> {
    let (mut good, mut bad) = (good, bad);
    while bad - good > 1 {
        let middle = i64::midpoint(good, bad);
        if passes(middle)? { good = middle } else { bad = middle }
    }
    Ok(good)
}

/// A socket for echo requests to one address.
#[derive(Debug)]
struct Echo {
    socket: OwnedFd,
    address: Ipv4Addr,
    /// The kernel gives answers with their IP headers.
    is_raw: bool,
    sequence: u16,
}

impl Echo {
    /// With a `nic` packets go and come by that one alone.
    fn new(address: Ipv4Addr, nic: Option<&str>) -> Result<Echo, String> {
        let open = |kind| socket(AddressFamily::INET, kind, Some(ipproto::ICMP));
        let (socket, is_raw) = match open(SocketType::RAW) {
            Ok(socket) => (socket, true),
            Err(_) => {
                let refused = |why: Errno| {
                    format!(
                        "no echo request may be sent ({why}): run this as root, or widen net.ipv4.ping_group_range"
                    )
                };
                (open(SocketType::DGRAM).map_err(refused)?, false)
            }
        };
        let fail = |why: Errno| why.to_string();
        if let Some(nic) = nic {
            set(&socket, libc::SOL_SOCKET, libc::SO_BINDTODEVICE, nic.as_bytes())
                .map_err(|why| format!("no packet is sent by {nic}: {why}"))?;
        }
        connect(&socket, &SocketAddrV4::new(address, 0)).map_err(fail)?;
        set_socket_timeout(&socket, Timeout::Recv, Some(ANSWER)).map_err(fail)?;
        never_split(&socket)?;
        Ok(Echo { socket, address, is_raw, sequence: 0 })
    }

    /// A packet of `size` bytes is answered.
    fn passes(&mut self, size: i64) -> Result<bool, String> {
        for _ in 0..TRIES {
            self.sequence += 1;
            let packet = request(std::process::id() as u16, self.sequence, (size - HEADERS).max(0) as usize);
            match send(&self.socket, &packet, SendFlags::empty()) {
                Ok(_) => {}
                // The interface itself takes no more.
                Err(Errno::MSGSIZE) => return Ok(false),
                // A way may come back within the time of the tries after it.
                Err(Errno::HOSTUNREACH | Errno::NETUNREACH | Errno::NETDOWN) => continue,
                Err(why) => return Err(why.to_string()),
            }
            if self.answered(packet.len()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn answered(&self, length: usize) -> bool {
        let (begun, mut buf) = (Instant::now(), vec![0; 1 << 16]);
        while begun.elapsed() < ANSWER {
            let Ok((got, _)) = recv(&self.socket, buf.as_mut_slice(), RecvFlags::empty()) else {
                return false;
            };
            let packet = &buf[..got.min(buf.len())];
            let header =
                if self.is_raw { usize::from(packet.first().copied().unwrap_or(0) & 15) * 4 } else { 0 };
            // Before it was connected the socket may have heard answers of others.
            if self.is_raw && packet.get(12..16) != Some(self.address.octets().as_slice()) {
                continue;
            }
            let Some(packet) = packet.get(header..) else { continue };
            let sequence = self.sequence.to_be_bytes();
            if packet.len() == length && packet[0] == REPLY && packet[6..8] == sequence {
                return true;
            }
        }
        false
    }
}

/// Has the kernel send packets whole or not at all, whatever it has heard of the way.
fn never_split(socket: &OwnedFd) -> Result<(), String> {
    set(socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, &libc::IP_PMTUDISC_PROBE.to_ne_bytes())
}

fn set(socket: &OwnedFd, level: libc::c_int, option: libc::c_int, value: &[u8]) -> Result<(), String> {
    // SAFETY: the descriptor is open, and the kernel reads as many bytes as `value` has.
    let code = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            value.as_ptr().cast(),
            value.len() as libc::socklen_t,
        )
    };
    if code == 0 { Ok(()) } else { Err(std::io::Error::last_os_error().to_string()) }
}

/// An echo request with `bytes` of content.
fn request(id: u16, sequence: u16, bytes: usize) -> Vec<u8> {
    let mut packet = vec![REQUEST, 0, 0, 0];
    packet.extend(id.to_be_bytes());
    packet.extend(sequence.to_be_bytes());
    packet.resize(8 + bytes, 0x5a);
    let sum = checksum(&packet);
    packet[2..4].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// The checksum of the Internet (RFC 1071).
fn checksum(packet: &[u8]) -> u16 {
    let words = packet.chunks(2).map(|it| u32::from(it[0]) << 8 | u32::from(it.get(1).copied().unwrap_or(0)));
    let mut sum = words.fold(0u32, u32::wrapping_add);
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_search_ends_at_the_last_size_that_passes() {
        for limit in [577, 1400, 1499] {
            assert_eq!(search(LEAST, 1500, |size| Ok(size <= limit)), Ok(limit));
        }
    }

    #[test]
    fn a_request_has_the_checksum_of_its_content() {
        let packet = request(7, 3, 5);
        assert_eq!((packet.len(), packet[0], checksum(&packet)), (13, REQUEST, 0));
    }

    #[test]
    fn the_loopback_answers_its_whole_mtu() {
        match proven(Ipv4Addr::LOCALHOST, 60_000) {
            Ok(size) => assert_eq!(size, 60_000),
            Err(why) => assert!(why.contains("ping_group_range"), "{why}"),
        }
    }
}
