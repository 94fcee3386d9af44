//! Blocking I/O on an open device.

use super::{DeviceFile, Route};
use crate::op::check_range;
use crate::{Buf, IoError, IoKind, SyncIo};
use rustix::io::{Errno, IoSlice, ReadWriteFlags};
use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};

/// Bytes moved per system call, and the most that is bounced.
const CHUNK: usize = 4 << 20;

/// A [`DeviceFile`] read and written in order, through the descriptors that the ring uses too.
#[derive(Debug)]
pub struct SyncFile {
    file: DeviceFile,
    ahead: Option<Ahead>,
}

/// Reads that a thread does before they are asked for.
#[derive(Debug)]
struct Ahead {
    ranges: VecDeque<(u64, usize)>,
    read: Receiver<Result<Buf, IoError>>,
    /// Buffers go back, for fresh memory is slow to come by.
    spare: Sender<Buf>,
}

/// Ranges read ahead at most.
const AHEAD: usize = 8;

impl SyncFile {
    /// Blocking access to `file`.
    pub fn new(file: DeviceFile) -> SyncFile {
        SyncFile { file: file.listening(), ahead: None }
    }

    /// The open file.
    pub fn file(&self) -> &DeviceFile {
        &self.file
    }

    /// Writes zeros to the whole device, so that later writes need no allocation; `progress` gets the bytes done.
    pub fn fill<E: From<IoError>>(
        &mut self,
        mut progress: impl FnMut(u64) -> Result<(), E>,
    ) -> Result<(), E> {
        let zeros = Buf::zeroed(CHUNK);
        let size = self.size();
        let mut done = 0;
        while done < size {
            let n = (size - done).min(CHUNK as u64);
            self.write_at(done, &zeros[..n as usize])?;
            done += n;
            progress(done)?;
        }
        Ok(self.flush()?)
    }

    fn failed(&self, verb: &str, offset: u64, errno: Errno) -> IoError {
        let text = format!("{verb} at {offset} of {}", self.file.path().display());
        let error = IoError::from_errno(errno.raw_os_error(), text);
        self.file.heard(&error);
        error
    }

    /// Moves `len` bytes at `offset`; `call` does one step on the descriptor that takes it.
    fn steps(
        &self,
        verb: &str,
        offset: u64,
        len: usize,
        addr: usize,
        mut call: impl FnMut(&Route<'_>, std::ops::Range<usize>, u64) -> Result<usize, Errno>,
    ) -> Result<(), IoError> {
        let mut done = 0;
        let mut plain_only = false;
        while done < len {
            self.file.silence().refuse()?;
            let pos = self.file.position(offset + done as u64);
            let route = self.file.route(pos, (len - done) as u64, addr + done, plain_only);
            match call(&route, done..done + route.len as usize, pos) {
                Ok(0) => {
                    let text = format!("{verb} at {pos} of {}: did it shrink?", self.file.path().display());
                    return Err(IoError::new(IoKind::Io, text));
                }
                Ok(moved) => done += moved,
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(Errno::INVAL) if route.is_direct => {
                    plain_only = true;
                    self.file.say_refusal();
                }
                Err(e) => return Err(self.failed(verb, pos, e)),
            }
        }
        Ok(())
    }

    /// The range, if it is the next of those read ahead.
    fn taken_ahead(&mut self, offset: u64, len: usize) -> Option<Result<Buf, IoError>> {
        let ahead = self.ahead.as_mut()?;
        let read = match ahead.ranges.pop_front() {
            Some(next) if next == (offset, len) => ahead.read.recv().ok(),
            _ => None,
        };
        if read.is_none() {
            self.ahead = None;
        }
        read
    }

    /// A buffer for a range that is still to be read ahead.
    fn give_back(&self, buf: Buf) {
        if let Some(ahead) = &self.ahead {
            // Behind the last range nobody takes it.
            let _ = ahead.spare.send(buf);
        }
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
        if let Some(read) = self.taken_ahead(offset, buf.len()) {
            let data = read?;
            buf.copy_from_slice(&data);
            self.give_back(data);
            return Ok(());
        }
        let bounced = !self.fits(buf.as_ptr().addr());
        let mut bounce = if bounced { Buf::alloc(buf.len().min(CHUNK)) } else { Buf::alloc(0) };
        for (i, part) in buf.chunks_mut(CHUNK).enumerate() {
            let at = offset + (i * CHUNK) as u64;
            let len = part.len();
            let to = if bounced { &mut bounce[..len] } else { &mut *part };
            let addr = to.as_ptr().addr();
            self.steps("read", at, len, addr, |route, range, pos| {
                rustix::io::pread(route.fd, &mut to[range], pos)
            })?;
            if bounced {
                part.copy_from_slice(&bounce[..len]);
            }
        }
        Ok(())
    }

    fn read_owned(&mut self, offset: u64, len: usize, spare: Option<Buf>) -> Result<Buf, IoError> {
        if let Some(read) = self.taken_ahead(offset, len) {
            if let Some(buf) = spare {
                self.give_back(buf);
            }
            return read;
        }
        let mut buf = Buf::reused(spare, len);
        self.read_at(offset, &mut buf)?;
        Ok(buf)
    }

    fn read_next(&mut self, ranges: Vec<(u64, usize)>) {
        let (send, read) = sync_channel(AHEAD);
        let (spare, spares) = channel::<Buf>();
        let mut file = SyncFile::new(self.file.clone());
        let todo = ranges.clone();
        // It ends with the ranges, or with the receiver. Where there is no thread, reads are done when asked for.
        let reader = std::thread::Builder::new().name("read-ahead".to_owned()).spawn(move || {
            for (offset, len) in todo {
                let mut buf = Buf::reused(spares.try_recv().ok(), len);
                let result = file.read_at(offset, &mut buf).map(|()| buf);
                if send.send(result).is_err() {
                    return;
                }
            }
        });
        self.ahead = reader.is_ok().then(|| Ahead { ranges: ranges.into(), read, spare });
    }

    fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<(), IoError> {
        self.ahead = None;
        check_range(offset, data.len() as u64, self.size())?;
        let bounced = !self.fits(data.as_ptr().addr());
        for (i, part) in data.chunks(CHUNK).enumerate() {
            let at = offset + (i * CHUNK) as u64;
            let copy = bounced.then(|| Buf::copy_of(part));
            let from = copy.as_deref().unwrap_or(part);
            self.steps("write", at, from.len(), from.as_ptr().addr(), |route, range, pos| {
                if self.file.writes_through(route) {
                    let part = [IoSlice::new(&from[range])];
                    rustix::io::pwritev2(route.fd, &part, pos, ReadWriteFlags::DSYNC)
                } else {
                    rustix::io::pwrite(route.fd, &from[range], pos)
                }
            })?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), IoError> {
        self.file.silence().refuse()?;
        let before = self.file.failures();
        let flushed = rustix::fs::fdatasync(self.file.buffered_fd()).map_err(|e| self.failed("flush", 0, e));
        self.file.durable(before, flushed)
    }
}
