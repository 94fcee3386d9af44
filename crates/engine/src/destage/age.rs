//! A bound on the age of what is dirty: rounds of the sweep that begin by the clock.
//!
//! A round passes every window once and leaves nothing behind, so that what was dirty at its beginning is in the core at
//! its end. Rounds begin half the bound apart; no time is kept for any block.

use crate::api::Nanos;

const SECOND: Nanos = 1_000_000_000;

/// The rounds.
#[derive(Debug)]
pub(crate) struct Age {
    /// Windows that this round has yet to pass; 0: no round.
    left: u32,
    /// The time at which the next begins at the earliest.
    next: Nanos,
}

impl Default for Age {
    /// The first look sets the clock: what a start finds dirty is not old by that.
    fn default() -> Age {
        Age { left: 0, next: Nanos::MAX }
    }
}

impl Age {
    /// Looks at the clock. `bound`: seconds, 0: none; `windows`: how many there are, 0: nothing is dirty.
    pub(crate) fn look(&mut self, now: Nanos, bound: u64, windows: u32) {
        let half = bound * SECOND / 2;
        if bound == 0 || windows == 0 {
            *self = Age { left: 0, next: now + half };
            return;
        }
        self.next = self.next.min(now + half);
        if self.left == 0 && now >= self.next {
            *self = Age { left: windows, next: now + half };
        }
    }

    /// True if a round is under way.
    pub(crate) fn is_round(&self) -> bool {
        self.left > 0
    }

    /// The sweep has passed so many windows.
    pub(crate) fn passed(&mut self, windows: u32) {
        self.left = self.left.saturating_sub(windows);
    }

    /// The time at which the next round begins; none before the first look, which sets the clock.
    pub(crate) fn deadline(&self) -> Option<Nanos> {
        Some(self.next).filter(|next| *next < Nanos::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_begin_half_the_bound_apart_while_anything_is_dirty() {
        let mut a = Age::default();
        a.look(0, 30, 0);
        a.look(14 * SECOND, 30, 100);
        assert!(!a.is_round() && a.deadline() == Some(15 * SECOND));
        a.look(15 * SECOND, 30, 100);
        a.passed(99);
        assert!(a.is_round() && a.deadline() == Some(30 * SECOND));
        a.passed(1);
        assert!(!a.is_round());
        a.look(29 * SECOND, 30, 100);
        assert!(!a.is_round());
        a.look(30 * SECOND, 30, 100);
        assert!(a.is_round(), "what is dirty still, or again");
    }

    #[test]
    fn what_a_start_finds_dirty_is_not_old() {
        let mut a = Age::default();
        a.look(1000 * SECOND, 30, 100);
        assert!(!a.is_round() && a.deadline() == Some(1015 * SECOND));
        a.look(1015 * SECOND, 30, 100);
        assert!(a.is_round());
    }

    #[test]
    fn a_shorter_bound_counts_at_once_and_none_ends_the_round() {
        let mut a = Age::default();
        a.look(0, 3600, 0);
        a.look(SECOND, 2, 10);
        assert_eq!(a.deadline(), Some(2 * SECOND));
        a.look(2 * SECOND, 2, 10);
        assert!(a.is_round());
        a.look(3 * SECOND, 0, 10);
        assert!(!a.is_round());
    }
}
