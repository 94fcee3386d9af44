//! A partition of a host's processors: cores for each OSD and for groups of its threads, for loligod's shards, and for interrupts.
//!
//! It is made of facts alone: the same facts make the same partition.

mod divide;
mod document;
mod machine;

pub use document::{Group, InterruptPart, Level, OsdPart, Partition, ShardPart};

use crate::facts::Facts;

impl Partition {
    /// The partition of the host of this name; nothing: its processors are not known.
    pub fn of(facts: &Facts, host: &str) -> Option<Partition> {
        machine::machine(facts, host).map(|it| divide::divide(&it))
    }
}
