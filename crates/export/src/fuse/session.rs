//! The requests of a mount are taken and answered on the thread that carries them out, from whose ring it hears that
//! some wait. A request is one read of the device, its answer one write, and nothing lies between the two but the engine.
//!
//! The memory of a mount is bounded in bytes ([`BUDGET`]): while that is used up, requests stay in the
//! kernel, whose own they are.

use super::attributes::Attributes;
use super::counters::Counters;
use super::device::{Arrival, FuseDevice, RequestBuffer};
use super::wire::{FallocateIn, InHeader, ReadIn, WriteIn, WriteOut, op};
use super::write_barrier::WriteBarrier;
use super::zero::{self, PIECE, Plan};
use super::{errno, joined};
use crate::nbd::Export;
use crate::source::{KEYS, Source};
use loligo_block::{Answer, Reply, ReqError, ReqKind, Request, Segments, Shared};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::OFlags;
use rustix::io::Errno;
use slab::Slab;
use std::ffi::OsString;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use zerocopy::IntoBytes;

/// Requests of a mount under way at most. The kernel's queue has fewer, but for programs that wait for each request.
const MOST: usize = KEYS;
/// Bytes that the requests of a mount may hold at once, reads and writes together; one more may go beyond it. Enough that a
/// device of a gigabyte a second has 30 ms of work before it.
const BUDGET: usize = 32 << 20;
/// Requests taken before the volume's other clients get their turn.
const TURN: usize = 64;

/// The work under way for a request.
#[derive(Debug)]
enum Doing {
    /// The wanted part of the whole blocks that are read.
    Read(Range<usize>),
    Flush,
    /// Whole blocks, of which `asked` bytes are the request's.
    Write {
        offset: u64,
        data: Option<Shared>,
        fua: bool,
        asked: usize,
    },
    /// Parts of blocks: those are read first, and written back with its bytes over theirs.
    Merge {
        offset: u64,
        data: Shared,
        fua: bool,
    },
    /// Zeroes, a piece at a time.
    Zero {
        from: u64,
        to: u64,
        unmap: bool,
    },
}

#[derive(Debug)]
struct Task {
    /// The kernel's name for it.
    unique: u64,
    /// Bytes it holds.
    held: usize,
    doing: Doing,
}

/// One mount's requests.
pub struct Session {
    /// The only one who keeps it, so that with this session whoever still asks gets errors.
    pub(super) device: Arc<FuseDevice>,
    pub(super) buffer: RequestBuffer,
    pub(super) name: OsString,
    pub(super) block: u64,
    pub(super) attributes: Attributes,
    counters: Arc<Counters>,
    barrier: WriteBarrier,
    tasks: Slab<Task>,
    held: usize,
    most: usize,
    budget: usize,
    /// Its index among the thread's mounts.
    index: u32,
    /// Changes that are inside the barrier and have not begun.
    next: Vec<usize>,
    /// Requests that answers have brought about.
    follow: Vec<Request>,
    stopping: bool,
    over: bool,
}

impl Session {
    pub(super) fn new(device: Arc<FuseDevice>, export: &Export, counters: Arc<Counters>) -> Session {
        Session {
            device,
            buffer: RequestBuffer::new(),
            name: OsString::from(&export.name),
            block: u64::from(export.min_block),
            attributes: Attributes::new(export.size, export.preferred_block),
            counters,
            barrier: WriteBarrier::default(),
            tasks: Slab::new(),
            held: 0,
            most: 0,
            budget: BUDGET,
            index: 0,
            next: Vec::new(),
            follow: Vec::new(),
            stopping: false,
            over: false,
        }
    }

    /// It is mount `index` of its thread, which the ids of its requests say.
    pub fn sit(&mut self, index: usize) {
        self.index = index as u32;
    }

    /// True if requests may come: not while there are too many, nor when the mount is gone.
    pub fn wants(&self) -> bool {
        !self.over && self.held < self.budget && self.tasks.len() < MOST
    }

    /// Bytes that its requests hold.
    pub fn held_bytes(&self) -> usize {
        self.held
    }

    /// True if the mount is gone.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Refuses every request from now on.
    pub fn stop(&mut self) {
        self.stopping = true;
    }

    /// Waits until something arrives or `limit` is over, for a thread that has nothing else to do.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn wait(&self, limit: Duration) -> std::io::Result<()> {
        Ok(self.device.wait(limit)?)
    }

    /// Takes what has arrived, a turn's worth at most.
    pub fn receive(&mut self, requests: &mut Vec<Request>) {
        for _ in 0..TURN {
            if !self.wants() {
                break;
            }
            match self.device.receive(&mut self.buffer) {
                Ok(Arrival::Request(header)) => self.take(header),
                Ok(Arrival::Nothing) => break,
                Ok(Arrival::End) => self.over = true,
                Err(why) => {
                    tracing::error!(%why, "the kernel gives no more requests of a mount");
                    self.over = true;
                }
            }
        }
        self.follow_up(requests);
    }

    /// Requests that answers have brought about.
    pub fn follow_up(&mut self, requests: &mut Vec<Request>) {
        while !self.next.is_empty() {
            for key in std::mem::take(&mut self.next) {
                self.begin(key);
            }
        }
        requests.append(&mut self.follow);
    }

    fn take(&mut self, header: InHeader) {
        let unique = header.unique;
        let begun = match header.opcode {
            op::READ => self.read(unique),
            op::WRITE => self.write(unique),
            op::FSYNC => {
                self.flush(unique);
                Ok(())
            }
            op::FALLOCATE => self.fallocate(unique),
            _ => return self.rare(header),
        };
        if let Err(errno) = begun {
            self.device.refuse(unique, errno);
        }
    }

    fn read(&mut self, unique: u64) -> Result<(), Errno> {
        self.counters.reads.one();
        let asked: ReadIn = self.buffer.fixed().ok_or(Errno::INVAL)?;
        let end = asked.offset.saturating_add(u64::from(asked.size)).min(self.attributes.size());
        if asked.offset >= end {
            self.device.send(unique, &[]);
            return Ok(());
        }
        // Whole blocks are read, and what was not asked for is cut off.
        let from = asked.offset - asked.offset % self.block;
        let len = (end.next_multiple_of(self.block) - from) as usize;
        let range = (asked.offset - from) as usize..(end - from) as usize;
        if let Some(key) = self.task(unique, len, Doing::Read(range)) {
            self.ask(key, ReqKind::Read, from, len as u64, false);
        }
        Ok(())
    }

    fn write(&mut self, unique: u64) -> Result<(), Errno> {
        self.counters.writes.one();
        let asked: WriteIn = self.buffer.fixed().ok_or(Errno::INVAL)?;
        let len = asked.size as usize;
        let end = asked.offset.checked_add(u64::from(asked.size));
        let Some(end) = end.filter(|end| *end <= self.attributes.size()) else { return Err(Errno::NOSPC) };
        if len == 0 {
            self.written(unique, 0);
            return Ok(());
        }
        let data = self.buffer.take_payload();
        if data.len() != len {
            return Err(Errno::INVAL);
        }
        // The kernel leaves this promise to the file system, on every write.
        let fua = OFlags::from_bits_retain(asked.flags).intersects(OFlags::SYNC | OFlags::DSYNC);
        let offset = asked.offset;
        let whole = offset.is_multiple_of(self.block) && end.is_multiple_of(self.block);
        let doing = match whole {
            true => Doing::Write { offset, data: Some(data), fua, asked: len },
            false => Doing::Merge { offset, data, fua },
        };
        self.change(unique, RequestBuffer::cost(len), !whole, doing);
        Ok(())
    }

    /// Also `fdatasync`: the only metadata there is never changes.
    fn flush(&mut self, unique: u64) {
        self.counters.fsyncs.one();
        if let Some(key) = self.task(unique, 0, Doing::Flush) {
            self.ask(key, ReqKind::Flush, 0, 0, false);
        }
    }

    fn fallocate(&mut self, unique: u64) -> Result<(), Errno> {
        self.counters.fallocates.one();
        let asked: FallocateIn = self.buffer.fixed().ok_or(Errno::INVAL)?;
        match zero::plan(self.attributes.size(), self.block, (asked.offset, asked.len), asked.mode) {
            Plan::Nothing => self.device.send(unique, &[]),
            Plan::Refuse(errno, why) => {
                let FallocateIn { offset, len, mode, .. } = asked;
                tracing::warn!(offset, len, mode, "fallocate was refused: {why}");
                return Err(errno);
            }
            Plan::Zero { from, to, unmap } => self.change(unique, 0, false, Doing::Zero { from, to, unmap }),
        }
        Ok(())
    }

    /// Notes a request. Nothing, and ESHUTDOWN for who asks, once the volume stops.
    fn task(&mut self, unique: u64, held: usize, doing: Doing) -> Option<usize> {
        if self.stopping {
            self.device.refuse(unique, errno(ReqError::Shutdown));
            return None;
        }
        self.held += held;
        if self.held > self.most {
            self.most = self.held;
            self.counters.held_most.at_least(self.most as u64);
        }
        Some(self.tasks.insert(Task { unique, held, doing }))
    }

    /// Has a change begin as soon as it may, often at once.
    fn change(&mut self, unique: u64, held: usize, alone: bool, doing: Doing) {
        if let Some(key) = self.task(unique, held, doing)
            && self.barrier.enter(alone, key)
        {
            self.begin(key);
        }
    }

    fn ask(&mut self, key: usize, kind: ReqKind, offset: u64, len: u64, fua: bool) {
        let id = Source::Mount { index: self.index, key: key as u16 }.id();
        self.follow.push(Request { id, kind, offset, len, fua });
    }

    /// The next request of a change that is inside the barrier.
    fn begin(&mut self, key: usize) {
        if self.stopping {
            return self.changed(key, Err(ReqError::Shutdown));
        }
        let block = self.block;
        let (kind, offset, len, fua) = match &mut self.tasks[key].doing {
            Doing::Write { offset, data, fua, .. } => {
                let Some(data) = data.take() else { unreachable!("a write begins once") };
                let len = data.len() as u64;
                (ReqKind::Write(data), *offset, len, *fua)
            }
            Doing::Merge { offset, data, .. } => {
                let from = *offset - *offset % block;
                let end = (*offset + data.len() as u64).next_multiple_of(block);
                (ReqKind::Read, from, end - from, false)
            }
            Doing::Zero { from, to, unmap } => {
                (ReqKind::WriteZeroes { unmap: *unmap }, *from, (*to - *from).min(PIECE), false)
            }
            Doing::Read(_) | Doing::Flush => unreachable!("it changes nothing"),
        };
        self.ask(key, kind, offset, len, fua);
    }

    /// The volume's answer to a request. Its effects come out of [`Session::follow_up`].
    pub fn answer(&mut self, reply: Reply) {
        let Source::Mount { key, .. } = Source::of(reply.id) else { return };
        let key = usize::from(key);
        let Some(task) = self.tasks.get_mut(key) else { return };
        let unique = task.unique;
        match (&mut task.doing, reply.result) {
            (Doing::Read(range), Ok(Answer::Data(pieces))) => {
                let range = range.clone();
                self.device.send_part(unique, &pieces, range);
                self.end(key);
            }
            (Doing::Flush, Ok(_)) => {
                self.device.send(unique, &[]);
                self.end(key);
            }
            (Doing::Read(_) | Doing::Flush, result) => {
                self.device.refuse(unique, result.map_or_else(errno, |_| Errno::IO));
                self.end(key);
            }
            (Doing::Merge { offset, data, fua }, Ok(Answer::Data(pieces))) => {
                let skip = *offset % self.block;
                let merged = over(&pieces, skip as usize, data);
                let asked = data.len();
                task.doing = Doing::Write { offset: *offset - skip, data: Some(merged), fua: *fua, asked };
                self.next.push(key);
            }
            (Doing::Merge { .. }, Ok(_)) => self.changed(key, Err(ReqError::Io)),
            (Doing::Zero { from, to, .. }, Ok(_)) if *from + PIECE < *to => {
                *from += PIECE;
                self.next.push(key);
            }
            (Doing::Merge { .. } | Doing::Write { .. } | Doing::Zero { .. }, result) => {
                self.changed(key, result.map(drop));
            }
        }
    }

    /// A change is over.
    fn changed(&mut self, key: usize, result: Result<(), ReqError>) {
        let task = &self.tasks[key];
        let unique = task.unique;
        match (result, &task.doing) {
            (Err(e), _) => self.device.refuse(unique, errno(e)),
            (Ok(()), Doing::Write { asked, .. }) => self.written(unique, *asked as u32),
            (Ok(()), _) => self.device.send(unique, &[]),
        }
        self.barrier.leave(&mut self.next);
        self.end(key);
    }

    fn written(&self, unique: u64, size: u32) {
        self.device.send(unique, &[WriteOut { size, padding: 0 }.as_bytes()]);
    }

    fn end(&mut self, key: usize) {
        self.held -= self.tasks.remove(key).held;
    }
}

/// The bytes of `pieces` with `data` over them from `start` on.
fn over(pieces: &Segments, start: usize, data: &[u8]) -> Shared {
    let mut blocks = joined(pieces, pieces.iter().map(|p| p.len()).sum());
    blocks[start..start + data.len()].copy_from_slice(data);
    blocks.freeze()
}

impl AsFd for Session {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Session({}, {} under way)", self.name.display(), self.tasks.len())
    }
}

#[cfg(test)]
mod tests {
    use super::super::attributes::FILE;
    use super::super::wire::OutHeader;
    use super::*;
    use loligo_block::{Buf, Segments};
    use rustix::net::{AddressFamily, SocketFlags, SocketType, recv, send, socketpair};
    use rustix::net::{RecvFlags, SendFlags};
    use std::collections::BTreeMap;
    use std::os::fd::OwnedFd;
    use zerocopy::FromBytes;

    const BLOCK: u64 = 4096;
    /// Bytes of the largest message of these tests: a socket takes it without further ado.
    const LARGE: usize = 64 << 10;

    /// The kernel's side: what it asks, and what it is answered.
    struct Kernel(OwnedFd);

    impl Kernel {
        fn ask(&self, unique: u64, opcode: u32, pieces: &[&[u8]]) {
            let len = (size_of::<InHeader>() + pieces.iter().map(|p| p.len()).sum::<usize>()) as u32;
            let header = InHeader { len, opcode, unique, node: FILE, uid: 0, gid: 0, pid: 1, extra: 0 };
            let all: Vec<u8> = [header.as_bytes()].iter().chain(pieces).flat_map(|p| p.to_vec()).collect();
            assert_eq!(send(&self.0, &all, SendFlags::empty()), Ok(all.len()));
        }

        fn data(&self, unique: u64, opcode: u32, offset: u64, data: &[u8], len: usize) {
            let asked = ReadIn {
                handle: 0,
                offset,
                size: len as u32,
                read_flags: 0,
                lock_owner: 0,
                flags: 0,
                padding: 0,
            };
            self.ask(unique, opcode, &[asked.as_bytes(), data]);
        }

        fn write(&self, unique: u64, offset: u64, data: &[u8]) {
            self.data(unique, op::WRITE, offset, data, data.len());
        }

        /// The answers that are there: by request, the error and what follows.
        fn answers(&self) -> BTreeMap<u64, (i32, Vec<u8>)> {
            let mut raw = vec![0; 2 * LARGE];
            let mut all = BTreeMap::new();
            while let Ok((len, _)) = recv(&self.0, &mut raw[..], RecvFlags::DONTWAIT) {
                let (header, body) = OutHeader::read_from_prefix(&raw[..len]).expect("a header");
                assert_eq!(header.len as usize, len);
                all.insert(header.unique, (header.error, body.to_vec()));
            }
            all
        }
    }

    fn session(budget: usize) -> (Session, Kernel) {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::NONBLOCK, None).unwrap();
        for end in [&ours, &theirs] {
            rustix::net::sockopt::set_socket_send_buffer_size(end, 4 * LARGE).unwrap();
        }
        let export = Export::new("vol", 1 << 30).with_min_block(BLOCK as u32);
        let mut session = Session::new(Arc::new(FuseDevice::fake(ours)), &export, Arc::default());
        session.budget = budget;
        (session, Kernel(theirs))
    }

    fn received(session: &mut Session) -> Vec<Request> {
        let mut requests = Vec::new();
        session.receive(&mut requests);
        requests
    }

    fn done(session: &mut Session, request: &Request) -> Vec<Request> {
        session.answer(Reply { id: request.id, result: Ok(Answer::Done) });
        let mut more = Vec::new();
        session.follow_up(&mut more);
        more
    }

    fn filled(byte: u8, len: u64) -> Segments {
        let mut buf = Buf::alloc(len as usize);
        buf.fill(byte);
        Segments::from_iter([buf.freeze()])
    }

    #[test]
    fn of_64_large_writes_a_mount_holds_its_limit_and_answers_all() {
        const MAY: usize = 5 * LARGE / 2;
        let (mut session, kernel) = session(MAY);
        let data = vec![7; LARGE];
        let (mut asked, mut answered, mut under_way) = (0, 0, std::collections::VecDeque::new());
        let (mut most, mut bytes) = (0, 0);
        while answered < 64 {
            // A socket holds few of them; the kernel would have all 64 waiting.
            while asked < 64 && asked - answered < under_way.len() + 2 {
                kernel.write(asked as u64 + 1, asked as u64 * LARGE as u64, &data);
                asked += 1;
            }
            under_way.extend(received(&mut session));
            bytes = under_way.iter().map(|r: &Request| r.len as usize).sum::<usize>();
            assert!(bytes <= MAY + LARGE, "{bytes} bytes at once");
            assert_eq!(session.held_bytes(), bytes, "every byte is counted");
            most = most.max(bytes);
            let first = under_way.pop_front().expect("something goes on, however full it is");
            assert_eq!(done(&mut session, &first).len(), 0);
            answered += kernel.answers().len();
        }
        assert_eq!((most, session.held_bytes(), bytes), (3 * LARGE, 0, LARGE));
        assert_eq!(session.counters.held_most.get(), most as u64);
    }

    #[test]
    fn a_write_arrives_whole_and_a_read_brings_the_bytes_asked_for() {
        let (mut session, kernel) = session(BUDGET);
        let bytes: Vec<u8> = (0..8192u32).map(|i| (i % 251) as u8).collect();
        kernel.write(1, 4096, &bytes);
        kernel.data(2, op::READ, 5000, &[], 3000);
        let requests = received(&mut session);
        let [write, read] = &requests[..] else { panic!("{requests:?}") };
        assert!(matches!(&write.kind, ReqKind::Write(data) if data[..] == bytes[..]));
        assert_eq!((write.offset, write.len, read.offset, read.len), (4096, 8192, 4096, 4096));
        assert!(done(&mut session, write).is_empty());
        let block: Segments =
            [&bytes[..1000], &bytes[1000..4096]].iter().map(|half| Buf::copy_of(half).freeze()).collect();
        session.answer(Reply { id: read.id, result: Ok(Answer::Data(block)) });
        let answers = kernel.answers();
        assert_eq!(answers[&1], (0, [8192u32.to_ne_bytes(), [0; 4]].concat()));
        assert_eq!(answers[&2], (0, bytes[904..3904].to_vec()), "also where the answer came in pieces");
    }

    #[test]
    fn a_part_of_a_block_is_merged_and_others_there_wait() {
        let (mut session, kernel) = session(BUDGET);
        kernel.write(1, 5000, &[9; 100]);
        kernel.write(2, 4096, &[5; 4096]);
        let requests = received(&mut session);
        let [read] = &requests[..] else { panic!("the other waits: {requests:?}") };
        assert!(matches!(read.kind, ReqKind::Read) && (read.offset, read.len) == (4096, 4096));
        session.answer(Reply { id: read.id, result: Ok(Answer::Data(filled(1, 4096))) });
        let mut back = Vec::new();
        session.follow_up(&mut back);
        let [merged] = &back[..] else { panic!("{back:?}") };
        let ReqKind::Write(data) = &merged.kind else { panic!("{merged:?}") };
        assert!(data[..904].iter().chain(&data[1004..]).all(|b| *b == 1));
        assert!(data[904..1004].iter().all(|b| *b == 9));
        assert!(kernel.answers().is_empty(), "not before it is written");
        let second = done(&mut session, merged);
        assert_eq!(kernel.answers()[&1].1[..4], 100u32.to_ne_bytes(), "what was asked for is counted");
        assert!(matches!(&second[..], [r] if r.offset == 4096));
        assert!(done(&mut session, &second[0]).is_empty());
        assert_eq!((kernel.answers().len(), session.held_bytes()), (1, 0));
    }

    #[test]
    fn a_stopping_volume_refuses_what_waits_and_answers_what_runs() {
        let (mut session, kernel) = session(BUDGET);
        let shutdown = -Errno::SHUTDOWN.raw_os_error();
        kernel.write(1, 10, &[9; 100]);
        kernel.write(2, 0, &[5; 4096]);
        let requests = received(&mut session);
        assert_eq!(requests.len(), 1);
        session.stop();
        kernel.data(3, op::READ, 0, &[], 4096);
        kernel.ask(4, op::FSYNC, &[&[0; 16]]);
        assert!(received(&mut session).is_empty());
        session.answer(Reply { id: requests[0].id, result: Ok(Answer::Data(filled(0, 4096))) });
        let mut more = Vec::new();
        session.follow_up(&mut more);
        assert!(more.is_empty(), "nothing is begun any more");
        let answers = kernel.answers();
        assert_eq!(answers.values().map(|(e, _)| *e).collect::<Vec<_>>(), [shutdown; 4]);
        assert_eq!(session.held_bytes(), 0);
    }

    #[test]
    fn errors_reach_who_asked_and_garbage_hurts_nobody() {
        let (mut session, kernel) = session(BUDGET);
        kernel.data(1, op::READ, 0, &[], 4096);
        kernel.write(2, (1 << 30) - 4096, &[1; 8192]);
        kernel.data(3, op::READ, 1 << 30, &[], 4096);
        kernel.data(4, op::WRITE, 0, &[1; 100], 4096);
        kernel.ask(5, op::READ, &[&[1; 7]]);
        kernel.ask(6, 4711, &[]);
        kernel.ask(7, op::SETATTR, &[&[0xff; 20]]);
        let requests = received(&mut session);
        assert_eq!(requests.len(), 1);
        session.answer(Reply { id: requests[0].id, result: Err(ReqError::Io) });
        session.answer(Reply { id: requests[0].id, result: Err(ReqError::Io) });
        let errors: Vec<_> = kernel.answers().into_values().map(|(e, body)| (-e, body.len())).collect();
        let of = |e: Errno| (e.raw_os_error(), 0);
        let [io, full, bad] = [of(Errno::IO), of(Errno::NOSPC), of(Errno::INVAL)];
        assert_eq!(errors, [io, full, (0, 0), bad, bad, of(Errno::NOSYS), bad]);
        // Less than a header: nothing of it can be answered, and the mount is given up.
        assert_eq!(send(&kernel.0, &[1; 12], SendFlags::empty()), Ok(12));
        assert!(received(&mut session).is_empty() && session.is_over());
    }
}
