//! Asynchronous I/O on a share.

use super::{ExtentMap, Run};
use crate::op::{refuse_group, refuse_invalid};
use crate::splits::Splits;
use crate::uring::Ring;
use crate::{Buf, Completion, Device, Geometry, Op, OpKind, SECTOR, Submit, Tag};
use std::collections::VecDeque;
use std::sync::Arc;

/// Set in the tags of parts; whoever uses a share leaves it clear.
const PART: Tag = 1 << 63;
/// Bits of a part's tag that say at which sector of a read's buffer it begins; no read is longer than they count.
const START_BITS: u32 = 24;

/// The extents of a share on `inner`. An operation whose range lies together on the device, as nearly
/// everything does, passes with another offset. The rest goes in parts.
#[derive(Debug)]
pub struct MappedDevice<D> {
    inner: D,
    map: Arc<ExtentMap>,
    splits: Splits,
    /// Parts that the device had no room for.
    waiting: VecDeque<Op>,
    in_flight: usize,
    scratch: Vec<Completion>,
}

impl<D: Device> MappedDevice<D> {
    /// The share that `map` describes, on `inner`.
    pub fn new(inner: D, map: Arc<ExtentMap>) -> MappedDevice<D> {
        MappedDevice {
            inner,
            map,
            splits: Splits::default(),
            waiting: VecDeque::new(),
            in_flight: 0,
            scratch: Vec::new(),
        }
    }

    /// The device below.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    fn pass(&mut self, ring: &mut Ring, now: u64, mut op: Op, offset: u64) -> Submit {
        let ours = std::mem::replace(&mut op.offset, offset);
        match self.inner.submit(ring, now, op) {
            Submit::Taken => {
                self.in_flight += 1;
                Submit::Taken
            }
            Submit::Busy(op) => Submit::Busy(Op { offset: ours, ..op }),
            finished => finished,
        }
    }

    fn split(&mut self, ring: &mut Ring, now: u64, op: Op, runs: &[Run]) -> Submit {
        let key = self.splits.next_key();
        let mut at = 0;
        for run in runs {
            let range = at as usize..(at + run.len) as usize;
            let kind = match &op.kind {
                OpKind::Read(_) => OpKind::Read(Buf::alloc(range.len())),
                OpKind::Write { data, fua } => OpKind::Write { data: data.slice(range), fua: *fua },
                OpKind::Discard { .. } => OpKind::Discard { len: run.len },
                OpKind::WriteZeroes { unmap, .. } => OpKind::WriteZeroes { len: run.len, unmap: *unmap },
                OpKind::Flush | OpKind::WriteMany(_) => unreachable!("neither is split"),
            };
            let start = (at / SECTOR) & ((1 << START_BITS) - 1);
            self.waiting.push_back(Op { tag: PART | key << START_BITS | start, offset: run.offset, kind });
            at += run.len;
        }
        let buf = if let OpKind::Read(buf) = op.kind { Some(buf) } else { None };
        self.splits.begin(op.tag, buf, runs.len());
        self.in_flight += 1;
        match self.push_parts(ring, now).pop() {
            Some(over) => {
                self.in_flight -= 1;
                Submit::Finished(over)
            }
            None => Submit::Taken,
        }
    }

    /// Hands parts to the device while it takes them; the operations that this ended.
    fn push_parts(&mut self, ring: &mut Ring, now: u64) -> Vec<Completion> {
        let mut over = Vec::new();
        while let Some(part) = self.waiting.pop_front() {
            match self.inner.submit(ring, now, part) {
                Submit::Taken => {}
                Submit::Finished(c) => over.extend(self.part_over(c)),
                Submit::Busy(part) => {
                    self.waiting.push_front(part);
                    break;
                }
            }
        }
        over
    }

    /// A part is over; the operation's completion if it was the last.
    fn part_over(&mut self, part: Completion) -> Option<Completion> {
        let key = (part.tag & !PART) >> START_BITS;
        let start = part.tag & ((1 << START_BITS) - 1);
        self.splits.part_over(key, (start * SECTOR) as usize, part)
    }
}

impl<D: Device> Device for MappedDevice<D> {
    fn geometry(&self) -> Geometry {
        Geometry { size: self.map.size(), ..self.inner.geometry() }
    }

    fn submit(&mut self, ring: &mut Ring, now: u64, op: Op) -> Submit {
        debug_assert!(op.tag & PART == 0, "tag {:#x} is for parts", op.tag);
        let op = match refuse_invalid(op, self.map.size()) {
            Ok(op) => op,
            Err(refused) => return Submit::Finished(refused),
        };
        match op.kind {
            OpKind::Flush => return self.pass(ring, now, op, 0),
            OpKind::WriteMany(_) => return Submit::Finished(refuse_group(op)),
            _ => {}
        }
        let len = op.len();
        match self.map.run(op.offset, len) {
            Ok(run) if run.len == len => return self.pass(ring, now, op, run.offset),
            Err(e) => return Submit::Finished(op.complete(Err(e))),
            Ok(_) => {}
        }
        if !self.waiting.is_empty() {
            return Submit::Busy(op);
        }
        match self.map.runs(op.offset, len) {
            Ok(runs) => self.split(ring, now, op, &runs),
            Err(e) => Submit::Finished(op.complete(Err(e))),
        }
    }

    fn poll(&mut self, ring: &mut Ring, now: u64, out: &mut Vec<Completion>) {
        let first = out.len();
        if self.splits.is_empty() {
            self.inner.poll(ring, now, out);
        } else {
            let mut scratch = std::mem::take(&mut self.scratch);
            self.inner.poll(ring, now, &mut scratch);
            for c in scratch.drain(..) {
                if c.tag & PART == 0 {
                    out.push(c);
                } else {
                    out.extend(self.part_over(c));
                }
            }
            self.scratch = scratch;
            out.extend(self.push_parts(ring, now));
        }
        self.in_flight -= out.len() - first;
    }

    fn next_deadline(&self) -> Option<u64> {
        self.inner.next_deadline()
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }
}
