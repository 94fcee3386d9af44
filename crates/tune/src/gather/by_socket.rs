//! A network interface as sockets of this process see it.

use std::mem::zeroed;
use std::net::UdpSocket;
use std::os::fd::AsRawFd as _;

/// Bytes of an address that the kernel tells: longer ones are cut.
const ADDRESS: usize = 14;

/// Its index; nothing: there is no such interface.
pub(crate) fn index(name: &str) -> Option<i32> {
    let call = call(name, libc::SIOCGIFINDEX)?;
    // SAFETY: the kernel has written this member.
    Some(unsafe { call.ifr_ifru.ifru_ifindex })
}

/// The first bytes of its hardware address, at most `count` of them.
pub(crate) fn hardware_address(name: &str, count: usize) -> Option<Vec<u8>> {
    let call = call(name, libc::SIOCGIFHWADDR)?;
    // SAFETY: the kernel has written this member.
    let address = unsafe { call.ifr_ifru.ifru_hwaddr.sa_data };
    Some(address.iter().take(count.min(ADDRESS)).map(|byte| *byte as u8).collect())
}

/// True if it has an address of IPv4.
pub(crate) fn has_address(name: &str) -> bool {
    call(name, libc::SIOCGIFADDR).is_some()
}

/// A call of an interface, whose name ends with a zero in it; nothing: no interface has so long a name.
pub(super) fn of_name(name: &str) -> Option<libc::ifreq> {
    // SAFETY: a structure of numbers and of an array, for which zeros are a value.
    let mut call: libc::ifreq = unsafe { zeroed() };
    if name.len() >= call.ifr_name.len() {
        return None;
    }
    for (to, from) in call.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Some(call)
}

/// One call with its answer; nothing: it is refused.
fn call(name: &str, request: libc::Ioctl) -> Option<libc::ifreq> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    let mut call = of_name(name)?;
    // SAFETY: the name ends with a zero; the kernel reads and writes one structure of this size.
    let code = unsafe { libc::ioctl(socket.as_raw_fd(), request, &raw mut call) };
    (code == 0).then_some(call)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_is_seen_and_no_other_name() {
        if let Some(index) = index("lo") {
            assert!(index > 0);
            assert_eq!(hardware_address("lo", 6), Some(vec![0; 6]));
        }
        assert_eq!(index("no-such-nic"), None);
        assert!(!has_address("a-name-that-is-too-long"));
    }
}
