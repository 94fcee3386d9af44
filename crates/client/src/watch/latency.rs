//! Latencies of a while: the difference of two distributions since the start.

use serde::Serialize;
use std::collections::BTreeMap;

/// The number of requests by the nanoseconds that they took.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Distribution(BTreeMap<u64, u64>);

/// A short form of a distribution, in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Quantiles {
    /// Requests in it.
    pub count: u64,
    /// Half of them took at most this.
    pub p50_us: f64,
    /// 99 of 100.
    pub p99_us: f64,
    /// The longest.
    pub max_us: f64,
}

impl Distribution {
    /// The distribution that a service reports, as pairs of nanoseconds and requests.
    pub fn new(pairs: &[(u64, u64)]) -> Distribution {
        let mut all = Distribution::default();
        pairs.iter().for_each(|(ns, count)| all.put(*ns, *count));
        all
    }

    fn put(&mut self, ns: u64, count: u64) {
        if count > 0 {
            *self.0.entry(ns).or_default() += count;
        }
    }

    /// Requests that came since `before`.
    #[must_use]
    pub fn since(&self, before: &Distribution) -> Distribution {
        let mut new = Distribution::default();
        for (ns, count) in &self.0 {
            new.put(*ns, count.saturating_sub(before.0.get(ns).copied().unwrap_or(0)));
        }
        new
    }

    /// Both together.
    #[must_use]
    pub fn with(mut self, other: &Distribution) -> Distribution {
        other.0.iter().for_each(|(ns, count)| self.put(*ns, *count));
        self
    }

    /// In short; nothing where nothing was asked.
    pub fn quantiles(&self) -> Option<Quantiles> {
        let count: u64 = self.0.values().sum();
        let at = |part: f64| {
            let wanted = ((count as f64 * part).ceil() as u64).max(1);
            let mut seen = 0;
            let found = self.0.iter().find(|(_, n)| {
                seen += **n;
                seen >= wanted
            });
            found.map_or(0.0, |(ns, _)| *ns as f64 / 1e3)
        };
        let max_us = *self.0.keys().next_back()? as f64 / 1e3;
        Some(Quantiles { count, p50_us: at(0.5), p99_us: at(0.99), max_us })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_of_an_interval_know_nothing_of_what_was_before() {
        let before = Distribution::new(&[(1_000_000, 1000)]);
        let after = Distribution::new(&[(1_000_000, 1000), (10_000, 98), (20_000, 1), (90_000, 1)]);
        let q = after.since(&before).quantiles().unwrap();
        assert_eq!(q, Quantiles { count: 100, p50_us: 10.0, p99_us: 20.0, max_us: 90.0 });
        assert_eq!(after.since(&after).quantiles(), None);
        let both = after.since(&before).with(&before).quantiles().unwrap();
        assert_eq!((both.count, both.p50_us), (1100, 1000.0));
    }
}
