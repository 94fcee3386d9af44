//! The kernel's device: one request of a mount comes with each read of it, its answer leaves with one write.
//!
//! The bytes of a write land where the engine can keep them, behind the request's own words: a large one is handed on without
//! a copy, and what is read next lands in a fresh buffer.

use super::wire::{self, InHeader, InitIn, InitOut, OutHeader, WriteIn, op};
use loligo_block::{Buf, Segments, Shared};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use zerocopy::{FromBytes, IntoBytes};

/// Bytes of the largest request; the kernel cuts longer ones.
pub(super) const MAX_REQUEST: usize = 1 << 20;
/// Requests that the kernel may have under way for programs that do not wait for each one.
const QUEUE: u16 = 256;
/// Bytes before the data of a write.
const HEAD: usize = size_of::<InHeader>() + size_of::<WriteIn>();
/// From so many bytes on a write keeps the buffer that it landed in. Below, a copy costs less than the memory that would lie idle
/// behind it.
const KEEPS: usize = MAX_REQUEST / 2;
/// The kernel's own limit for a call with several buffers.
const MOST_SLICES: usize = 1024;

/// One read of the device.
#[derive(Debug)]
pub(super) enum Arrival {
    /// A request; what belongs to it beside its header is at the device until the next look.
    Request(InHeader),
    /// Nothing waits.
    Nothing,
    /// The mount is gone.
    End,
}

/// A mount's end of the kernel's queue. When it is dropped, whoever still asks gets errors.
#[derive(Debug)]
pub(super) struct FuseDevice {
    fd: OwnedFd,
}

/// The buffer that requests land in.
#[derive(Debug)]
pub(super) struct RequestBuffer {
    head: [u8; HEAD],
    payload: Buf,
    /// Bytes of the request that lies there, header included.
    len: usize,
}

impl RequestBuffer {
    pub(super) fn new() -> RequestBuffer {
        RequestBuffer { head: [0; HEAD], payload: Buf::alloc(MAX_REQUEST), len: 0 }
    }

    /// The fixed part of what follows the header.
    pub(super) fn fixed<T: FromBytes>(&self) -> Option<T> {
        let body = size_of::<InHeader>();
        if size_of::<T>() <= HEAD - body {
            let end = (body + size_of::<T>()).min(self.len);
            return T::read_from_bytes(&self.head[body..end]).ok();
        }
        T::read_from_prefix(&self.body()).ok().map(|(fixed, _)| fixed)
    }

    /// All that follows the header, copied: for what is rare.
    pub(super) fn body(&self) -> Vec<u8> {
        let mut body = self.head[size_of::<InHeader>()..self.len.min(HEAD)].to_vec();
        body.extend_from_slice(&self.payload[..self.len.saturating_sub(HEAD)]);
        body
    }

    /// The bytes of a write.
    pub(super) fn take_payload(&mut self) -> Shared {
        let len = self.len.saturating_sub(HEAD);
        if len < KEEPS {
            return Buf::copy_of(&self.payload[..len]).freeze();
        }
        let mut data = std::mem::replace(&mut self.payload, Buf::alloc(MAX_REQUEST));
        data.truncate(len);
        data.freeze()
    }

    /// Bytes of memory that a write of `len` bytes holds on to.
    pub(super) fn cost(len: usize) -> usize {
        if len < KEEPS { len } else { MAX_REQUEST }
    }
}

impl FuseDevice {
    /// The descriptor of a mount that the kernel has just made: says hello, and does not wait for anybody from then on.
    ///
    /// # Errors
    /// If the kernel speaks another protocol, or the mount is gone already.
    pub(super) fn open(fd: OwnedFd) -> Result<FuseDevice, Errno> {
        let device = FuseDevice { fd };
        device.greet()?;
        let flags = rustix::fs::fcntl_getfl(&device.fd)?;
        rustix::fs::fcntl_setfl(&device.fd, flags | rustix::fs::OFlags::NONBLOCK)?;
        Ok(device)
    }

    #[cfg(test)]
    pub(super) fn fake(fd: OwnedFd) -> FuseDevice {
        FuseDevice { fd }
    }

    fn greet(&self) -> Result<(), Errno> {
        let mut buffer = RequestBuffer::new();
        loop {
            let header = match self.receive(&mut buffer)? {
                Arrival::Request(header) => header,
                Arrival::Nothing => continue,
                Arrival::End => return Err(Errno::NOTCONN),
            };
            let asked = InitIn::read_from_prefix(&buffer.body()).ok().map(|(asked, _)| asked);
            let Some(asked) = asked.filter(|_| header.opcode == op::INIT) else {
                self.refuse(header.unique, Errno::IO);
                return Err(Errno::PROTO);
            };
            if asked.major < wire::MAJOR || (asked.major == wire::MAJOR && asked.minor < wire::MINOR) {
                self.refuse(header.unique, Errno::PROTO);
                return Err(Errno::PROTO);
            }
            let wanted =
                wire::INIT_ASYNC_READ | wire::INIT_BIG_WRITES | wire::INIT_ASYNC_DIO | wire::INIT_MAX_PAGES;
            if asked.flags & wire::INIT_ASYNC_DIO == 0 {
                tracing::warn!("this kernel sends direct requests to FUSE one at a time");
            }
            let pages = MAX_REQUEST / rustix::param::page_size().min(MAX_REQUEST);
            let hello = InitOut {
                major: wire::MAJOR,
                minor: wire::MINOR,
                max_readahead: asked.max_readahead.min(MAX_REQUEST as u32),
                flags: asked.flags & wanted,
                max_background: QUEUE,
                congestion_threshold: QUEUE,
                max_write: MAX_REQUEST as u32,
                time_gran: 1,
                max_pages: pages as u16,
                map_alignment: 0,
                unused: [0; 8],
            };
            self.send(header.unique, &[hello.as_bytes()]);
            if asked.major == wire::MAJOR {
                return Ok(());
            }
            // A newer kernel asks again in our words.
        }
    }

    /// Takes the next request, which lies on `buffer` then.
    ///
    /// # Errors
    /// If the kernel refuses, for another reason than that nothing waits or that the mount is gone.
    pub(super) fn receive(&self, buffer: &mut RequestBuffer) -> Result<Arrival, Errno> {
        loop {
            let mut places = [IoSliceMut::new(&mut buffer.head), IoSliceMut::new(&mut buffer.payload)];
            match rustix::io::readv(&self.fd, &mut places) {
                Ok(len) => {
                    buffer.len = len;
                    let Ok((header, _)) = InHeader::read_from_prefix(&buffer.head[..len.min(HEAD)]) else {
                        return if len == 0 { Ok(Arrival::End) } else { Err(Errno::PROTO) };
                    };
                    return Ok(Arrival::Request(header));
                }
                // One that was interrupted before it was seen is gone, and the next is there.
                Err(Errno::INTR | Errno::NOENT) => {}
                Err(Errno::AGAIN) => return Ok(Arrival::Nothing),
                Err(Errno::NODEV | Errno::CONNABORTED) => return Ok(Arrival::End),
                // It could not be copied here, and the kernel has refused that one. The next may fit.
                Err(why @ (Errno::NOMEM | Errno::FAULT | Errno::IO)) => {
                    tracing::warn!(%why, "the kernel could not hand over a request of a mount, which it refused");
                    return Ok(Arrival::Nothing);
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// Waits until something arrives, for a thread that has nothing else to do.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub(super) fn wait(&self, limit: std::time::Duration) -> Result<(), Errno> {
        let limit = rustix::event::Timespec {
            tv_sec: limit.as_secs() as i64,
            tv_nsec: i64::from(limit.subsec_nanos()),
        };
        match poll(&mut [PollFd::new(&self.fd, PollFlags::IN)], Some(&limit)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(e) => Err(e),
        }
    }

    /// Answers request `unique` with `pieces`.
    pub(super) fn send(&self, unique: u64, pieces: &[&[u8]]) {
        self.answer(unique, 0, pieces.iter().map(|p| IoSlice::new(p)));
    }

    /// Answers a read with the part `range` of what was read for it.
    pub(super) fn send_part(&self, unique: u64, pieces: &Segments, range: Range<usize>) {
        if pieces.len() > MOST_SLICES - 1 {
            let whole = super::joined(pieces, pieces.iter().map(|p| p.len()).sum());
            return self.send(unique, &[&whole[range]]);
        }
        let mut at = 0;
        let slices = pieces.iter().filter_map(|piece| {
            let (from, to) = (range.start.max(at), range.end.min(at + piece.len()));
            let base = at;
            at += piece.len();
            (from < to).then(|| IoSlice::new(&piece[from - base..to - base]))
        });
        self.answer(unique, 0, slices);
    }

    /// Answers request `unique` with an error.
    pub(super) fn refuse(&self, unique: u64, errno: Errno) {
        self.answer(unique, -errno.raw_os_error(), std::iter::empty());
    }

    /// Tells the kernel something that it has not asked.
    pub(super) fn notify(&self, code: i32, body: &[u8]) -> Result<(), Errno> {
        self.write(0, code, std::iter::once(IoSlice::new(body)))
    }

    fn answer<'a>(&self, unique: u64, error: i32, body: impl Iterator<Item = IoSlice<'a>>) {
        match self.write(unique, error, body) {
            // Nobody waits for it any more, or the mount is gone.
            Ok(()) | Err(Errno::NOENT | Errno::NODEV | Errno::PERM | Errno::CONNABORTED) => {}
            Err(why) => {
                tracing::error!(%why, unique, "the kernel does not take an answer of a mount");
                // Whoever waits is not to wait for ever.
                if error == 0 {
                    let _ = self.write(unique, -Errno::IO.raw_os_error(), std::iter::empty());
                }
            }
        }
    }

    fn write<'a>(
        &self,
        unique: u64,
        error: i32,
        body: impl Iterator<Item = IoSlice<'a>>,
    ) -> Result<(), Errno> {
        /// Enough for what most answers consist of.
        const FEW: usize = 4;
        let mut header = OutHeader { len: 0, error, unique };
        let mut few = [IoSlice::new(&[]); FEW];
        let mut many = Vec::new();
        let (mut used, mut len) = (1, size_of::<OutHeader>());
        for slice in body {
            len += slice.len();
            if used < FEW {
                few[used] = slice;
            } else {
                if many.is_empty() {
                    many.extend_from_slice(&few);
                }
                many.push(slice);
            }
            used += 1;
        }
        header.len = len as u32;
        let slices = if many.is_empty() { &mut few[..used] } else { &mut many[..] };
        slices[0] = IoSlice::new(header.as_bytes());
        loop {
            match rustix::io::writev(&self.fd, slices) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(e) => return Err(e),
            }
        }
    }
}

impl AsFd for FuseDevice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
