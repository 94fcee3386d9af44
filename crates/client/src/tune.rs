//! Values that the tuner applied, as a look at them tells.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// A value that is no more as it was applied.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Drift {
    /// Its run.
    pub run: String,
    /// Its rule.
    pub rule: String,
    /// Its place.
    pub place: String,
    /// The value there now, or the reason why it does not act.
    pub why: String,
}

/// The outcome of a look.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Look {
    /// Values that were looked at.
    pub steps: u64,
    /// Those that drifted.
    pub drifts: BTreeSet<Drift>,
}
