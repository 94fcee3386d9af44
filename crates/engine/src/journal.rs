//! The journal at run time: the open frame, the frames in flight, and the two prefixes everything rests on.
//!
//! *completed*: every frame up to it, with the data it speaks of, is written. *durable*: a device flush that was
//! issued when that prefix stood there is over. A frame's actions take effect when the completed prefix reaches it.

use crate::api::Nanos;
use loligo_block::{Buf, Shared};
use loligo_format::record::{FRAME_HEADER, FRAME_MAX, FrameHeader, JournalId, RECORD_MAX, Record, seal};
use std::collections::VecDeque;

/// Frames written but not completed, at most, before the open one is held back to grow.
const DEPTH: usize = 4;
/// An open frame nobody waits for is written after this long.
const LAZY: Nanos = 50_000_000;
/// Records nobody waits for are written once there are this many bytes of them.
const LAZY_BYTES: usize = 8 << 10;

/// The deed that is due when the completed prefix reaches a record's frame.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Action {
    /// Apply the record to the index. With the flag a put was counted as a pending dirty block, a drop as an eviction
    /// on its way.
    Apply(Record, bool),
    /// Everything task `key` recorded has taken effect.
    Notify(usize),
    /// The same for a destage job.
    NotifyJob(usize),
}

#[derive(Debug)]
struct Frame {
    seq: u64,
    /// Its own write and the data writes it speaks of.
    pending: u32,
    actions: Vec<Action>,
    end: u64,
}

/// The place of the ring, and the way in which it is written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ring {
    pub(crate) base: u64,
    pub(crate) len: u64,
    /// Frames are multiples of this, bytes: 512 or the cache's logical block.
    pub(crate) unit: u32,
}

/// A frame ready to be written.
#[derive(Debug)]
pub(crate) struct ClosedFrame {
    pub(crate) seq: u64,
    pub(crate) offset: u64,
    pub(crate) data: Shared,
}

#[derive(Debug)]
pub(crate) struct Journal {
    id: JournalId,
    ring: Ring,
    pub(crate) epoch: u64,
    /// Sequence of the open frame.
    seq: u64,
    /// The place that the open frame will have, counted without wrapping.
    head: u64,
    /// The begin of the oldest frame that recovery would need.
    tail: u64,
    open: Vec<u8>,
    open_records: u32,
    open_actions: Vec<Action>,
    open_pending: u32,
    open_since: Option<Nanos>,
    urgent: bool,
    flight: VecDeque<Frame>,
    /// Frames closed but without a place in the ring: sequence, records, bytes before padding.
    unplaced: VecDeque<(u64, u32, Vec<u8>)>,
    unplaced_len: u64,
    /// Emptied frames, to be filled again.
    spare_bytes: Vec<Vec<u8>>,
    writing: usize,
    completed: u64,
    completed_end: u64,
    durable: u64,
    /// Highest watermark written into a frame.
    stamped: u64,
    /// Highest frame with a record in it.
    last_record: u64,
    volatile: bool,
    spare: Vec<Vec<Action>>,
}

impl Journal {
    /// A journal whose last frame is `last`; `(pos, kept)`: the next goes to ring position `pos`, and so many bytes before
    /// it are frames that the image does not hold.
    pub(crate) fn new(
        id: JournalId,
        ring: Ring,
        epoch: u64,
        last: u64,
        (pos, kept): (u64, u64),
        volatile: bool,
    ) -> Journal {
        // One time round already, so that the tail has room behind it.
        let head = ring.len + pos;
        Journal {
            id,
            ring,
            epoch,
            seq: last + 1,
            head,
            tail: head - kept,
            open: vec![0; FRAME_HEADER],
            open_records: 0,
            open_actions: Vec::new(),
            open_pending: 0,
            open_since: None,
            urgent: false,
            flight: VecDeque::new(),
            unplaced: VecDeque::new(),
            unplaced_len: 0,
            spare_bytes: Vec::new(),
            writing: 0,
            completed: last,
            completed_end: head,
            durable: last,
            stamped: last,
            last_record: last,
            volatile,
            spare: Vec::new(),
        }
    }

    /// Bytes of the ring that recovery would read, the open frame included.
    pub(crate) fn used(&self) -> u64 {
        self.head - self.tail + self.open.len() as u64 + self.unplaced_len + 2 * FRAME_MAX as u64
    }

    /// Bytes of the ring.
    pub(crate) fn len(&self) -> u64 {
        self.ring.len
    }

    /// The last frame that holds anything, the open one included.
    pub(crate) fn last_seq(&self) -> u64 {
        if self.open_records > 0 { self.seq } else { self.seq - 1 }
    }

    pub(crate) fn completed(&self) -> u64 {
        self.completed
    }

    pub(crate) fn durable(&self) -> u64 {
        self.durable
    }

    /// The ring position behind the completed prefix, wrapped and unwrapped.
    pub(crate) fn completed_end(&self) -> u64 {
        self.completed_end
    }

    pub(crate) fn position(&self, virt: u64) -> u64 {
        virt % self.ring.len
    }

    /// Adds a record; returns the frame it is in. With `urgent` somebody waits for it.
    pub(crate) fn append(
        &mut self,
        now: Nanos,
        record: Record,
        fresh: bool,
        urgent: bool,
        out: &mut Vec<ClosedFrame>,
    ) -> u64 {
        if self.open.len() + RECORD_MAX > FRAME_MAX {
            self.close(out);
        }
        record.encode(&mut self.open);
        self.open_records += 1;
        self.open_actions.push(Action::Apply(record, fresh));
        self.urgent |= urgent;
        self.open_since.get_or_insert(now);
        self.seq
    }

    /// Notifies `task` when everything appended so far has taken effect.
    pub(crate) fn notify(&mut self, task: usize) -> u64 {
        debug_assert!(self.open_records > 0, "a notification follows a record");
        self.open_actions.push(Action::Notify(task));
        self.seq
    }

    /// Tells destage job `job` when everything appended so far has taken effect.
    pub(crate) fn notify_job(&mut self, job: usize) {
        debug_assert!(self.open_records > 0, "a notification follows a record");
        self.open_actions.push(Action::NotifyJob(job));
    }

    /// A data write is issued that the open frame speaks of.
    pub(crate) fn data_issued(&mut self) -> u64 {
        self.open_pending += 1;
        self.seq
    }

    /// Closes the open frame if it is due.
    pub(crate) fn close_if_due(&mut self, now: Nanos, out: &mut Vec<ClosedFrame>) {
        self.place(out);
        if self.open_records == 0 || self.writing >= DEPTH || !self.unplaced.is_empty() {
            return;
        }
        let age = self.open_since.map_or(0, |t| now.saturating_sub(t));
        if self.urgent || age >= LAZY || self.open.len() >= LAZY_BYTES {
            self.close(out);
        }
    }

    /// Makes the open frame due at once.
    pub(crate) fn hurry(&mut self) {
        self.urgent |= self.open_records > 0;
    }

    /// The time at which the open frame falls due by age.
    pub(crate) fn deadline(&self) -> Option<Nanos> {
        self.open_since.filter(|_| self.open_records > 0).map(|t| t + LAZY)
    }

    /// Closes the open frame, also an empty one (which then only carries the watermark). It goes out as soon as the
    /// ring has a place for it: at once, but for a ring that a checkpoint must free first.
    pub(crate) fn close(&mut self, out: &mut Vec<ClosedFrame>) {
        if self.open_records > 0 {
            self.last_record = self.seq;
        }
        let actions = std::mem::replace(&mut self.open_actions, self.spare.pop().unwrap_or_default());
        self.flight.push_back(Frame { seq: self.seq, pending: self.open_pending + 1, actions, end: 0 });
        let next = self.spare_bytes.pop().unwrap_or_else(|| vec![0; FRAME_HEADER]);
        let bytes = std::mem::replace(&mut self.open, next);
        self.unplaced_len += bytes.len() as u64;
        self.unplaced.push_back((self.seq, self.open_records, bytes));
        self.seq += 1;
        self.open_records = 0;
        self.open_pending = 0;
        self.open_since = None;
        self.urgent = false;
        self.place(out);
    }

    /// Sends closed frames out while the ring has places for them.
    fn place(&mut self, out: &mut Vec<ClosedFrame>) {
        while let Some((seq, records, bytes)) = self.unplaced.front() {
            let (seq, records, len) = (*seq, *records, bytes.len());
            let total = len.next_multiple_of(self.ring.unit as usize);
            let (mut head, mut at) = (self.head, self.head % self.ring.len);
            if at + total as u64 > self.ring.len {
                // A frame never wraps: the reader looks at the start when it finds none here.
                head += self.ring.len - at;
                at = 0;
            }
            if head + total as u64 - self.tail > self.ring.len {
                return;
            }
            let Some((_, _, mut bytes)) = self.unplaced.pop_front() else { return };
            self.unplaced_len -= len as u64;
            let used = len - FRAME_HEADER;
            let mut buf = Buf::alloc(total);
            buf[..len].copy_from_slice(&bytes);
            bytes.truncate(FRAME_HEADER);
            self.spare_bytes.push(bytes);
            buf[len..].fill(0);
            let header =
                FrameHeader { total: total as u32, epoch: self.epoch, seq, watermark: self.durable, records };
            seal(&mut buf, self.id, header, used);
            self.stamped = self.durable;
            self.head = head + total as u64;
            let first = self.flight.front().map_or(seq, |f| f.seq);
            self.flight[(seq - first) as usize].end = self.head;
            self.writing += 1;
            out.push(ClosedFrame { seq, offset: self.ring.base + at, data: buf.freeze() });
        }
    }

    /// A frame's own write is over.
    pub(crate) fn written(&mut self, seq: u64) {
        self.writing -= 1;
        self.settle_one(seq);
    }

    /// A data write that frame `seq` speaks of is over.
    pub(crate) fn settle_one(&mut self, seq: u64) {
        if seq == self.seq {
            self.open_pending -= 1;
            return;
        }
        let first = self.flight.front().map_or(self.seq, |f| f.seq);
        self.flight[(seq - first) as usize].pending -= 1;
    }

    /// The full sequence of a frame in flight (or open) from its low 32 bits.
    pub(crate) fn widen(&self, low: u32) -> u64 {
        let base = self.flight.front().map_or(self.seq, |f| f.seq);
        base + u64::from(low.wrapping_sub(base as u32))
    }

    /// Takes the actions of the next frame of the completed prefix, if it has grown.
    pub(crate) fn next_completed(&mut self, any_order: bool) -> Option<(u64, Vec<Action>)> {
        if any_order {
            // Planted bug: a later frame takes effect, and is acknowledged, before an earlier one is written.
            let f = self.flight.iter_mut().find(|f| f.pending == 0 && !f.actions.is_empty());
            if let Some(f) = f {
                return Some((f.seq, std::mem::take(&mut f.actions)));
            }
        }
        if self.flight.front()?.pending > 0 {
            return None;
        }
        let f = self.flight.pop_front()?;
        self.completed = f.seq;
        self.completed_end = f.end;
        if !self.volatile {
            self.durable = f.seq;
        }
        Some((f.seq, f.actions))
    }

    /// Gives an emptied list of actions back for reuse.
    pub(crate) fn recycle(&mut self, mut actions: Vec<Action>) {
        actions.clear();
        if self.spare.len() < 64 {
            self.spare.push(actions);
        }
    }

    /// A device flush that was issued when `captured` was the completed prefix is over.
    pub(crate) fn flushed(&mut self, captured: u64) {
        self.durable = self.durable.max(captured);
    }

    /// Everything before `virt` is in the committed checkpoint.
    pub(crate) fn trim(&mut self, virt: u64) {
        self.tail = virt;
    }

    /// True if every record is durable.
    pub(crate) fn all_durable(&self) -> bool {
        self.open_records == 0
            && self.writing == 0
            && self.unplaced.is_empty()
            && self.durable >= self.last_record
    }

    /// Records are durable that no frame on the device says so of.
    pub(crate) fn watermark_due(&self) -> bool {
        self.all_durable() && self.stamped < self.last_record
    }

    /// The records that are yet to take effect.
    pub(crate) fn actions(&self) -> impl Iterator<Item = &Action> {
        self.flight.iter().flat_map(|f| &f.actions).chain(&self.open_actions)
    }

    /// True if a flush would make anything more durable.
    pub(crate) fn undurable(&self) -> bool {
        self.completed > self.durable
    }
}
