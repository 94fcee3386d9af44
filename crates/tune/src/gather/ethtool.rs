//! Rings, channels, coalescing and offloads of a network interface, by the kernel's ethtool calls.

use std::mem::zeroed;
use std::os::fd::AsRawFd as _;

/// Numbers of a request; the longest of those that are asked, `struct ethtool_coalesce`, has 23.
const WORDS: usize = 32;
/// `ETHTOOL_GCOALESCE`.
const COALESCE: u32 = 0x0e;
/// `ETHTOOL_GRINGPARAM`.
const RINGS: u32 = 0x10;
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

/// Asks the driver of `name`, on this host alone.
pub(super) fn look(name: &str) -> Option<Ethtool> {
    let socket =
        std::net::UdpSocket::bind("0.0.0.0:0").or_else(|_| std::net::UdpSocket::bind("[::]:0")).ok()?;
    let ask = |request: u32| call(&socket, name, request);
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

/// One call; nothing where the driver does not know it.
fn call(socket: &std::net::UdpSocket, name: &str, request: u32) -> Option<[u32; WORDS]> {
    let mut words = [0; WORDS];
    words[0] = request;
    // SAFETY: a structure of numbers and of an array, for which zeros are a value.
    let mut call: libc::ifreq = unsafe { zeroed() };
    if name.len() >= call.ifr_name.len() {
        return None;
    }
    for (to, from) in call.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    call.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
    // SAFETY: the name ends with a zero; the kernel reads and writes one structure of `request`, none of which is longer than `words`.
    let code = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL, &raw mut call) };
    (code == 0).then_some(words)
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
    }
}
