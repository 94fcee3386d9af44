//! Blocking I/O on an open device.

use super::DeviceFile;
use crate::op::check_range;
use crate::{Buf, IoError, IoKind, SyncIo};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;

/// Bytes moved per system call, and the most that is bounced.
const CHUNK: usize = 4 << 20;

/// A [`DeviceFile`] read and written in order, through the descriptors that the ring uses too.
#[derive(Debug, Clone)]
pub struct SyncFile {
    file: DeviceFile,
}

impl SyncFile {
    /// Blocking access to `file`.
    pub fn new(file: DeviceFile) -> SyncFile {
        SyncFile { file }
    }

    /// The open file.
    pub fn file(&self) -> &DeviceFile {
        &self.file
    }

    /// Writes zeros to the whole device, so that later writes need no allocation; `progress` gets the bytes done.
    pub fn fill(&mut self, mut progress: impl FnMut(u64)) -> Result<(), IoError> {
        let zeros = Buf::zeroed(CHUNK);
        let size = self.size();
        let mut done = 0;
        while done < size {
            let n = (size - done).min(CHUNK as u64);
            self.write_at(done, &zeros[..n as usize])?;
            done += n;
            progress(done);
        }
        self.flush()
    }

    fn failed(&self, verb: &str, offset: u64, errno: Errno) -> IoError {
        let text = format!("{verb} at {offset} of {}", self.file.path().display());
        IoError::from_errno(errno.raw_os_error(), text)
    }

    /// Moves `len` bytes at `offset`; `call` does one step on the descriptor that takes it.
    fn steps(
        &self,
        verb: &str,
        offset: u64,
        len: usize,
        addr: usize,
        mut call: impl FnMut(BorrowedFd<'_>, std::ops::Range<usize>, u64) -> Result<usize, Errno>,
    ) -> Result<(), IoError> {
        let mut done = 0;
        let mut plain_only = false;
        while done < len {
            let pos = offset + done as u64;
            let (fd, n) = self.file.route(pos, (len - done) as u64, addr + done, plain_only);
            match call(fd, done..done + n as usize, pos) {
                Ok(0) => {
                    let text = format!("{verb} at {pos} of {}: did it shrink?", self.file.path().display());
                    return Err(IoError::new(IoKind::Io, text));
                }
                Ok(moved) => done += moved,
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(Errno::INVAL) if self.file.dio().is_some() && !plain_only => plain_only = true,
                Err(e) => return Err(self.failed(verb, pos, e)),
            }
        }
        Ok(())
    }

    fn fits(&self, addr: usize) -> bool {
        self.file.dio().is_none_or(|d| addr.is_multiple_of(d.memory as usize))
    }
}

impl SyncIo for SyncFile {
    fn size(&self) -> u64 {
        self.file.geometry().size
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), IoError> {
        check_range(offset, buf.len() as u64, self.size())?;
        let bounced = !self.fits(buf.as_ptr().addr());
        let mut bounce = if bounced { Buf::alloc(buf.len().min(CHUNK)) } else { Buf::alloc(0) };
        for (i, part) in buf.chunks_mut(CHUNK).enumerate() {
            let at = offset + (i * CHUNK) as u64;
            let len = part.len();
            let to = if bounced { &mut bounce[..len] } else { &mut *part };
            let addr = to.as_ptr().addr();
            self.steps("read", at, len, addr, |fd, range, pos| rustix::io::pread(fd, &mut to[range], pos))?;
            if bounced {
                part.copy_from_slice(&bounce[..len]);
            }
        }
        Ok(())
    }

    fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<(), IoError> {
        check_range(offset, data.len() as u64, self.size())?;
        let bounced = !self.fits(data.as_ptr().addr());
        for (i, part) in data.chunks(CHUNK).enumerate() {
            let at = offset + (i * CHUNK) as u64;
            let copy = bounced.then(|| Buf::copy_of(part));
            let from = copy.as_deref().unwrap_or(part);
            self.steps("write", at, from.len(), from.as_ptr().addr(), |fd, range, pos| {
                rustix::io::pwrite(fd, &from[range], pos)
            })?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), IoError> {
        rustix::fs::fdatasync(self.file.main_fd()).map_err(|e| self.failed("flush", 0, e))
    }
}
