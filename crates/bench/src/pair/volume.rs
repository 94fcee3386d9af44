//! An NBD client of a volume that moves: a connection that breaks is made again, and every operation under way is sent again, as
//! qemu does within its `reconnect-delay`.
//!
//! Nothing tells it that a server is silent: as with qemu, a connection is broken once the kernel says so.

use super::op::Done;
use crate::nbd::{enter, u32, u64};
use anyhow::{Context, Result, bail, ensure};
use loligo_export::nbd::proto::{self, RequestHeader, cmd};
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Between two tries to connect.
const PAUSE: Duration = Duration::from_millis(100);
/// The time that a server has to greet.
const GREETING: Duration = Duration::from_secs(1);
/// The time until the first connection.
const FIRST: Duration = Duration::from_secs(60);

/// A volume as a client names it: `ADDRESS:PORT[/EXPORT]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeAddress {
    socket: SocketAddr,
    export: String,
}

impl FromStr for VolumeAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<VolumeAddress, String> {
        let (socket, export) = text.split_once('/').unwrap_or((text, ""));
        let socket = socket.parse().map_err(|_| {
            format!("'{socket}' is no address with a port: write it as 192.0.2.50:10809/NAME")
        })?;
        Ok(VolumeAddress { socket, export: export.to_owned() })
    }
}

/// An operation, and who hears of its end.
enum Request {
    Read(u64, usize, Done<Vec<u8>>),
    Write(u64, Vec<u8>, Done<()>),
}

impl Request {
    fn encode(&self, cookie: u64) -> Vec<u8> {
        let (command, offset, len, data): (u16, u64, usize, &[u8]) = match self {
            Request::Read(offset, len, _) => (cmd::READ, *offset, *len, &[]),
            Request::Write(offset, data, _) => (cmd::WRITE, *offset, data.len(), data),
        };
        let header = RequestHeader { flags: 0, command, cookie, offset, len: len as u32 };
        let mut bytes = header.encode().to_vec();
        bytes.extend_from_slice(data);
        bytes
    }
}

/// The operations under way, by their cookie.
#[derive(Default)]
struct State {
    under_way: BTreeMap<u64, Request>,
    next: u64,
    /// Those from here on are to be sent on the present connection.
    unsent: u64,
    /// The number of the present connection.
    connection: u64,
    size: Option<u64>,
}

struct Shared {
    at: VolumeAddress,
    state: Mutex<State>,
    /// Something is to be sent, or a connection has ended, or the first has begun.
    changed: Condvar,
}

/// The client. Its threads live as long as the process.
#[derive(Clone)]
pub(crate) struct Volume(Arc<Shared>);

impl std::fmt::Debug for Volume {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Volume").field(&self.0.at).finish()
    }
}

impl Volume {
    /// Connects to a volume: the client, and the volume's bytes.
    ///
    /// # Errors
    /// If it is not there within a minute.
    pub(crate) fn connect(at: &VolumeAddress) -> Result<(Volume, u64)> {
        let shared = Shared { at: at.clone(), state: Mutex::default(), changed: Condvar::new() };
        let volume = Volume(Arc::new(shared));
        let it = volume.clone();
        std::thread::Builder::new().name("volume".to_owned()).spawn(move || it.run())?;
        let begun = Instant::now();
        let mut state = volume.0.state.lock();
        while state.size.is_none() && begun.elapsed() < FIRST {
            volume.0.changed.wait_for(&mut state, PAUSE);
        }
        let size = state.size;
        drop(state);
        let size = size.with_context(|| format!("no volume at {at:?} within {} s", FIRST.as_secs()))?;
        Ok((volume, size))
    }

    /// Begins to read.
    pub(crate) fn begin_read(&self, offset: u64, len: usize, done: Done<Vec<u8>>) {
        self.begin(Request::Read(offset, len, done));
    }

    /// Begins to write.
    pub(crate) fn begin_write(&self, offset: u64, content: Vec<u8>, done: Done<()>) {
        self.begin(Request::Write(offset, content, done));
    }

    fn begin(&self, request: Request) {
        let mut state = self.0.state.lock();
        let cookie = state.next;
        state.next += 1;
        state.under_way.insert(cookie, request);
        self.0.changed.notify_all();
    }

    fn run(&self) {
        loop {
            if let Ok(stream) = self.enter() {
                // An error is the end of a connection. Another one follows.
                let _ = self.serve(stream);
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn enter(&self) -> Result<TcpStream> {
        let at = &self.0.at;
        let mut stream = TcpStream::connect_timeout(&at.socket, GREETING)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(GREETING))?;
        let size = enter(&mut stream, &at.export)?;
        stream.set_read_timeout(None)?;
        let mut state = self.0.state.lock();
        ensure!(state.size.is_none_or(|known| known == size), "the volume has another size");
        state.size = Some(size);
        (state.connection, state.unsent) = (state.connection + 1, 0);
        self.0.changed.notify_all();
        drop(state);
        Ok(stream)
    }

    /// Sends what is under way and hears answers until the connection breaks.
    fn serve(&self, mut stream: TcpStream) -> Result<()> {
        let writes = stream.try_clone()?;
        let (it, number) = (self.clone(), self.0.state.lock().connection);
        let sender = std::thread::Builder::new()
            .name("volume-send".to_owned())
            .spawn(move || it.send(writes, number))?;
        let heard = self.hear(&mut stream);
        // The sender may be in a write that takes long.
        let _ = stream.shutdown(Shutdown::Both);
        self.0.state.lock().connection += 1;
        self.0.changed.notify_all();
        let _ = sender.join();
        heard
    }

    fn send(&self, mut stream: TcpStream, number: u64) {
        loop {
            let bytes = {
                let mut state = self.0.state.lock();
                loop {
                    if state.connection != number {
                        return;
                    }
                    let unsent = state.unsent;
                    let next = state.under_way.range(unsent..).next().map(|(c, r)| (*c, r.encode(*c)));
                    if let Some((cookie, bytes)) = next {
                        state.unsent = cookie + 1;
                        break bytes;
                    }
                    self.0.changed.wait(&mut state);
                }
            };
            if stream.write_all(&bytes).is_err() {
                // The reader hears of it as well.
                let _ = stream.shutdown(Shutdown::Both);
                return;
            }
        }
    }

    fn hear(&self, stream: &mut TcpStream) -> Result<()> {
        loop {
            let (magic, error, cookie) = (u32(stream)?, u32(stream)?, u64(stream)?);
            ensure!(magic == proto::SIMPLE_REPLY_MAGIC, "the server is out of step");
            let mut state = self.0.state.lock();
            let len = match state.under_way.get(&cookie) {
                None => bail!("an answer to nothing"),
                Some(Request::Read(_, len, _)) if error == 0 => *len,
                Some(_) => 0,
            };
            drop(state);
            let mut bytes = vec![0; len];
            stream.read_exact(&mut bytes)?;
            state = self.0.state.lock();
            let request = state.under_way.remove(&cookie);
            drop(state);
            let failed = || format!("the volume answers with error {error}");
            match request {
                Some(Request::Read(_, _, done)) => {
                    done(if error == 0 { Ok(bytes) } else { Err(failed()) });
                }
                Some(Request::Write(_, _, done)) => done(if error == 0 { Ok(()) } else { Err(failed()) }),
                None => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loligo_export::nbd::proto::{info, option, reply};
    use std::net::TcpListener;
    use std::sync::mpsc::channel;

    /// Greets a client that asks for an export of 1 MiB.
    fn greet(stream: &mut TcpStream) {
        let mut out = proto::MAGIC.to_be_bytes().to_vec();
        out.extend(proto::OPTION_MAGIC.to_be_bytes());
        out.extend(3u16.to_be_bytes());
        stream.write_all(&out).unwrap();
        // Flags, and the option GO with the name "v".
        let mut asked = [0; 4 + 16 + 7];
        stream.read_exact(&mut asked).unwrap();
        let reply = |kind: u32, data: &[u8]| {
            let mut out = proto::OPTION_REPLY_MAGIC.to_be_bytes().to_vec();
            out.extend(option::GO.to_be_bytes());
            out.extend(kind.to_be_bytes());
            out.extend((data.len() as u32).to_be_bytes());
            out.extend(data);
            out
        };
        let mut size = info::EXPORT.to_be_bytes().to_vec();
        size.extend((1u64 << 20).to_be_bytes());
        size.extend(1u16.to_be_bytes());
        stream.write_all(&reply(reply::INFO, &size)).unwrap();
        stream.write_all(&reply(reply::ACK, &[])).unwrap();
    }

    fn request(stream: &mut TcpStream) -> RequestHeader {
        let mut raw = [0; proto::REQUEST_LEN];
        stream.read_exact(&mut raw).unwrap();
        let header = RequestHeader::parse(&raw).unwrap();
        if header.command == cmd::WRITE {
            stream.read_exact(&mut vec![0; header.len as usize]).unwrap();
        }
        header
    }

    fn answer(stream: &mut TcpStream, error: u32, cookie: u64, data: &[u8]) {
        let mut out = proto::SIMPLE_REPLY_MAGIC.to_be_bytes().to_vec();
        out.extend(error.to_be_bytes());
        out.extend(cookie.to_be_bytes());
        out.extend(data);
        stream.write_all(&out).unwrap();
    }

    #[test]
    fn operations_under_way_are_sent_again_after_a_break() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = format!("{}/v", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let (mut first, _) = listener.accept().unwrap();
            greet(&mut first);
            let sent = [request(&mut first), request(&mut first)];
            answer(&mut first, 0, sent[1].cookie, &[7; 512]);
            drop(first);
            let (mut second, _) = listener.accept().unwrap();
            greet(&mut second);
            let again = request(&mut second);
            assert_eq!((again.cookie, again.offset), (sent[0].cookie, 4096), "the write alone comes again");
            answer(&mut second, 0, again.cookie, &[]);
            let refused = request(&mut second);
            answer(&mut second, proto::errno::EIO, refused.cookie, &[]);
            second
        });
        let (volume, size) = Volume::connect(&at.parse().unwrap()).unwrap();
        assert_eq!(size, 1 << 20);
        let (send, ended) = channel();
        let written = send.clone();
        volume.begin_write(4096, vec![1; 4096], Box::new(move |done| written.send(done).unwrap()));
        let (data, read) = channel();
        volume.begin_read(0, 512, Box::new(move |done| data.send(done).unwrap()));
        assert_eq!(read.recv().unwrap(), Ok(vec![7; 512]));
        assert_eq!(ended.recv().unwrap(), Ok(()));
        volume.begin_write(0, vec![1; 512], Box::new(move |done| send.send(done).unwrap()));
        assert!(ended.recv().unwrap().unwrap_err().contains("error 5"));
        drop(server.join().unwrap());
    }

    #[test]
    fn a_volume_is_named_by_socket_and_export() {
        let at: VolumeAddress = "192.0.2.50:10809/vm1".parse().unwrap();
        assert_eq!((at.socket.port(), at.export.as_str()), (10809, "vm1"));
        assert!("vm1".parse::<VolumeAddress>().unwrap_err().contains("192.0.2.50:10809"));
    }
}
