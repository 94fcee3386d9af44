//! A client of our own, so that a test knows what was acknowledged: one connection, one request at a time.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

const MAGIC: u64 = 0x4e42_444d_4147_4943;
const OPTION: u64 = 0x4948_4156_454f_5054;
const REQUEST: u32 = 0x2560_9513;
const REPLY: u32 = 0x6744_6698;

pub struct Client {
    socket: UnixStream,
    cookie: u64,
    pub size: u64,
}

impl Client {
    /// By the oldest way that still exists: the option that goes straight to the export.
    pub fn connect(path: &Path, export: &str) -> io::Result<Client> {
        let mut s = UnixStream::connect(path)?;
        s.set_read_timeout(Some(Duration::from_secs(20)))?;
        let mut hello = [0; 18];
        s.read_exact(&mut hello)?;
        assert_eq!(hello[..8], MAGIC.to_be_bytes());
        let mut out = 3u32.to_be_bytes().to_vec();
        out.extend(OPTION.to_be_bytes());
        out.extend(1u32.to_be_bytes());
        out.extend((export.len() as u32).to_be_bytes());
        out.extend(export.as_bytes());
        s.write_all(&out)?;
        let mut info = [0; 10];
        s.read_exact(&mut info)?;
        let size = u64::from_be_bytes(info[..8].try_into().unwrap());
        Ok(Client { socket: s, cookie: 0, size })
    }

    /// One request; the NBD error, 0 for none. Payload of a read goes to `into`.
    fn ask(
        &mut self,
        flags: u16,
        kind: u16,
        offset: u64,
        len: u32,
        data: &[u8],
        into: &mut [u8],
    ) -> io::Result<u32> {
        self.cookie += 1;
        let mut out = REQUEST.to_be_bytes().to_vec();
        out.extend(flags.to_be_bytes());
        out.extend(kind.to_be_bytes());
        out.extend(self.cookie.to_be_bytes());
        out.extend(offset.to_be_bytes());
        out.extend(len.to_be_bytes());
        out.extend(data);
        self.socket.write_all(&out)?;
        let mut head = [0; 16];
        self.socket.read_exact(&mut head)?;
        assert_eq!(head[..4], REPLY.to_be_bytes());
        assert_eq!(head[8..], self.cookie.to_be_bytes());
        let error = u32::from_be_bytes(head[4..8].try_into().unwrap());
        if error == 0 {
            self.socket.read_exact(into)?;
        }
        Ok(error)
    }

    pub fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<u32> {
        self.ask(0, 1, offset, data.len() as u32, data, &mut [])
    }

    pub fn read(&mut self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut data = vec![0; len];
        let error = self.ask(0, 0, offset, len as u32, &[], &mut data)?;
        if error != 0 {
            return Err(io::Error::other(format!("NBD error {error}")));
        }
        Ok(data)
    }

    pub fn flush(&mut self) -> io::Result<u32> {
        self.ask(0, 3, 0, 0, &[], &mut [])
    }
}
