//! A device that remembers what it was asked.

use loligo_block::{Completion, Device, Geometry, Op, OpKind, Ring, Submit, Tag};
use parking_lot::Mutex;
use std::sync::Arc;

/// An operation without its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogOp {
    /// A read.
    Read,
    /// A write.
    Write {
        /// Durable before the completion.
        fua: bool,
    },
    /// A group of writes.
    WriteMany {
        /// How many.
        pieces: usize,
    },
    /// A flush.
    Flush,
    /// A discard.
    Discard,
    /// A write of zeros.
    Zeroes,
    /// The completion of the operation with the same tag.
    Done {
        /// Whether it succeeded.
        ok: bool,
    },
}

/// One thing that happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogEntry {
    /// The caller's clock, nanoseconds.
    pub at: u64,
    /// The operation's tag.
    pub tag: Tag,
    /// Its kind.
    pub op: LogOp,
    /// Byte offset (0 for a completion).
    pub offset: u64,
    /// Bytes (0 for a completion).
    pub len: u64,
}

/// The log of a [`LogDevice`], from any thread.
#[derive(Debug, Clone, Default)]
pub struct LogHandle(Arc<Mutex<Vec<LogEntry>>>);

impl LogHandle {
    /// Takes what has been logged since the last call.
    pub fn take(&self) -> Vec<LogEntry> {
        std::mem::take(&mut *self.0.lock())
    }

    fn add(&self, entry: LogEntry) {
        self.0.lock().push(entry);
    }
}

/// Logs submissions that were taken, and completions.
#[derive(Debug)]
pub struct LogDevice<D> {
    inner: D,
    log: LogHandle,
}

impl<D: Device> LogDevice<D> {
    /// `inner`, watched.
    pub fn new(inner: D) -> LogDevice<D> {
        LogDevice { inner, log: LogHandle::default() }
    }

    /// A reader of the log.
    pub fn log(&self) -> LogHandle {
        self.log.clone()
    }

    fn done(&self, now: u64, c: &Completion) {
        let op = LogOp::Done { ok: c.result.is_ok() };
        self.log.add(LogEntry { at: now, tag: c.tag, op, offset: 0, len: 0 });
    }
}

impl<D: Device> Device for LogDevice<D> {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn submit(&mut self, ring: &mut Ring, now: u64, op: Op) -> Submit {
        let kind = match &op.kind {
            OpKind::Read(_) => LogOp::Read,
            OpKind::Write { fua, .. } => LogOp::Write { fua: *fua },
            OpKind::WriteMany(pieces) => LogOp::WriteMany { pieces: pieces.len() },
            OpKind::Flush => LogOp::Flush,
            OpKind::Discard { .. } => LogOp::Discard,
            OpKind::WriteZeroes { .. } => LogOp::Zeroes,
        };
        let entry = LogEntry { at: now, tag: op.tag, op: kind, offset: op.offset, len: op.len() };
        let outcome = self.inner.submit(ring, now, op);
        if !matches!(outcome, Submit::Busy(_)) {
            self.log.add(entry);
        }
        if let Submit::Finished(c) = &outcome {
            self.done(now, c);
        }
        outcome
    }

    fn poll(&mut self, ring: &mut Ring, now: u64, out: &mut Vec<Completion>) {
        let first = out.len();
        self.inner.poll(ring, now, out);
        out[first..].iter().for_each(|c| self.done(now, c));
    }

    fn next_deadline(&self) -> Option<u64> {
        self.inner.next_deadline()
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }
}
