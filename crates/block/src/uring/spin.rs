//! Whether to wait awake: a sleep and its wake-up cost as much as a flash write takes, so where most of the last waits were
//! short, the thread looks again and again for a moment before it sleeps. A thread whose waits are long never spins.

/// The longest time awake in one wait, nanoseconds.
pub(super) const LONGEST: u64 = 70_000;
/// A wait of this many nanoseconds, its sleep included, would have been better spent awake.
const SHORT: u64 = 100_000;
/// How far back the balance of short and long waits reaches.
const MEMORY: u32 = 16;

/// What the last waits were like.
#[derive(Debug, Default)]
pub(super) struct Spin {
    /// Rises with a short wait and falls with a long one.
    balance: u32,
}

impl Spin {
    /// Whether the next wait should begin awake.
    pub(super) fn worth_while(&self) -> bool {
        self.balance > MEMORY / 2
    }

    /// A wait is over after `ns`.
    pub(super) fn waited(&mut self, ns: u64) {
        self.balance =
            if ns <= SHORT { (self.balance + 1).min(MEMORY) } else { self.balance.saturating_sub(1) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mostly_short_waits_are_spent_awake_and_mostly_long_ones_asleep() {
        let mut s = Spin::default();
        assert!(!s.worth_while(), "nothing is known yet");
        (0..MEMORY).for_each(|_| s.waited(60_000));
        assert!(s.worth_while());
        for _ in 0..100 {
            s.waited(20_000);
            s.waited(8_000_000);
            s.waited(20_000);
        }
        assert!(s.worth_while(), "two of three are short");
        (0..MEMORY).for_each(|_| s.waited(8_000_000));
        assert!(!s.worth_while());
    }
}
