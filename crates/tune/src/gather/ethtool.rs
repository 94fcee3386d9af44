//! Rings, channels, coalescing and offloads of a network interface, by the kernel's ethtool calls. Some of it can be set.

use super::by_socket;
use std::io::{Error, Result};
use std::net::UdpSocket;
use std::os::fd::AsRawFd as _;

/// Numbers of a request; the longest of those that are asked, `struct ethtool_coalesce`, has 23.
const WORDS: usize = 32;
/// `ETHTOOL_GCOALESCE`.
const COALESCE: u32 = 0x0e;
/// `ETHTOOL_GRINGPARAM`.
const RINGS: u32 = 0x10;
/// `ETHTOOL_SCOALESCE`.
const SET_COALESCE: u32 = 0x0f;
/// `ETHTOOL_SRINGPARAM`.
const SET_RINGS: u32 = 0x11;
/// `ETHTOOL_GPERMADDR`.
const PERMANENT: u32 = 0x20;
/// Bytes of the longest address, `MAX_ADDR_LEN`.
const LONGEST: u32 = 32;
/// `ETHTOOL_GCHANNELS`.
const CHANNELS: u32 = 0x3c;
/// Offloads with their requests, whose answer is one number.
const OFFLOADS: [(u32, &str); 6] = [
    (0x14, "rx-checksum"),
    (0x16, "tx-checksum"),
    (0x18, "scatter-gather"),
    (0x1e, "tso"),
    (0x23, "gso"),
    (0x2b, "gro"),
];

/// The answers of an interface. A driver that does not know one leaves it out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Ethtool {
    /// The receive ring, and the longest that it could have.
    pub(super) rings: Option<(i64, i64)>,
    /// Receive queues that it could have.
    pub(super) max_queues: Option<i64>,
    /// Coalescing adapts to the load.
    pub(super) adaptive_rx: Option<bool>,
    /// The delay of an interrupt, microseconds.
    pub(super) rx_usecs: Option<i64>,
    /// Offloads that are on.
    pub(super) offloads: Vec<String>,
}

/// A number that a driver takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Field {
    /// The receive ring, packets.
    Ring,
    /// Coalescing adapts to the load: 1, or 0.
    AdaptiveRx,
    /// The delay of an interrupt, microseconds.
    RxUsecs,
}

impl Field {
    /// The requests that read and that set it, and its place among the numbers of either.
    fn at(self) -> (u32, u32, usize) {
        match self {
            Field::Ring => (RINGS, SET_RINGS, 5),
            Field::AdaptiveRx => (COALESCE, SET_COALESCE, 10),
            Field::RxUsecs => (COALESCE, SET_COALESCE, 1),
        }
    }
}

/// Asks the driver of `name`, on this host alone.
pub(super) fn look(name: &str) -> Option<Ethtool> {
    let socket = socket().ok()?;
    let ask = |request: u32| ask(&socket, name, request).ok();
    let coalesce = ask(COALESCE);
    let is_on = |(request, _): &&(u32, &str)| ask(*request).is_some_and(|answer| answer[1] == 1);
    let on = OFFLOADS.iter().filter(is_on).map(|(_, name)| (*name).to_owned());
    Some(Ethtool {
        rings: ask(RINGS).map(|it| (i64::from(it[5]), i64::from(it[1]))),
        max_queues: ask(CHANNELS).map(|it| i64::from(it[1]) + i64::from(it[4])),
        adaptive_rx: coalesce.map(|it| it[10] != 0),
        rx_usecs: coalesce.map(|it| i64::from(it[1])),
        offloads: on.collect(),
    })
}

/// A number of the driver of `name`.
///
/// # Errors
/// If there is no such interface here, or its driver does not tell.
pub(crate) fn get(name: &str, field: Field) -> Result<u32> {
    let (read, _, at) = field.at();
    Ok(ask(&socket()?, name, read)?[at])
}

/// Sets a number, and leaves those that go with it as they are.
///
/// # Errors
/// If there is no such interface here, or its driver refuses.
pub(crate) fn set(name: &str, field: Field, value: u32) -> Result<()> {
    let (read, set, at) = field.at();
    let socket = socket()?;
    let mut words = ask(&socket, name, read)?;
    (words[0], words[at]) = (set, value);
    call(&socket, name, &mut words)
}

/// The address that the interface was made with, whatever it has now; nothing: its driver knows none.
pub(crate) fn permanent_address(name: &str) -> Option<String> {
    let mut words = [0; WORDS];
    (words[0], words[1]) = (PERMANENT, LONGEST);
    call(&socket().ok()?, name, &mut words).ok()?;
    let bytes: Vec<u8> = words[2..].iter().flat_map(|word| word.to_ne_bytes()).collect();
    let bytes = bytes.get(..words[1] as usize)?;
    let is_one = bytes.iter().any(|byte| *byte != 0);
    is_one.then(|| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":"))
}

fn socket() -> Result<UdpSocket> {
    UdpSocket::bind("0.0.0.0:0").or_else(|_| UdpSocket::bind("[::]:0"))
}

/// The numbers of an answer. The first is the request.
fn ask(socket: &UdpSocket, name: &str, request: u32) -> Result<[u32; WORDS]> {
    let mut words = [0; WORDS];
    words[0] = request;
    call(socket, name, &mut words)?;
    Ok(words)
}

/// One call; its answer is in `words`.
fn call(socket: &UdpSocket, name: &str, words: &mut [u32; WORDS]) -> Result<()> {
    let mut call = by_socket::of_name(name).ok_or_else(|| Error::from_raw_os_error(libc::ENODEV))?;
    call.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
    // SAFETY: the name ends with a zero; the kernel reads and writes one structure of the request, none of which is longer than `words`.
    let code = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL, &raw mut call) };
    if code == 0 { Ok(()) } else { Err(Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_that_is_none_says_nothing() {
        let seen = look("no-such-nic").expect("a socket");
        assert_eq!(seen, Ethtool::default());
        assert_eq!(look(&"n".repeat(64)), Some(Ethtool::default()));
    }

    #[test]
    fn the_loopback_says_its_offloads() {
        let seen = look("lo").expect("a socket");
        assert!(seen.offloads.iter().any(|it| it == "gso"), "{seen:?}");
        assert_eq!(permanent_address("lo"), None);
        assert!(get("lo", Field::Ring).is_err() && set("lo", Field::RxUsecs, 8).is_err());
    }
}
