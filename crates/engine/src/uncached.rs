//! A core served as it is: every request becomes one operation on the device, and its completion the answer.
//!
//! Flushes go one at a time, and those who come meanwhile share the next: of two at once one could succeed over what the other has
//! lost. One that fails is final, for the next may succeed over that too. A write with FUA is a write and a flush, so that its error
//! is that of a write alone.

use crate::api::{Dev, Effect, Nanos};
use crate::refusal::{Failure, Step};
use crate::stats::Stats;
use loligo_block::{
    Answer, Buf, Extent, IoError, IoKind, Op, OpKind, Reply, ReqError, ReqId, ReqKind, Request, Tag,
};
use slab::Slab;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Read,
    Write,
    Flush,
}

#[derive(Debug)]
struct Task {
    /// Taken by the answer.
    id: Option<ReqId>,
    since: Nanos,
    class: Class,
    /// A flush follows before the answer.
    flush_after: bool,
}

/// The trivial engine.
#[derive(Debug)]
pub struct UncachedEngine {
    size: u64,
    /// The core may lose what it has not flushed.
    volatile: bool,
    tasks: Slab<Task>,
    /// The tasks that the flush under way speaks for; the first is its tag.
    flushing: Vec<usize>,
    /// Those that wait for the next one.
    next: Vec<usize>,
    /// The reason why nothing but reads is answered any more.
    failed: Option<Failure>,
    /// Its counters and histograms.
    pub stats: Stats,
}

impl UncachedEngine {
    /// For a volume of `size` bytes, over a core that is `volatile` or keeps what it has answered.
    pub fn new(size: u64, volatile: bool) -> UncachedEngine {
        UncachedEngine {
            size,
            volatile,
            tasks: Slab::new(),
            flushing: Vec::new(),
            next: Vec::new(),
            failed: None,
            stats: Stats::default(),
        }
    }

    /// The reason why nothing but reads is answered any more, if that is so.
    pub fn failed(&self) -> Option<&Failure> {
        self.failed.as_ref()
    }

    /// The reason why the core is not ours any more, if that is so.
    pub fn expelled(&self) -> Option<&str> {
        match &self.failed {
            Some(Failure::Expelled(why)) => Some(why),
            _ => None,
        }
    }

    /// The core is somebody else's: every request fails from now on, those under way too.
    pub fn expel(&mut self, why: String, fx: &mut Vec<Effect>) {
        if self.expelled().is_some() {
            return;
        }
        self.failed = Some(Failure::Expelled(why));
        self.stats.poisoned = true;
        for (_, task) in &mut self.tasks {
            let id = task.id.take();
            fx.extend(id.map(|id| Effect::Answer(Reply { id, result: Err(ReqError::Io) })));
        }
        // They were not asked of the core yet, and are not going to be.
        for key in std::mem::take(&mut self.next) {
            self.tasks.remove(key);
        }
    }

    /// From now on nothing but reads is answered, because of `why`.
    pub fn fail(&mut self, why: Failure) {
        self.failed.get_or_insert(why);
        self.stats.poisoned = true;
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
        let reads = matches!(req.kind, ReqKind::Read | ReqKind::Status);
        if self.expelled().is_some() || (self.failed.is_some() && !reads) {
            return answer(Err(ReqError::Io));
        }
        let fua = req.fua && self.volatile;
        let (class, flush_after, kind) = match req.kind {
            ReqKind::Read => {
                self.stats.read_bytes += req.len;
                (Class::Read, false, OpKind::Read(Buf::alloc(req.len as usize)))
            }
            ReqKind::Write(data) => {
                self.stats.write_bytes += req.len;
                (Class::Write, fua, OpKind::Write { data, fua: false })
            }
            ReqKind::WriteZeroes { unmap } => {
                (Class::Write, fua, OpKind::WriteZeroes { len: req.len, unmap })
            }
            ReqKind::Discard => (Class::Write, fua, OpKind::Discard { len: req.len }),
            ReqKind::Flush if self.volatile => (Class::Flush, false, OpKind::Flush),
            ReqKind::Flush => return answer(Ok(Answer::Done)),
            ReqKind::Status => {
                let all = Extent { len: req.len, allocated: true, zero: false };
                return answer(Ok(Answer::Extents(vec![all])));
            }
        };
        match class {
            Class::Read => self.stats.core_read_bytes += req.len,
            Class::Write => self.stats.core_write_bytes += req.len,
            Class::Flush => {}
        }
        let key = self.tasks.insert(Task { id: Some(req.id), since: now, class, flush_after });
        if class == Class::Flush {
            return self.flush(Some(key), fx);
        }
        fx.push(Effect::Io(Dev::Core, Op { tag: key as u64, offset: req.offset, kind }));
    }

    /// Starts a flush for those who wait for one, `more` too, unless one is under way.
    fn flush(&mut self, more: Option<usize>, fx: &mut Vec<Effect>) {
        self.next.extend(more);
        if !self.flushing.is_empty() || self.next.is_empty() {
            return;
        }
        self.flushing = std::mem::take(&mut self.next);
        self.stats.core_flushes += 1;
        let tag = self.flushing[0] as u64;
        fx.push(Effect::Io(Dev::Core, Op { tag, offset: 0, kind: OpKind::Flush }));
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
        if let Some(e) = result.as_ref().err().filter(|e| e.kind == IoKind::Fenced) {
            self.expel(e.words_of_fence(), fx);
        }
        if self.flushing.first() == Some(&key) {
            let mut over = std::mem::take(&mut self.flushing);
            if let Err(e) = &result {
                self.fail(Failure::device(Step::CoreFlush, e.clone()));
                over.append(&mut self.next);
            }
            over.into_iter().for_each(|key| self.answer(now, key, None, result.clone(), fx));
            return self.flush(None, fx);
        }
        let flush_after = std::mem::take(&mut self.tasks[key].flush_after);
        if result.is_ok() && flush_after && self.failed.is_none() {
            return self.flush(Some(key), fx);
        }
        self.answer(now, key, buf, result, fx);
    }

    fn answer(
        &mut self,
        now: Nanos,
        key: usize,
        buf: Option<Buf>,
        result: Result<(), IoError>,
        fx: &mut Vec<Effect>,
    ) {
        let task = self.tasks.remove(key);
        let histogram = match task.class {
            Class::Read => &mut self.stats.read_ns,
            Class::Write => &mut self.stats.write_ns,
            Class::Flush => &mut self.stats.flush_ns,
        };
        histogram.saturating_record(now.saturating_sub(task.since));
        let result = match (result, buf) {
            (Ok(()), Some(buf)) => Ok(Answer::Data(std::iter::once(buf.freeze()).collect())),
            (Ok(()), None) if self.failed.is_some() => Err(ReqError::Io),
            (Ok(()), None) => Ok(Answer::Done),
            (Err(e), _) => {
                self.stats.io_errors += 1;
                Err(ReqError::from(&e))
            }
        };
        fx.extend(task.id.map(|id| Effect::Answer(Reply { id, result })));
    }

    /// Requests under way.
    pub fn in_flight(&self) -> usize {
        self.tasks.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bare volume over a core that forgets what a failed flush was to save.
    struct Rig {
        bare: UncachedEngine,
        asked: Vec<Op>,
        told: Vec<(ReqId, bool)>,
    }

    impl Rig {
        fn new() -> Rig {
            Rig { bare: UncachedEngine::new(1 << 20, true), asked: Vec::new(), told: Vec::new() }
        }

        fn take(&mut self, fx: Vec<Effect>) {
            for effect in fx {
                match effect {
                    Effect::Io(_, op) => self.asked.push(op),
                    Effect::Answer(reply) => self.told.push((reply.id, reply.result.is_ok())),
                    Effect::Missed(_) | Effect::Controlled(..) => {}
                }
            }
        }

        fn ask(&mut self, id: ReqId, kind: ReqKind, fua: bool) {
            let len = if matches!(kind, ReqKind::Flush) { 0 } else { 512 };
            let mut fx = Vec::new();
            self.bare.request(0, Request { id, kind, offset: 0, len, fua }, &mut fx);
            self.take(fx);
        }

        fn write(&mut self, id: ReqId, fua: bool) {
            self.ask(id, ReqKind::Write(Buf::zeroed(512).freeze()), fua);
        }

        fn flushes(&self) -> usize {
            self.asked.iter().filter(|op| matches!(op.kind, OpKind::Flush)).count()
        }

        /// The oldest operation is over.
        fn end(&mut self, well: bool) {
            let result = if well { Ok(()) } else { Err(IoError::new(IoKind::Io, "lost")) };
            let c = self.asked.remove(0).complete(result);
            let mut fx = Vec::new();
            self.bare.done(0, c.tag, c.buf, c.result, &mut fx);
            self.take(fx);
        }
    }

    #[test]
    fn flushes_of_a_bare_volume_go_one_at_a_time() {
        let mut rig = Rig::new();
        (1..=3).for_each(|id| rig.ask(id, ReqKind::Flush, false));
        assert_eq!(rig.flushes(), 1);
        rig.end(true);
        assert_eq!((&rig.told[..], rig.flushes()), (&[(1, true)][..], 1));
        rig.write(4, true);
        rig.end(true);
        assert_eq!(rig.told, [(1, true), (2, true), (3, true)]);
        rig.end(true);
        assert_eq!(rig.flushes(), 1, "a write with FUA is followed by one");
        rig.end(true);
        assert_eq!(rig.told.last(), Some(&(4, true)));
        assert_eq!(rig.bare.in_flight(), 0);
    }

    #[test]
    fn a_failed_flush_of_a_bare_volume_is_final() {
        let mut rig = Rig::new();
        rig.write(1, false);
        rig.end(true);
        rig.ask(2, ReqKind::Flush, false);
        rig.ask(3, ReqKind::Flush, false);
        rig.write(4, false);
        rig.end(false);
        rig.end(true);
        rig.ask(5, ReqKind::Flush, false);
        rig.write(6, false);
        let told = [(1, true), (2, false), (3, false), (4, false), (5, false), (6, false)];
        assert_eq!(rig.told, told);
        rig.ask(7, ReqKind::Read, false);
        rig.end(true);
        assert_eq!(rig.told.last(), Some(&(7, true)), "what is there stays readable");
        assert!(rig.bare.failed().is_some() && rig.bare.in_flight() == 0);
    }

    #[test]
    fn a_bare_volume_that_is_fenced_answers_nothing_but_errors() {
        let mut rig = Rig::new();
        rig.write(1, true);
        rig.ask(2, ReqKind::Read, false);
        rig.ask(3, ReqKind::Flush, false);
        rig.ask(4, ReqKind::Flush, false);
        let fenced = IoError::new(IoKind::Fenced, "write");
        let c = rig.asked.remove(0).complete(Err(fenced));
        let mut fx = Vec::new();
        rig.bare.done(0, c.tag, c.buf, c.result, &mut fx);
        rig.take(fx);
        rig.told.sort_unstable();
        assert_eq!(rig.told, [(1, false), (2, false), (3, false), (4, false)], "at once");
        while !rig.asked.is_empty() {
            rig.end(true);
        }
        rig.ask(5, ReqKind::Read, false);
        assert_eq!((rig.told.len(), rig.told[4]), (5, (5, false)));
        assert!(rig.asked.is_empty() && rig.bare.in_flight() == 0);
    }

    #[test]
    fn a_failed_write_with_fua_is_the_failure_of_a_write() {
        let mut rig = Rig::new();
        rig.write(1, true);
        rig.end(false);
        rig.ask(2, ReqKind::Flush, false);
        rig.end(true);
        assert_eq!(rig.told, [(1, false), (2, true)]);
    }
}
