//! Turns of TLS handshakes: strangers bring them about, so that they have a bounded part of a thread's time.
//!
//! A handshake costs its client nothing (one canned message, sent again and again) and this thread a signature: 0.3 ms to 5 ms,
//! by the kind of key. A step of a handshake is therefore taken only while there is credit, which grows with time.
//!
//! A handshake that has begun goes on before others begin: a stranger who is always a new one would otherwise come before
//! it for ever. Among equals the network that has had least comes first, then the peer.

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

/// Steps of a handshake that has begun for which it goes before others. An honest one needs fewer; one that sends its bytes
/// one by one would otherwise let nobody begin.
const EAGER: u32 = 8;

/// One that waits.
#[derive(Debug)]
struct Waits {
    id: ConnId,
    peer: Peer,
    /// It goes before those that have not begun.
    eager: bool,
}

/// The connections that wait for a step of their handshake, and what may be spent on it.
#[derive(Debug, Default)]
pub(crate) struct Handshakes {
    /// In the order in which they came.
    waiting: Vec<Waits>,
    /// Time that peers and their networks have had since the burst was whole, the widest first.
    spent: [HashMap<Peer, Duration>; 3],
    /// From this moment on there is credit.
    solvent: Option<Instant>,
}

impl Handshakes {
    /// `id` of `peer` has sent something that a step of its handshake needs, of which it has had so many.
    pub(crate) fn ask(&mut self, id: ConnId, peer: Peer, steps: u32) {
        if !self.waiting.iter().any(|w| w.id == id) {
            self.waiting.push(Waits { id, peer, eager: (1..=EAGER).contains(&steps) });
        }
    }

    /// `id` is gone.
    pub(crate) fn forget(&mut self, id: ConnId) {
        self.waiting.retain(|w| w.id != id);
    }

    /// The one whose step is to be taken now, if there is credit.
    pub(crate) fn next(&mut self, now: Instant) -> Option<(ConnId, Peer)> {
        if self.solvent.is_some_and(|s| s > now) {
            return None;
        }
        let spent = |peer: Peer| {
            let circles = peer.circles();
            [0, 1, 2].map(|n| self.spent[n].get(&circles[n]).copied().unwrap_or_default())
        };
        let turn = |w: &Waits| (!w.eager, spent(w.peer));
        let at = (0..self.waiting.len()).min_by_key(|at| turn(&self.waiting[*at]))?;
        let next = self.waiting.remove(at);
        Some((next.id, next.peer))
    }

    /// A step of `peer` took so long, measured at `now` or before.
    pub(crate) fn took(&mut self, peer: Peer, time: Duration, now: Instant) {
        // A thread that had none for long has the burst; one that is in debt pays from its own moment on.
        let full = now.checked_sub(BURST * PART).unwrap_or(now);
        if self.solvent.is_none_or(|s| s <= full) || self.spent.iter().any(|known| known.len() >= PEERS) {
            self.spent.iter_mut().for_each(HashMap::clear);
        }
        for (known, circle) in self.spent.iter_mut().zip(peer.circles()) {
            *known.entry(circle).or_default() += time;
        }
        self.solvent = Some(self.solvent.map_or(full, |s| s.max(full)) + time * PART);
    }

    /// The time at which [`Handshakes::next`] has one again, if anybody waits.
    pub(crate) fn deadline(&self, now: Instant) -> Option<Instant> {
        (!self.waiting.is_empty()).then(|| self.solvent.map_or(now, |s| s.max(now)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    const STEP: Duration = Duration::from_millis(5);

    fn host(n: u8) -> Peer {
        Peer::Host(IpAddr::V4(Ipv4Addr::new(192, 0, 2, n)))
    }

    fn id(n: u64) -> ConnId {
        ConnId::from_u64(1 << 16 | n).expect("a generation")
    }

    #[test]
    fn a_flood_of_handshakes_has_a_fifth_of_the_time() {
        let (mut h, start) = (Handshakes::default(), Instant::now());
        let (mut now, mut taken) = (start, Duration::ZERO);
        let mut n = 0;
        while now < start + Duration::from_secs(10) {
            h.ask(id(n), host(1), 0);
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
        (0..100).for_each(|n| h.ask(id(n), host(1), 0));
        let (_, first) = h.next(now).unwrap();
        h.took(first, STEP, now);
        h.ask(id(500), host(2), 0);
        assert_eq!(h.next(now), Some((id(500), host(2))));
    }

    /// A peer that was never seen, of one site.
    fn newcomer(n: u16) -> Peer {
        Peer::Host(Ipv6Addr::new(0x2001, 0xdb8, 1, n, 0, 0, 0, 0).into())
    }

    #[test]
    fn a_handshake_that_has_begun_goes_before_newcomers() {
        let (mut h, now) = (Handshakes::default(), Instant::now());
        h.ask(id(1), host(1), 0);
        assert_eq!(h.next(now), Some((id(1), host(1))));
        h.took(host(1), STEP, now);
        (2..100).for_each(|n| h.ask(id(n), newcomer(n as u16), 0));
        h.ask(id(1), host(1), 1);
        assert_eq!(h.next(now), Some((id(1), host(1))));
    }

    #[test]
    fn one_that_dawdles_gives_its_turn_to_newcomers() {
        let (mut h, now) = (Handshakes::default(), Instant::now());
        h.took(host(1), STEP, now);
        h.ask(id(1), host(1), EAGER + 1);
        h.ask(id(2), newcomer(2), 0);
        assert_eq!(h.next(now), Some((id(2), newcomer(2))));
    }

    #[test]
    fn always_new_peers_of_one_site_have_had_what_it_had() {
        let (mut h, now) = (Handshakes::default(), Instant::now());
        h.took(host(1), STEP, now);
        h.took(newcomer(0), STEP * 2, now);
        h.ask(id(1), newcomer(1), 0);
        h.ask(id(2), host(1), 0);
        assert_eq!(h.next(now), Some((id(2), host(1))));
    }

    #[test]
    fn who_is_gone_waits_no_more() {
        let (mut h, now) = (Handshakes::default(), Instant::now());
        h.ask(id(1), host(1), 0);
        h.forget(id(1));
        assert_eq!((h.next(now), h.deadline(now)), (None, None));
    }

    #[test]
    fn who_asks_twice_waits_once() {
        let (mut h, now) = (Handshakes::default(), Instant::now());
        h.ask(id(1), host(1), 0);
        h.ask(id(1), host(1), 0);
        assert!(h.next(now).is_some() && h.next(now).is_none());
        assert_eq!(h.deadline(now), None);
    }
}
