//! Asynchronous I/O on a share.

use super::{ExtentMap, Run};
use crate::op::{refuse_group, refuse_invalid};
use crate::uring::Ring;
use crate::{Buf, Completion, Device, Geometry, IoError, Op, OpKind, Submit, Tag};
use slab::Slab;
use std::collections::VecDeque;
use std::sync::Arc;

/// Set in the tags of parts; whoever uses a share leaves it clear.
const PART: Tag = 1 << 63;
/// Bits of a part's tag that say which part it is.
const PART_BITS: u32 = 24;

/// An operation that does not lie together on the device.
#[derive(Debug)]
struct Split {
    tag: Tag,
    /// Where a read gathers its bytes.
    buf: Option<Buf>,
    /// Where each part begins in the operation.
    starts: Vec<u64>,
    left: usize,
    result: Result<(), IoError>,
}

/// The extents of a share on `inner`. What lies together on the device, as nearly everything does, passes with another
/// offset; the rest goes in parts.
#[derive(Debug)]
pub struct MappedDevice<D> {
    inner: D,
    map: Arc<ExtentMap>,
    splits: Slab<Split>,
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
            splits: Slab::new(),
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
        let slot = self.splits.vacant_entry();
        let key = slot.key() as u64;
        let mut starts = Vec::with_capacity(runs.len());
        let mut at = 0;
        for (i, run) in (0u64..).zip(runs) {
            let range = at as usize..(at + run.len) as usize;
            let kind = match &op.kind {
                OpKind::Read(_) => OpKind::Read(Buf::alloc(range.len())),
                OpKind::Write { data, fua } => OpKind::Write { data: data.slice(range), fua: *fua },
                OpKind::Discard { .. } => OpKind::Discard { len: run.len },
                OpKind::WriteZeroes { unmap, .. } => OpKind::WriteZeroes { len: run.len, unmap: *unmap },
                OpKind::Flush | OpKind::WriteMany(_) => unreachable!("neither is split"),
            };
            self.waiting.push_back(Op { tag: PART | key << PART_BITS | i, offset: run.offset, kind });
            starts.push(at);
            at += run.len;
        }
        let buf = if let OpKind::Read(buf) = op.kind { Some(buf) } else { None };
        slot.insert(Split { tag: op.tag, buf, starts, left: runs.len(), result: Ok(()) });
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
        let key = ((part.tag & !PART) >> PART_BITS) as usize;
        let index = (part.tag & ((1 << PART_BITS) - 1)) as usize;
        let split = &mut self.splits[key];
        if let (Some(to), Some(from), Ok(())) = (&mut split.buf, &part.buf, &part.result) {
            let at = split.starts[index] as usize;
            to[at..at + from.len()].copy_from_slice(from);
        }
        if split.result.is_ok() {
            split.result = part.result;
        }
        split.left -= 1;
        if split.left > 0 {
            return None;
        }
        let Split { tag, buf, result, .. } = self.splits.remove(key);
        Some(Completion { tag, buf, result })
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
