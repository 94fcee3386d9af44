//! Warnings that a stranger can bring about: a few of them are written, and the rest are counted.

use std::time::{Duration, Instant};

/// Between two warnings of one kind.
const QUIET: Duration = Duration::from_secs(5);

/// Warnings of one kind.
#[derive(Debug, Default)]
pub(crate) struct Complaints {
    next: Option<Instant>,
    unsaid: u64,
}

impl Complaints {
    /// The number of warnings left out since the last, if it is time to warn now.
    pub(crate) fn due(&mut self, now: Instant) -> Option<u64> {
        if self.next.is_some_and(|n| n > now) {
            self.unsaid += 1;
            return None;
        }
        self.next = Some(now + QUIET);
        Some(std::mem::take(&mut self.unsaid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_warnings_is_counted_and_not_written() {
        let (mut c, now) = (Complaints::default(), Instant::now());
        assert_eq!(c.due(now), Some(0));
        for _ in 0..1000 {
            assert_eq!(c.due(now + Duration::from_secs(1)), None);
        }
        assert_eq!(c.due(now + QUIET), Some(1000));
    }
}
