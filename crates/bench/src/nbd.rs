//! A minimal NBD client: enough to read every byte of an export as a client sees it, for comparison with what lies on the
//! core later. Load comes from fio; this only checks.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use loligo_export::nbd::proto::{self, RequestHeader, cmd, option, reply};

/// A connection to one export.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    size: u64,
    handle: u64,
}

impl Client {
    /// Connects to `export` on a unix socket, without structured replies.
    pub fn connect(socket: &Path, export: &str) -> Result<Client> {
        let stream =
            UnixStream::connect(socket).with_context(|| format!("connecting to {}", socket.display()))?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        let mut client = Client { stream, size: 0, handle: 0 };
        client.size =
            enter(&mut client.stream, export).with_context(|| format!("entering {}", socket.display()))?;
        Ok(client)
    }

    /// Size of the export, bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Fills `buffer` from `offset`.
    pub fn read(&mut self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.handle += 1;
        self.request(cmd::READ, offset, buffer.len() as u32)?;
        let (magic, error, handle) = (u32(&mut self.stream)?, u32(&mut self.stream)?, u64(&mut self.stream)?);
        if magic != proto::SIMPLE_REPLY_MAGIC || handle != self.handle {
            bail!("the server's reply is not the one to this read");
        }
        if error != 0 {
            bail!("reading {} bytes at {offset}: NBD error {error}", buffer.len());
        }
        self.stream.read_exact(buffer).with_context(|| format!("reading {} bytes at {offset}", buffer.len()))
    }

    fn request(&mut self, command: u16, offset: u64, length: u32) -> std::io::Result<()> {
        let header = RequestHeader { flags: 0, command, cookie: self.handle, offset, len: length };
        self.stream.write_all(&header.encode())
    }
}

/// Enters `export` on a fresh connection, with simple replies: the export's bytes.
///
/// # Errors
/// If the connection breaks, or the server refuses.
pub(crate) fn enter(stream: &mut (impl Read + Write), export: &str) -> Result<u64> {
    if (u64(stream)?, u64(stream)?) != (proto::MAGIC, proto::OPTION_MAGIC) {
        bail!("the server does not speak NBD");
    }
    let flags = u16(stream)?;
    // Fixed newstyle always, and no zeroes at the end where the server can do without.
    let mut go = u32::from(flags & 3).to_be_bytes().to_vec();
    go.extend(proto::OPTION_MAGIC.to_be_bytes());
    go.extend(option::GO.to_be_bytes());
    go.extend((export.len() as u32 + 6).to_be_bytes());
    go.extend((export.len() as u32).to_be_bytes());
    go.extend(export.as_bytes());
    go.extend(0u16.to_be_bytes());
    stream.write_all(&go)?;
    let mut size = 0;
    loop {
        if u64(stream)? != proto::OPTION_REPLY_MAGIC || u32(stream)? != option::GO {
            bail!("the server answered GO with something else");
        }
        let kind = u32(stream)?;
        let mut data = vec![0; u32(stream)?.min(1 << 16) as usize];
        stream.read_exact(&mut data)?;
        match kind {
            reply::ACK => return Ok(size),
            // NBD_INFO_EXPORT: type 0, then the size and the flags.
            reply::INFO if data.len() >= 10 && data[..2] == [0, 0] => {
                size = u64::from_be_bytes(data[2..10].try_into()?);
            }
            reply::INFO => {}
            _ => bail!("the server refuses export {export:?}: {}", String::from_utf8_lossy(&data)),
        }
    }
}

fn u16(stream: &mut impl Read) -> std::io::Result<u16> {
    let mut bytes = [0; 2];
    stream.read_exact(&mut bytes).map(|()| u16::from_be_bytes(bytes))
}

pub(crate) fn u32(stream: &mut impl Read) -> std::io::Result<u32> {
    let mut bytes = [0; 4];
    stream.read_exact(&mut bytes).map(|()| u32::from_be_bytes(bytes))
}

pub(crate) fn u64(stream: &mut impl Read) -> std::io::Result<u64> {
    let mut bytes = [0; 8];
    stream.read_exact(&mut bytes).map(|()| u64::from_be_bytes(bytes))
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.request(cmd::DISC, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bed::tests::bed;

    #[test]
    fn an_export_reads_as_the_file_behind_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        let content: Vec<u8> = (0..100_000u32).flat_map(u32::to_le_bytes).take(1 << 18).collect();
        std::fs::write(&file, &content).unwrap();
        let bed = bed(dir.path(), "loligo".into());
        let server = match bed.nbdkit("nk", &["file", &file.display().to_string()]) {
            Err(error) if error.to_string().contains("missing") => {
                loligo_log::say!("SKIP: {error}");
                return;
            }
            other => other.unwrap(),
        };
        let mut client = Client::connect(&bed.path("nk.nbd"), "").unwrap();
        assert_eq!(client.size(), 1 << 18);
        let mut part = vec![0; 5000];
        client.read(4096, &mut part).unwrap();
        assert_eq!(part, &content[4096..9096]);
        assert!(client.read(1 << 30, &mut part).unwrap_err().to_string().contains("error"), "past the end");
        drop(client);
        bed.end(server).unwrap();
    }
}
