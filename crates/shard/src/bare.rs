//! A core exported as it is: every request becomes one operation on the device, and its completion the answer.

use crate::cached::Answers;
use crate::mail::{Ask, Said, Snapshot};
use crate::port::Port;
use crate::status;
use loligo_block::{Answer, Buf, Completion, Op, OpKind, Reply, ReqError, ReqId, ReqKind, Request, Ring};
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
}

impl Bare {
    pub(crate) fn new(core: Port, size: u64) -> Bare {
        Bare { core, size, tasks: Slab::new(), done: Vec::new(), stats: Stats::default() }
    }

    pub(crate) fn request(&mut self, ring: &mut Ring, now: u64, req: Request, to: &mut impl Answers) {
        let flush = matches!(req.kind, ReqKind::Flush);
        let inside = req.offset.checked_add(req.len).is_some_and(|end| end <= self.size);
        if !flush && (!inside || req.len == 0) {
            let result = if inside { Ok(Answer::Done) } else { Err(ReqError::Invalid) };
            return to.answer(Reply { id: req.id, result });
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
                let runs = status::of_core(&self.core, req.offset, req.len);
                return to.answer(Reply { id: req.id, result: Ok(Answer::Extents(runs)) });
            }
        };
        match class {
            Class::Read => self.stats.core_read_bytes += req.len,
            Class::Write => self.stats.core_write_bytes += req.len,
            Class::Flush => self.stats.core_flushes += 1,
        }
        let tag = self.tasks.insert(Task { id: req.id, since: now, class, flush_after }) as u64;
        let offset = if flush { 0 } else { req.offset };
        self.done.extend(self.core.submit(ring, now, Op { tag, offset, kind }));
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
        let task = &mut self.tasks[key];
        if c.result.is_ok() && std::mem::take(&mut task.flush_after) {
            self.stats.core_flushes += 1;
            let flush = Op { tag: c.tag, offset: 0, kind: OpKind::Flush };
            self.done.extend(self.core.submit(ring, now, flush));
            return;
        }
        let task = self.tasks.remove(key);
        let histogram = match task.class {
            Class::Read => &mut self.stats.read_ns,
            Class::Write => &mut self.stats.write_ns,
            Class::Flush => &mut self.stats.flush_ns,
        };
        histogram.saturating_record(now.saturating_sub(task.since));
        let result = match (c.result, c.buf) {
            (Ok(()), Some(buf)) => Ok(Answer::Data(std::iter::once(buf.freeze()).collect())),
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
            Ask::Snapshot => Said::Snapshots(vec![Snapshot {
                stats: self.stats.clone(),
                mode: None,
                params: Params::default(),
                poisoned: None,
                core_failing: None,
                core_refuses: None,
                alone: None,
                needs_cache: None,
                flush_remaining: None,
                connections,
                core_queue_max: self.core.most,
                ram: Vec::new(),
            }]),
            Ask::Control(Control::SetMode(_) | Control::SetParams(_)) => {
                Said::Done(Err("this volume is served bare: it has no cache to set anything of".to_owned()))
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
