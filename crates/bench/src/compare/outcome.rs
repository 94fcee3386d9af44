//! The outcome of a comparison.

use super::judge::Effect;
use super::options::{Load, Options};
use crate::fio::Measured;
use crate::report::{Listing, Phase, Report};
use crate::table::Table;
use crate::units;
use serde::{Deserialize, Serialize};

/// A run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// It is of the second arm.
    pub is_second: bool,
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

/// Four runs, in the order in which they ran.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Block {
    /// The runs.
    pub runs: Vec<Run>,
}

impl Block {
    /// The logarithm of the second arm over the first, of one figure of each run.
    pub fn log_ratio(&self, pick: impl Fn(&Run) -> f64) -> f64 {
        let sign = |run: &Run| if run.is_second { 1.0 } else { -1.0 };
        let count = self.runs.len() as f64 / 2.0;
        self.runs.iter().map(|run| sign(run) * pick(run).ln()).sum::<f64>() / count
    }
}

/// A block that does not count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rejected {
    /// The number of the block, from 1.
    pub block: usize,
    /// The rule that it broke.
    pub why: String,
}

/// A figure of both arms.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Metric {
    /// Its name.
    pub name: String,
    /// Median of the first arm's runs.
    pub first: f64,
    /// Median of the second arm's.
    pub second: f64,
    /// The second over the first.
    pub effect: Effect,
    /// More is better.
    pub is_rate: bool,
}

impl Metric {
    /// The verdict in words.
    pub fn verdict(&self) -> String {
        let effect = &self.effect;
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
    /// Name of the first arm, and of the second.
    pub arms: [String; 2],
    /// The machine and the cluster.
    pub facts: Vec<(String, String)>,
    /// The number that lots were drawn by.
    pub seed: u64,
    /// Runs of warm-up before the first block.
    pub warm_up: usize,
    /// The power, as it was said before the runs.
    pub power: Power,
    /// Blocks that count.
    pub blocks: Vec<Block>,
    /// Blocks that do not.
    pub rejected: Vec<Rejected>,
    /// Requests a second, mean latency, 99th percentile.
    pub metrics: Vec<Metric>,
    /// The last run of each arm, as fio had it.
    pub last: [Option<Measured>; 2],
}

impl Outcome {
    pub(super) fn new(options: &Options, arms: [String; 2], facts: Vec<(String, String)>) -> Outcome {
        let load: Load = options.load;
        let power = Power { wanted: options.detect, pairs_needed: 0, minutes: 0.0, pairs: 0 };
        Outcome {
            load: load.words(),
            arms,
            facts,
            seed: options.seed,
            warm_up: 0,
            power,
            blocks: Vec::new(),
            rejected: Vec::new(),
            metrics: Vec::new(),
            last: [None, None],
        }
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
        let [first, second] = self.arms.clone();
        [String::new(), first, second, "ratio".to_owned(), "95 %".to_owned(), "verdict".to_owned()]
    }

    fn table(&self) -> Table {
        let heads = self.heads();
        let mut table = Table::new(heads.iter().map(String::as_str));
        for row in self.rows() {
            table.row(row);
        }
        table
    }

    /// For a terminal.
    pub fn text(&self) -> String {
        format!("{}, {} pairs\n{}{}", self.load, self.blocks.len() * 2, self.table().text(), self.remarks())
    }

    /// For a page.
    pub fn markdown(&self) -> String {
        format!(
            "{}, {} pairs.\n\n{}\n{}",
            self.load,
            self.blocks.len() * 2,
            self.table().markdown(),
            self.remarks()
        )
    }

    fn remarks(&self) -> String {
        let mut text = format!("said before: {}\n", self.power.words());
        for it in &self.rejected {
            text.push_str(&format!("block {} does not count: {}\n", it.block, it.why));
        }
        text
    }

    /// A page with graphs.
    pub fn report(&self) -> Report {
        let [first, second] = &self.arms;
        let mut report = Report::new("Settings compared", &self.load, [first, second]);
        report.facts.clone_from(&self.facts);
        if let [Some(before), Some(after)] = &self.last {
            // Bars show medians of all runs; what else the page shows is of the last run of each arm.
            let median = |run: &Measured, second: bool| {
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
            report.phases.push(Phase {
                name,
                detail,
                before: median(before, false),
                after: median(after, true),
            });
        }
        report.listings.push(Listing {
            title: "Verdict".to_owned(),
            detail: format!(
                "Medians of runs, and the ratio with its interval. Said before: {}.",
                self.power.words()
            ),
            heads: self.heads().to_vec(),
            rows: self.rows().iter().map(|row| row.to_vec()).collect(),
        });
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_compares_arms_in_whichever_order_they_ran() {
        let run = |is_second, iops| Run { is_second, iops, mean_ns: 1.0, p99_ns: 1.0, steal: 0.0, cut: 0 };
        let abba =
            Block { runs: vec![run(false, 100.0), run(true, 220.0), run(true, 180.0), run(false, 100.0)] };
        let baab =
            Block { runs: vec![run(true, 200.0), run(false, 100.0), run(false, 100.0), run(true, 198.0)] };
        let of = |block: &Block| block.log_ratio(|run| run.iops);
        assert!((of(&abba) - of(&baab)).abs() < 1e-9, "{} {}", of(&abba), of(&baab));
        assert!((of(&abba).exp() - 1.99).abs() < 0.01);
    }
}
