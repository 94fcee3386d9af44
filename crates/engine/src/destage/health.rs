//! The core's health: does it take what is written to it?

use crate::api::Nanos;
use crate::refusal::CoreWriteError;
use std::collections::BTreeSet;

/// A core that has done nothing but fail for this long is not waited for.
const LOST: Nanos = 60_000_000_000;
/// So many windows in a row without a success, and it is not a sector.
const DOWN: usize = 4;

/// The results of writes to the core of late.
#[derive(Debug, Default)]
pub(crate) struct Health {
    /// The first and the newest failure since a write last succeeded.
    failing: Option<(Nanos, Nanos)>,
    /// The error of that newest one.
    why: Option<CoreWriteError>,
    /// Windows that have failed since, [`DOWN`] at most.
    windows: BTreeSet<u32>,
    successes: u64,
}

impl Health {
    /// A write succeeded.
    pub(crate) fn worked(&mut self) {
        self.successes += 1;
        if self.failing.take().is_some() {
            self.why = None;
            self.windows.clear();
        }
    }

    /// A job in this window did not succeed.
    pub(crate) fn refused_in(&mut self, window: u32) {
        if self.windows.len() < DOWN {
            self.windows.insert(window);
        }
    }

    /// True if it is the core that fails, not some sector of it.
    pub(crate) fn is_down(&self) -> bool {
        self.windows.len() >= DOWN
    }

    /// Writes that have succeeded so far.
    pub(crate) fn successes(&self) -> u64 {
        self.successes
    }

    /// One failed, because of `why`.
    pub(crate) fn failed(&mut self, now: Nanos, why: CoreWriteError) {
        let first = self.failing.map_or(now, |(first, _)| first);
        self.failing = Some((first, now));
        self.why = Some(why);
    }

    /// The error of writes, if nothing has succeeded since.
    pub(crate) fn why(&self) -> Option<&CoreWriteError> {
        self.why.as_ref()
    }

    /// True if nothing has succeeded since the last failure.
    pub(crate) fn is_failing(&self) -> bool {
        self.failing.is_some()
    }

    /// True if nobody should wait for it any more: failures are spread over all that time, and go on. One failure long ago
    /// with nothing tried since says nothing, and a core that answers nothing at all is only slow.
    pub(crate) fn has_failed_long(&self, now: Nanos) -> bool {
        self.failing.is_some_and(|(first, last)| last - first >= LOST && now.saturating_sub(last) < LOST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanos = 1_000_000_000;

    #[test]
    fn a_core_is_lost_after_a_minute_of_failures_and_nothing_else() {
        let mut h = Health::default();
        for t in 0..60 {
            h.failed(t * SECOND, CoreWriteError::saying("first"));
            assert!(!h.has_failed_long(t * SECOND), "after {t} s");
        }
        h.failed(60 * SECOND, CoreWriteError::saying("last"));
        assert_eq!(h.why(), Some(&CoreWriteError::saying("last")));
        assert!(h.has_failed_long(60 * SECOND) && h.has_failed_long(90 * SECOND));
        h.worked();
        assert!(!h.has_failed_long(91 * SECOND) && !h.is_failing());
        assert_eq!(h.why(), None);
    }

    #[test]
    fn a_core_is_down_when_several_windows_fail_in_a_row() {
        let mut h = Health::default();
        for window in [1, 2, 3, 3, 2] {
            h.failed(0, CoreWriteError::saying("x"));
            h.refused_in(window);
        }
        assert!(!h.is_down());
        h.worked();
        h.failed(0, CoreWriteError::saying("x"));
        h.refused_in(4);
        assert!(!h.is_down(), "others were well in between");
        (5..8).for_each(|w| h.refused_in(w));
        assert!(h.is_down());
    }

    #[test]
    fn one_failure_long_ago_does_not_make_a_core_lost() {
        let mut h = Health::default();
        h.failed(SECOND, CoreWriteError::saying("x"));
        assert!(!h.has_failed_long(3600 * SECOND));
        h.failed(3600 * SECOND, CoreWriteError::saying("x"));
        assert!(!h.has_failed_long(7300 * SECOND), "two failures, an hour apart and an hour ago");
    }
}
