//! The outcome of a comparison.

use super::judge::{Effect, alike_limit, count_of};
use super::options::{Load, Options};
use crate::fio::Measured;
use crate::report::{Gain, Listing, Phase, Report};
use crate::table::Table;
use crate::units;
use serde::{Deserialize, Serialize};

/// Beside a quarter of its runs: by so many more disturbed runs than the other's the change of an arm may be what disturbs them.
const DISTURBED: usize = 2;

/// A run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The number of its arm, from 0.
    pub arm: usize,
    /// Requests a second, in the steady part.
    pub iops: f64,
    /// Mean latency, nanoseconds.
    pub mean_ns: f64,
    /// 99th percentile, nanoseconds.
    pub p99_ns: f64,
    /// Share of processor time that the host took away.
    pub steal: f64,
    /// Seconds at the beginning that were cut off as warm-up.
    pub cut: usize,
}

/// Two runs of each arm, in the order in which they ran.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Block {
    /// The runs.
    pub runs: Vec<Run>,
}

impl Block {
    /// The logarithm of one arm over another, of one figure of each run.
    pub fn log_ratio(&self, arm: usize, over: usize, pick: impl Fn(&Run) -> f64) -> f64 {
        self.mean_log(arm, &pick) - self.mean_log(over, &pick)
    }

    /// The mean of logarithms of a figure of an arm's two runs.
    fn mean_log(&self, arm: usize, pick: impl Fn(&Run) -> f64) -> f64 {
        self.runs.iter().filter(|run| run.arm == arm).map(|run| pick(run).ln()).sum::<f64>() / 2.0
    }

    /// The logarithm of the greater over the smaller rate of an arm's two runs.
    fn spread(&self, arm: usize) -> f64 {
        let rates = self.runs.iter().filter(|run| run.arm == arm).map(|run| run.iops.ln());
        let (low, high) = rates.fold((f64::MAX, f64::MIN), |(low, high), it| (low.min(it), high.max(it)));
        high - low
    }
}

/// A run that does not count, or both of an arm in a block.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rejected {
    /// The number of its block, from 1.
    pub block: usize,
    /// The number of its arm, from 0.
    pub arm: usize,
    /// The rule that it broke.
    pub why: String,
    /// This host was the reason, and not the cluster or the load.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_host: bool,
}

/// Two runs of an arm in a block that differ too much.
struct Uneven {
    /// The number of the block, from 1.
    block: usize,
    arm: usize,
    /// The logarithm of the greater rate over the smaller.
    spread: f64,
    /// The block counts all the same.
    counts: bool,
}

/// A figure of both arms.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Metric {
    /// Its name.
    pub name: String,
    /// Geometric mean of the first arm's runs that count.
    pub first: f64,
    /// Geometric mean of the second arm's.
    pub second: f64,
    /// The second over the first.
    pub effect: Effect,
    /// More is better.
    pub is_rate: bool,
    /// The reason why there is no verdict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unjudged: Option<String>,
}

impl Metric {
    /// The verdict in words.
    pub fn verdict(&self) -> String {
        let effect = &self.effect;
        if let Some(why) = &self.unjudged {
            return format!("no verdict: {why}");
        }
        if !effect.is_seen {
            return format!(
                "no effect measurable (a change of {:.1} % would have shown)",
                effect.detectable * 100.0
            );
        }
        let is_better = (effect.ratio > 1.0) == self.is_rate;
        format!(
            "{} by {:.1} %",
            if is_better { "better" } else { "worse" },
            (effect.ratio - 1.0).abs() * 100.0
        )
    }
}

/// An arm that has the change of the one before, and one more.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rung {
    /// Its name: the rule whose change it adds.
    pub name: String,
    /// It over the arm before: requests a second, mean latency, 99th percentile.
    pub own: Vec<Metric>,
    /// Its requests a second over those of the first arm.
    pub total: Effect,
}

impl Rung {
    fn gain(&self) -> Gain {
        Gain { name: self.name.clone(), iops: self.own[0].second, total: self.total.ratio }
    }

    fn row(&self) -> [String; 8] {
        let [iops, mean, p99] = [0, 1, 2].map(|at| &self.own[at]);
        let change = |effect: &Effect| format!("{:+.1} %", (effect.ratio - 1.0) * 100.0);
        let interval = |effect: &Effect| {
            format!("{:+.1} to {:+.1}", (effect.low - 1.0) * 100.0, (effect.high - 1.0) * 100.0)
        };
        [
            self.name.clone(),
            units::number(iops.second),
            units::time(mean.second),
            units::time(p99.second),
            change(&iops.effect),
            interval(&iops.effect),
            change(&self.total),
            iops.verdict(),
        ]
    }
}

/// The power, as it was said before the runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Power {
    /// The change that is to be seen, as a share.
    pub wanted: f64,
    /// Pairs of runs that it needs.
    pub pairs_needed: usize,
    /// Minutes that they take.
    pub minutes: f64,
    /// Pairs that were planned, by the budget.
    pub pairs: usize,
}

impl Power {
    /// In words: `5.0 % needs 28 pairs, 9 min`.
    pub fn words(&self) -> String {
        let all = format!(
            "{:.1} % needs {} pairs, {:.0} min",
            self.wanted * 100.0,
            self.pairs_needed,
            self.minutes
        );
        if self.pairs < self.pairs_needed { format!("{all}; the budget has {}", self.pairs) } else { all }
    }
}

/// The outcome.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Outcome {
    /// The load in words.
    pub load: String,
    /// Names of the arms.
    pub arms: Vec<String>,
    /// The machine and the cluster.
    pub facts: Vec<(String, String)>,
    /// The number that lots were drawn by.
    pub seed: u64,
    /// Runs of warm-up before the first block.
    pub warm_up: usize,
    /// The power, as it was said before the runs.
    pub power: Power,
    /// It was interrupted before the planned number of blocks: there is no verdict.
    #[serde(default)]
    pub is_cut: bool,
    /// Blocks of runs.
    pub blocks: Vec<Block>,
    /// Runs that do not count: those beside which the cluster was at work are in no block, those that differ too much are.
    pub rejected: Vec<Rejected>,
    /// The last arm over the first: requests a second, mean latency, 99th percentile.
    pub metrics: Vec<Metric>,
    /// Each arm but the first, over the one before; empty where there are two.
    pub rungs: Vec<Rung>,
    /// The last run of each arm, as fio had it.
    pub last: Vec<Option<Measured>>,
}

impl Outcome {
    pub(super) fn new(options: &Options, arms: Vec<String>, facts: Vec<(String, String)>) -> Outcome {
        let load: Load = options.load;
        let power = Power { wanted: options.detect, pairs_needed: 0, minutes: 0.0, pairs: 0 };
        Outcome {
            load: load.words(),
            last: vec![None; arms.len()],
            arms,
            facts,
            seed: options.seed,
            warm_up: 0,
            power,
            is_cut: false,
            blocks: Vec::new(),
            rejected: Vec::new(),
            metrics: Vec::new(),
            rungs: Vec::new(),
        }
    }

    /// The name of the last arm.
    pub(super) fn last_arm(&self) -> &str {
        self.arms.last().map_or("", String::as_str)
    }

    /// The logarithm of one arm over another, of blocks in which each of both was alike twice. If one of them was not so more often than
    /// the other, all blocks count: the change may be the cause.
    pub(super) fn log_ratios(&self, arm: usize, over: usize, pick: fn(&Run) -> f64) -> Vec<f64> {
        self.that_count([arm, over]).into_iter().map(|block| block.log_ratio(arm, over, pick)).collect()
    }

    fn that_count(&self, arms: [usize; 2]) -> Vec<&Block> {
        self.blocks
            .iter()
            .zip(self.counts(arms))
            .filter(|(_, counts)| *counts)
            .map(|(block, _)| block)
            .collect()
    }

    /// Which blocks count for two arms.
    fn counts(&self, arms: [usize; 2]) -> Vec<bool> {
        let spreads: Vec<[f64; 2]> =
            self.blocks.iter().map(|block| arms.map(|arm| block.spread(arm))).collect();
        count_of(&spreads, self.limit())
    }

    /// The geometric means of a figure of two arms, by the blocks that their ratio is of.
    pub(super) fn means(&self, arms: [usize; 2], pick: fn(&Run) -> f64) -> [f64; 2] {
        let blocks = self.that_count(arms);
        arms.map(|arm| {
            (blocks.iter().map(|block| block.mean_log(arm, pick)).sum::<f64>() / blocks.len() as f64).exp()
        })
    }

    /// The spread of two runs of one arm beyond which something else was at work, by all that were run. It knows nothing of the
    /// difference of arms.
    fn limit(&self) -> f64 {
        let arms = 0..self.arms.len();
        let spreads = self.blocks.iter().flat_map(|block| arms.clone().map(|arm| block.spread(arm)));
        alike_limit(&spreads.collect::<Vec<_>>())
    }

    /// Blocks that count for every arm against the one before, and against the first.
    pub(super) fn counting(&self) -> usize {
        self.pairs().map(|pair| self.that_count(pair).len()).min().unwrap_or(0)
    }

    /// Arms that are judged against each other: each with the one before, and each with the first.
    fn pairs(&self) -> impl Iterator<Item = [usize; 2]> + use<> {
        (1..self.arms.len()).flat_map(|arm| [[arm, arm - 1], [arm, 0]])
    }

    /// The reason why nothing is said of two arms. A comparison that is ended by what was seen so far finds too much in nothing. An arm
    /// whose runs are made again until they are quiet shows its quiet ones alone: its change may be what disturbs the others.
    pub(super) fn unjudged(&self, arms: [usize; 2]) -> Option<String> {
        if self.is_cut {
            return Some("it was interrupted".to_owned());
        }
        let again = arms.map(|arm| self.rejected.iter().filter(|it| it.arm == arm && !it.by_host).count());
        let runs = self.blocks.len() * 2;
        let [more, fewer] = if again[0] > again[1] { [0, 1] } else { [1, 0] };
        (again[more] - again[fewer] >= DISTURBED + runs / 4).then(|| {
            format!(
                "{} runs of {} were disturbed and made again, and {} of {}: the change may be why",
                again[more], self.arms[arms[more]], again[fewer], self.arms[arms[fewer]]
            )
        })
    }

    /// Runs of arms that were not alike and do not count.
    pub(super) fn unlike(&self) -> Vec<Rejected> {
        let left_out = self.uneven().into_iter().filter(|it| !it.counts);
        left_out
            .map(|it| Rejected { block: it.block, arm: it.arm, why: self.differ(it.spread), by_host: false })
            .collect()
    }

    /// Runs of arms that were not alike.
    fn uneven(&self) -> Vec<Uneven> {
        let limit = self.limit();
        let counts: Vec<_> = self.pairs().map(|pair| (pair, self.counts(pair))).collect();
        let of = |(block, number): (&Block, usize)| {
            let one = |arm| {
                let is_in =
                    |(pair, counts): &([usize; 2], Vec<bool>)| !pair.contains(&arm) || counts[number - 1];
                Uneven { block: number, arm, spread: block.spread(arm), counts: counts.iter().all(is_in) }
            };
            (0..self.arms.len()).map(one).filter(|it| it.spread > limit).collect::<Vec<_>>()
        };
        self.blocks.iter().zip(1..).flat_map(of).collect()
    }

    fn differ(&self, spread: f64) -> String {
        let share = |it: f64| (it.exp_m1() * 100.0).round();
        format!("its two runs differ by {} %, and {} % is the limit", share(spread), share(self.limit()))
    }

    fn rows(&self) -> Vec<[String; 6]> {
        let shown = |metric: &Metric, value: f64| match metric.is_rate {
            true => units::number(value),
            false => units::time(value),
        };
        let row = |it: &Metric| {
            let effect = it.effect;
            [
                it.name.clone(),
                shown(it, it.first),
                shown(it, it.second),
                format!("{:.3}", effect.ratio),
                format!("{:.3}-{:.3}", effect.low, effect.high),
                it.verdict(),
            ]
        };
        self.metrics.iter().map(row).collect()
    }

    fn heads(&self) -> [String; 6] {
        let (first, last) = (self.arms[0].clone(), self.last_arm().to_owned());
        [String::new(), first, last, "ratio".to_owned(), "95 %".to_owned(), "verdict".to_owned()]
    }

    fn table(&self) -> Table {
        let heads = self.heads();
        let mut table = Table::new(heads.iter().map(String::as_str));
        for row in self.rows() {
            table.row(row);
        }
        table
    }

    /// The gain of each rung, where there are several.
    fn gains(&self) -> Option<(Vec<String>, Vec<Vec<String>>)> {
        let heads = ["added", "IOPS", "mean", "p99", "gain", "95 %", "in all", "verdict"];
        let heads = heads.map(str::to_owned).to_vec();
        let rows = self.rungs.iter().map(|it| it.row().to_vec());
        (!self.rungs.is_empty()).then(|| (heads, rows.collect()))
    }

    fn gain_table(&self) -> Option<Table> {
        let (heads, rows) = self.gains()?;
        let mut table = Table::new(heads.iter().map(String::as_str));
        for row in rows {
            table.row(row);
        }
        Some(table)
    }

    /// For a terminal.
    pub fn text(&self) -> String {
        let gains = self.gain_table().map_or_else(String::new, |table| format!("\n{}\n", table.text()));
        let pairs = self.blocks.len() * 2;
        format!("{}, {pairs} pairs\n{}\n{gains}{}", self.load, self.table().text(), self.remarks())
    }

    /// For a page.
    pub fn markdown(&self) -> String {
        let gains = self.gain_table().map_or_else(String::new, |table| format!("\n{}", table.markdown()));
        let pairs = self.blocks.len() * 2;
        format!("{}, {pairs} pairs.\n\n{}{gains}\n{}", self.load, self.table().markdown(), self.remarks())
    }

    fn remarks(&self) -> String {
        let mut text = format!("said before: {}\n", self.power.words());
        for it in &self.rejected {
            let arm = &self.arms[it.arm];
            text.push_str(&format!("block {}, {arm}, does not count: {}\n", it.block, it.why));
        }
        for it in self.uneven().iter().filter(|it| it.counts) {
            let (arm, why) = (&self.arms[it.arm], self.differ(it.spread));
            text.push_str(&format!(
                "block {}, {arm}, counts, since one arm is uneven more often and the change may be why: {why}\n",
                it.block
            ));
        }
        text
    }

    /// A page with graphs.
    pub fn report(&self) -> Report {
        let sides = [self.arms[0].as_str(), self.last_arm()];
        let mut report = Report::new("Settings compared", &self.load, sides);
        report.facts.clone_from(&self.facts);
        if let [Some(before), .., Some(after)] = &self.last[..] {
            // Bars show means of all runs that count; what else the page shows is of the last run of each arm.
            let mean = |run: &Measured, second: bool| {
                let mut run = run.clone();
                let of = |at: usize| {
                    self.metrics.get(at).map_or(0.0, |it| if second { it.second } else { it.first })
                };
                run.iops = of(0);
                run.latency.mean_ns = of(1);
                run.latency.p99_ns = of(2) as u64;
                run
            };
            let (name, detail) = (self.load.clone(), format!("{} pairs of runs", self.blocks.len() * 2));
            report.phases.push(Phase { name, detail, before: mean(before, false), after: mean(after, true) });
        }
        report.listings.push(Listing {
            title: "Verdict".to_owned(),
            detail: format!(
                "Geometric means of runs that count, and the ratio with its interval. Said before: {}.",
                self.power.words()
            ),
            heads: self.heads().to_vec(),
            rows: self.rows().iter().map(|row| row.to_vec()).collect(),
        });
        if let Some((heads, rows)) = self.gains() {
            let first = Gain { name: self.arms[0].clone(), iops: self.metrics[0].first, total: 1.0 };
            report.gains = [first].into_iter().chain(self.rungs.iter().map(Rung::gain)).collect();
            report.listings.push(Listing {
                title: "Gains rule by rule".to_owned(),
                detail: format!(
                    "Each row adds a rule to those above it. Gain: over the row above; in all: over {}. Of {} verdicts \
                     together one in a hundred would find something in nothing.",
                    self.arms[0],
                    self.rungs.len()
                ),
                heads,
                rows,
            });
        }
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of two arms.
    fn outcome(blocks: Vec<Block>, rejected: Vec<Rejected>) -> Outcome {
        Outcome {
            load: String::new(),
            arms: vec!["a".into(), "b".into()],
            facts: Vec::new(),
            seed: 1,
            warm_up: 1,
            is_cut: false,
            power: Power { wanted: 0.1, pairs_needed: 16, minutes: 1.0, pairs: 16 },
            blocks,
            rejected,
            metrics: Vec::new(),
            rungs: Vec::new(),
            last: Vec::new(),
        }
    }

    #[test]
    fn a_block_compares_arms_in_whichever_order_they_ran() {
        let run = |arm, iops| Run { arm, iops, mean_ns: 1.0, p99_ns: 1.0, steal: 0.0, cut: 0 };
        let abba = Block { runs: vec![run(0, 100.0), run(1, 220.0), run(1, 180.0), run(0, 100.0)] };
        let baab = Block { runs: vec![run(1, 200.0), run(0, 100.0), run(0, 100.0), run(1, 198.0)] };
        let of = |block: &Block| block.log_ratio(1, 0, |run| run.iops);
        assert!((of(&abba) - of(&baab)).abs() < 1e-9, "{} {}", of(&abba), of(&baab));
        assert!((of(&abba).exp() - 1.99).abs() < 0.01);
    }

    #[test]
    fn remarks_say_of_each_uneven_run_whether_it_counts() {
        let run = |arm, iops| Run { arm, iops, mean_ns: 1.0, p99_ns: 1.0, steal: 0.0, cut: 0 };
        let block = |first: f64, second: f64| Block {
            runs: vec![run(0, 100.0), run(1, 100.0), run(1, second), run(0, first)],
        };
        let words = |uneven: &[Block]| {
            let blocks = std::iter::repeat_n(block(101.0, 101.0), 8).chain(uneven.iter().cloned()).collect();
            let mut outcome = outcome(blocks, Vec::new());
            outcome.rejected = outcome.unlike();
            (outcome.counting(), outcome.remarks())
        };
        let (count, said) = words(&[block(101.0, 50.0)]);
        assert!(
            count == 8 && said.contains("block 9, b, does not count: its two runs differ by 100 %"),
            "{said}"
        );
        let (count, said) = words(&[block(101.0, 50.0), block(101.0, 50.0)]);
        assert!(
            count == 10 && said.contains("block 10, b, counts, since") && !said.contains("not count"),
            "{said}"
        );
    }

    #[test]
    fn an_arm_whose_disturbed_runs_are_made_again_has_no_verdict() {
        let run = |arm| Run { arm, iops: 100.0, mean_ns: 1.0, p99_ns: 1.0, steal: 0.0, cut: 0 };
        let with = |first: usize, second: usize, by_host: bool| {
            let again = |arm, count| {
                std::iter::repeat_n(Rejected { block: 1, arm, why: "recovering".into(), by_host }, count)
            };
            let blocks = vec![Block { runs: [0, 1, 1, 0].map(run).to_vec() }; 8];
            outcome(blocks, again(0, first).chain(again(1, second)).collect()).unjudged([1, 0])
        };
        assert!(with(1, 7, false).is_some_and(|why| why.starts_with("7 runs of b were disturbed")));
        assert!(with(7, 1, false).is_some());
        assert_eq!(with(3, 8, false), None, "both are disturbed");
        assert_eq!(with(0, 9, true), None, "the host took the processor away");
    }

    #[test]
    fn an_even_drift_gains_no_rung_of_a_ladder_anything() {
        let figures = |arm: usize, at: usize| Run {
            arm,
            iops: 100.0 * 1.01_f64.powi(at as i32),
            mean_ns: 1.0,
            p99_ns: 1.0,
            steal: 0.0,
            cut: 0,
        };
        let order = [0, 1, 2, 3, 3, 2, 1, 0];
        let block = Block { runs: order.iter().zip(0..).map(|(arm, at)| figures(*arm, at)).collect() };
        for arm in 1..4 {
            assert!(block.log_ratio(arm, arm - 1, |run| run.iops).abs() < 1e-9, "{arm}");
        }
    }
}
