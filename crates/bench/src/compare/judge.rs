//! The judgement on two arms: block bootstrap, power, and the steady part of a run.

use crate::rng::SplitMix64;
use crate::stats::{median, quantile};
use serde::{Deserialize, Serialize};

/// The level at which an effect counts. At 95 % one comparison of nothing with nothing in twenty would find something.
const VERDICT: f64 = 0.99;
/// The level of the interval that is shown.
const SHOWN: f64 = 0.95;
/// Quantiles of the normal distribution: two-sided 99 %, and a power of 95 %.
const Z: f64 = 2.576 + 1.645;
/// Few blocks need more than that: the bootstrap knows their spread badly. Simulated, 300 comparisons for each number: 8 blocks need 8.3
/// standard errors in place of 4.2, 10 need 6.5, 14 need 5.4, 20 need 4.7, 40 need 4.5. `a_change_that_would_have_shown_does_show`
/// holds the curve through them.
const FEW: (f64, f64) = (26.0, 1.7);
/// Blocks beyond those, since a pilot of four knows their spread badly. Simulated: the tests below.
const EXTRA: usize = 5;
/// The fewest blocks. With fewer a bootstrap has too few different resamples.
pub const FEWEST: usize = 8;
/// Resamples.
const RESAMPLES: usize = 4000;
/// The most of them, where comparisons are judged together.
const MOST_RESAMPLES: usize = 40_000;

/// The share by which halves of a steady run may differ, whatever their noise.
const UNEVEN: f64 = 0.1;
/// Standard errors by which they may differ.
const SURE: f64 = 4.0;
/// The least limit of the spread of two runs of one arm, as a logarithm.
const LEAST_SPREAD: f64 = 0.1;
/// Blocks by which one arm is beyond that limit more often than the other, from which on the change itself may be the cause.
const LEAN: usize = 2;

/// The ratio of two arms, with an interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Effect {
    /// The second arm over the first: the geometric mean of blocks.
    pub ratio: f64,
    /// Lower end of the 95 % interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// The 99 % interval does not hold 1.
    pub is_seen: bool,
    /// The smallest change, as a share, that would have been seen with a probability of 95 %.
    pub detectable: f64,
}

impl Effect {
    /// Of blocks: each the logarithm of the second arm over the first.
    ///
    /// The interval is that of the studentized bootstrap over blocks (Davison and Hinkley 1997, section 5.2.1). Runs of one block lie
    /// near each other in time, so that a drift of the machine stays within blocks.
    ///
    /// # Panics
    /// If there are fewer than two blocks.
    pub fn of(blocks: &[f64], seed: u64) -> Effect {
        Effect::one_of(blocks, seed, 1)
    }

    /// The same as one of `count` comparisons that are judged together: each counts at a level so much stricter (Bonferroni), so that
    /// all of them find nothing in nothing as seldom as one alone does.
    ///
    /// # Panics
    /// If there are fewer than two blocks, or no comparison.
    pub fn one_of(blocks: &[f64], seed: u64, count: usize) -> Effect {
        assert!(count > 0, "a comparison is one at least");
        let resamples = RESAMPLES * count.min(MOST_RESAMPLES / RESAMPLES);
        assert!(blocks.len() > 1, "one block has no spread");
        let (mean, error) = mean_and_error(blocks);
        let mut rng = SplitMix64::new(seed);
        let mut draw = vec![0.0; blocks.len()];
        let mut scores: Vec<f64> = Vec::with_capacity(resamples);
        for _ in 0..resamples {
            draw.fill_with(|| blocks[rng.below(blocks.len() as u64) as usize]);
            let (drawn, spread) = mean_and_error(&draw);
            if spread > 0.0 {
                scores.push((drawn - mean) / spread);
            }
        }
        let interval = |level: f64| match scores.is_empty() {
            true => (mean, mean),
            false => {
                let tail = (1.0 - level) / 2.0;
                (mean - quantile(&scores, 1.0 - tail) * error, mean - quantile(&scores, tail) * error)
            }
        };
        let (low, high) = interval(SHOWN);
        let (least, most) = interval(1.0 - (1.0 - VERDICT) / count as f64);
        Effect {
            ratio: mean.exp(),
            low: low.exp(),
            high: high.exp(),
            is_seen: least > 0.0 || most < 0.0,
            detectable: (shown_by(blocks.len()) * error).exp() - 1.0,
        }
    }
}

/// Standard errors that a change must have to be seen with a probability of 95 % by so many blocks.
fn shown_by(blocks: usize) -> f64 {
    let (share, power) = FEW;
    Z * (1.0 + share / (blocks as f64 - 1.0).powf(power))
}

fn mean_and_error(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let sum: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, (sum / (count - 1.0) / count).sqrt())
}

/// Blocks that show a change of `share` (0.05: 5 %) with a probability of 95 %, by the spread of some blocks.
///
/// # Panics
/// If there are fewer than two blocks.
pub fn blocks_for(share: f64, pilot: &[f64]) -> usize {
    let (_, error) = mean_and_error(pilot);
    let deviation = error * (pilot.len() as f64).sqrt();
    let least = (Z * deviation / share.ln_1p()).powi(2).ceil() as usize + EXTRA;
    let is_enough = |count: &usize| shown_by(*count) * deviation <= share.ln_1p() * (*count as f64).sqrt();
    (least.max(FEWEST)..).find(is_enough).unwrap_or(least)
}

/// The spread of two runs of one arm that noise explains, as a logarithm, by the spreads of all: five standard deviations, estimated by
/// the median, or a tenth.
pub fn alike_limit(spreads: &[f64]) -> f64 {
    if spreads.is_empty() {
        return LEAST_SPREAD;
    }
    // The median of a normal variable without its sign is 0.6745 standard deviations.
    (5.0 * median(spreads) / 0.6745).max(LEAST_SPREAD)
}

/// Which blocks count, by the spreads of both arms in each. A block counts if both are within the limit. If one arm is beyond it in two
/// blocks more than the other, all count: what holds runs up may be the change itself.
pub fn count_of(spreads: &[[f64; 2]], limit: f64) -> Vec<bool> {
    let beyond = [0, 1].map(|arm| spreads.iter().filter(|it| it[arm] > limit).count());
    let leans = beyond[0].abs_diff(beyond[1]) >= LEAN;
    spreads.iter().map(|it| leans || it.iter().all(|spread| *spread <= limit)).collect()
}

/// The number of the first value of the steady part: the cut that makes the standard error of the rest least (MSER; White 1997). At
/// most the first half is cut; nothing: what is left is not steady, since its second half differs from its first by a tenth and by
/// four standard errors. Noise alone does so in one run of twenty at most.
pub fn steady(series: &[f64]) -> Option<usize> {
    if series.len() < 4 {
        return Some(0);
    }
    let score = |cut: usize| {
        let (_, error) = mean_and_error(&series[cut..]);
        error
    };
    let cut = (0..=series.len() / 2).min_by(|one, two| score(*one).total_cmp(&score(*two)))?;
    let rest = &series[cut..];
    let [one, two] = [&rest[..rest.len() / 2], &rest[rest.len() / 2..]];
    if one.len() < 2 {
        return Some(cut);
    }
    let [(first, error), (second, more)] = [mean_and_error(one), mean_and_error(two)];
    let change = (second - first).abs();
    let is_even = change <= UNEVEN * first.min(second) || change <= SURE * error.hypot(more);
    is_even.then_some(cut)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// About normal, by the sum of twelve.
    fn noise(rng: &mut SplitMix64) -> f64 {
        (0..12).map(|_| rng.below(1 << 20) as f64 / f64::from(1 << 20)).sum::<f64>() - 6.0
    }

    /// Blocks ABBA of runs whose logarithms have noise of `deviation` and a drift that wanders.
    fn blocks(count: usize, deviation: f64, effect: f64, rng: &mut SplitMix64) -> Vec<f64> {
        let mut drift = 0.0;
        let mut run = |is_second: bool, rng: &mut SplitMix64| {
            drift += 0.02 * noise(rng);
            drift + deviation * noise(rng) + if is_second { effect.ln_1p() } else { 0.0 }
        };
        let mut block = |rng: &mut SplitMix64| {
            let order = [false, true, true, false];
            let runs = order.map(|is_second| run(is_second, rng));
            (runs[1] + runs[2] - runs[0] - runs[3]) / 2.0
        };
        (0..count).map(|_| block(rng)).collect()
    }

    #[test]
    fn a_change_that_would_have_shown_does_show() {
        const ROUNDS: usize = 200;
        for count in [8, 10, 14, 30] {
            let mut rng = SplitMix64::new(5);
            // The error that blocks have in truth.
            let all = blocks(4000, 0.05, 0.0, &mut rng);
            let error = mean_and_error(&all).1 * (all.len() as f64 / count as f64).sqrt();
            let change = (shown_by(count) * error).exp() - 1.0;
            let seen = (0..ROUNDS)
                .filter(|round| Effect::of(&blocks(count, 0.05, change, &mut rng), *round as u64).is_seen);
            let seen = seen.count();
            println!("{count} blocks: {change:.3} is seen {seen} times of {ROUNDS}");
            assert!(seen * 100 >= ROUNDS * 88, "{seen} of {ROUNDS} by {count} blocks");
        }
    }

    #[test]
    fn nothing_is_seldom_seen_and_ten_percent_nearly_always() {
        const ROUNDS: usize = 300;
        for deviation in [0.02, 0.05, 0.1] {
            let mut rng = SplitMix64::new(11);
            let (mut false_alarms, mut found) = (0, 0);
            for round in 0..ROUNDS {
                // Planned by the pilot, and once more, as comparisons are.
                let mut planned = |effect: f64| {
                    let mut all = blocks(4, deviation, effect, &mut rng);
                    for _ in 0..2 {
                        let more = blocks_for(0.1, &all).saturating_sub(all.len());
                        all.extend(blocks(more, deviation, effect, &mut rng));
                    }
                    Effect::of(&all, round as u64)
                };
                false_alarms += usize::from(planned(0.0).is_seen);
                let slower = planned(-0.1);
                found += usize::from(slower.is_seen && slower.ratio < 1.0);
            }
            println!("deviation {deviation}: {false_alarms} false, {found} found of {ROUNDS}");
            assert!(false_alarms * 100 <= ROUNDS * 4, "{false_alarms} of {ROUNDS} at {deviation}");
            assert!(found * 100 >= ROUNDS * 95, "{found} of {ROUNDS} at {deviation}");
        }
    }

    #[test]
    fn of_many_comparisons_of_nothing_seldom_one_is_seen() {
        const ROUNDS: usize = 60;
        const TOGETHER: usize = 12;
        let mut rng = SplitMix64::new(5);
        let mut alarms = [0, 0];
        for round in 0..ROUNDS as u64 {
            let all: Vec<_> = (0..TOGETHER).map(|_| blocks(10, 0.05, 0.0, &mut rng)).collect();
            let is_seen = |count| all.iter().any(|one| Effect::one_of(one, round, count).is_seen);
            alarms[0] += usize::from(is_seen(1));
            alarms[1] += usize::from(is_seen(TOGETHER));
        }
        println!("of {ROUNDS} sets {} have an alarm one by one, {} together", alarms[0], alarms[1]);
        assert!(alarms[1] * 20 <= ROUNDS && alarms[0] > alarms[1], "{alarms:?}");
    }

    #[test]
    fn a_drift_that_is_even_within_blocks_leaves_the_effect_exact() {
        let effect = Effect::of(&[0.1_f64.ln_1p(); 8], 1);
        assert!((effect.ratio - 1.1).abs() < 1e-9 && effect.is_seen, "{effect:?}");
        let none = Effect::of(&[0.0; 8], 1);
        assert!((none.ratio - 1.0).abs() < 1e-9 && !none.is_seen, "{none:?}");
    }

    /// Comparisons of nine blocks that count, of runs with 3 % of noise. `stalls` of a hundred runs of each arm are half as fast. The
    /// effects by the rule of two runs, and of the first nine blocks without it.
    fn with_stalls(stalls: [u64; 2], effect: f64, seed: u64) -> [Effect; 2] {
        let mut rng = SplitMix64::new(seed);
        let mut run = |arm: usize| {
            let stall = if rng.below(100) < stalls[arm] { 0.5_f64.ln() } else { 0.0 };
            0.03 * noise(&mut rng) + stall + if arm == 1 { effect.ln_1p() } else { 0.0 }
        };
        let spreads = |it: &[f64; 4]| [(it[0] - it[3]).abs(), (it[1] - it[2]).abs()];
        let ratio = |it: &[f64; 4]| (it[1] + it[2] - it[0] - it[3]) / 2.0;
        let (mut all, mut kept): (Vec<[f64; 4]>, Vec<f64>) = (Vec::new(), Vec::new());
        while kept.len() < 9 {
            all.push([0, 1, 1, 0].map(&mut run));
            let both: Vec<[f64; 2]> = all.iter().map(spreads).collect();
            let counts = count_of(&both, alike_limit(both.as_flattened()));
            kept = all.iter().zip(counts).filter(|(_, counts)| *counts).map(|(it, _)| ratio(it)).collect();
        }
        let all: Vec<f64> = all.iter().take(9).map(ratio).collect();
        [Effect::of(&kept, seed), Effect::of(&all, seed)]
    }

    #[test]
    fn runs_that_the_machine_held_up_hide_no_effect() {
        const ROUNDS: usize = 300;
        let (mut by_rule, mut without, mut false_alarms) = (0, 0, 0);
        for round in 0..ROUNDS as u64 {
            let [kept, all] = with_stalls([5, 5], -0.1, round);
            by_rule += usize::from(kept.is_seen);
            without += usize::from(all.is_seen);
            false_alarms += usize::from(with_stalls([5, 5], 0.0, round)[0].is_seen);
        }
        println!("of {ROUNDS}: {by_rule} found by the rule, {without} without it, {false_alarms} false");
        assert!(by_rule * 100 >= ROUNDS * 75 && without * 100 <= ROUNDS * 60, "{by_rule} and {without}");
        assert!(false_alarms * 100 <= ROUNDS * 4, "{false_alarms}");
    }

    #[test]
    fn a_change_that_holds_runs_up_itself_is_not_called_better() {
        const ROUNDS: u64 = 300;
        // It usually gains 5 %, and holds up one run in seven: 3 % worse in the mean.
        let is_better = |round: &u64| {
            let [kept, _] = with_stalls([0, 15], 0.05, *round);
            kept.is_seen && kept.ratio > 1.0
        };
        let better = (0..ROUNDS).filter(is_better).count();
        println!("of {ROUNDS} {better} are called better");
        assert!(better * 100 <= ROUNDS as usize * 15, "{better}");
    }

    #[test]
    fn before_anything_was_run_the_limit_of_spreads_is_a_tenth() {
        assert_eq!((alike_limit(&[]), alike_limit(&[0.001; 5])), (0.1, 0.1));
        assert!(alike_limit(&[0.1; 5]) > 0.5);
    }

    #[test]
    fn a_warm_up_is_cut_off_and_a_ramp_without_end_is_not_steady() {
        let mut warm = vec![10.0, 40.0, 80.0];
        warm.extend([100.0, 101.0, 99.0, 100.0, 100.5, 99.5, 100.0]);
        assert_eq!(steady(&warm), Some(3));
        let ramp: Vec<f64> = (0..20).map(f64::from).collect();
        assert_eq!(steady(&ramp), None);
        assert_eq!(steady(&[100.0; 10]), Some(0));
    }

    #[test]
    fn noise_alone_seldom_makes_a_run_uneven() {
        const RUNS: usize = 2000;
        let mut rng = SplitMix64::new(3);
        for seconds in [5, 10, 30] {
            let mut uneven = 0;
            for _ in 0..RUNS {
                let series: Vec<f64> = (0..seconds).map(|_| 100.0 + 15.0 * noise(&mut rng)).collect();
                uneven += usize::from(steady(&series).is_none());
            }
            println!("{seconds} s: {uneven} of {RUNS} uneven");
            assert!(uneven * 20 <= RUNS, "{uneven} of {RUNS} at {seconds} s");
        }
    }

    #[test]
    fn more_noise_and_smaller_changes_need_more_blocks() {
        let pilot = |spread: f64| [1.0, -1.0, 1.0, -1.0].map(|sign: f64| sign * spread);
        assert_eq!(blocks_for(0.5, &pilot(0.01)), FEWEST);
        assert!(blocks_for(0.02, &pilot(0.05)) > blocks_for(0.05, &pilot(0.05)));
        assert!(blocks_for(0.05, &pilot(0.1)) > blocks_for(0.05, &pilot(0.05)));
    }
}
