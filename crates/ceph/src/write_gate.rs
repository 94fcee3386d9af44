//! The gate before changes of the image's objects. Every change passes the gate and is counted until it is
//! over; whoever changes what all of them carry (the snapshot context) closes it and waits until none is
//! under way. Without a fresh word that the image is ours nothing passes either: after a sleep the cluster
//! may have forgotten that this client was fenced.

use loligo_block::lease::{Hold, Lease};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The gate's answer to a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pass {
    /// It is counted now. Objects written in this epoch by librbd may be written directly.
    Epoch(u32),
    /// Later.
    Closed,
    /// Never: somebody else has the image.
    Lost,
}

#[derive(Debug)]
struct State {
    closed: bool,
    under_way: u32,
    epoch: u32,
}

/// The gate of one image.
#[derive(Debug)]
pub(crate) struct WriteGate {
    lease: Arc<Lease>,
    state: Mutex<State>,
    empty: Condvar,
}

impl WriteGate {
    /// A closed gate, before the first epoch.
    pub(crate) fn new(lease: Arc<Lease>) -> WriteGate {
        let state = State { closed: true, under_way: 0, epoch: 0 };
        WriteGate { lease, state: Mutex::new(state), empty: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// A change wants to begin.
    pub(crate) fn enter(&self) -> Pass {
        let mut s = self.lock();
        match self.lease.now() {
            Hold::Valid if !s.closed => {}
            Hold::Valid | Hold::Expired => return Pass::Closed,
            Hold::Lost => return Pass::Lost,
        }
        s.under_way += 1;
        Pass::Epoch(s.epoch)
    }

    /// True if nothing will ever pass again.
    pub(crate) fn is_lost(&self) -> bool {
        self.lease.now() == Hold::Lost
    }

    /// A change is over.
    pub(crate) fn leave(&self) {
        let mut s = self.lock();
        s.under_way -= 1;
        if s.under_way == 0 {
            self.empty.notify_all();
        }
    }

    /// Lets nothing new in and waits until nothing is under way; false: that took longer than `limit`, it stays closed.
    pub(crate) fn close(&self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        let mut s = self.lock();
        s.closed = true;
        while s.under_way > 0 {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            self.empty.wait_for(&mut s, left);
        }
        true
    }

    /// Nothing written before counts as primed any more.
    pub(crate) fn new_epoch(&self) {
        self.lock().epoch += 1;
    }

    /// The epoch that is now.
    pub(crate) fn epoch(&self) -> u32 {
        self.lock().epoch
    }

    /// Lets changes in again.
    pub(crate) fn open(&self) {
        self.lock().closed = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_waits_for_what_is_under_way_and_lets_nothing_new_in() {
        let lease = Lease::new(Duration::from_secs(60));
        let gate = Arc::new(WriteGate::new(lease.clone()));
        assert_eq!(gate.enter(), Pass::Closed);
        gate.new_epoch();
        gate.open();
        assert_eq!(gate.enter(), Pass::Epoch(1));
        assert!(!gate.close(Duration::from_millis(10)), "one is under way");
        assert_eq!(gate.enter(), Pass::Closed);
        let other = gate.clone();
        let leaver = std::thread::spawn(move || other.leave());
        assert!(gate.close(Duration::from_secs(10)));
        leaver.join().unwrap();
        lease.lose();
        gate.open();
        assert_eq!(gate.enter(), Pass::Lost);
    }

    #[test]
    fn nothing_passes_without_a_fresh_word_that_the_image_is_ours() {
        let lease = Lease::new(Duration::from_millis(30));
        let gate = WriteGate::new(lease.clone());
        gate.open();
        assert_eq!(gate.enter(), Pass::Epoch(0));
        std::thread::sleep(Duration::from_millis(40));
        assert_eq!(gate.enter(), Pass::Closed);
        lease.renew(loligo_block::lease::boottime());
        assert_eq!(gate.enter(), Pass::Epoch(0));
        lease.lose();
        assert_eq!(gate.enter(), Pass::Lost);
    }
}
