//! A core exported as it is: every request becomes one operation on the device, and its completion the answer.
//!
//! Flushes go one at a time, and those who come meanwhile share the next: of two at once one could succeed over what the other has
//! lost. One that fails is final, for the next may succeed over that too. A write with FUA is a write and a flush, so that its error
//! is that of a write alone.

use crate::cached::Answers;
use crate::mail::{Ask, Said, Snapshot};
use crate::port::Port;
use crate::status;
use loligo_block::{
    Answer, Buf, Completion, Device, IoError, Op, OpKind, Reply, ReqError, ReqId, ReqKind, Request, Ring,
};
use loligo_cache::api::Control;
use loligo_cache::params::Params;
use loligo_cache::stats::Stats;
use slab::Slab;
use std::sync::mpsc::Sender;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Read,
    Write,
    Flush,
}

#[derive(Debug)]
struct Task {
    id: ReqId,
    since: u64,
    class: Class,
    /// A flush follows before the answer.
    flush_after: bool,
}

/// The trivial engine.
#[derive(Debug)]
pub(crate) struct Bare {
    pub(crate) core: Port,
    size: u64,
    tasks: Slab<Task>,
    done: Vec<Completion>,
    stats: Stats,
    /// The tasks that the flush under way speaks for; the first is its tag.
    flushing: Vec<usize>,
    /// Those that wait for the next one.
    next: Vec<usize>,
    /// Why nothing but reads is answered any more.
    failed: Option<String>,
}

impl Bare {
    pub(crate) fn new(core: Port, size: u64) -> Bare {
        Bare {
            core,
            size,
            tasks: Slab::new(),
            done: Vec::new(),
            stats: Stats::default(),
            flushing: Vec::new(),
            next: Vec::new(),
            failed: None,
        }
    }

    pub(crate) fn request(&mut self, ring: &mut Ring, now: u64, req: Request, to: &mut impl Answers) {
        let flush = matches!(req.kind, ReqKind::Flush);
        let inside = req.offset.checked_add(req.len).is_some_and(|end| end <= self.size);
        if !flush && (!inside || req.len == 0) {
            let result = if inside { Ok(Answer::Done) } else { Err(ReqError::Invalid) };
            return to.answer(Reply { id: req.id, result });
        }
        let reads = matches!(req.kind, ReqKind::Read | ReqKind::Status);
        if self.failed.is_some() && !reads {
            return to.answer(Reply { id: req.id, result: Err(ReqError::Io) });
        }
        let volatile = self.core.device.geometry().volatile_cache;
        let fua = req.fua && volatile;
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
            ReqKind::Flush if volatile => (Class::Flush, false, OpKind::Flush),
            ReqKind::Flush => return to.answer(Reply { id: req.id, result: Ok(Answer::Done) }),
            ReqKind::Status => {
                let runs = status::of_core(&self.core, req.offset, req.len);
                return to.answer(Reply { id: req.id, result: Ok(Answer::Extents(runs)) });
            }
        };
        match class {
            Class::Read => self.stats.core_read_bytes += req.len,
            Class::Write => self.stats.core_write_bytes += req.len,
            Class::Flush => {}
        }
        let key = self.tasks.insert(Task { id: req.id, since: now, class, flush_after });
        if class == Class::Flush {
            return self.flush(ring, now, Some(key));
        }
        let op = Op { tag: key as u64, offset: req.offset, kind };
        self.done.extend(self.core.submit(ring, now, op));
    }

    /// Starts a flush for those who wait for one, `more` too, unless one is under way.
    fn flush(&mut self, ring: &mut Ring, now: u64, more: Option<usize>) {
        self.next.extend(more);
        if !self.flushing.is_empty() || self.next.is_empty() {
            return;
        }
        self.flushing = std::mem::take(&mut self.next);
        self.stats.core_flushes += 1;
        let flush = Op { tag: self.flushing[0] as u64, offset: 0, kind: OpKind::Flush };
        self.done.extend(self.core.submit(ring, now, flush));
    }

    /// Takes completions and answers them.
    pub(crate) fn run(&mut self, ring: &mut Ring, now: u64, to: &mut impl Answers) {
        self.core.poll(ring, now, &mut self.done);
        while let Some(c) = self.done.pop() {
            self.completed(ring, now, c, to);
        }
    }

    fn completed(&mut self, ring: &mut Ring, now: u64, c: Completion, to: &mut impl Answers) {
        let key = c.tag as usize;
        if self.flushing.first() == Some(&key) {
            let mut over = std::mem::take(&mut self.flushing);
            if let Err(e) = &c.result {
                tracing::error!(error = %e, "a flush of the core failed: nothing is acknowledged any more");
                self.fail(format!("flushing the core failed: {e}"));
                over.append(&mut self.next);
            }
            for key in over {
                self.answer(now, key, None, c.result.clone(), to);
            }
            return self.flush(ring, now, None);
        }
        let flush_after = std::mem::take(&mut self.tasks[key].flush_after);
        if c.result.is_ok() && flush_after && self.failed.is_none() {
            return self.flush(ring, now, Some(key));
        }
        self.answer(now, key, c.buf, c.result, to);
    }

    fn fail(&mut self, why: String) {
        self.failed.get_or_insert(why);
        self.stats.poisoned = true;
    }

    fn answer(
        &mut self,
        now: u64,
        key: usize,
        buf: Option<Buf>,
        result: Result<(), IoError>,
        to: &mut impl Answers,
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
                tracing::warn!(error = %e, "an operation on the core failed");
                Err(ReqError::from(&e))
            }
        };
        to.answer(Reply { id: task.id, result });
    }

    pub(crate) fn ask(&mut self, ask: Ask, said: Sender<Said>, connections: usize) {
        let answer = match ask {
            Ask::Snapshot => Said::Snapshot(Box::new(Snapshot {
                stats: self.stats.clone(),
                mode: None,
                params: Params::default(),
                poisoned: self.failed.clone(),
                core_failing: None,
                core_refuses: None,
                alone: None,
                needs_cache: None,
                flush_remaining: None,
                connections,
                core_queue_max: self.core.most,
                ram: Vec::new(),
            })),
            Ask::Control(Control::SetMode(_) | Control::SetParams(_)) => {
                Said::Done(Err("this volume is served bare: it has no cache to set anything of".to_owned()))
            }
            Ask::Control(Control::GiveUp(why)) => {
                self.fail(why);
                Said::Done(Ok(()))
            }
            Ask::Resize(bytes) => {
                self.size = bytes;
                Said::Done(Ok(()))
            }
            Ask::Control(_)
            | Ask::Reach(_)
            | Ask::Pause
            | Ask::Exchange(_)
            | Ask::Resume
            | Ask::Fail
            | Ask::Abandon(_)
            | Ask::Drain
            | Ask::End => Said::Done(Ok(())),
        };
        // Nobody may be waiting any more.
        let _ = said.send(answer);
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.tasks.len()
    }

    /// Whether nothing is under way at the core either: it may do more than was asked of it.
    pub(crate) fn is_quiet(&self) -> bool {
        self.tasks.is_empty() && self.core.is_quiet()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loligo_block::{AnyDevice, Geometry, IoKind, Submit};
    use std::sync::{Arc, Mutex};

    /// A core that forgets: what it is asked, and what is over.
    #[derive(Debug, Default)]
    struct Held {
        asked: Vec<Op>,
        over: Vec<Completion>,
    }

    #[derive(Debug)]
    struct Slow(Arc<Mutex<Held>>);

    impl Device for Slow {
        fn geometry(&self) -> Geometry {
            Geometry {
                size: 1 << 20,
                logical_block: 512,
                physical_block: 4096,
                volatile_cache: true,
                rotational: false,
                can_unmap: true,
            }
        }
        fn submit(&mut self, _ring: &mut Ring, _now: u64, op: Op) -> Submit {
            self.0.lock().unwrap().asked.push(op);
            Submit::Taken
        }
        fn poll(&mut self, _ring: &mut Ring, _now: u64, out: &mut Vec<Completion>) {
            out.append(&mut self.0.lock().unwrap().over);
        }
        fn next_deadline(&self) -> Option<u64> {
            None
        }
        fn in_flight(&self) -> usize {
            self.0.lock().unwrap().asked.len()
        }
    }

    struct Rig {
        bare: Bare,
        ring: Ring,
        held: Arc<Mutex<Held>>,
        answers: Vec<Reply>,
    }

    impl Rig {
        fn new() -> Rig {
            let held = Arc::new(Mutex::new(Held::default()));
            let core = Port::new(AnyDevice::Other(Box::new(Slow(held.clone()))));
            Rig { bare: Bare::new(core, 1 << 20), ring: Ring::new(4).unwrap(), held, answers: Vec::new() }
        }

        fn ask(&mut self, id: ReqId, kind: ReqKind, fua: bool) {
            let len = if matches!(kind, ReqKind::Flush) { 0 } else { 512 };
            let request = Request { id, kind, offset: 0, len, fua };
            self.bare.request(&mut self.ring, 0, request, &mut self.answers);
        }

        fn write(&mut self, id: ReqId, fua: bool) {
            self.ask(id, ReqKind::Write(Buf::zeroed(512).freeze()), fua);
        }

        fn flushes(&self) -> usize {
            self.held.lock().unwrap().asked.iter().filter(|op| matches!(op.kind, OpKind::Flush)).count()
        }

        /// The oldest operation is over.
        fn end(&mut self, well: bool) {
            let mut held = self.held.lock().unwrap();
            let result = if well { Ok(()) } else { Err(IoError::new(IoKind::Io, "lost")) };
            let over = held.asked.remove(0).complete(result);
            held.over.push(over);
            drop(held);
            self.bare.run(&mut self.ring, 0, &mut self.answers);
        }

        fn told(&self) -> Vec<(ReqId, bool)> {
            self.answers.iter().map(|a| (a.id, a.result.is_ok())).collect()
        }
    }

    #[test]
    fn flushes_of_a_bare_volume_go_one_at_a_time() {
        let mut rig = Rig::new();
        (1..=3).for_each(|id| rig.ask(id, ReqKind::Flush, false));
        assert_eq!(rig.flushes(), 1);
        rig.end(true);
        assert_eq!((rig.told(), rig.flushes()), (vec![(1, true)], 1));
        rig.write(4, true);
        rig.end(true);
        assert_eq!(rig.told(), [(1, true), (2, true), (3, true)]);
        rig.end(true);
        assert_eq!(rig.flushes(), 1, "a write with FUA is followed by one");
        rig.end(true);
        assert_eq!(rig.told().last(), Some(&(4, true)));
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
        assert_eq!(rig.told(), told);
        rig.ask(7, ReqKind::Read, false);
        rig.end(true);
        assert_eq!(rig.told().last(), Some(&(7, true)), "what is there stays readable");
        assert!(rig.bare.failed.is_some() && rig.bare.in_flight() == 0);
    }

    #[test]
    fn a_failed_write_with_fua_is_the_failure_of_a_write() {
        let mut rig = Rig::new();
        rig.write(1, true);
        rig.end(false);
        rig.ask(2, ReqKind::Flush, false);
        rig.end(true);
        assert_eq!(rig.told(), [(1, false), (2, true)]);
    }
}
