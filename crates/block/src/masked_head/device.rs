//! Asynchronous I/O on a masked device.

use super::{Change, HEAD, LABEL_TRIES, MaskedHead, in_head};
use crate::op::{refuse_group, refuse_invalid};
use crate::splits::Splits;
use crate::uring::Ring;
use crate::{Buf, Completion, Device, Geometry, Op, OpKind, SECTOR, Shared, Submit, Tag};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// Set in the tags of parts; whoever uses a masked device leaves it clear.
const PART: Tag = 1 << 63;
/// Set in the tag of the part that writes the head.
const OF_HEAD: Tag = 1 << 62;
/// Bits of a part's tag from here on say at which sector of a read's buffer it begins; those below are the operation's key.
const START_SHIFT: u32 = 40;
const KEY_MASK: Tag = (1 << START_SHIFT) - 1;
/// Set in the tag of the part that reads the block after a write of the head has failed.
const LOOK: Tag = 1 << 61;

/// A write of the head, not yet under way.
#[derive(Debug)]
struct HeadWrite {
    key: u64,
    range: Range<usize>,
    /// Nothing: zeros.
    data: Option<Shared>,
    fua: bool,
}

/// `inner` behind a masked head. Operations that do not touch the head, as nearly all do not, pass as they
/// are. Reads of the head are answered from memory; writes of it go to the disk one after the other, for each
/// is one of the whole block.
#[derive(Debug)]
pub struct MaskedDevice<D> {
    inner: D,
    head: Arc<MaskedHead>,
    splits: Splits,
    /// Parts behind the head that the device had no room for.
    waiting: VecDeque<Op>,
    heads: VecDeque<HeadWrite>,
    /// The write of the head that is under way.
    writing: Option<Change>,
    /// A write of the head that failed, while what it left is looked at; and how many labels had been written.
    looking: Option<(Completion, u64)>,
    /// The number of times that a label has been written again that a failed write may have gone over.
    label_tries: u32,
    in_flight: usize,
}

impl<D: Device> MaskedDevice<D> {
    /// `inner`, whose first block on the disk is that of `head`.
    pub fn new(inner: D, head: Arc<MaskedHead>) -> MaskedDevice<D> {
        MaskedDevice {
            inner,
            head,
            splits: Splits::default(),
            waiting: VecDeque::new(),
            heads: VecDeque::new(),
            writing: None,
            looking: None,
            label_tries: 0,
            in_flight: 0,
        }
    }

    /// The device below.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Takes an operation that touches the head apart.
    fn split(&mut self, ring: &mut Ring, now: u64, op: Op) -> Submit {
        let (offset, len) = (op.offset as usize, op.len());
        let of_head = in_head(op.offset, len);
        let range = offset..offset + of_head;
        let key = self.splits.next_key();
        let (mut buf, mut result) = (None, Ok(()));
        let (data, fua, rest) = match op.kind {
            OpKind::Read(mut to) => {
                result = self.head.read(offset, &mut to[..of_head]);
                let rest = OpKind::Read(Buf::alloc(len as usize - of_head));
                buf = Some(to);
                (None, false, rest)
            }
            OpKind::Write { data, fua } => {
                let rest = OpKind::Write { data: data.slice(of_head..len as usize), fua };
                (Some(data.slice(0..of_head)), fua, rest)
            }
            OpKind::Discard { len } => (None, false, OpKind::Discard { len: len - of_head as u64 }),
            OpKind::WriteZeroes { len, unmap } => {
                (None, false, OpKind::WriteZeroes { len: len - of_head as u64, unmap })
            }
            OpKind::Flush | OpKind::WriteMany(_) => unreachable!("neither is split"),
        };
        let mut parts = 0;
        if buf.is_none() {
            self.heads.push_back(HeadWrite { key, range, data, fua });
            parts += 1;
        }
        if len > of_head as u64 && result.is_ok() {
            let start = of_head as u64 / SECTOR;
            self.waiting.push_back(Op { tag: PART | start << START_SHIFT | key, offset: HEAD, kind: rest });
            parts += 1;
        }
        if parts == 0 {
            return Submit::Finished(Completion { tag: op.tag, buf, result });
        }
        self.splits.begin(op.tag, buf, parts);
        self.splits.fail(key, result);
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
        while self.push_waiting(ring, now, &mut over)
            && self.push_heads(ring, now, &mut over)
            && !self.waiting.is_empty()
        {}
        over
    }

    /// Submits the waiting parts; whether the device had room for all of it.
    fn push_waiting(&mut self, ring: &mut Ring, now: u64, over: &mut Vec<Completion>) -> bool {
        while let Some(part) = self.waiting.pop_front() {
            match self.inner.submit(ring, now, part) {
                Submit::Taken => {}
                Submit::Finished(c) => over.extend(self.part_over(c)),
                Submit::Busy(part) => {
                    self.waiting.push_front(part);
                    return false;
                }
            }
        }
        true
    }

    /// The next write of the head, if none is under way; whether the device had room for it.
    fn push_heads(&mut self, ring: &mut Ring, now: u64, over: &mut Vec<Completion>) -> bool {
        while self.writing.is_none()
            && self.looking.is_none()
            && let Some(next) = self.heads.pop_front()
        {
            let tag = PART | OF_HEAD | next.key;
            let change = match self.head.change(next.range.clone(), next.data.as_deref()) {
                Ok(change) => change,
                Err(why) => {
                    over.extend(self.part_over(Completion { tag, buf: None, result: Err(why) }));
                    continue;
                }
            };
            let data = Buf::copy_of(&change.block).freeze();
            let op = Op { tag, offset: 0, kind: OpKind::Write { data, fua: next.fua } };
            self.writing = Some(change);
            match self.inner.submit(ring, now, op) {
                Submit::Taken => {}
                Submit::Finished(c) => over.extend(self.part_over(c)),
                Submit::Busy(_) => {
                    // Composed again then, from the same head.
                    self.writing = None;
                    self.heads.push_front(next);
                    return false;
                }
            }
        }
        true
    }

    /// A part is over; the operation's completion if it was the last.
    fn part_over(&mut self, part: Completion) -> Option<Completion> {
        if part.tag & LOOK != 0 {
            let (failed, labels) = self.looking.take()?;
            if let (Ok(()), Some(block)) = (&part.result, &part.buf) {
                self.head.looked(block, labels);
            }
            if self.head.label_is_doubtful() && self.label_tries < LABEL_TRIES {
                self.label_tries += 1;
                let key = failed.tag & KEY_MASK;
                self.splits.fail(key, failed.result);
                self.heads.push_front(HeadWrite { key, range: 0..0, data: None, fua: true });
                return None;
            }
            self.label_tries = 0;
            return self.part_over(failed);
        }
        let key = part.tag & KEY_MASK;
        if part.tag & OF_HEAD != 0
            && let Some(change) = self.writing.take()
        {
            if self.head.changed(change, part.result.is_ok()) {
                // Durable at once: the label that it may have gone over was.
                self.heads.push_front(HeadWrite { key, range: 0..0, data: None, fua: true });
                return None;
            }
            if let Some(labels) = self.head.unsure() {
                let kind = OpKind::Read(Buf::alloc(HEAD as usize));
                self.waiting.push_front(Op { tag: PART | LOOK, offset: 0, kind });
                self.looking = Some((part, labels));
                return None;
            }
        }
        // A failure stays one, also where the block was written once more.
        let start = (part.tag & !(PART | OF_HEAD)) >> START_SHIFT;
        self.splits.part_over(key, (start * SECTOR) as usize, part)
    }
}

impl<D: Device> Device for MaskedDevice<D> {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn submit(&mut self, ring: &mut Ring, now: u64, op: Op) -> Submit {
        debug_assert!(op.tag & (PART | OF_HEAD) == 0, "tag {:#x} is for parts", op.tag);
        if !op.touches(&(0..HEAD)) {
            let submitted = self.inner.submit(ring, now, op);
            if let Submit::Taken = submitted {
                self.in_flight += 1;
            }
            return submitted;
        }
        let op = match refuse_invalid(op, self.geometry().size) {
            Ok(op) => op,
            Err(refused) => return Submit::Finished(refused),
        };
        if matches!(op.kind, OpKind::WriteMany(_)) {
            return Submit::Finished(refuse_group(op));
        }
        if !self.waiting.is_empty() || !self.heads.is_empty() {
            return Submit::Busy(op);
        }
        self.split(ring, now, op)
    }

    fn poll(&mut self, ring: &mut Ring, now: u64, out: &mut Vec<Completion>) {
        let first = out.len();
        if self.splits.is_empty() {
            self.inner.poll(ring, now, out);
        } else {
            let mut parts = Vec::new();
            self.inner.poll(ring, now, &mut parts);
            for c in parts {
                if c.tag & PART == 0 {
                    out.push(c);
                } else {
                    out.extend(self.part_over(c));
                }
            }
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
