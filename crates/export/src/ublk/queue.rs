//! One queue of a device: what the kernel asks, and what it is answered, on the ring of the thread that carries it out.
//!
//! Every slot of a queue is either the kernel's (a command for it is in flight) or ours (a request lies in it). The bytes
//! of a write are fetched straight into the buffer that the engine keeps, those of a read are put from wherever they
//! came: one copy each, by the kernel.

use super::uapi::{self, Descriptor, IoCommand};
use crate::Source;
use io_uring::{opcode, types};
use loligo_block::{
    Answer, Buf, Foreign, Reply, ReqError, ReqKind, Request, Ring, SECTOR, Segments, io_uring,
};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::fmt;
use std::fs::File;
use std::io::IoSlice;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use zerocopy::IntoBytes;

/// The kernel's own limit for a call with several buffers.
const MOST_SLICES: usize = 1024;

/// The character device of which this process is the server.
#[derive(Debug)]
pub(super) struct Served {
    pub(super) file: File,
    pub(super) id: u32,
    pub(super) depth: u16,
    /// The kernel has refused a slot: the device will not start.
    pub(super) refused: AtomicBool,
}

/// Descriptors of a queue, in memory that the kernel writes.
struct Descriptors {
    at: NonNull<Descriptor>,
    bytes: usize,
    depth: usize,
}

// SAFETY: the mapping is the process's, and only read.
unsafe impl Send for Descriptors {}

impl Descriptors {
    fn map(served: &Served, queue: u16) -> Result<Descriptors, Errno> {
        let page = rustix::param::page_size();
        let size = |depth: usize| (depth * size_of::<Descriptor>()).next_multiple_of(page);
        let depth = usize::from(served.depth);
        let bytes = size(depth);
        let from = (usize::from(queue) * size(uapi::MOST_DEPTH)) as u64;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let at = unsafe { mmap(std::ptr::null_mut(), bytes, ProtFlags::READ, flags, &served.file, from) }?;
        let at = NonNull::new(at.cast()).ok_or(Errno::FAULT)?;
        Ok(Descriptors { at, bytes, depth })
    }

    /// The content of slot `tag`, which must be ours: the kernel writes no other.
    fn read(&self, tag: u16) -> Descriptor {
        assert!(usize::from(tag) < self.depth);
        // SAFETY: inside the mapping, by the check above; a descriptor is valid whatever its bytes are.
        unsafe { self.at.add(usize::from(tag)).read_volatile() }
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // SAFETY: mapped in `map` with this length, and nothing points into it any more.
        let _ = unsafe { munmap(self.at.as_ptr().cast(), self.bytes) };
    }
}

/// The content of a slot of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Slot {
    /// The kernel's.
    Empty,
    /// A read of so many bytes is being carried out.
    Read(u32),
    /// Something else of so many bytes.
    Other(u32),
}

/// One queue of a device. It belongs to one thread from [`Queue::fetch`] on.
pub struct Queue {
    served: Arc<Served>,
    descriptors: Descriptors,
    number: u16,
    /// Its index among the thread's queues.
    index: u32,
    slots: Box<[Slot]>,
    /// Answers that go to the kernel at the end of the turn: slot and result.
    answers: Vec<(u16, i32)>,
    /// Slots that are gone with the device.
    gone: u16,
    stopping: bool,
}

impl Queue {
    pub(super) fn new(served: Arc<Served>, number: u16) -> Result<Queue, Errno> {
        let descriptors = Descriptors::map(&served, number)?;
        let slots = vec![Slot::Empty; usize::from(served.depth)].into_boxed_slice();
        let answers = Vec::new();
        Ok(Queue { served, descriptors, number, index: 0, slots, answers, gone: 0, stopping: false })
    }

    /// Hands all slots to the kernel, on the ring of the calling thread. It is queue `index` of the thread, which the user data
    /// of its entries says under `mark`, whose low 48 bits are clear.
    pub fn fetch(&mut self, ring: &mut Ring, index: usize, mark: u64) {
        self.index = index as u32;
        for tag in 0..self.served.depth {
            self.push(ring, mark, uapi::FETCH, tag, 0);
        }
    }

    fn push(&self, ring: &mut Ring, mark: u64, code: u32, tag: u16, result: i32) {
        let passed = IoCommand { queue: self.number, tag, result, addr: 0 };
        let inline: [u8; 16] = passed.as_bytes().try_into().expect("it has that size");
        let fd = types::Fd(self.served.file.as_raw_fd());
        let entry = opcode::UringCmd16::new(fd, code).cmd(inline).build();
        let data = mark | u64::from(self.index) << 16 | u64::from(tag);
        // SAFETY: the entry carries its bytes and points to no memory; the kernel holds the file from its submission on,
        // before which this queue, and with it the file, cannot go: both belong to the thread of the ring.
        unsafe { ring.push_foreign(entry.user_data(data)) }
    }

    /// The queue of a thread that an event is for.
    pub fn index_of(event: Foreign) -> usize {
        (event.user_data >> 16 & 0xffff_ffff) as usize
    }

    /// Takes the request that the kernel has put into a slot. Nothing where there is none to carry out: it is answered
    /// already, or it is left for the next server, or the slot is gone with the device.
    pub fn fired(&mut self, event: Foreign) -> Option<Request> {
        let tag = event.user_data as u16;
        match event.res {
            0 => {}
            // The device is stopped.
            res if res == -Errno::NODEV.raw_os_error() => {
                self.gone += 1;
                return None;
            }
            res => {
                tracing::error!(
                    device = self.served.id,
                    queue = self.number,
                    tag,
                    errno = -res,
                    "the kernel refuses a slot of a ublk device"
                );
                self.served.refused.store(true, Ordering::Release);
                return None;
            }
        }
        if self.stopping {
            // It stays unanswered, and whoever serves the device next gets it again.
            return None;
        }
        match self.request(tag) {
            Ok(request) => Some(request),
            Err(errno) => {
                self.answers.push((tag, -errno.raw_os_error()));
                None
            }
        }
    }

    fn request(&mut self, tag: u16) -> Result<Request, Errno> {
        let asked = self.descriptors.read(tag);
        let op = asked.op_flags & 0xff;
        // A flush is of no place, and what its descriptor says of one means nothing.
        let (sectors, start) = if op == uapi::OP_FLUSH { (0, 0) } else { (asked.sectors, asked.start) };
        let bytes = sectors.checked_mul(SECTOR as u32).ok_or(Errno::INVAL)?;
        let offset = start.checked_mul(SECTOR).ok_or(Errno::INVAL)?;
        self.slots[usize::from(tag)] = Slot::Other(bytes);
        let kind = match op {
            uapi::OP_READ => {
                self.slots[usize::from(tag)] = Slot::Read(bytes);
                ReqKind::Read
            }
            uapi::OP_WRITE => ReqKind::Write(self.payload(tag, bytes as usize)?.freeze()),
            uapi::OP_FLUSH => ReqKind::Flush,
            uapi::OP_DISCARD => ReqKind::Discard,
            uapi::OP_WRITE_ZEROES => ReqKind::WriteZeroes { unmap: asked.op_flags & uapi::IO_NOUNMAP == 0 },
            _ => return Err(Errno::OPNOTSUPP),
        };
        let id = Source::Queue { index: self.index, tag }.id();
        Ok(Request { id, kind, offset, len: u64::from(bytes), fua: asked.op_flags & uapi::IO_FUA != 0 })
    }

    /// The bytes that are to be written.
    fn payload(&self, tag: u16, len: usize) -> Result<Buf, Errno> {
        let mut data = Buf::alloc(len);
        let mut done = 0;
        while done < len {
            let at = uapi::data_at(self.number, tag) + done as u64;
            match rustix::io::pread(&self.served.file, &mut data[done..], at) {
                Ok(0) => return Err(Errno::IO),
                Ok(n) => done += n,
                Err(Errno::INTR) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(data)
    }

    /// Keeps an answer until [`Queue::flush`]; the bytes of a read are handed over at once.
    pub fn answer(&mut self, reply: Reply) {
        let Source::Queue { tag, .. } = Source::of(reply.id) else { return };
        let slot = self.slots[usize::from(tag)];
        let result = match (reply.result, slot) {
            (Ok(Answer::Data(pieces)), Slot::Read(bytes)) => match self.hand_over(tag, &pieces, bytes) {
                Ok(()) => bytes as i32,
                Err(e) => -e.raw_os_error(),
            },
            (Ok(Answer::Done), Slot::Other(bytes)) => bytes as i32,
            (Ok(_), _) => -Errno::IO.raw_os_error(),
            (Err(e), _) => -errno(e).raw_os_error(),
        };
        self.answers.push((tag, result));
    }

    fn hand_over(&self, tag: u16, pieces: &Segments, bytes: u32) -> Result<(), Errno> {
        let total: usize = pieces.iter().map(|p| p.len()).sum();
        if total != bytes as usize {
            return Err(Errno::IO);
        }
        let mut at = uapi::data_at(self.number, tag);
        for some in pieces.chunks(MOST_SLICES) {
            let mut skip = 0;
            let want: usize = some.iter().map(|p| p.len()).sum();
            while skip < want {
                let mut passed = skip;
                let slices: Vec<IoSlice<'_>> = some
                    .iter()
                    .filter_map(|p| {
                        let from = passed.min(p.len());
                        passed -= from;
                        (from < p.len()).then(|| IoSlice::new(&p[from..]))
                    })
                    .collect();
                match rustix::io::pwritev(&self.served.file, &slices, at) {
                    Ok(0) => return Err(Errno::IO),
                    Ok(n) => {
                        skip += n;
                        at += n as u64;
                    }
                    Err(Errno::INTR) => {}
                    Err(e) => return Err(e),
                }
            }
        }
        Ok(())
    }

    /// Sends the answers of this turn, which hands their slots back to the kernel.
    pub fn flush(&mut self, ring: &mut Ring, mark: u64) {
        let mut answers = std::mem::take(&mut self.answers);
        for (tag, result) in answers.drain(..) {
            self.slots[usize::from(tag)] = Slot::Empty;
            self.push(ring, mark, uapi::COMMIT_AND_FETCH, tag, result);
        }
        self.answers = answers;
    }

    /// True if its device is stopped and nothing of it comes any more.
    pub fn is_over(&self) -> bool {
        self.gone == self.served.depth
    }

    /// True if answers wait for [`Queue::flush`].
    pub fn has_answers(&self) -> bool {
        !self.answers.is_empty()
    }

    /// Requests that come from now on are left for whoever serves the device next.
    pub fn stop(&mut self) {
        self.stopping = true;
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Queue({} of ublkb{})", self.number, self.served.id)
    }
}

/// The block layer's number for a volume's error. A volume that has lost its core to another client must say so with an
/// error: one that merely stops answers nothing.
fn errno(e: ReqError) -> Errno {
    match e {
        ReqError::Io | ReqError::Shutdown => Errno::IO,
        ReqError::Invalid => Errno::INVAL,
        ReqError::NoSpace => Errno::NOSPC,
        ReqError::Unsupported => Errno::OPNOTSUPP,
    }
}
