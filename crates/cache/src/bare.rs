//! A core served as it is: every request becomes one operation on the device, and its completion the answer.

use crate::api::{Dev, Effect, Nanos};
use crate::stats::Stats;
use loligo_block::{Answer, Buf, Extent, IoError, Op, OpKind, Reply, ReqError, ReqId, ReqKind, Request, Tag};
use slab::Slab;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Read,
    Write,
    Flush,
}

#[derive(Debug)]
struct Task {
    id: ReqId,
    since: Nanos,
    class: Class,
    /// A flush follows before the answer.
    flush_after: bool,
}

/// The trivial engine.
#[derive(Debug)]
pub struct Bare {
    size: u64,
    tasks: Slab<Task>,
    /// Its counters and histograms.
    pub stats: Stats,
}

impl Bare {
    /// For a volume of `size` bytes.
    pub fn new(size: u64) -> Bare {
        Bare { size, tasks: Slab::new(), stats: Stats::default() }
    }

    /// The volume has so many bytes from now on.
    pub fn resize(&mut self, size: u64) {
        self.size = size;
    }

    /// A client's request. A status is answered at once with one run of data: the core's own file system may know more.
    pub fn request(&mut self, now: Nanos, req: Request, fx: &mut Vec<Effect>) {
        let flush = matches!(req.kind, ReqKind::Flush);
        let inside = req.offset.checked_add(req.len).is_some_and(|end| end <= self.size);
        let mut answer = |result| fx.push(Effect::Answer(Reply { id: req.id, result }));
        if !flush && (!inside || req.len == 0) {
            return answer(if inside { Ok(Answer::Done) } else { Err(ReqError::Invalid) });
        }
        let (class, flush_after, kind) = match req.kind {
            ReqKind::Read => {
                self.stats.read_bytes += req.len;
                (Class::Read, false, OpKind::Read(Buf::alloc(req.len as usize)))
            }
            ReqKind::Write(data) => {
                self.stats.write_bytes += req.len;
                (Class::Write, false, OpKind::Write { data, fua: req.fua })
            }
            ReqKind::WriteZeroes { unmap } => {
                (Class::Write, req.fua, OpKind::WriteZeroes { len: req.len, unmap })
            }
            ReqKind::Discard => (Class::Write, req.fua, OpKind::Discard { len: req.len }),
            ReqKind::Flush => (Class::Flush, false, OpKind::Flush),
            ReqKind::Status => {
                let all = Extent { len: req.len, allocated: true, zero: false };
                return answer(Ok(Answer::Extents(vec![all])));
            }
        };
        match class {
            Class::Read => self.stats.core_read_bytes += req.len,
            Class::Write => self.stats.core_write_bytes += req.len,
            Class::Flush => self.stats.core_flushes += 1,
        }
        let tag = self.tasks.insert(Task { id: req.id, since: now, class, flush_after }) as u64;
        let offset = if flush { 0 } else { req.offset };
        fx.push(Effect::Io(Dev::Core, Op { tag, offset, kind }));
    }

    /// An operation is over.
    pub fn done(
        &mut self,
        now: Nanos,
        tag: Tag,
        buf: Option<Buf>,
        result: Result<(), IoError>,
        fx: &mut Vec<Effect>,
    ) {
        let key = tag as usize;
        let task = &mut self.tasks[key];
        if result.is_ok() && std::mem::take(&mut task.flush_after) {
            self.stats.core_flushes += 1;
            fx.push(Effect::Io(Dev::Core, Op { tag, offset: 0, kind: OpKind::Flush }));
            return;
        }
        let task = self.tasks.remove(key);
        let histogram = match task.class {
            Class::Read => &mut self.stats.read_ns,
            Class::Write => &mut self.stats.write_ns,
            Class::Flush => &mut self.stats.flush_ns,
        };
        histogram.saturating_record(now.saturating_sub(task.since));
        let result = match (result, buf) {
            (Ok(()), Some(buf)) => Ok(Answer::Data(std::iter::once(buf.freeze()).collect())),
            (Ok(()), None) => Ok(Answer::Done),
            (Err(e), _) => {
                self.stats.io_errors += 1;
                Err(ReqError::from(&e))
            }
        };
        fx.push(Effect::Answer(Reply { id: task.id, result }));
    }

    /// Requests under way.
    pub fn in_flight(&self) -> usize {
        self.tasks.len()
    }
}
