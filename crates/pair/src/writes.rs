//! Writes that an array has taken and not yet ended. A fence is only one if it reaches them too: it cancels those that have
//! not begun and waits for the others.

use crate::reservation::Port;
use std::collections::{BTreeMap, BTreeSet};

/// One write, or a discard, that the array has taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// One abort that waits for writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AbortId(pub u64);

/// The stage of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It waits in the array.
    Taken,
    /// Its bytes are on their way to the medium.
    Begun,
    /// An abort has cancelled it before it began.
    Cancelled,
}

/// The writes under way, and the aborts that wait for some of them.
#[derive(Debug, Clone, Default)]
pub struct Writes {
    /// Numbers that were given out.
    given: u64,
    under_way: BTreeMap<Ticket, (Port, Stage)>,
    aborts: BTreeMap<AbortId, BTreeSet<Ticket>>,
}

impl Writes {
    /// Takes a write of `port`.
    pub fn take(&mut self, port: Port) -> Ticket {
        self.given += 1;
        let ticket = Ticket(self.given);
        self.under_way.insert(ticket, (port, Stage::Taken));
        ticket
    }

    /// Begins it. False: it was cancelled, or there is no such write.
    pub fn begin(&mut self, ticket: Ticket) -> bool {
        match self.under_way.get_mut(&ticket) {
            Some((_, stage @ Stage::Taken)) => {
                *stage = Stage::Begun;
                true
            }
            Some((_, Stage::Begun | Stage::Cancelled)) | None => false,
        }
    }

    /// True if an abort waits for it.
    pub fn is_waited_for(&self, ticket: Ticket) -> bool {
        self.aborts.values().any(|waits_for| waits_for.contains(&ticket))
    }

    /// Ends it, whether or not it began: the aborts that are over by this.
    pub fn end(&mut self, ticket: Ticket) -> Vec<AbortId> {
        self.under_way.remove(&ticket);
        for waits_for in self.aborts.values_mut() {
            waits_for.remove(&ticket);
        }
        let over: Vec<AbortId> =
            self.aborts.iter().filter(|(_, w)| w.is_empty()).map(|(id, _)| *id).collect();
        for id in &over {
            self.aborts.remove(id);
        }
        over
    }

    /// Cancels the writes of `ports` that have not begun. The abort that waits for the others; none if there are none.
    pub fn abort(&mut self, ports: &[Port]) -> Option<AbortId> {
        let mut waits_for = BTreeSet::new();
        for (ticket, (port, stage)) in &mut self.under_way {
            match stage {
                _ if !ports.contains(port) => {}
                Stage::Taken => *stage = Stage::Cancelled,
                Stage::Begun => {
                    waits_for.insert(*ticket);
                }
                Stage::Cancelled => {}
            }
        }
        if waits_for.is_empty() {
            return None;
        }
        self.given += 1;
        let id = AbortId(self.given);
        self.aborts.insert(id, waits_for);
        Some(id)
    }

    /// The port of a write under way.
    pub fn port(&self, ticket: Ticket) -> Option<Port> {
        self.under_way.get(&ticket).map(|(port, _)| *port)
    }

    /// True if nothing is under way.
    pub fn is_idle(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Forgets everything: the array lost its power. The aborts whose callers never hear of them. Numbers are not given out
    /// again.
    pub fn power_cycle(&mut self) -> Vec<AbortId> {
        self.under_way.clear();
        std::mem::take(&mut self.aborts).into_keys().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Port = Port(1);
    const B: Port = Port(2);

    #[test]
    fn an_abort_cancels_writes_that_have_not_begun() {
        let mut writes = Writes::default();
        let (mine, theirs) = (writes.take(B), writes.take(A));
        assert_eq!(writes.abort(&[A]), None, "nothing has begun");
        assert!(!writes.begin(theirs) && writes.begin(mine));
    }

    #[test]
    fn an_abort_is_over_when_each_begun_write_has_ended() {
        let mut writes = Writes::default();
        let (first, second, other) = (writes.take(A), writes.take(A), writes.take(B));
        assert!(writes.begin(first) && writes.begin(second) && writes.begin(other));
        let abort = writes.abort(&[A]).expect("two have begun");
        assert!(writes.end(other).is_empty() && writes.end(second).is_empty());
        assert_eq!(writes.end(first), [abort]);
        assert!(writes.is_idle());
    }

    #[test]
    fn an_abort_does_not_wait_for_writes_taken_after_it() {
        let mut writes = Writes::default();
        let old = writes.take(A);
        assert!(writes.begin(old));
        let abort = writes.abort(&[A]).expect("one has begun");
        let new = writes.take(A);
        assert!(writes.begin(new));
        assert_eq!(writes.end(old), [abort]);
    }
}
