//! The order of volumes.

use clap::ValueEnum;
use loligo_client::watch::{Rates, Row};

/// What to sort by. Names begin with the first letter, numbers with the largest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Sort {
    /// Name
    Name,
    /// Reads and writes a second
    Iops,
    /// Bytes read and written a second
    Bytes,
    /// Percent of hits
    Hits,
    /// Percent that is dirty
    Dirty,
    /// What 99 of 100 requests take at most
    Latency,
    /// Bytes destaged a second
    Destage,
}

/// What to sort by, and which way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) by: Sort,
    pub(super) reverse: bool,
}

impl Order {
    /// The next thing to sort by, or the one before.
    pub(super) fn step(&mut self, forward: bool) {
        let all = Sort::value_variants();
        let at = all.iter().position(|s| *s == self.by).unwrap_or(0);
        let by = if forward { at + 1 } else { at + all.len() - 1 };
        self.by = all[by % all.len()];
    }

    /// In words.
    pub(super) fn words(self) -> String {
        let shown = self.by.to_possible_value();
        shown.map_or_else(String::new, |word| word.get_name().to_owned())
    }

    /// Puts `rows` into it; equals stay in the order of their names.
    pub(super) fn apply(self, rows: &mut [Row]) {
        rows.sort_by(|a, b| a.name.cmp(&b.name));
        if self.by != Sort::Name {
            rows.sort_by(|a, b| self.key(b).total_cmp(&self.key(a)));
        }
        if self.reverse {
            rows.reverse();
        }
    }

    fn key(self, row: &Row) -> f64 {
        let rate = |of: fn(&Rates) -> f64| row.rates.as_ref().map_or(-1.0, of);
        match self.by {
            Sort::Name => 0.0,
            Sort::Iops => rate(|r| r.read_iops + r.write_iops),
            Sort::Bytes => rate(|r| r.read_bytes_s + r.write_bytes_s),
            Sort::Hits => rate(|r| r.hit_percent.unwrap_or(-1.0)),
            Sort::Dirty => row.dirty_percent.unwrap_or(-1.0),
            Sort::Latency => rate(|r| r.latency.map_or(-1.0, |q| q.p99_us)),
            Sort::Destage => rate(|r| r.destage_bytes_s),
        }
    }
}
