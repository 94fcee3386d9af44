//! Two first-in-first-out queues over small ids at one byte an id, without links.
//!
//! The byte (beside one for the user) names the id's queue and the *batch* it joined the queue with. Batches form a ring; their order is the
//! order of the queue, and inside a batch the order is lost (for queues up to some dozens of entries a batch is one
//! entry and nothing is). The oldest entry is found by scanning the bytes for the oldest batch's label; counts per
//! batch and stretch of ids let the scan skip stretches that hold none, so it reads a few hundred bytes an entry.

use crate::huge::HugeVec;

/// Batches a queue can have at a time.
const RING: u8 = 125;
/// In place of a batch: ids set aside because they could not be evicted when their turn came.
const ASIDE: u8 = RING;
/// Likewise, and they have become evictable since.
const READY: u8 = ASIDE + 1;
/// Label of ids in no queue.
const NONE: u8 = 0;
/// Batches that a queue of its usual length has.
const USUAL: u32 = 80;
/// A batch is not made smaller than this share of all ids: it is what bounds the scan for one entry.
const SPARSEST: u32 = 512;
/// Ids in a stretch.
const STRETCH: usize = 1 << 14;
/// Entries found ahead in one scan.
const AHEAD: usize = 32;

/// One of the two queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queue {
    /// Newcomers.
    Small = 0,
    /// Proven entries.
    Main = 1,
}

impl Queue {
    fn label(self, batch: u8) -> u8 {
        (self as u8) << 7 | (batch + 1)
    }

    fn of(label: u8) -> Queue {
        if label & 0x80 == 0 { Queue::Small } else { Queue::Main }
    }
}

/// The batch in a label other than `NONE`, or `ASIDE`, or `READY`.
fn batch(label: u8) -> u8 {
    (label & 0x7f) - 1
}

#[derive(Debug)]
struct Fifo {
    head: u8,
    tail: u8,
    /// Entries the head batch still takes.
    room: u32,
    /// Length to plan batches for.
    usual: u32,
    len: u32,
    /// Entries that were set aside, whether they are ready or not.
    aside: u32,
    /// Entries that ever joined, modulo 2^32.
    joined: u32,
    /// `joined` when each batch was opened.
    opened: [u32; RING as usize],
    /// The place at which the search for the oldest goes on.
    hand: usize,
    aside_hand: usize,
    ready_hand: usize,
    ahead: [u32; AHEAD],
    ahead_len: usize,
}

impl Fifo {
    fn used(&self) -> u8 {
        (self.head + RING - self.tail) % RING + 1
    }
}

/// Two queues over the ids `0..capacity`, each id in at most one of them.
#[derive(Debug)]
pub struct Aged {
    place: HugeVec<u8>,
    /// A byte of each id for the user of the queues; brought near when the id's turn comes.
    marks: HugeVec<u8>,
    totals: [u32; 256],
    /// Entries per label and stretch, the stretches of a label side by side.
    counts: HugeVec<u16>,
    stretches: usize,
    fifos: [Fifo; 2],
    /// Ids to plan for.
    limit: u32,
}

impl Aged {
    /// Empty queues.
    pub fn new(capacity: u32) -> Aged {
        let stretches = (capacity as usize).div_ceil(STRETCH).max(1);
        let fifo = || Fifo {
            head: 0,
            tail: 0,
            room: 0,
            usual: capacity,
            len: 0,
            aside: 0,
            joined: 0,
            opened: [0; RING as usize],
            hand: 0,
            aside_hand: 0,
            ready_hand: 0,
            ahead: [0; AHEAD],
            ahead_len: 0,
        };
        Aged {
            place: HugeVec::zeroed(capacity as usize),
            marks: HugeVec::zeroed(capacity as usize),
            totals: [0; 256],
            counts: HugeVec::zeroed(256 * stretches),
            stretches,
            fifos: [fifo(), fifo()],
            limit: capacity,
        }
    }

    /// Plans for so many ids in both queues together.
    pub fn set_limit(&mut self, limit: u32) {
        self.limit = limit;
    }

    /// Entries of a queue, those set aside not counted.
    pub fn len(&self, q: Queue) -> u32 {
        self.fifos[q as usize].len
    }

    /// Entries of a queue that were set aside.
    pub fn aside(&self, q: Queue) -> u32 {
        self.fifos[q as usize].aside
    }

    /// Plans batches for a queue of this length.
    pub fn set_usual(&mut self, q: Queue, len: u32) {
        self.fifos[q as usize].usual = len;
    }

    /// Brings the bytes of `id` towards the processor.
    #[inline]
    pub fn prefetch(&self, id: u32) {
        self.marks.prefetch(id as usize);
    }

    /// The byte kept for an id.
    #[inline]
    pub fn mark(&self, id: u32) -> u8 {
        self.marks[id as usize]
    }

    /// Changes the byte kept for an id.
    #[inline]
    pub fn set_mark(&mut self, id: u32, mark: u8) {
        self.marks[id as usize] = mark;
    }

    /// The queue an id is in, and whether it was set aside.
    #[inline]
    pub fn queue(&self, id: u32) -> Option<(Queue, bool)> {
        let p = self.place[id as usize];
        if p == NONE {
            return None;
        }
        Some((Queue::of(p), batch(p) >= ASIDE))
    }

    /// Entries that joined the queue of `id` since it did, to the precision of its batch.
    #[inline]
    pub fn joined_since(&self, id: u32) -> u32 {
        let p = self.place[id as usize];
        if p == NONE || batch(p) >= ASIDE {
            return u32::MAX;
        }
        let f = &self.fifos[usize::from(p >> 7)];
        f.joined.wrapping_sub(f.opened[usize::from(batch(p))])
    }

    fn put(&mut self, id: u32, label: u8) {
        self.place[id as usize] = label;
        self.totals[usize::from(label)] += 1;
        self.counts[usize::from(label) * self.stretches + id as usize / STRETCH] += 1;
        let f = &mut self.fifos[usize::from(label >> 7)];
        if batch(label) >= ASIDE { f.aside += 1 } else { f.len += 1 }
    }

    /// Takes an id out of its queue; nothing happens if it is in none.
    pub fn detach(&mut self, id: u32) {
        let label = self.place[id as usize];
        if label == NONE {
            return;
        }
        self.place[id as usize] = NONE;
        self.totals[usize::from(label)] -= 1;
        self.counts[usize::from(label) * self.stretches + id as usize / STRETCH] -= 1;
        let f = &mut self.fifos[usize::from(label >> 7)];
        if batch(label) >= ASIDE { f.aside -= 1 } else { f.len -= 1 }
    }

    /// Adds an id that is in no queue as the youngest.
    pub fn push(&mut self, q: Queue, id: u32) {
        let capacity = self.limit;
        let filling = self.fifos[0].len + self.fifos[1].len + 1 < capacity;
        let f = &mut self.fifos[q as usize];
        while f.room == 0 && f.tail != f.head && self.totals[usize::from(q.label(f.tail))] == 0 {
            f.tail = (f.tail + 1) % RING;
            f.ahead_len = 0;
        }
        if f.room == 0 && f.used() < RING {
            let size = if filling { capacity / USUAL } else { f.usual.max(f.len) / USUAL };
            f.room = size.max(capacity / SPARSEST).max(1);
            if f.len > 0 {
                f.head = (f.head + 1) % RING;
            }
            f.opened[usize::from(f.head)] = f.joined;
        }
        f.room = f.room.saturating_sub(1);
        f.joined = f.joined.wrapping_add(1);
        let label = q.label(f.head);
        self.put(id, label);
    }

    /// Sets an id aside: it keeps its queue but is no longer found by [`Aged::oldest`].
    pub fn set_aside(&mut self, id: u32) {
        let q = Queue::of(self.place[id as usize]);
        self.detach(id);
        self.put(id, q.label(ASIDE));
    }

    /// An id that was set aside has become evictable: [`Aged::next_ready`] finds it from now on. Nothing happens to others.
    pub fn set_ready(&mut self, id: u32) {
        let label = self.place[id as usize];
        if label != NONE && batch(label) == ASIDE {
            self.detach(id);
            self.put(id, Queue::of(label).label(READY));
        }
    }

    /// Puts `to` where `from` is, and takes `from` out.
    pub fn moved(&mut self, from: u32, to: u32) {
        let label = self.place[from as usize];
        self.detach(from);
        self.detach(to);
        if label != NONE {
            self.put(to, label);
        }
    }

    /// The oldest entry of a queue. It stays in: detach it or set it aside before asking again.
    pub fn oldest(&mut self, q: Queue) -> Option<u32> {
        let f = &mut self.fifos[q as usize];
        if f.len == 0 {
            return None;
        }
        while self.totals[usize::from(q.label(f.tail))] == 0 {
            f.tail = (f.tail + 1) % RING;
            f.ahead_len = 0;
        }
        let label = q.label(f.tail);
        while f.ahead_len > 0 {
            f.ahead_len -= 1;
            let id = f.ahead[f.ahead_len];
            if self.place[id as usize] == label {
                return Some(id);
            }
        }
        let mut found = [0; AHEAD];
        let (n, hand) = self.scan(label, self.fifos[q as usize].hand, &mut found);
        let f = &mut self.fifos[q as usize];
        f.hand = hand;
        f.ahead_len = n - 1;
        found[1..n].iter().for_each(|&id| self.marks.prefetch(id as usize));
        // The first found goes first: the list is consumed from its end.
        for (to, from) in f.ahead[..n - 1].iter_mut().zip(found[1..n].iter().rev()) {
            *to = *from;
        }
        Some(found[0])
    }

    /// The next entry of a queue that was set aside and is not known to be evictable again, each in turn.
    pub fn next_aside(&mut self, q: Queue) -> Option<u32> {
        let (id, hand) = self.next(q.label(ASIDE), self.fifos[q as usize].aside_hand)?;
        self.fifos[q as usize].aside_hand = hand;
        Some(id)
    }

    /// The next entry of a queue that was set aside and became evictable, each in turn.
    pub fn next_ready(&mut self, q: Queue) -> Option<u32> {
        let (id, hand) = self.next(q.label(READY), self.fifos[q as usize].ready_hand)?;
        self.fifos[q as usize].ready_hand = hand;
        Some(id)
    }

    /// The next id with `label` from `hand` on, and where to go on.
    fn next(&self, label: u8, hand: usize) -> Option<(u32, usize)> {
        if self.totals[usize::from(label)] == 0 {
            return None;
        }
        let mut found = [0; 1];
        let (_, hand) = self.scan(label, hand, &mut found);
        Some((found[0], hand))
    }

    /// Collects ids with `label` from `from` on, wrapping, until `out` is full or the stretch that gave one ends.
    /// At least one must exist. Returns how many, and where to go on.
    fn scan(&self, label: u8, from: usize, out: &mut [u32]) -> (usize, usize) {
        let counts = &self.counts[usize::from(label) * self.stretches..][..self.stretches];
        let mut at = if from < self.place.len() { from } else { 0 };
        loop {
            let stretch = at / STRETCH;
            let end = ((stretch + 1) * STRETCH).min(self.place.len());
            if counts[stretch] > 0 {
                let (n, next) = find(&self.place[..end], label, at, out);
                if n > 0 {
                    return (n, if next == self.place.len() { 0 } else { next });
                }
            }
            at = if end == self.place.len() { 0 } else { end };
        }
    }

    /// Age of an id in sixteenths of its queue's batches: 0 the youngest, 15 the oldest or set aside.
    pub fn age16(&self, id: u32) -> u8 {
        let p = self.place[id as usize];
        if p == NONE || batch(p) >= ASIDE {
            return 15;
        }
        let f = &self.fifos[usize::from(p >> 7)];
        let age = u32::from((f.head + RING - batch(p)) % RING);
        (age * 16 / u32::from(f.used())).min(15) as u8
    }

    /// Puts an id that is in no queue back to an age saved by [`Aged::age16`]. Meant for queues with nothing pushed
    /// yet; later on it is placed as far back as the batches there are allow.
    pub fn restore(&mut self, q: Queue, id: u32, age16: u8) {
        let f = &mut self.fifos[q as usize];
        if f.len == 0 {
            (f.tail, f.head, f.room) = (0, 15, 0);
            f.opened.fill(f.joined);
        }
        let back = u32::from(age16.min(15)) * u32::from(f.used()) / 16;
        let batch = (f.head + RING - back as u8) % RING;
        self.put(id, q.label(batch));
    }

    /// RAM held, in bytes.
    pub fn bytes(&self) -> usize {
        2 * self.place.len() + self.counts.len() * 2 + size_of::<Aged>()
    }
}

/// Collects positions of `label` in `place` from `at` on until `out` is full. Returns how many, and the position after
/// the last one looked at.
fn find(place: &[u8], label: u8, mut at: usize, out: &mut [u32]) -> (usize, usize) {
    let mut n = 0;
    while at < place.len() {
        // Whole blocks are tested first, in a form that compiles to vector compares.
        if let Some(block) = place[at..].first_chunk::<64>()
            && !block.iter().fold(false, |any, &p| any | (p == label))
        {
            at += 64;
            continue;
        }
        let end = (at + 64).min(place.len());
        while at < end {
            if place[at] == label {
                out[n] = at as u32;
                n += 1;
                if n == out.len() {
                    return (n, at + 1);
                }
            }
            at += 1;
        }
    }
    (n, at)
}
