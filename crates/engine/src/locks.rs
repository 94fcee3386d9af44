//! Order among overlapping changes: one change at a time to a block, first come, first served.

use std::collections::VecDeque;

#[derive(Debug, Clone, Copy)]
struct Held {
    first: u32,
    last: u32,
    task: usize,
    active: bool,
}

/// Range locks over blocks, by window. Only changes lock; reads see the last version that took effect.
#[derive(Debug)]
pub(crate) struct Locks {
    buckets: Vec<VecDeque<Held>>,
    /// In all of them.
    count: usize,
}

impl Locks {
    /// No lock, in so many lists.
    pub(crate) fn new(buckets: usize) -> Locks {
        Locks { buckets: vec![VecDeque::new(); buckets], count: 0 }
    }

    fn bucket(&self, first: u32) -> usize {
        (first as usize / loligo_format::units::WINDOW_BLOCKS as usize) % self.buckets.len()
    }

    /// True if nobody holds or wants any.
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Asks for `first..=last` (within one window) for `task`; true when it has it now.
    pub(crate) fn acquire(&mut self, first: u32, last: u32, task: usize) -> bool {
        let bucket = self.bucket(first);
        let b = &mut self.buckets[bucket];
        let active = !b.iter().any(|h| h.first <= last && first <= h.last);
        b.push_back(Held { first, last, task, active });
        self.count += 1;
        active
    }

    /// Gives up what `task` holds at `first`; adds the tasks that may go now to `woken`.
    pub(crate) fn release(&mut self, first: u32, task: usize, woken: &mut Vec<usize>) {
        let bucket = self.bucket(first);
        let b = &mut self.buckets[bucket];
        let Some(at) = b.iter().position(|h| h.task == task) else { return };
        b.remove(at);
        self.count -= 1;
        for i in at..b.len() {
            let h = b[i];
            if !h.active && !b.iter().take(i).any(|o| o.first <= h.last && h.first <= o.last) {
                b[i].active = true;
                woken.push(h.task);
            }
        }
    }

    /// The task whose change of `block` is under way.
    pub(crate) fn holder(&self, block: u32) -> Option<usize> {
        let covers = |h: &&Held| h.active && h.first <= block && block <= h.last;
        self.buckets[self.bucket(block)].iter().find(covers).map(|h| h.task)
    }

    /// True if a change of `block` is under way.
    pub(crate) fn is_locked(&self, block: u32) -> bool {
        self.holder(block).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlaps_go_in_the_order_they_came_and_others_do_not_wait() {
        let mut l = Locks::new(16);
        let mut woken = Vec::new();
        assert!(l.acquire(0, 9, 1));
        assert!(!l.acquire(5, 15, 2));
        assert!(!l.acquire(12, 20, 3), "behind 2, which it overlaps");
        assert!(l.acquire(30, 40, 4));
        l.release(30, 4, &mut woken);
        assert!(woken.is_empty());
        l.release(0, 1, &mut woken);
        assert_eq!(woken, [2]);
        assert!(l.is_locked(15) && !l.is_locked(18));
        l.release(5, 2, &mut woken);
        assert_eq!(woken, [2, 3]);
    }
}
