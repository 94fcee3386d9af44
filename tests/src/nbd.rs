//! An NBD client of its own, so that the service is not judged by the code it is built from: fixed newstyle, simple
//! replies, any number of requests in flight over one connection.

use anyhow::{Context, Result, bail, ensure};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::Duration;

const GREETING: &[u8; 16] = b"NBDMAGICIHAVEOPT";
const OPTION: &[u8; 8] = b"IHAVEOPT";
const OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
const OPT_GO: u32 = 7;
const REP_ACK: u32 = 1;
const REP_INFO: u32 = 3;
const REQUEST: u32 = 0x2560_9513;
const REPLY: u32 = 0x6744_6698;
const FUA: u16 = 1;

/// A request; lengths and offsets in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// So many bytes.
    Read(u32),
    /// These bytes.
    Write {
        /// The payload.
        data: Vec<u8>,
        /// Durable before the answer.
        fua: bool,
    },
    /// Everything answered before is to be durable.
    Flush,
    /// So many bytes are no longer needed.
    Trim(u32),
    /// So many bytes are to read as zeros.
    Zeroes {
        /// The length.
        len: u32,
        /// Durable before the answer.
        fua: bool,
    },
}

/// An answer, or (with `handle` 0 and an error) the end of the connection.
#[derive(Debug)]
pub struct Answer {
    /// As given to [`Client::send`].
    pub handle: u64,
    /// The data read, or the protocol's error number.
    pub result: Result<Vec<u8>, u32>,
}

/// A connection. Answers arrive at the sender given when it was made, from a thread that ends with the connection.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    reads: Arc<Mutex<HashMap<u64, u32>>>,
    reader: Option<JoinHandle<()>>,
    /// Bytes of the export.
    pub size: u64,
}

/// A connection to the socket at `path` that has entered the export `name`, and its size in bytes: for clients that
/// behave as none should.
///
/// # Errors
/// If nobody listens, or the export is refused.
pub fn enter(path: &Path, name: &str) -> Result<(UnixStream, u64)> {
    let mut stream =
        UnixStream::connect(path).with_context(|| format!("connecting to {}", path.display()))?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    stream.set_write_timeout(Some(Duration::from_secs(60)))?;
    let size = negotiate(&mut stream, name).context("negotiating")?;
    Ok((stream, size))
}

impl Client {
    /// Connects to the socket at `path` and enters the export `name`.
    ///
    /// # Errors
    /// If nobody listens, or the export is refused.
    pub fn connect(path: &Path, name: &str, answers: Sender<Answer>) -> Result<Client> {
        let (stream, size) = enter(path, name)?;
        let reads = Arc::new(Mutex::new(HashMap::new()));
        let reader = {
            let (mut stream, reads) = (stream.try_clone()?, reads.clone());
            std::thread::Builder::new().name("nbd-answers".into()).spawn(move || {
                while let Ok(answer) = receive(&mut stream, &reads) {
                    if answers.send(answer).is_err() {
                        return;
                    }
                }
                // The one who waits for answers may have left; then nobody needs to know.
                let _ = answers.send(Answer { handle: 0, result: Err(0) });
            })?
        };
        Ok(Client { stream, reads, reader: Some(reader), size })
    }

    /// Sends a request; `handle` must not be 0 nor be in flight.
    ///
    /// # Errors
    /// If the connection is gone.
    pub fn send(&mut self, handle: u64, offset: u64, command: &Command) -> std::io::Result<()> {
        let (kind, fua, len, data): (u16, bool, u32, &[u8]) = match command {
            Command::Read(len) => (0, false, *len, &[]),
            Command::Write { data, fua } => (1, *fua, data.len() as u32, data),
            Command::Flush => (3, false, 0, &[]),
            Command::Trim(len) => (4, false, *len, &[]),
            Command::Zeroes { len, fua } => (6, *fua, *len, &[]),
        };
        if kind == 0 {
            self.reads.lock().insert(handle, len);
        }
        let mut out = header(if fua { FUA } else { 0 }, kind, handle, offset, len);
        out.extend_from_slice(data);
        self.stream.write_all(&out)
    }
}

/// The bytes that ask to read `len` bytes.
pub fn read_request(handle: u64, offset: u64, len: u32) -> Vec<u8> {
    header(0, 0, handle, offset, len)
}

fn header(flags: u16, kind: u16, handle: u64, offset: u64, len: u32) -> Vec<u8> {
    let mut out = Vec::with_capacity(28);
    out.extend_from_slice(&REQUEST.to_be_bytes());
    out.extend_from_slice(&flags.to_be_bytes());
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&handle.to_be_bytes());
    out.extend_from_slice(&offset.to_be_bytes());
    out.extend_from_slice(&len.to_be_bytes());
    out
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

fn take<const N: usize>(stream: &mut UnixStream) -> std::io::Result<[u8; N]> {
    let mut raw = [0; N];
    stream.read_exact(&mut raw)?;
    Ok(raw)
}

fn negotiate(stream: &mut UnixStream, name: &str) -> Result<u64> {
    ensure!(&take::<16>(stream)? == GREETING, "no NBD server");
    let _flags: [u8; 2] = take(stream)?;
    let mut out = 3u32.to_be_bytes().to_vec();
    out.extend_from_slice(OPTION);
    out.extend_from_slice(&OPT_GO.to_be_bytes());
    out.extend_from_slice(&(name.len() as u32 + 6).to_be_bytes());
    out.extend_from_slice(&(name.len() as u32).to_be_bytes());
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(&[0, 0]);
    stream.write_all(&out)?;
    let mut size = None;
    loop {
        ensure!(u64::from_be_bytes(take(stream)?) == OPTION_REPLY, "no reply to an option");
        let _option: [u8; 4] = take(stream)?;
        let kind = u32::from_be_bytes(take(stream)?);
        let mut data = vec![0; u32::from_be_bytes(take(stream)?) as usize];
        stream.read_exact(&mut data)?;
        match kind {
            REP_INFO if data.starts_with(&[0, 0]) && data.len() >= 10 => {
                let mut raw = [0; 8];
                raw.copy_from_slice(&data[2..10]);
                size = Some(u64::from_be_bytes(raw));
            }
            REP_INFO => {}
            REP_ACK => return size.context("entered without a size"),
            _ => bail!("refused with {kind:#x}: {}", String::from_utf8_lossy(&data)),
        }
    }
}

fn receive(stream: &mut UnixStream, reads: &Mutex<HashMap<u64, u32>>) -> Result<Answer> {
    let mut first = [0; 4];
    // Nothing to answer for a minute is no fault; a request that takes a minute is found by whoever waits for it.
    while let Err(e) = stream.read_exact(&mut first) {
        ensure!(e.kind() == std::io::ErrorKind::WouldBlock, "{e}");
    }
    ensure!(u32::from_be_bytes(first) == REPLY, "no simple reply");
    let error = u32::from_be_bytes(take(stream)?);
    let handle = u64::from_be_bytes(take(stream)?);
    let len = reads.lock().remove(&handle).unwrap_or(0);
    if error != 0 {
        return Ok(Answer { handle, result: Err(error) });
    }
    let mut data = vec![0; len as usize];
    stream.read_exact(&mut data)?;
    Ok(Answer { handle, result: Ok(data) })
}
