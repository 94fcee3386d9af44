//! The needs of a mirror beside its legs, and what is seen of it.

use super::machine::{Change, MirrorState, Policy};
use super::mark::{Mark, Opening};
use crate::{IoError, SyncIo};
use std::sync::Arc;

/// Writes a mark on a whole leg: a flush before, durable after.
pub type StoreMark = fn(&mut dyn SyncIo, &Mark) -> Result<(), IoError>;

/// Tells an operator.
pub type Tell = Arc<dyn Fn(&Change) + Send + Sync>;

/// The needs of a mirror beside its legs.
#[derive(Clone)]
pub struct Setup {
    /// The answer of `decide`.
    pub opening: Opening,
    /// The highest generation that was found.
    pub top: u64,
    /// For a new mirror.
    pub set: [u8; 16],
    /// Drawn by chance.
    pub seed: u64,
    /// What becomes of a lost leg.
    pub policy: Policy,
    /// Bytes before a leg's content.
    pub content: u64,
    /// Writes marks.
    pub store: StoreMark,
    /// Tells the operator.
    pub tell: Tell,
}

impl std::fmt::Debug for Setup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Setup({:?}, {:?})", self.opening, self.policy)
    }
}

/// The state of a mirror, for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MirrorView {
    /// The machine's.
    pub state: MirrorState,
    /// Bytes that are copied by now, of a leg that joins.
    pub copied: Option<u64>,
    /// Bytes of content.
    pub size: u64,
    /// How often a leg was left.
    pub left: u64,
}
