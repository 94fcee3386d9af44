//! A flush that fails and forgets, as a kernel does that tells of failed write-back once and calls the lost pages clean.

use super::loss::Subset;
use super::{Disk, Flight, Pending, put, slice};
use loligo_block::{IoError, IoKind, Op, OpKind};
use std::collections::BTreeMap;

/// The writes that a failed flush has lost.
#[derive(Debug, Default)]
pub(super) struct Forgotten {
    /// Seen by reads until the process ends, and nowhere else.
    pub(super) lost: Vec<Pending>,
    failures: u64,
    /// The number that each owner has been told of: each has a description of its own.
    told: BTreeMap<usize, u64>,
}

impl Disk {
    /// True if reads see anything that no later flush will make durable.
    pub fn has_forgotten(&self) -> bool {
        !self.forgotten.lost.is_empty()
    }

    /// Of two flushes of one owner at once, one alone would be told of a failure: an engine is not to ask for that.
    ///
    /// # Panics
    /// If it does.
    pub(super) fn check_flushes(&self, owner: usize, op: &Op) {
        let flush = |op: &Op| matches!(op.kind, OpKind::Flush);
        let two = flush(op) && self.flight.iter().any(|f| f.owner == owner && flush(&f.op));
        assert!(!(two && self.traits.forgets), "owner {owner} asks for a second flush beside one under way");
    }

    /// Ends the flush `f`, whose result would be `result`.
    pub(super) fn flushed(&mut self, f: &Flight, result: Result<(), IoError>) -> Result<(), IoError> {
        if !self.traits.forgets || !matches!(f.op.kind, OpKind::Flush) || self.gone || self.fenced {
            return result;
        }
        if result.is_err() {
            self.forget(f.captured);
            self.forgotten.failures += 1;
        }
        let failures = self.forgotten.failures;
        if self.forgotten.told.insert(f.owner, failures).unwrap_or(0) == failures {
            return result;
        }
        result?;
        Err(IoError::new(IoKind::Io, "injected: another's flush failed"))
    }

    /// Counts writes as flushed that were completed before `captured` and are not durable; some of their
    /// sectors are on the medium.
    fn forget(&mut self, captured: u64) {
        let Some(media) = &mut self.media else { return };
        while self.log.front().is_some_and(|p| p.seq < captured)
            && let Some(p) = self.log.pop_front()
        {
            let keep = Subset::draw(&mut self.rng, p.sectors);
            for s in 0..p.sectors {
                if p.durable || keep.holds(&mut self.rng, s) {
                    put(media, p.sector + s, 1, &slice(&p.payload, s, 1));
                }
            }
            self.forgotten.lost.push(p);
        }
    }
}
