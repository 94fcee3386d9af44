//! The clients that are connected to a volume's address, noted on the quorum LUN: the next owner tells them that the server they
//! wait for is gone.
//!
//! A note is a hint. One that is damaged, old or missing costs time and nothing else.

use loligo_block::{Buf, crc32c};
use parking_lot::Mutex;
use rustix::fs::OFlags;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The place of the first note on the quorum LUN, bytes.
const FIRST: u64 = 3 << 19;
/// Bytes of a note.
const NOTE: usize = 4096;
const MAGIC: [u8; 8] = *b"LoliPeer";
const VERSION: u32 = 1;
/// Bytes before the connections.
const HEAD: usize = 32;
/// Bytes of a connection.
const ENTRY: usize = 12;
/// Connections that a note has room for.
const MOST: usize = (NOTE - HEAD) / ENTRY;
/// Between two looks at the connections.
const LOOK: Duration = Duration::from_secs(1);

/// A connection of a client, as the server sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Peer {
    /// The volume's address and port.
    pub local: SocketAddrV4,
    /// The client's.
    pub remote: SocketAddrV4,
}

/// The note of one volume.
#[derive(Debug, Clone)]
pub struct PeerNote {
    quorum: PathBuf,
    id: u32,
}

impl PeerNote {
    /// The note of the volume with the id `id`, on a path to the quorum LUN.
    pub fn new(quorum: &Path, id: u32) -> PeerNote {
        PeerNote { quorum: quorum.to_owned(), id }
    }

    fn place(&self) -> u64 {
        FIRST + u64::from(self.id) * NOTE as u64
    }

    /// The connections that were noted last.
    ///
    /// # Errors
    /// If the LUN cannot be read.
    pub fn read(&self) -> io::Result<Vec<Peer>> {
        let file = crate::luns::direct(&self.quorum, OFlags::RDONLY)?;
        let mut bytes = Buf::zeroed(NOTE);
        let read = rustix::io::pread(&file, &mut bytes[..], self.place())?;
        Ok(decode(&bytes[..read]))
    }

    /// Notes connections, as many as there is room for.
    ///
    /// # Errors
    /// If the LUN fails, or the array refuses this side.
    pub fn write(&self, peers: &[Peer]) -> io::Result<()> {
        let file = crate::luns::direct(&self.quorum, OFlags::WRONLY)?;
        match rustix::io::pwrite(&file, &encode(peers), self.place())? {
            NOTE => Ok(()),
            _ => Err(io::Error::other("the quorum LUN took part of a note")),
        }
    }
}

/// The bytes of a note: magic, version, number of connections, checksum of all but itself, and the connections.
fn encode(peers: &[Peer]) -> Buf {
    let peers = &peers[..peers.len().min(MOST)];
    let mut bytes = Buf::zeroed(NOTE);
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[12..16].copy_from_slice(&(peers.len() as u32).to_le_bytes());
    for (entry, peer) in bytes[HEAD..].chunks_exact_mut(ENTRY).zip(peers) {
        for (half, end) in entry.chunks_exact_mut(ENTRY / 2).zip([peer.local, peer.remote]) {
            half[..4].copy_from_slice(&end.ip().octets());
            half[4..].copy_from_slice(&end.port().to_le_bytes());
        }
    }
    let sum = crc32c(&bytes);
    bytes[16..20].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// The connections that `bytes` name; none, if they are no note, or one of another version.
fn decode(bytes: &[u8]) -> Vec<Peer> {
    if bytes.len() != NOTE || bytes[..8] != MAGIC {
        return Vec::new();
    }
    let number = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let mut plain = bytes.to_vec();
    plain[16..20].fill(0);
    if crc32c(&plain) != number(16) || number(8) != VERSION {
        return Vec::new();
    }
    let end = |half: &[u8]| {
        let ip = Ipv4Addr::new(half[0], half[1], half[2], half[3]);
        SocketAddrV4::new(ip, u16::from_le_bytes([half[4], half[5]]))
    };
    let peer = |entry: &[u8]| Peer { local: end(&entry[..6]), remote: end(&entry[6..]) };
    bytes[HEAD..].chunks_exact(ENTRY).take(number(12) as usize).map(peer).collect()
}

/// The established connections at `address`, by the kernel.
fn connected(address: Ipv4Addr) -> io::Result<Vec<Peer>> {
    Ok(parse(&std::fs::read_to_string("/proc/thread-self/net/tcp")?, address))
}

/// The connections at `address` in the kernel's table.
fn parse(table: &str, address: Ipv4Addr) -> Vec<Peer> {
    const ESTABLISHED: &str = "01";
    let end = |text: &str| {
        let (ip, port) = text.split_once(':')?;
        // The four bytes of the address, printed as a number of this machine.
        let ip = Ipv4Addr::from(u32::from_str_radix(ip, 16).ok()?.to_ne_bytes());
        Some(SocketAddrV4::new(ip, u16::from_str_radix(port, 16).ok()?))
    };
    let peer = |line: &str| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let (local, remote) = (end(words.next()?)?, end(words.next()?)?);
        let is_it = words.next()? == ESTABLISHED && *local.ip() == address;
        is_it.then_some(Peer { local, remote })
    };
    let mut peers: Vec<Peer> = table.lines().skip(1).filter_map(peer).collect();
    peers.sort_unstable();
    peers
}

/// Notes the clients at a volume's address as long as this side serves it.
///
/// A thread of its own writes: a quorum LUN that hangs keeps nobody from ending the volume.
#[derive(Debug)]
pub struct Secretary {
    serves: Arc<Mutex<bool>>,
}

impl Secretary {
    /// Begins. Nothing is noted before [`Secretary::serve`].
    pub fn start(note: PeerNote, address: Ipv4Addr) -> Secretary {
        let serves = Arc::new(Mutex::new(false));
        let alive = Arc::downgrade(&serves);
        let run = move || {
            let mut last = None;
            while let Some(serves) = alive.upgrade() {
                let serves = *serves.lock();
                let now = if serves { connected(address).ok() } else { None };
                if !serves {
                    // The partner may have noted others meanwhile.
                    last = None;
                } else if now.is_some() && now != last {
                    // A side that is fenced is refused. Tried again, it is refused again.
                    let written = now.as_deref().is_some_and(|peers| note.write(peers).is_ok());
                    last = now.filter(|_| written);
                }
                std::thread::sleep(LOOK);
            }
        };
        // Without it clients notice a takeover later.
        let _ = std::thread::Builder::new().name("peers".to_owned()).spawn(run);
        Secretary { serves }
    }

    /// This side serves the volume, or does no more.
    pub fn serve(&self, serves: bool) {
        *self.serves.lock() = serves;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Ipv4Addr = Ipv4Addr::new(10, 219, 5, 130);

    fn peer(port: u16) -> Peer {
        let local = SocketAddrV4::new(AT, 10809);
        Peer { local, remote: SocketAddrV4::new(Ipv4Addr::new(10, 219, 5, 2), port) }
    }

    #[test]
    fn notes_of_volumes_lie_apart_and_between_their_neighbours() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(crate::kept::QUORUM_BYTES).unwrap();
        let note = |id| PeerNote::new(file.path(), id);
        assert_eq!(note(63).read().unwrap(), []);
        note(0).write(&[peer(1), peer(2)]).unwrap();
        note(1).write(&[peer(3)]).unwrap();
        assert_eq!(note(0).read().unwrap(), [peer(1), peer(2)]);
        assert_eq!(note(1).read().unwrap(), [peer(3)]);
        note(0).write(&[]).unwrap();
        assert_eq!(note(0).read().unwrap(), []);
        assert!(note(0).place() >= (1 << 20) + 2 * 4096 && note(crate::config::VOLUMES).place() <= 2 << 20);
    }

    #[test]
    fn more_clients_than_fit_are_left_out() {
        let many: Vec<Peer> = (0..1000).map(peer).collect();
        assert_eq!(decode(&encode(&many)), many[..MOST]);
    }

    #[test]
    fn garbage_names_nobody() {
        let good = encode(&[peer(1), peer(2)]);
        for at in (0..HEAD + 3 * ENTRY).chain(NOTE - 4..NOTE) {
            let mut bytes = good.to_vec();
            bytes[at] ^= 0x40;
            assert_eq!(decode(&bytes), [], "byte {at}");
        }
        assert_eq!(decode(&good[..512]), []);
        assert_eq!(decode(&vec![0xff; NOTE]), []);
        // A count beyond the room, with a sum that fits.
        let mut bytes = good.to_vec();
        bytes[12..16].fill(0xff);
        bytes[16..20].fill(0);
        let sum = crc32c(&bytes);
        bytes[16..20].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(decode(&bytes).len(), MOST);
    }

    #[test]
    fn the_kernels_table_gives_those_at_the_address() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr\n\
            0: 8205DB0A:2A39 00000000:0000 0A 00000000:00000000 00\n\
            1: 8205DB0A:2A39 0205DB0A:0003 01 00000000:00000000 00\n\
            2: 8305DB0A:2A39 0205DB0A:0004 01 00000000:00000000 00\n\
            3: 8205DB0A:2A39 0205DB0A:0005 08 00000000:00000000 00\n\
            4: rubbish\n";
        if cfg!(target_endian = "little") {
            assert_eq!(parse(table, AT), [peer(3)]);
        }
    }
}
