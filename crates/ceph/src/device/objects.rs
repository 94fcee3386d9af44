//! The objects that have dirty data waiting, those that are being written, and those that librbd knows of in
//! this epoch.

use super::Extent;
use std::collections::{HashMap, VecDeque};

/// Objects whose epochs are kept together.
const PAGE: usize = 1024;

/// One object with something to do.
#[derive(Debug, Default)]
struct Object {
    /// Waiting, oldest first.
    extents: VecDeque<Extent>,
    /// An operation is under way: never two at a time, so that what primes comes before what relies on it, and an older
    /// version of a block before a newer one.
    busy: bool,
    /// The time at which that went, nanoseconds.
    sent: u64,
}

/// All objects of an image.
#[derive(Debug)]
pub(super) struct Objects {
    active: HashMap<u64, Object>,
    /// By object, in pages: the epoch in which a write through librbd has completed; 0: none. At most 1 MiB per TiB of 4 MiB
    /// objects, and nothing where nothing was written.
    primed: HashMap<u64, Box<[u32; PAGE]>>,
    /// Objects that are not busy and have extents, in the order in which they came.
    ready: VecDeque<u64>,
    busy: usize,
}

impl Objects {
    pub(super) fn new() -> Objects {
        Objects { active: HashMap::new(), primed: HashMap::new(), ready: VecDeque::new(), busy: 0 }
    }

    /// Objects with an operation under way.
    pub(super) fn busy(&self) -> usize {
        self.busy
    }

    pub(super) fn push(&mut self, object: u64, extent: Extent) {
        let o = self.active.entry(object).or_default();
        if !o.busy && o.extents.is_empty() {
            self.ready.push_back(object);
        }
        o.extents.push_back(extent);
    }

    /// True if an operation on it is under way.
    pub(super) fn is_busy(&self, object: u64) -> bool {
        self.active.get(&object).is_some_and(|o| o.busy)
    }

    /// Nothing is written to an object that is not busy until it has landed.
    pub(super) fn hold(&mut self, object: u64) {
        self.ready.retain(|o| *o != object);
        self.active.entry(object).or_default().busy = true;
        self.busy += 1;
    }

    /// The object with the most to write, of those the one that has waited longest. Nobody starves: who asks for writes asks for
    /// a bounded number before the first is over.
    pub(super) fn next(&mut self) -> Option<u64> {
        let waiting = |object: &u64| self.active.get(object).map_or(0, |o| o.extents.len());
        let most = self.ready.iter().map(waiting).max()?;
        let at = self.ready.iter().position(|o| waiting(o) == most)?;
        self.ready.remove(at)
    }

    /// It cannot be written yet.
    pub(super) fn wait_again(&mut self, object: u64) {
        self.ready.push_front(object);
    }

    /// The oldest extent of `object`, which is busy from now on.
    pub(super) fn take_one(&mut self, object: u64, now: u64) -> Extent {
        self.take(object, 1, now).pop().expect("a ready object has extents")
    }

    /// As many of its extents as one operation may have; it is busy from now on.
    pub(super) fn take(&mut self, object: u64, most: usize, now: u64) -> Vec<Extent> {
        let o = self.active.get_mut(&object).expect("a ready object is active");
        (o.busy, o.sent) = (true, now);
        self.busy += 1;
        let n = o.extents.len().min(most);
        o.extents.drain(..n).collect()
    }

    /// The extents of a waiting object that lie behind its first `within` bytes. One that reaches over that end is cut.
    pub(super) fn take_beyond(&mut self, object: u64, within: u64) -> Vec<Extent> {
        let Some(o) = self.active.get_mut(&object) else { return Vec::new() };
        let beyond = |e: &Extent| e.at + e.data.len() as u64 > within;
        if !o.extents.iter().any(beyond) {
            return Vec::new();
        }
        for e in o.extents.iter_mut().filter(|e| e.at < within && beyond(e)) {
            e.data = e.data.slice(0..(within - e.at) as usize);
        }
        let (out, kept): (Vec<Extent>, _) = o.extents.drain(..).partition(|e| e.at >= within);
        o.extents = kept.into();
        out
    }

    /// True if nothing of a waiting object is left to be written; it is forgotten then.
    pub(super) fn is_done(&mut self, object: u64) -> bool {
        let done = self.active.get(&object).is_none_or(|o| o.extents.is_empty() && !o.busy);
        if done {
            self.active.remove(&object);
        }
        done
    }

    /// Everything that waits: it will never be written. Operations under way are still to land.
    pub(super) fn give_up(&mut self) -> Vec<Extent> {
        self.ready.clear();
        let waiting = self.active.values_mut().flat_map(|o| o.extents.drain(..)).collect();
        self.active.retain(|_, o| o.busy);
        waiting
    }

    /// Its operation is over. When it had gone.
    pub(super) fn landed(&mut self, object: u64) -> u64 {
        let o = self.active.get_mut(&object).expect("a busy object is active");
        o.busy = false;
        let sent = o.sent;
        self.busy -= 1;
        if o.extents.is_empty() {
            self.active.remove(&object);
        } else {
            self.ready.push_back(object);
        }
        sent
    }

    /// These are to go again, before what came later.
    pub(super) fn give_back(&mut self, object: u64, extents: Vec<Extent>) {
        let o = self.active.entry(object).or_default();
        if o.extents.is_empty() {
            self.ready.push_back(object);
        }
        extents.into_iter().rev().for_each(|e| o.extents.push_front(e));
    }

    pub(super) fn is_primed(&self, object: u64, epoch: u32) -> bool {
        let page = self.primed.get(&(object / PAGE as u64));
        epoch != 0 && page.is_some_and(|p| p[object as usize % PAGE] == epoch)
    }

    pub(super) fn prime(&mut self, object: u64, epoch: u32) {
        let page = self.primed.entry(object / PAGE as u64).or_insert_with(|| Box::new([0; PAGE]));
        page[object as usize % PAGE] = epoch;
    }

    pub(super) fn unprime(&mut self, object: u64) {
        if let Some(page) = self.primed.get_mut(&(object / PAGE as u64)) {
            page[object as usize % PAGE] = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loligo_block::Buf;

    fn extent(at: u64) -> Extent {
        Extent { at, data: Buf::zeroed(512).freeze(), request: 0 }
    }

    fn places(extents: &[Extent]) -> Vec<u64> {
        extents.iter().map(|e| e.at).collect()
    }

    #[test]
    fn an_object_has_one_operation_at_a_time_in_order_of_arrival() {
        let mut o = Objects::new();
        (0..5).for_each(|at| o.push(3, extent(at)));
        o.push(4, extent(9));
        assert_eq!(o.next(), Some(3), "it has the most");
        assert_eq!(o.take_one(3, 0).at, 0);
        assert_eq!((o.busy(), o.next(), o.next()), (1, Some(4), None), "3 is busy");
        assert_eq!(places(&o.take(4, 256, 0)), [9]);
        o.push(3, extent(5));
        o.landed(3);
        assert_eq!(o.next(), Some(3));
        let sent = o.take(3, 2, 77);
        assert_eq!(places(&sent), [1, 2]);
        assert_eq!(o.landed(3), 77);
        o.give_back(3, sent);
        assert_eq!((o.next(), o.next()), (Some(3), None), "it waits once");
        assert_eq!(places(&o.take(3, 256, 0)), [1, 2, 3, 4, 5]);
        o.landed(3);
        o.landed(4);
        assert_eq!((o.busy(), o.next()), (0, None));
    }

    #[test]
    fn what_comes_for_an_object_that_is_held_waits_for_it() {
        let mut o = Objects::new();
        o.push(1, extent(0));
        o.hold(1);
        o.push(1, extent(1));
        assert!(o.is_busy(1) && o.next().is_none());
        o.landed(1);
        assert_eq!(o.next(), Some(1));
        assert_eq!(places(&o.take(1, 256, 0)), [0, 1]);
    }

    #[test]
    fn nothing_is_written_behind_the_end_of_a_shrunk_image() {
        let mut o = Objects::new();
        [0, 256, 1024].into_iter().for_each(|at| o.push(2, extent(at)));
        assert!(o.take_beyond(2, 4096).is_empty());
        assert_eq!(places(&o.take_beyond(2, 512)), [1024]);
        assert!(!o.is_done(2));
        let left = o.take(2, 256, 0);
        assert_eq!(left.iter().map(|e| (e.at, e.data.len())).collect::<Vec<_>>(), [(0, 512), (256, 256)]);
        o.landed(2);
        o.push(3, extent(0));
        assert_eq!(places(&o.take_beyond(3, 0)), [0]);
        assert!(o.is_done(3), "nothing is left");
    }

    #[test]
    fn what_is_primed_in_an_epoch_is_not_in_the_next() {
        let mut o = Objects::new();
        o.prime(1, 4);
        assert!(o.is_primed(1, 4) && !o.is_primed(1, 5) && !o.is_primed(0, 4));
        o.unprime(1);
        assert!(!o.is_primed(1, 4));
        assert!(!o.is_primed(7, 0), "beyond the image nothing is primed");
    }
}
