//! An address that moves with a volume: it is put on an interface, and the network is told where it is now.

use crate::again::now_and_again;
use loligo_lab::interrupt::Interrupt;
use loligo_lab::process;
use std::ffi::CString;
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::Command;
use std::time::Duration;

/// The time that one command may take.
const COMMAND: Duration = Duration::from_secs(5);
/// Bytes of an announcement.
const FRAME: usize = 42;
/// Announcements are sent so long after the first, as one may be lost.
const AGAIN: [Duration; 3] =
    [Duration::from_millis(100), Duration::from_millis(500), Duration::from_millis(2000)];

/// An address of a volume, on this controller.
#[derive(Debug, Clone)]
pub struct Floating {
    address: Ipv4Addr,
    prefix: u8,
    interface: String,
}

impl Floating {
    /// The address with its prefix, on this interface.
    pub fn new(address: Ipv4Addr, prefix: u8, interface: &str) -> Floating {
        Floating { address, prefix, interface: interface.to_owned() }
    }

    /// The address.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    fn ip(&self, what: &str) -> Result<String, String> {
        let address = format!("{}/{}", self.address, self.prefix);
        let mut command = Command::new("ip");
        command.args(["addr", what, &address, "dev", &self.interface]);
        process::run(&mut command, COMMAND, &Interrupt::default()).map_err(|why| format!("{why:#}"))
    }

    /// True if this host has it.
    pub fn is_there(&self) -> bool {
        // Port 0 is any that is free: only the address can be refused.
        UdpSocket::bind((self.address, 0)).is_ok()
    }

    /// Puts it on its interface; it may be there already.
    ///
    /// # Errors
    /// If there is no such interface, or the address cannot be had.
    pub fn put(&self) -> Result<(), String> {
        self.ip("replace").map(drop)
    }

    /// Takes it from its interface; it may be gone already.
    ///
    /// # Errors
    /// If it is still there.
    pub fn take_away(&self) -> Result<(), String> {
        match self.ip("del") {
            Err(why) if is_absent(&why) => Ok(()),
            done => done.map(drop),
        }
    }

    /// Tells the network that the address is here: hosts and switches send to its former place otherwise. Said again some
    /// times in the background.
    ///
    /// # Errors
    /// If nothing can be sent.
    pub fn announce(&self) -> Result<(), String> {
        let it = self.clone();
        now_and_again("announce", &AGAIN, move || it.say())
            .map_err(|why| format!("the network is not told of {}: {why}", self.address))
    }

    /// Sends a gratuitous request and a gratuitous reply: some systems heed only one of them.
    fn say(&self) -> io::Result<()> {
        let link = Link::open(&self.interface)?;
        for operation in [REQUEST, REPLY] {
            link.send(&frame(operation, link.hardware, self.address))?;
        }
        Ok(())
    }
}

/// True if `ip` says that the address is not on the interface: in the kernel's words of now, or of before 6.11; or that there is no
/// such interface.
fn is_absent(said: &str) -> bool {
    let says = |words| said.contains(words);
    says("Address not found") || says("Cannot assign requested address") || says("Cannot find device")
}

const REQUEST: u16 = 1;
const REPLY: u16 = 2;
const BROADCAST: [u8; 6] = [0xff; 6];

/// An announcement by ARP (RFC 826, RFC 5227 section 3): sender and target are the same address.
fn frame(operation: u16, hardware: [u8; 6], address: Ipv4Addr) -> [u8; FRAME] {
    let mut bytes = [0; FRAME];
    bytes[0..6].copy_from_slice(&BROADCAST);
    bytes[6..12].copy_from_slice(&hardware);
    bytes[12..14].copy_from_slice(&0x0806_u16.to_be_bytes());
    // Ethernet, IPv4, and the lengths of their addresses.
    bytes[14..20].copy_from_slice(&[0, 1, 8, 0, 6, 4]);
    bytes[20..22].copy_from_slice(&operation.to_be_bytes());
    bytes[22..28].copy_from_slice(&hardware);
    bytes[28..32].copy_from_slice(&address.octets());
    bytes[32..38].copy_from_slice(if operation == REPLY { &BROADCAST } else { &[0; 6] });
    bytes[38..42].copy_from_slice(&address.octets());
    bytes
}

/// An interface that frames can be sent by.
struct Link {
    socket: OwnedFd,
    index: i32,
    hardware: [u8; 6],
}

impl Link {
    fn open(interface: &str) -> io::Result<Link> {
        let name = CString::new(interface)?;
        // SAFETY: the name is a string that ends with a zero.
        let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
        if index == 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: no pointer is given; the descriptor is ours alone.
        let socket = unsafe {
            let fd = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(fd)
        };
        let hardware = hardware_of(&socket, index as i32)?
            .ok_or_else(|| io::Error::other(format!("{interface} has no Ethernet address")))?;
        Ok(Link { socket, index: index as i32, hardware })
    }

    fn send(&self, frame: &[u8; FRAME]) -> io::Result<()> {
        // SAFETY: all zeros are a valid value of this plain struct.
        let mut to: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        to.sll_family = libc::AF_PACKET as u16;
        to.sll_ifindex = self.index;
        to.sll_halen = 6;
        to.sll_addr[..6].copy_from_slice(&BROADCAST);
        // SAFETY: frame and address live through the call, with the lengths that are given.
        let sent = unsafe {
            libc::sendto(
                self.socket.as_raw_fd(),
                frame.as_ptr().cast(),
                frame.len(),
                0,
                (&raw const to).cast(),
                size_of_val(&to) as libc::socklen_t,
            )
        };
        if sent == FRAME as isize { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

/// The Ethernet address of an interface, by a packet socket that is bound to it; nothing: it has none.
fn hardware_of(socket: &OwnedFd, index: i32) -> io::Result<Option<[u8; 6]>> {
    // SAFETY: all zeros are a valid value of this plain struct.
    let mut link: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    link.sll_family = libc::AF_PACKET as u16;
    link.sll_ifindex = index;
    let mut len = size_of_val(&link) as libc::socklen_t;
    // SAFETY: the address lives through both calls, and `len` is its length.
    let asked = unsafe {
        match libc::bind(socket.as_raw_fd(), (&raw const link).cast(), len) {
            0 => libc::getsockname(socket.as_raw_fd(), (&raw mut link).cast(), &raw mut len),
            failed => failed,
        }
    };
    if asked != 0 {
        return Err(io::Error::last_os_error());
    }
    let address = link.sll_addr.first_chunk::<6>().copied();
    Ok(address.filter(|_| link.sll_halen == 6))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_announcement_names_the_address_as_sender_and_target() {
        let frame = frame(REPLY, [2, 0, 0, 0, 0, 7], Ipv4Addr::new(192, 0, 2, 50));
        assert_eq!(frame[..14], [255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 0, 7, 8, 6]);
        assert_eq!(frame[20..22], [0, 2]);
        assert_eq!((&frame[28..32], &frame[38..42]), (&[192, 0, 2, 50][..], &[192, 0, 2, 50][..]));
    }

    #[test]
    fn an_address_that_is_gone_is_no_error() {
        assert!(is_absent("ip failed (exit status: 2): Error: ipv4: Address not found."));
        assert!(is_absent("RTNETLINK answers: Cannot assign requested address"));
        assert!(is_absent("Cannot find device \"eth7\""), "an interface that was pulled out has no address");
        assert!(!is_absent("RTNETLINK answers: Operation not permitted"));
    }
}
