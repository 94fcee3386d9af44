//! A run, and its result.

use loligo_block::mirror::Flaw;
use std::collections::BTreeMap;

/// A run to be made.
#[derive(Debug, Clone, Default)]
pub struct Scenario {
    /// Everything is drawn from it.
    pub seed: u64,
    /// Rules that the machine breaks.
    pub flaws: Vec<Flaw>,
}

/// The result of a run.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The first thing that must not happen and did.
    pub violation: Option<String>,
    /// The number of times that something happened.
    pub marks: BTreeMap<&'static str, u64>,
    /// The course of the run.
    pub log: Vec<String>,
}
