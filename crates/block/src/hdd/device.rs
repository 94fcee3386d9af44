//! Another device at the pace of the model.

use super::{Finished, HddKind, HddModel, HddParams};
use crate::op::refuse_group;
use crate::uring::Ring;
use crate::{Completion, Device, Geometry, Op, OpKind, Submit, Tag};
use slab::Slab;

#[derive(Debug)]
struct Pending {
    tag: Tag,
    /// The answer of the device below, once there is one.
    answer: Option<Completion>,
    /// The model has come to the end of the command.
    due: bool,
}

/// A device with the timing of a spinning disk: an operation completes when the device below has done it and the model
/// says that a disk would have.
///
/// Its geometry is that of the device below, but rotational. In particular a file below keeps its volatile cache, and
/// a flush goes down to it, in no time by the model: what is promised durable is durable.
#[derive(Debug)]
pub struct HddDevice<D> {
    inner: D,
    model: HddModel,
    pending: Slab<Pending>,
    answers: Vec<Completion>,
    finished: Vec<Finished>,
}

impl<D: Device> HddDevice<D> {
    /// `inner` at the pace of `params`.
    pub fn new(inner: D, params: HddParams) -> HddDevice<D> {
        let model = HddModel::new(params, inner.geometry().size);
        HddDevice { inner, model, pending: Slab::new(), answers: Vec::new(), finished: Vec::new() }
    }

    /// The device below.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    fn take_answers(&mut self, out: &mut Vec<Completion>) {
        for answer in std::mem::take(&mut self.answers) {
            let key = answer.tag as usize;
            self.pending[key].answer = Some(answer);
            self.hand_out(key, out);
        }
        for finished in std::mem::take(&mut self.finished) {
            let key = finished.id as usize;
            self.pending[key].due = true;
            self.hand_out(key, out);
        }
    }

    fn hand_out(&mut self, key: usize, out: &mut Vec<Completion>) {
        let p = &mut self.pending[key];
        if p.due
            && let Some(answer) = p.answer.take()
        {
            out.push(Completion { tag: p.tag, ..answer });
            self.pending.remove(key);
        }
    }
}

impl<D: Device> Device for HddDevice<D> {
    fn geometry(&self) -> Geometry {
        Geometry { rotational: true, ..self.inner.geometry() }
    }

    fn submit(&mut self, ring: &mut Ring, now: u64, op: Op) -> Submit {
        let op = match crate::op::refuse_invalid(op, self.inner.geometry().size) {
            Ok(op) => op,
            Err(refused) => return Submit::Finished(refused),
        };
        if matches!(op.kind, OpKind::WriteMany(_)) {
            return Submit::Finished(refuse_group(op));
        }
        let (tag, offset, len) = (op.tag, op.offset, op.len());
        let kind = match op.kind {
            OpKind::Read(_) => HddKind::Read,
            OpKind::Write { .. } | OpKind::WriteMany(_) => HddKind::Write,
            OpKind::Flush => HddKind::Flush,
            OpKind::Discard { .. } | OpKind::WriteZeroes { .. } => HddKind::Metadata,
        };
        let key = self.pending.insert(Pending { tag, answer: None, due: false });
        match self.inner.submit(ring, now, Op { tag: key as u64, ..op }) {
            Submit::Busy(op) => {
                self.pending.remove(key);
                return Submit::Busy(Op { tag, ..op });
            }
            Submit::Finished(answer) => self.pending[key].answer = Some(answer),
            Submit::Taken => {}
        }
        self.model.submit(now, key as u64, offset, len, kind);
        Submit::Taken
    }

    fn poll(&mut self, ring: &mut Ring, now: u64, out: &mut Vec<Completion>) {
        self.inner.poll(ring, now, &mut self.answers);
        self.model.advance(now, &mut self.finished);
        self.take_answers(out);
    }

    fn next_deadline(&self) -> Option<u64> {
        [self.model.next_deadline(), self.inner.next_deadline()].into_iter().flatten().min()
    }

    fn in_flight(&self) -> usize {
        self.pending.len()
    }
}
