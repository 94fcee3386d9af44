//! Requests that the volume has and the client waits for.

use super::transmission::Command;

/// A request, as remembered until its answer.
#[derive(Debug, Clone, Copy)]
pub struct Pending {
    /// The client's name for it.
    pub cookie: u64,
    /// The wish.
    pub command: Command,
    /// Bytes from the start of the export.
    pub offset: u64,
    /// Bytes.
    pub len: u32,
    /// Bytes of allowance it holds.
    pub cost: u64,
    /// The write that it is a part of.
    pub whole: Option<usize>,
    /// It is a piece of a read that is answered in pieces.
    pub piece: bool,
}

/// A fixed number of places, so that accepting a request allocates nothing.
#[derive(Debug)]
pub struct InFlight {
    places: Vec<Option<Pending>>,
    free: Vec<u16>,
}

impl InFlight {
    /// Room for `n` requests, at most 65,536.
    pub fn new(n: usize) -> InFlight {
        let n = n.clamp(1, 1 << 16);
        InFlight { places: vec![None; n], free: (0..n).rev().map(|i| i as u16).collect() }
    }

    /// True if every place is taken.
    pub fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    /// Requests not answered.
    pub fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Takes a place; the caller has seen that one is free.
    pub fn insert(&mut self, p: Pending) -> u16 {
        let at = self.free.pop().expect("a place is free");
        self.places[usize::from(at)] = Some(p);
        at
    }

    /// Empties a place, if there is something in it.
    pub fn remove(&mut self, at: u16) -> Option<Pending> {
        let p = self.places.get_mut(usize::from(at))?.take()?;
        self.free.push(at);
        Some(p)
    }
}
