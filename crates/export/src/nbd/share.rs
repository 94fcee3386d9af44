//! The division of the memory that all connections of a server share.
//!
//! Each connection has a minimum to itself, which nobody else can take. A request that finds no more room than that
//! proceeds in pieces of it, so that none of any size ever waits for another connection. The rest is common. A
//! connection may take of it no more than would then be left, and the connections of one peer together no more than
//! three times that: however many dawdle, some is free for who comes next.

use super::limits::Limits;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Pieces of a request are multiples of this, in bytes: the largest block that an export can have.
const PIECE: u64 = 64 << 10;
/// The multiple of the free memory that the connections of one peer may hold together.
const PEER: u64 = 3;

/// The memory of one server.
#[derive(Debug, Clone)]
pub struct Budget {
    /// Bytes that each connection has to itself.
    minimum: u64,
    /// Bytes that one connection may hold.
    most: u64,
    /// Bytes beyond the minimums.
    common: u64,
    /// Those that are taken.
    used: Arc<AtomicU64>,
}

impl Budget {
    /// The share of all connections together under `limits`.
    pub fn new(limits: &Limits) -> Budget {
        let connections = limits.connections.max(1) as u64;
        let minimum = limits.minimum_bytes.min(limits.server_bytes / connections).min(limits.in_flight_bytes);
        let minimum = (minimum - minimum % PIECE).max(PIECE);
        Budget {
            minimum,
            most: limits.in_flight_bytes.max(minimum),
            common: limits.server_bytes.saturating_sub(minimum * connections),
            used: Arc::default(),
        }
    }

    /// The part of one more connection of `peer`.
    pub fn share(&self, peer: &PeerUse) -> Share {
        Share { budget: self.clone(), peer: peer.clone(), held: 0 }
    }

    /// Common bytes taken now.
    pub fn common_used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }
}

/// Common bytes that the connections of one peer hold.
#[derive(Debug, Clone, Default)]
pub struct PeerUse(Arc<AtomicU64>);

impl PeerUse {
    /// True if no connection of the peer is left.
    pub fn is_last(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}

/// The holdings of one connection.
#[derive(Debug)]
pub struct Share {
    budget: Budget,
    peer: PeerUse,
    held: u64,
}

impl Share {
    /// Bytes held.
    pub fn held(&self) -> u64 {
        self.held
    }

    /// Bytes that can always be taken while nothing is held.
    pub fn minimum(&self) -> u64 {
        self.budget.minimum
    }

    /// Of `held` bytes, those beyond the minimum.
    fn common(&self, held: u64) -> u64 {
        held.saturating_sub(self.budget.minimum)
    }

    /// Takes `bytes` if they may be taken now.
    pub fn take(&mut self, bytes: u64) -> bool {
        let (own, after) = (self.common(self.held), self.common(self.held + bytes));
        let more = after - own;
        if more > 0 {
            let free = self.budget.common.saturating_sub(self.budget.common_used());
            let peer = self.peer.0.load(Ordering::Relaxed) + more;
            if self.held + bytes > self.budget.most || after > free || peer > PEER * free {
                return false;
            }
            self.budget.used.fetch_add(more, Ordering::Relaxed);
            self.peer.0.fetch_add(more, Ordering::Relaxed);
        }
        self.held += bytes;
        true
    }

    /// Gives back what [`Share::take`] took.
    pub fn give(&mut self, bytes: u64) {
        let less = self.common(self.held) - self.common(self.held - bytes);
        self.held -= bytes;
        self.budget.used.fetch_sub(less, Ordering::Relaxed);
        self.peer.0.fetch_sub(less, Ordering::Relaxed);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.give(self.held);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn no_number_of_greedy_connections_takes_everything() {
        let budget = Budget::new(&Limits::default());
        let peer = PeerUse::default();
        let mut greedy: Vec<Share> = (0..200).map(|_| budget.share(&peer)).collect();
        for s in &mut greedy {
            while s.take(MIB) {}
            assert!(s.held() >= s.minimum(), "its own minimum is always there");
        }
        let mut other = budget.share(&PeerUse::default());
        while other.take(4096) {}
        assert!(other.held() > 2 * other.minimum(), "another peer finds common room: {}", other.held());
        drop(greedy);
        drop(other);
        assert_eq!(budget.common_used(), 0);
        assert!(peer.is_last());
    }

    #[test]
    fn one_connection_alone_takes_what_its_own_limit_allows() {
        let limits = Limits::default();
        let mut s = Budget::new(&limits).share(&PeerUse::default());
        assert!(s.take(32 * MIB) && s.take(32 * MIB) && !s.take(1));
        s.give(64 * MIB);
        assert_eq!((s.held(), s.budget.common_used()), (0, 0));
    }
}
