//! The marks that a run has reached, so that tests can claim that the interesting paths were taken.

use std::collections::BTreeMap;

/// Counters by name; merging adds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Marks(BTreeMap<&'static str, u64>);

impl Marks {
    /// Counts `name` once.
    pub fn hit(&mut self, name: &'static str) {
        self.add(name, 1);
    }

    /// Adds `n` to `name`; nothing for 0.
    pub fn add(&mut self, name: &'static str, n: u64) {
        if n > 0 {
            *self.0.entry(name).or_default() += n;
        }
    }

    /// The number of times that `name` was counted.
    pub fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Adds another run's counts.
    pub fn merge(&mut self, other: &Marks) {
        for (name, n) in &other.0 {
            self.add(name, *n);
        }
    }
}

impl std::fmt::Display for Marks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (name, n) in &self.0 {
            writeln!(f, "{name:32} {n}")?;
        }
        Ok(())
    }
}
