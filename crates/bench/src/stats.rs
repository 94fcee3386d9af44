//! Statistics of paired runs. Single runs on a shared machine swing by several times; the ratio of two sides measured
//! alternately does not.

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::rng::SplitMix64;
use crate::units;

/// The value below which the share `p` (0..=1) of the values lies, interpolated linearly between neighbours.
///
/// # Panics
/// If `values` is empty.
pub fn quantile(values: &[f64], p: f64) -> f64 {
    assert!(!values.is_empty(), "no quantile of nothing");
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = p.clamp(0.0, 1.0) * (sorted.len() - 1) as f64;
    let below = rank.floor() as usize;
    let above = rank.ceil() as usize;
    sorted[below] + (sorted[above] - sorted[below]) * (rank - below as f64)
}

/// The middle value.
///
/// # Panics
/// If `values` is empty.
pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// The middle of one number of every run.
///
/// # Panics
/// If there are no runs.
pub fn median_of<T>(runs: &[T], pick: impl Fn(&T) -> f64) -> f64 {
    median(&runs.iter().map(pick).collect::<Vec<_>>())
}

/// A ratio with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// Median of the pairs' ratios.
    pub value: f64,
    /// Lower end of the 95 % interval.
    pub low: f64,
    /// Upper end of the 95 % interval.
    pub high: f64,
    /// Number of pairs.
    pub pairs: usize,
}

impl Ratio {
    /// `0.98-1.04`.
    pub fn interval(&self) -> String {
        format!("{}-{}", units::number(self.low), units::number(self.high))
    }

    /// The ratio and its interval, as two cells of a table.
    pub fn cells(&self) -> [String; 2] {
        [units::times(self.value), self.interval()]
    }
}

impl std::fmt::Display for Ratio {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", units::times(self.value), self.interval())
    }
}

/// The median of `a / b` over paired runs with its 95 % bootstrap interval (percentile method, 10,000 resamples of the
/// pairs). The same seed gives the same interval.
///
/// # Panics
/// If `pairs` is empty.
pub fn ratio(pairs: &[(f64, f64)], seed: u64) -> Ratio {
    let ratios: Vec<f64> = pairs.iter().map(|(a, b)| a / b).collect();
    let mut rng = SplitMix64::new(seed);
    let mut draw = vec![0.0; ratios.len()];
    let medians: Vec<f64> = (0..10_000)
        .map(|_| {
            draw.fill_with(|| ratios[rng.below(ratios.len() as u64) as usize]);
            median(&draw)
        })
        .collect();
    Ratio {
        value: median(&ratios),
        low: quantile(&medians, 0.025),
        high: quantile(&medians, 0.975),
        pairs: pairs.len(),
    }
}

/// [`ratio`] of one number of both runs of each pair.
///
/// # Panics
/// If `pairs` is empty.
pub fn ratio_of<T>(pairs: &[(T, T)], pick: impl Fn(&T) -> f64, seed: u64) -> Ratio {
    ratio(&pairs.iter().map(|(a, b)| (pick(a), pick(b))).collect::<Vec<_>>(), seed)
}

/// Runs `a` and `b` `n` times each, alternately, and changes which goes first from pair to pair, so that a drift of the
/// machine hurts both alike.
pub fn pairs<T>(
    n: usize,
    mut a: impl FnMut(usize) -> Result<T>,
    mut b: impl FnMut(usize) -> Result<T>,
) -> Result<Vec<(T, T)>> {
    (0..n)
        .map(|i| {
            if i % 2 == 0 {
                let first = a(i)?;
                Ok((first, b(i)?))
            } else {
                let first = b(i)?;
                Ok((a(i)?, first))
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn quantiles_of_a_known_set() {
        assert_eq!([0.25, 0.5, 0.75].map(|p| quantile(&[4.0, 1.0, 3.0, 2.0, 5.0], p)), [2.0, 3.0, 4.0]);
        assert_eq!(median(&[1.0, 2.0]), 1.5);
        assert_eq!(quantile(&[7.0], 0.99), 7.0);
    }

    #[test]
    fn a_common_drift_leaves_the_ratio_exact() {
        let drifting: Vec<(f64, f64)> = (1..=9).map(|i| (2.0 * f64::from(i), f64::from(i))).collect();
        let ratio = ratio(&drifting, 1);
        assert_eq!((ratio.value, ratio.low, ratio.high, ratio.pairs), (2.0, 2.0, 2.0, 9));
    }

    #[test]
    fn the_interval_holds_the_median_narrows_and_repeats_by_seed() {
        let noisy = |n: u64| -> Vec<(f64, f64)> {
            let mut rng = SplitMix64::new(7);
            (0..n).map(|_| (1.0 + rng.below(1000) as f64 / 1000.0, 1.0)).collect()
        };
        let few = ratio(&noisy(8), 3);
        let many = ratio(&noisy(200), 3);
        assert!(few.low <= few.value && few.value <= few.high);
        assert!(many.high - many.low < few.high - few.low);
        assert!((1.4..1.6).contains(&many.value), "{many:?}");
        assert_eq!(few, ratio(&noisy(8), 3));
    }

    #[test]
    fn sides_alternate_and_so_does_who_goes_first() {
        let order = RefCell::new(String::new());
        let side = |name: char| {
            let order = &order;
            move |_| {
                order.borrow_mut().push(name);
                Ok(name)
            }
        };
        let got = pairs(3, side('a'), side('b')).unwrap();
        assert_eq!(order.borrow().as_str(), "abbaab");
        assert!(got.iter().all(|pair| *pair == ('a', 'b')));
    }
}
