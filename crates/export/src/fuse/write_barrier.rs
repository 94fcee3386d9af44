//! The barrier between changes of the volume at the same time. Changes of whole blocks go side by side. One
//! of a part of a block reads the block first and must then be alone: whatever else were written there
//! between its read and its write would be undone.

use std::collections::VecDeque;

/// The barrier of one mount. Changes that may not go in yet are kept, in the order in which they came, so
/// that nothing waits for ever.
#[derive(Debug, Default)]
pub(super) struct WriteBarrier {
    inside: usize,
    /// The one inside is to stay alone.
    alone: bool,
    waiting: VecDeque<(bool, usize)>,
}

impl WriteBarrier {
    /// True if change `key` may go in now; else it comes out of [`WriteBarrier::leave`] once it may.
    pub(super) fn enter(&mut self, alone: bool, key: usize) -> bool {
        if self.alone || !self.waiting.is_empty() || (alone && self.inside > 0) {
            self.waiting.push_back((alone, key));
            return false;
        }
        self.inside += 1;
        self.alone = alone;
        true
    }

    /// One has left; those that are inside by that are added to `next`.
    pub(super) fn leave(&mut self, next: &mut Vec<usize>) {
        self.inside -= 1;
        self.alone &= self.inside > 0;
        while let Some(&(alone, key)) = self.waiting.front() {
            if self.alone || (alone && self.inside > 0) {
                break;
            }
            self.waiting.pop_front();
            self.inside += 1;
            self.alone = alone;
            next.push(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(barrier: &mut WriteBarrier) -> Vec<usize> {
        let mut next = Vec::new();
        barrier.leave(&mut next);
        next
    }

    #[test]
    fn whole_blocks_go_side_by_side_and_a_part_alone_in_its_turn() {
        let mut barrier = WriteBarrier::default();
        assert!(barrier.enter(false, 1) && barrier.enter(false, 2), "at once");
        assert!(!barrier.enter(true, 3) && !barrier.enter(false, 4));
        assert_eq!(left(&mut barrier), [0; 0], "one is still inside");
        assert_eq!(left(&mut barrier), [3], "alone now, and what came later may not join");
        assert_eq!(left(&mut barrier), [4]);
    }

    #[test]
    fn parts_of_blocks_follow_one_another() {
        let mut barrier = WriteBarrier::default();
        assert!(barrier.enter(true, 0));
        assert!(
            !barrier.enter(true, 1)
                && !barrier.enter(true, 2)
                && !barrier.enter(false, 3)
                && !barrier.enter(false, 4)
        );
        assert_eq!(left(&mut barrier), [1]);
        assert_eq!(left(&mut barrier), [2]);
        assert_eq!(left(&mut barrier), [3, 4], "these go side by side");
        left(&mut barrier);
        left(&mut barrier);
        assert!(barrier.enter(true, 5), "the barrier is free again");
    }
}
