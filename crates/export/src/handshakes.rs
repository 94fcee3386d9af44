//! Turns of TLS handshakes: strangers bring them about, so that they have a bounded part of a thread's time.
//!
//! A handshake costs its client nothing (one canned message, sent again and again) and this thread a signature: 0.3 ms to 5 ms,
//! by the kind of key. A step of a handshake is therefore taken only while there is credit, which grows with time. The peer
//! that has had least of it comes first.

use crate::peer::Peer;
use crate::server::ConnId;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// One part in so many of a thread's time is for handshakes.
const PART: u32 = 5;
/// Credit of a thread that had no handshakes for a while. Those of a host's clients that all return at once take it up.
const BURST: Duration = Duration::from_millis(50);

/// Peers of which it is known how much they have had.
const PEERS: usize = 4096;

/// Who waits for a step of its handshake, and what may be spent on it.
#[derive(Debug, Default)]
pub(crate) struct Handshakes {
    /// In the order in which they came.
    waiting: Vec<(ConnId, Peer)>,
    /// Time that peers have had since the burst was whole.
    spent: HashMap<Peer, Duration>,
    /// From this moment on there is credit.
    solvent: Option<Instant>,
}

impl Handshakes {
    /// `id` of `peer` has sent something that a step of its handshake needs.
    pub(crate) fn ask(&mut self, id: ConnId, peer: Peer) {
        if !self.waiting.iter().any(|(waits, _)| *waits == id) {
            self.waiting.push((id, peer));
        }
    }

    /// The one whose step is to be taken now, if there is credit.
    pub(crate) fn next(&mut self, now: Instant) -> Option<(ConnId, Peer)> {
        if self.solvent.is_some_and(|s| s > now) {
            return None;
        }
        let spent = |peer: &Peer| self.spent.get(peer).copied().unwrap_or_default();
        let at = (0..self.waiting.len()).min_by_key(|at| spent(&self.waiting[*at].1))?;
        Some(self.waiting.remove(at))
    }

    /// A step of `peer` took so long, measured at `now` or before.
    pub(crate) fn took(&mut self, peer: Peer, time: Duration, now: Instant) {
        // A thread that had none for long has the burst; one that is in debt pays from its own moment on.
        let full = now.checked_sub(BURST * PART).unwrap_or(now);
        if self.solvent.is_none_or(|s| s <= full) || self.spent.len() >= PEERS {
            self.spent.clear();
        }
        *self.spent.entry(peer).or_default() += time;
        self.solvent = Some(self.solvent.map_or(full, |s| s.max(full)) + time * PART);
    }

    /// When [`Handshakes::next`] has one again, if anybody waits.
    pub(crate) fn deadline(&self, now: Instant) -> Option<Instant> {
        (!self.waiting.is_empty()).then(|| self.solvent.map_or(now, |s| s.max(now)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv4Addr};

    const STEP: Duration = Duration::from_millis(5);

    fn host(n: u8) -> Peer {
        Peer::Host(IpAddr::V4(Ipv4Addr::new(192, 0, 2, n)))
    }

    fn id(n: u64) -> ConnId {
        ConnId::from_u64(n)
    }

    #[test]
    fn a_flood_of_handshakes_has_a_fifth_of_the_time() {
        let (mut h, start) = (Handshakes::default(), Instant::now());
        let (mut now, mut taken) = (start, Duration::ZERO);
        let mut n = 0;
        while now < start + Duration::from_secs(10) {
            h.ask(id(n), host(1));
            n += 1;
            match h.next(now) {
                Some((_, peer)) => {
                    now += STEP;
                    taken += STEP;
                    h.took(peer, STEP, now);
                }
                None => now = h.deadline(now).unwrap(),
            }
        }
        assert!(taken >= Duration::from_millis(1900), "{taken:?}");
        assert!(taken <= Duration::from_secs(2) + BURST + STEP, "{taken:?}");
    }

    #[test]
    fn a_newcomer_does_not_wait_for_the_queue_of_another_peer() {
        let (mut h, now) = (Handshakes::default(), Instant::now());
        (0..100).for_each(|n| h.ask(id(n), host(1)));
        let (_, first) = h.next(now).unwrap();
        h.took(first, STEP, now);
        h.ask(id(500), host(2));
        assert_eq!(h.next(now), Some((id(500), host(2))));
    }

    #[test]
    fn who_asks_twice_waits_once() {
        let (mut h, now) = (Handshakes::default(), Instant::now());
        h.ask(id(1), host(1));
        h.ask(id(1), host(1));
        assert!(h.next(now).is_some() && h.next(now).is_none());
        assert_eq!(h.deadline(now), None);
    }
}
