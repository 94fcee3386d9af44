//! One operation in flight: which system call comes next, and what its result means.

use super::{DevId, ZERO_CHUNK, zero_chunk};
use crate::file::{DeviceFile, Route};
use crate::{Buf, Completion, IoError, IoKind, Op, OpKind, Shared};
use io_uring::{opcode, squeue, types};
use rustix::fd::AsRawFd;

/// Bytes per system call; the kernel's own limit is just under 2 GiB.
const MAX_CALL: u64 = 1 << 30;
/// The number of times that an operation may be put off by the kernel (`EAGAIN`, `EINTR`) before it fails.
const MAX_RETRIES: u16 = 1_000;

pub(super) enum Next {
    Again,
    Done(Result<(), IoError>),
}

/// The way a range is being zeroed or discarded; each refusal leads to the next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Space {
    Punch,
    ZeroRange,
    Write,
}

/// An operation, the buffers it owns and how far it has come.
pub(super) struct Flight {
    pub(super) device: DevId,
    file: DeviceFile,
    op: Op,
    done: u64,
    /// Bytes the system call in progress was asked for.
    asked: u64,
    /// The payload at an address that direct I/O accepts, if the caller's was not.
    bounce: Option<Buf>,
    /// Keeps the zeros alive while they are being written.
    zeros: Option<Shared>,
    space: Space,
    /// Direct I/O was refused for this operation.
    plain_only: bool,
    /// The system call in progress returns when its bytes are durable.
    durable: bool,
    retries: u16,
    /// Failed flushes of the file when it began.
    failures: u64,
    /// Nobody waits for it any more: it only keeps what the kernel may still reach.
    pub(super) orphan: bool,
}

impl Flight {
    pub(super) fn new(device: DevId, file: DeviceFile, op: Op) -> Flight {
        let bounce = match (&op.kind, file.dio()) {
            (OpKind::Write { data, .. }, Some(dio))
                if op.offset.is_multiple_of(dio.offset as u64) && !data.is_aligned(dio.memory as usize) =>
            {
                Some(Buf::copy_of(data))
            }
            _ => None,
        };
        let space = match op.kind {
            OpKind::WriteZeroes { unmap: false, .. } => Space::ZeroRange,
            _ => Space::Punch,
        };
        let mut flight = Flight {
            failures: file.failures(),
            device,
            file,
            op,
            done: 0,
            asked: 0,
            bounce,
            zeros: None,
            space,
            plain_only: false,
            durable: false,
            retries: 0,
            orphan: false,
        };
        flight.skip_impossible_space();
        flight
    }

    /// A block device zeroes only whole logical blocks.
    fn skip_impossible_space(&mut self) {
        if let OpKind::WriteZeroes { len, .. } = self.op.kind
            && self.file.is_block()
        {
            let block = self.file.geometry().logical_block as u64;
            if !self.op.offset.is_multiple_of(block) || !len.is_multiple_of(block) {
                self.space = Space::Write;
            }
        }
    }

    /// The next system call; `asked` becomes its length. The thread has others to serve while the kernel waits for it.
    pub(super) fn entry(&mut self, zeros: &mut Option<Shared>) -> squeue::Entry {
        let late = self.file.waits_at_submission();
        let entry = self.call(zeros);
        if late { entry.flags(squeue::Flags::ASYNC) } else { entry }
    }

    fn call(&mut self, zeros: &mut Option<Shared>) -> squeue::Entry {
        let pos = self.file.position(self.op.offset + self.done);
        let rest = self.op.len() - self.done;
        let main = types::Fd(self.file.main_fd().as_raw_fd());
        match &mut self.op.kind {
            OpKind::WriteMany(_) => unreachable!("the device refuses groups"),
            OpKind::Flush => {
                let buffered = types::Fd(self.file.buffered_fd().as_raw_fd());
                opcode::Fsync::new(buffered).flags(types::FsyncFlags::DATASYNC).build()
            }
            OpKind::Read(buf) => {
                let ptr = buf[self.done as usize..].as_mut_ptr();
                let route = self.file.route(pos, rest.min(MAX_CALL), ptr.addr(), self.plain_only);
                self.asked = route.len;
                let fd = types::Fd(route.fd.as_raw_fd());
                opcode::Read::new(fd, ptr, route.len as u32).offset(pos).build()
            }
            OpKind::Write { data, fua } => {
                let bytes: &[u8] = self.bounce.as_deref().unwrap_or(data);
                let ptr = bytes[self.done as usize..].as_ptr();
                let route = self.file.route(pos, rest.min(MAX_CALL), ptr.addr(), self.plain_only);
                self.asked = route.len;
                self.durable = *fua || self.file.writes_through(&route);
                write(&route, ptr, pos, self.durable)
            }
            OpKind::Discard { .. } | OpKind::WriteZeroes { .. } => {
                let mode = match self.space {
                    Space::Punch => libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
                    Space::ZeroRange => libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE,
                    Space::Write => {
                        let zeros = self.zeros.get_or_insert_with(|| zero_chunk(zeros));
                        let chunk = rest.min(ZERO_CHUNK as u64);
                        let route = self.file.route(pos, chunk, zeros.as_ptr().addr(), self.plain_only);
                        self.asked = route.len;
                        self.durable = self.file.writes_through(&route);
                        return write(&route, zeros.as_ptr(), pos, self.durable);
                    }
                };
                self.asked = rest;
                opcode::Fallocate::new(main, rest).offset(pos).mode(mode).build()
            }
        }
    }

    /// Digests the result of the system call that `entry` described. A device that is silent by now gets no further one.
    pub(super) fn advance(&mut self, res: i32) -> Next {
        match self.digest(res) {
            Next::Again => self.file.silence().refuse().map_or_else(|e| Next::Done(Err(e)), |()| Next::Again),
            done => done,
        }
    }

    fn digest(&mut self, res: i32) -> Next {
        if res < 0 {
            return self.failed(-res);
        }
        if matches!(self.op.kind, OpKind::Flush) {
            return Next::Done(self.file.durable(self.failures, Ok(())));
        }
        if !self.moves_bytes() {
            return Next::Done(Ok(()));
        }
        if res == 0 {
            let what =
                if matches!(self.op.kind, OpKind::Read(_)) { "end of file" } else { "nothing written" };
            return Next::Done(Err(IoError::new(
                IoKind::Io,
                format!("{}: {what}: did the device shrink?", self.describe()),
            )));
        }
        self.done += res as u64;
        if self.done == self.op.len() { Next::Done(Ok(())) } else { Next::Again }
    }

    /// True if the system call in progress reads or writes, and may do so in part.
    fn moves_bytes(&self) -> bool {
        match self.op.kind {
            OpKind::Flush => false,
            OpKind::Discard { .. } | OpKind::WriteZeroes { .. } => self.space == Space::Write,
            OpKind::Read(_) | OpKind::Write { .. } | OpKind::WriteMany(_) => true,
        }
    }

    fn failed(&mut self, errno: i32) -> Next {
        let space_op = matches!(self.op.kind, OpKind::Discard { .. } | OpKind::WriteZeroes { .. });
        match errno {
            libc::EINTR | libc::EAGAIN if self.retries < MAX_RETRIES => {
                self.retries += 1;
                Next::Again
            }
            libc::EOPNOTSUPP | libc::ENOSYS | libc::ENOTTY | libc::EINVAL
                if space_op && self.space != Space::Write =>
            {
                if matches!(self.op.kind, OpKind::Discard { .. }) {
                    return Next::Done(Ok(()));
                }
                self.space = if self.space == Space::Punch { Space::ZeroRange } else { Space::Write };
                Next::Again
            }
            // The descriptor claims direct I/O but refuses this request: the file system knows why, we need not.
            libc::EINVAL if self.moves_bytes() && self.file.dio().is_some() && !self.plain_only => {
                self.plain_only = true;
                self.file.say_refusal();
                Next::Again
            }
            _ => {
                let error = IoError::from_errno(errno, self.describe());
                self.file.heard(&error);
                if matches!(self.op.kind, OpKind::Flush) {
                    return Next::Done(self.file.durable(self.failures, Err(error)));
                }
                if self.durable {
                    self.file.not_durable(&error);
                }
                Next::Done(Err(error))
            }
        }
    }

    /// The failure that is told of it while the kernel goes on.
    pub(super) fn failure(&self, why: &str) -> Completion {
        let buf = match &self.op.kind {
            OpKind::Read(buf) => Some(Buf::alloc(buf.len())),
            _ => None,
        };
        let error = IoError::new(IoKind::Gone, format!("{}: {why}", self.describe()));
        Completion { tag: self.op.tag, buf, result: Err(error) }
    }

    pub(super) fn complete(self, result: Result<(), IoError>) -> Completion {
        self.op.complete(result)
    }

    fn describe(&self) -> String {
        let verb = match self.op.kind {
            OpKind::Read(_) => "read",
            OpKind::Write { .. } | OpKind::WriteMany(_) => "write",
            OpKind::Flush => return format!("flush of {}", self.file.path().display()),
            OpKind::Discard { .. } => "discard",
            OpKind::WriteZeroes { .. } => "write zeroes",
        };
        let pos = self.file.position(self.op.offset + self.done);
        format!("{verb} of {} bytes at {pos} of {}", self.asked, self.file.path().display())
    }
}

fn write(route: &Route<'_>, from: *const u8, pos: u64, durable: bool) -> squeue::Entry {
    let flags = if durable { libc::RWF_DSYNC } else { 0 };
    opcode::Write::new(types::Fd(route.fd.as_raw_fd()), from, route.len as u32)
        .offset(pos)
        .rw_flags(flags)
        .build()
}
