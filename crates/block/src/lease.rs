//! The lease that lets answers leave: only while the last word that the core is ours is younger than the
//! lease. Time counts on while the machine sleeps.

use rustix::time::{ClockId, clock_gettime};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The worth of answers now, the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hold {
    /// The core is ours.
    Valid,
    /// Nobody has said so for too long: answers wait.
    Expired,
    /// It is not: nothing may be promised any more.
    Lost,
}

/// The lease of one core.
#[derive(Debug)]
pub struct Lease {
    /// Nanoseconds since boot, sleep included, until which it is valid.
    until: AtomicU64,
    lost: AtomicBool,
    length: Duration,
}

/// Nanoseconds since boot, sleep included.
pub fn boottime() -> u64 {
    let t = clock_gettime(ClockId::Boottime);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

impl Lease {
    /// One that is valid for `length` from now.
    pub fn new(length: Duration) -> Arc<Lease> {
        Lease::since(length, boottime())
    }

    /// One whose core has become ours at some time after `asked` ([`boottime`]).
    pub fn since(length: Duration, asked: u64) -> Arc<Lease> {
        let lease = Lease { until: AtomicU64::new(0), lost: AtomicBool::new(false), length };
        lease.renew(asked);
        Arc::new(lease)
    }

    /// Somebody who knows has said at some time after `asked` ([`boottime`]) that the core is ours.
    pub fn renew(&self, asked: u64) {
        self.until.fetch_max(asked + self.length.as_nanos() as u64, Ordering::Release);
    }

    /// The validity of a word.
    pub fn length(&self) -> Duration {
        self.length
    }

    /// The time at which it ends, nanoseconds since boot, sleep included.
    pub fn until(&self) -> u64 {
        self.until.load(Ordering::Acquire)
    }

    /// The worth of an answer that leaves now.
    pub fn now(&self) -> Hold {
        if self.lost.load(Ordering::Acquire) {
            Hold::Lost
        } else if boottime() < self.until.load(Ordering::Acquire) {
            Hold::Valid
        } else {
            Hold::Expired
        }
    }

    /// It is over for good.
    pub fn lose(&self) {
        self.lost.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_ends_comes_back_with_a_word_and_never_once_lost() {
        let lease = Lease::new(Duration::from_millis(30));
        assert_eq!(lease.now(), Hold::Valid);
        std::thread::sleep(Duration::from_millis(40));
        assert_eq!(lease.now(), Hold::Expired);
        lease.renew(boottime());
        assert_eq!(lease.now(), Hold::Valid);
        lease.lose();
        lease.renew(boottime());
        assert_eq!(lease.now(), Hold::Lost);
    }
}
