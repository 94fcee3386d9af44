//! A device that writes only the beginning of what it was given.

use super::{Pick, Seeded};
use loligo_block::{Completion, Device, Geometry, IoError, IoKind, Op, OpKind, Ring, SECTOR, Submit};
use std::collections::HashSet;

/// Which writes are torn, and whether the device admits it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TornRule {
    /// Which of the writes longer than a sector.
    pub pick: Pick,
    /// Report an error for a torn write; otherwise it looks complete.
    pub admit: bool,
}

/// Cuts writes at a sector boundary that the seed chooses, at least one sector in and one short of the end.
#[derive(Debug)]
pub struct TornDevice<D> {
    inner: D,
    rule: TornRule,
    random: Seeded,
    writes: u64,
    /// Torn writes in flight whose completion becomes an error.
    admitting: HashSet<u64>,
}

impl<D: Device> TornDevice<D> {
    /// `inner`, tearing by `rule`.
    pub fn new(inner: D, rule: TornRule, seed: u64) -> TornDevice<D> {
        TornDevice { inner, rule, random: Seeded(seed), writes: 0, admitting: HashSet::new() }
    }

    fn admit(&mut self, mut completion: Completion) -> Completion {
        if self.admitting.remove(&completion.tag) {
            completion.result = Err(IoError::new(IoKind::Io, "injected: the write was torn"));
        }
        completion
    }
}

/// The first `keep` bytes of a write, or of a group of them.
fn beginning(op: &Op, keep: usize) -> Op {
    let kind = match &op.kind {
        OpKind::Write { data, fua } => OpKind::Write { data: data.slice(0..keep), fua: *fua },
        OpKind::WriteMany(pieces) => {
            let mut left = keep;
            let mut kept = Vec::new();
            for (at, data) in pieces {
                let n = data.len().min(left);
                if n > 0 {
                    kept.push((*at, data.slice(0..n)));
                }
                left -= n;
            }
            OpKind::WriteMany(kept)
        }
        _ => unreachable!("only writes are torn"),
    };
    Op { tag: op.tag, offset: op.offset, kind }
}

impl<D: Device> Device for TornDevice<D> {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn submit(&mut self, ring: &mut Ring, now: u64, op: Op) -> Submit {
        let (tag, sectors) = (op.tag, op.len() / SECTOR);
        let write = matches!(op.kind, OpKind::Write { .. } | OpKind::WriteMany(_));
        if !write || sectors <= 1 {
            return self.inner.submit(ring, now, op);
        }
        let torn = self.rule.pick.hits(self.writes + 1);
        let keep = if torn { (1 + self.random.below(sectors - 1)) * SECTOR } else { op.len() };
        let cut = beginning(&op, keep as usize);
        match self.inner.submit(ring, now, cut) {
            Submit::Busy(_) => Submit::Busy(op),
            outcome => {
                self.writes += 1;
                if torn && self.rule.admit {
                    self.admitting.insert(tag);
                }
                match outcome {
                    Submit::Finished(completion) => Submit::Finished(self.admit(completion)),
                    other => other,
                }
            }
        }
    }

    fn poll(&mut self, ring: &mut Ring, now: u64, out: &mut Vec<Completion>) {
        let first = out.len();
        self.inner.poll(ring, now, out);
        if !self.admitting.is_empty() {
            let polled: Vec<Completion> = out.drain(first..).collect();
            out.extend(polled.into_iter().map(|c| self.admit(c)));
        }
    }

    fn next_deadline(&self) -> Option<u64> {
        self.inner.next_deadline()
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }
}
