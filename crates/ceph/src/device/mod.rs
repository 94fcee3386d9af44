//! An image as a block device: reads and single writes through librbd, groups of dirty extents as one atomic operation per
//! object beside it.
//!
//! The protocol of the groups (what librbd does for every write is done once per object and epoch, and never later than
//! needed) is in `docs/decisions/0017-grouped-destage.md`. Everything here belongs to one thread; Ceph's threads only put what
//! has landed into the inbox.

mod depth;
mod flight;
mod objects;
mod pending;
mod streams;
mod trims;

use crate::attached_image::{AttachedImage, Notice};
use crate::bug::{Step, is_left_out};
use crate::write_gate::Pass;
use depth::Depth;
pub(crate) use flight::Landed;
use flight::{Flight, What};
use loligo_block::{
    Buf, Completion, Device, Geometry, IoError, IoKind, Op, OpKind, Ring, SECTOR, Shared, Submit, Tag,
};
use objects::Objects;
use pending::{Pending, PendingAnswers};
use slab::Slab;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use streams::{Run, Streams};
use trims::{Trim, Trims};

/// Extents in one operation, at most: beyond that an OSD's time grows with the square.
const EXTENTS: usize = 256;
/// The same while somebody reads: an operation holds its placement group for as long as it takes.
const EXTENTS_BESIDE: usize = 64;
/// No epoch: where primers are left out, that of an object whose group came back.
const TURNED_BACK: u32 = u32::MAX;
/// Unexplained errors in a row after which groups are given up.
const FAILURES: u32 = 3;

/// Refusals of the snapshot context without a success between after which groups are given up: more than can be under way when
/// one changes.
const STALE: u32 = 64;

/// Dirty bytes of one object on their way.
#[derive(Debug)]
struct Extent {
    /// The place in the object.
    at: u64,
    data: Shared,
    /// The request they belong to.
    request: usize,
}

/// A group of writes that was asked for, until all its extents are there.
#[derive(Debug)]
struct Request {
    tag: Tag,
    left: usize,
    failed: Option<IoError>,
}

/// A change that goes through librbd.
#[derive(Debug)]
enum Change {
    Write(Run),
    Zeroes { tag: Tag, at: u64, len: u64 },
    Trim(Trim),
}

/// The image for one thread.
#[derive(Debug)]
pub struct RbdDevice {
    image: Arc<AttachedImage>,
    letters: VecDeque<Landed>,
    /// The ring watches the inbox.
    armed: bool,
    objects: Objects,
    /// Objects that are written at a time. Those that wait meanwhile gather what else is dirty in them.
    depth: Depth,
    /// As many objects were under way as may be when the thread last left.
    full: bool,
    /// The time at which the thread last came by, nanoseconds.
    now: u64,
    requests: Slab<Request>,
    streams: Streams,
    trims: Trims,
    /// Operations that Ceph has.
    pending: PendingAnswers,
    /// Writes and zeroes that wait for the gate.
    parked: VecDeque<Change>,
    /// Those that wait until objects are removed.
    held: Vec<Change>,
    finished: Vec<Completion>,
    in_flight: usize,
    reads: usize,
    failures: u32,
    /// Refusals of the snapshot context since a group last went through.
    stale: u32,
}

impl RbdDevice {
    /// The only device of `image`.
    pub fn new(image: Arc<AttachedImage>) -> RbdDevice {
        RbdDevice {
            objects: Objects::new(),
            depth: Depth::new(),
            full: false,
            now: 0,
            streams: Streams::new(image.object_size()),
            trims: Trims::new(image.object_size(), image.layout.is_linear()),
            image,
            letters: VecDeque::new(),
            armed: false,
            requests: Slab::new(),
            pending: PendingAnswers::default(),
            parked: VecDeque::new(),
            held: Vec::new(),
            finished: Vec::new(),
            in_flight: 0,
            reads: 0,
            failures: 0,
            stale: 0,
        }
    }

    fn fly(&mut self, counted: bool, what: What) {
        let place = self.pending.add(&what);
        Flight::new(&self.image, counted, place, what).start();
    }

    /// Lets waiting changes go while the gate is open.
    fn pump(&mut self) {
        while let Some(change) = self.parked.pop_front() {
            if self.waits_for_removal(&change) {
                self.held.push(change);
                continue;
            }
            match self.image.gate.enter() {
                Pass::Epoch(_) => self.change(change),
                Pass::Closed => {
                    self.parked.push_front(change);
                    return;
                }
                Pass::Lost => self.refuse(change),
            }
        }
        if self.image.gate.is_lost() {
            return self.give_up();
        }
        while self.trims.removing() < self.depth.removals() && self.objects.busy() < self.depth.now() {
            let Some(object) = self.trims.next() else { break };
            match self.image.gate.enter() {
                Pass::Epoch(_) => self.remove(object),
                Pass::Closed | Pass::Lost => {
                    self.trims.wait_again(object);
                    break;
                }
            }
        }
        while self.objects.busy() < self.depth.now() {
            let Some(object) = self.objects.next() else { return };
            match self.image.gate.enter() {
                Pass::Epoch(epoch) => self.write_object(object, epoch),
                // It is met again at the next turn, which a loss brings about too.
                Pass::Closed | Pass::Lost => return self.objects.wait_again(object),
            }
        }
    }

    /// The image is lost: what is under way may never land, since nothing is sent any more. It is over, and so is what waits for it.
    fn give_up(&mut self) {
        for owed in self.pending.give_up() {
            match owed {
                Pending::Read { tag, len } => {
                    let buf = Some(Buf::zeroed(len));
                    self.finished.push(Completion { tag, buf, result: Err(lost()) });
                }
                Pending::Tags(tags) => self.finished.extend(tags.into_iter().map(|t| done(t, Err(lost())))),
                Pending::Requests(requests) => {
                    requests.into_iter().for_each(|r| self.extent_over(r, Err(lost())));
                }
            }
        }
        self.trims.give_up();
        self.parked.extend(self.held.drain(..));
        // A write that is over lets those go that have waited for it.
        while let Some(change) = self.parked.pop_front() {
            self.refuse(change);
        }
        let waiting = self.streams.give_up();
        self.finished.extend(waiting.into_iter().map(|tag| done(tag, Err(lost()))));
        for extent in self.objects.give_up() {
            self.extent_over(extent.request, Err(lost()));
        }
    }

    /// The gate has let it in.
    fn change(&mut self, change: Change) {
        // Whoever shrank the image has given up what lies behind its end.
        let limit = self.image.limit();
        match change {
            Change::Write(mut run) => {
                let (at, end) = (run.at, run.end());
                let gone = run.cut(limit.saturating_sub(at));
                self.finished.extend(gone.into_iter().map(|tag| done(tag, Ok(()))));
                if run.pieces.is_empty() {
                    self.image.gate.leave();
                    return self.run_over(at, end);
                }
                self.trims.write_sent(at, end);
                self.fly(true, What::Write { at, end, pieces: run.pieces });
            }
            Change::Zeroes { tag, at, len } => {
                self.unprime(at, len);
                let len = len.min(limit.saturating_sub(at));
                if len == 0 {
                    self.image.gate.leave();
                    return self.finished.push(done(tag, Ok(())));
                }
                self.trims.write_sent(at, at + len);
                self.fly(true, What::Zeroes { tag, at, len });
            }
            Change::Trim(Trim { at, len, tags }) => {
                self.unprime(at, len);
                let len = len.min(limit.saturating_sub(at));
                if len == 0 {
                    self.image.gate.leave();
                    return self.finished.extend(tags.into_iter().map(|tag| done(tag, Ok(()))));
                }
                self.trims.sent(at, len, |object| self.objects.is_busy(object));
                self.fly(true, What::Trim(Trim { at, len, tags }));
            }
        }
    }

    /// True if it would change an object that is being removed. An operation that gives space up changes
    /// nothing there.
    fn waits_for_removal(&self, change: &Change) -> bool {
        match change {
            Change::Write(run) => self.trims.is_removing(run.at, run.end()),
            Change::Zeroes { at, len, .. } => self.trims.is_removing(*at, at + len),
            Change::Trim(_) => false,
        }
    }

    /// Has an object that is nothing but zeros removed. The gate has let it in.
    fn remove(&mut self, object: u64) {
        let size = self.image.object_size();
        let within = self.image.limit().saturating_sub(object * size);
        if within < size || self.objects.is_busy(object) {
            // It ends with the image, or is being written: it is no hole, or not one for long.
            self.trims.filled(object);
            return self.image.gate.leave();
        }
        self.trims.remove(object);
        self.objects.hold(object);
        self.objects.unprime(object);
        self.fly(true, What::Remove { object });
    }

    /// The image is lost.
    fn refuse(&mut self, change: Change) {
        match change {
            Change::Write(run) => {
                self.run_over(run.at, run.end());
                self.finished.extend(run.pieces.into_iter().map(|(tag, _)| done(tag, Err(lost()))));
            }
            Change::Zeroes { tag, .. } => self.finished.push(done(tag, Err(lost()))),
            Change::Trim(trim) => {
                self.finished.extend(trim.tags.into_iter().map(|tag| done(tag, Err(lost()))));
            }
        }
    }

    /// A write from `at` to `end` is over, or never went; what has waited for it goes next.
    fn run_over(&mut self, at: u64, end: u64) {
        self.parked.extend(self.streams.landed(at, end).map(Change::Write));
    }

    /// Waits for its neighbours until the thread looks what has landed.
    fn trim(&mut self, tag: Tag, at: u64, len: u64) {
        self.trims.offer(tag, at, len);
        self.image.ring();
    }

    /// Objects in the range may be gone afterwards.
    fn unprime(&mut self, at: u64, len: u64) {
        let size = self.image.object_size();
        for object in at / size..=(at + len - 1) / size {
            self.objects.unprime(object);
        }
    }

    /// The next step of `object`: through librbd, if nothing is known of it in this epoch, and else all at once.
    fn write_object(&mut self, object: u64, epoch: u32) {
        // Whoever shrank the image has given up what lies behind its end.
        let (size, limit) = (self.image.object_size(), self.image.limit());
        let within = limit.saturating_sub(object * size);
        for extent in self.objects.take_beyond(object, within) {
            self.extent_over(extent.request, Ok(()));
        }
        if self.objects.is_done(object) {
            return self.image.gate.leave();
        }
        self.trims.filled(object);
        let counters = &self.image.counters;
        let primed = self.objects.is_primed(object, epoch)
            || (is_left_out(Step::Primer) && !self.objects.is_primed(object, TURNED_BACK));
        if !self.image.groups_allowed() || !primed {
            let extent = self.objects.take_one(object, self.now);
            counters.primers.fetch_add(1, Relaxed);
            return self.fly(true, What::Primer { object, epoch, extent });
        }
        let extents = {
            let most = if self.reads > 0 { EXTENTS_BESIDE } else { EXTENTS };
            self.objects.take(object, most, self.now)
        };
        counters.groups.fetch_add(1, Relaxed);
        counters.extents.fetch_add(extents.len() as u64, Relaxed);
        let bytes: usize = extents.iter().map(|e| e.data.len()).sum();
        counters.group_bytes.fetch_add(bytes as u64, Relaxed);
        self.fly(true, What::Group { object, extents });
    }

    /// Splits a group of writes by object.
    fn write_many(&mut self, tag: Tag, pieces: Vec<(u64, Shared)>) {
        let size = self.image.object_size();
        let request = self.requests.insert(Request { tag, left: 0, failed: None });
        for (mut offset, mut data) in pieces {
            while !data.is_empty() {
                let (object, at) = (offset / size, offset % size);
                let n = data.len().min((size - at) as usize);
                let rest = data.slice(n..data.len());
                self.objects.push(object, Extent { at, data: data.slice(0..n), request });
                self.requests[request].left += 1;
                offset += n as u64;
                data = rest;
            }
        }
    }

    fn landed(&mut self, landed: Landed) {
        let Landed { place, what, code } = landed;
        if !self.pending.landed(place) {
            // It was given up.
            return;
        }
        match what {
            What::Read { tag, at, mut buf } => {
                self.reads -= 1;
                let within = self.image.limit().saturating_sub(at).min(buf.len() as u64) as usize;
                let got = code.max(0) as usize;
                let result = match code {
                    _ if got == buf.len() => Ok(()),
                    // Behind the end there are zeros.
                    _ if got >= within => {
                        buf[got..].fill(0);
                        Ok(())
                    }
                    0.. => Err(IoError::new(IoKind::Io, format!("the image ends within a read at {at}"))),
                    _ => Err(failed(code, "reading the image")),
                };
                self.finished.push(Completion { tag, buf: Some(buf), result });
            }
            What::Write { at, end, pieces } => {
                for (tag, _) in pieces {
                    self.over(tag, code, "writing to the image");
                }
                self.trims.write_landed(at, end);
                self.run_over(at, end);
            }
            What::Zeroes { tag, at, len } => {
                self.unprime(at, len);
                self.trims.write_landed(at, at + len);
                self.over(tag, code, "zeroing in the image");
            }
            What::Trim(Trim { at, len, tags }) => {
                self.unprime(at, len);
                self.trims.landed(at, len, code >= 0);
                for tag in tags {
                    self.over(tag, code, "zeroing in the image");
                }
            }
            What::Remove { object } => {
                // One that stays after all is zeros all the same.
                self.trims.removed(object);
                self.objects.unprime(object);
                self.objects.landed(object);
                self.parked.extend(self.held.drain(..));
            }
            What::Flush { tag } => self.over(tag, code, "flushing the image"),
            What::Primer { object, epoch, extent } => {
                self.object_landed(object, extent.data.len() as u64);
                if code >= 0 {
                    let epoch = if is_left_out(Step::Epoch) { self.image.gate.epoch() } else { epoch };
                    self.objects.prime(object, epoch);
                }
                let result = if code < 0 { Err(failed(code, "writing to the image")) } else { Ok(()) };
                self.extent_over(extent.request, result);
            }
            What::Group { object, extents } => self.group_landed(object, extents, code),
        }
    }

    fn over(&mut self, tag: Tag, code: i64, what: &str) {
        let result = if code < 0 { Err(failed(code, what)) } else { Ok(()) };
        self.finished.push(done(tag, result));
    }

    fn group_landed(&mut self, object: u64, extents: Vec<Extent>, code: i64) {
        self.object_landed(object, extents.iter().map(|e| e.data.len() as u64).sum());
        if code >= 0 {
            (self.failures, self.stale) = (0, 0);
            for e in extents {
                self.extent_over(e.request, Ok(()));
            }
            return;
        }
        self.objects.unprime(object);
        let errno = -code as i32;
        match errno {
            // No such object, or one that a snapshot has not been told from yet: librbd knows what to do.
            libc::ENOENT | libc::ERANGE | libc::ERESTART => {
                self.image.counters.turned_back.fetch_add(1, Relaxed);
                if is_left_out(Step::Primer) {
                    self.objects.prime(object, TURNED_BACK);
                }
                if errno != libc::ENOENT {
                    self.stale += 1;
                    if self.stale >= STALE {
                        self.image.fall_back("OSDs keep refusing the snapshot context".to_owned());
                    }
                    self.image.tell(Notice::Stale);
                }
                self.objects.give_back(object, extents);
            }
            _ => {
                if errno != libc::ESHUTDOWN {
                    self.failures += 1;
                    if self.failures >= FAILURES {
                        let why = failed(code, "an OSD refused a group of writes");
                        self.image.fall_back(why.to_string());
                    }
                }
                for e in extents {
                    self.extent_over(e.request, Err(failed(code, "writing a group to the image")));
                }
            }
        }
    }

    /// An operation that wrote so many bytes of an object is over: what the depth goes by.
    fn object_landed(&mut self, object: u64, bytes: u64) {
        let sent = self.objects.landed(object);
        self.depth.landed(self.now, sent, bytes, self.full);
        self.image.counters.depth.store(self.depth.now() as u64, Relaxed);
    }

    fn extent_over(&mut self, request: usize, result: Result<(), IoError>) {
        let r = &mut self.requests[request];
        r.left -= 1;
        if let Err(e) = result {
            r.failed.get_or_insert(e);
        }
        if r.left == 0 {
            let r = self.requests.remove(request);
            let result = r.failed.map_or(Ok(()), Err);
            self.finished.push(Completion { tag: r.tag, buf: None, result });
        }
    }
}

impl Device for RbdDevice {
    fn geometry(&self) -> Geometry {
        geometry(self.image.reach())
    }

    fn submit(&mut self, ring: &mut Ring, now: u64, op: Op) -> Submit {
        self.now = now;
        if !self.armed {
            if let Err(e) = ring.wake_on(self.image.inbox.eventfd()) {
                return Submit::Finished(op.complete(Err(e)));
            }
            self.armed = true;
        }
        let op = match loligo_block::refuse_invalid(op, self.image.reach()) {
            Ok(op) => op,
            Err(refused) => return Submit::Finished(refused),
        };
        if self.image.is_lost() {
            return Submit::Finished(op.complete(Err(lost())));
        }
        self.in_flight += 1;
        match op.kind {
            OpKind::Read(buf) => {
                self.reads += 1;
                self.fly(false, What::Read { tag: op.tag, at: op.offset, buf });
            }
            OpKind::Flush => self.fly(false, What::Flush { tag: op.tag }),
            OpKind::WriteMany(pieces) => {
                self.write_many(op.tag, pieces);
                self.pump();
            }
            OpKind::Write { data, .. } => {
                self.parked.extend(self.streams.offer(op.tag, op.offset, data).map(Change::Write));
                self.pump();
            }
            OpKind::Discard { len } | OpKind::WriteZeroes { len, unmap: true } => {
                self.trim(op.tag, op.offset, len);
            }
            OpKind::WriteZeroes { len, unmap: false } => {
                self.parked.push_back(Change::Zeroes { tag: op.tag, at: op.offset, len });
                self.pump();
            }
        }
        if !self.finished.is_empty() {
            // Over already, and nothing else may come that would have it fetched.
            self.image.ring();
        }
        Submit::Taken
    }

    fn poll(&mut self, _ring: &mut Ring, now: u64, out: &mut Vec<Completion>) {
        self.now = now;
        self.full = self.objects.busy() >= self.depth.now();
        let mut letters = std::mem::take(&mut self.letters);
        if self.image.inbox.take_if_rung(&mut letters) {
            for landed in letters.drain(..) {
                self.landed(landed);
            }
        }
        self.letters = letters;
        self.parked.extend(self.trims.gather().into_iter().map(Change::Trim));
        self.pump();
        self.in_flight -= self.finished.len();
        out.append(&mut self.finished);
    }

    fn next_deadline(&self) -> Option<u64> {
        None
    }

    fn in_flight(&self) -> usize {
        // Nobody has asked for the removals, but each still changes the image.
        self.in_flight + self.trims.removing()
    }
}

/// The geometry of an image of `size` bytes. An acknowledged write is on stable media, and zeroes give their space back.
pub fn geometry(size: u64) -> Geometry {
    Geometry {
        size,
        logical_block: SECTOR as u32,
        physical_block: 4096,
        volatile_cache: false,
        rotational: false,
        can_unmap: true,
    }
}

fn failed(code: i64, what: &str) -> IoError {
    IoError::from_errno((-code) as i32, what)
}

fn done(tag: Tag, result: Result<(), IoError>) -> Completion {
    Completion { tag, buf: None, result }
}

fn lost() -> IoError {
    IoError::new(IoKind::Gone, "another client has taken the image over")
}
