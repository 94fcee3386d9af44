//! What was wanted, what was measured, and whether that is enough.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::facts::Facts;
use crate::fio::Measured;
use crate::report::{Listing, Phase, Report};
use crate::stats::{Ratio, median};
use crate::table::Table;
use crate::units;

/// A mark.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Want {
    /// The ratio must not be less.
    AtLeast(f64),
    /// The ratio must not be more.
    AtMost(f64),
    /// Shown for itself.
    Nothing,
}

/// What came of a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The median reaches it.
    Met,
    /// The median does not, but the 95 % interval reaches it.
    Open,
    /// The whole interval lies beyond it.
    Miss,
    /// There was none.
    Shown,
}

impl Verdict {
    /// Of a ratio.
    fn of(want: Want, ratio: &Ratio) -> Verdict {
        let (met, open) = match want {
            Want::AtLeast(mark) => (ratio.value >= mark, ratio.high >= mark),
            Want::AtMost(mark) => (ratio.value <= mark, ratio.low <= mark),
            Want::Nothing => return Verdict::Shown,
        };
        match (met, open) {
            (true, _) => Verdict::Met,
            (false, true) => Verdict::Open,
            (false, false) => Verdict::Miss,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Verdict::Met => "met",
            Verdict::Open => "open",
            Verdict::Miss => "MISS",
            Verdict::Shown => "",
        }
    }
}

/// Medians of one side's runs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Side {
    /// Requests per second.
    pub iops: f64,
    /// Mean latency, nanoseconds.
    pub mean_ns: f64,
    /// 99th percentile, nanoseconds.
    pub p99_ns: f64,
}

impl Side {
    /// Of these runs.
    ///
    /// # Panics
    /// If there are none.
    pub(crate) fn of<'a>(runs: impl IntoIterator<Item = &'a Measured>) -> Side {
        let runs: Vec<&Measured> = runs.into_iter().collect();
        let of = |pick: fn(&Measured) -> f64| median(&runs.iter().map(|run| pick(run)).collect::<Vec<_>>());
        Side {
            iops: of(|run| run.iops),
            mean_ns: of(|run| run.latency.mean_ns),
            p99_ns: of(|run| run.latency.p99_ns as f64),
        }
    }

    fn cell(side: Option<&Side>) -> String {
        side.map_or(String::new(), |side| {
            let [mean, p99] = [side.mean_ns, side.p99_ns].map(units::time);
            format!("{} IOPS, {mean}, p99 {p99}", units::number(side.iops))
        })
    }
}

/// One line of the result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The figure, 1 to 7.
    pub figure: u8,
    /// The load and what is compared.
    pub what: String,
    /// librbd without its cache.
    pub native: Option<Side>,
    /// librbd as it is shipped, one run.
    pub shipped: Option<Side>,
    /// The cached volume.
    pub cached: Option<Side>,
    /// The mark.
    pub want: Want,
    /// What was measured.
    pub ratio: Ratio,
    /// Whether it is enough.
    pub verdict: Verdict,
    /// What else is to be known.
    pub note: String,
}

impl Row {
    /// A comparison without its sides.
    pub(crate) fn new(figure: u8, what: impl Into<String>, want: Want, ratio: Ratio) -> Row {
        let verdict = Verdict::of(want, &ratio);
        let (what, note) = (what.into(), String::new());
        Row { figure, what, native: None, shipped: None, cached: None, want, ratio, verdict, note }
    }

    /// The same row with a remark.
    pub(crate) fn note(mut self, text: impl Into<String>) -> Row {
        self.note = text.into();
        self
    }

    /// Its cells, as [`Outcome::HEADS`] names them.
    pub fn cells(&self) -> [String; 9] {
        let want = match self.want {
            Want::AtLeast(mark) => format!(">= {}", units::times(mark)),
            Want::AtMost(mark) => format!("<= {}", units::times(mark)),
            Want::Nothing => String::new(),
        };
        let [native, shipped, cached] =
            [&self.native, &self.shipped, &self.cached].map(|side| Side::cell(side.as_ref()));
        [
            self.figure.to_string(),
            self.what.clone(),
            native,
            shipped,
            cached,
            want,
            units::times(self.ratio.value),
            self.ratio.interval(),
            self.verdict.word().to_owned(),
        ]
    }
}

/// One line per row, under these heads.
pub(crate) fn table(heads: [&str; 9], rows: &[Row]) -> Table {
    let mut table = Table::new(heads);
    for row in rows {
        table.row(row.cells());
    }
    table
}

/// How many of the rows' marks were missed.
pub(crate) fn missed(rows: &[Row]) -> usize {
    rows.iter().filter(|row| row.verdict == Verdict::Miss).count()
}

/// The whole result.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Outcome {
    /// The machine and the file system.
    pub facts: Facts,
    /// The cluster and the volumes.
    pub setup: Vec<(String, String)>,
    /// One for each comparison.
    pub rows: Vec<Row>,
    /// The pair of runs in the middle of each load.
    #[serde(skip)]
    pub phases: Vec<Phase>,
}

impl Outcome {
    /// The heads of a row's cells.
    pub const HEADS: [&str; 9] = [
        "figure",
        "load",
        "librbd, no cache",
        "librbd as shipped",
        "cached",
        "want",
        "measured",
        "95 %",
        "verdict",
    ];

    /// One line per comparison.
    pub fn table(&self) -> Table {
        table(Outcome::HEADS, &self.rows)
    }

    /// What the rows are to be read with.
    pub fn notes(&self) -> Vec<String> {
        let of = |row: &Row| format!("{}, {}: {}", row.figure, row.what, row.note);
        self.rows.iter().filter(|row| !row.note.is_empty()).map(of).collect()
    }

    /// As a page.
    pub fn report(&self) -> Report {
        let mut facts: Vec<(String, String)> =
            self.facts.lines().into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        facts.extend(self.setup.clone());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let verdicts = Listing {
            title: "What was wanted and what was measured".to_owned(),
            detail: "Medians of interleaved pairs and their 95 % intervals; a mark is missed where the whole interval lies \
                     beyond it."
                .to_owned(),
            heads: ["load", "figure", "want", "measured", "95 %", "verdict", "remark"].map(str::to_owned).into(),
            rows: self
                .rows
                .iter()
                .map(|row| {
                    let [figure, what, .., want, measured, interval, verdict] = row.cells();
                    vec![what, figure, want, measured, interval, verdict, row.note.clone()]
                })
                .collect(),
        };
        Report {
            title: "Loligo: an RBD image through a cache".to_owned(),
            summary: "The same loads on a real Ceph cluster: librbd without its cache, and a cached volume in front of an \
                      image."
                .to_owned(),
            written: format!("Written {}.", units::utc(now)),
            facts,
            sides: ["librbd", "cached"].map(str::to_owned),
            phases: self.phases.clone(),
            ramp: Vec::new(),
            timeline: None,
            listings: vec![verdicts],
            checks: Vec::new(),
            commands: self.phases.iter().flat_map(|p| [p.before.command.clone(), p.after.command.clone()]).collect(),
            notes: vec!["Of each load the pair in the middle is shown here; the medians are below.".to_owned()],
        }
    }

    /// How many marks were missed.
    pub fn missed(&self) -> usize {
        missed(&self.rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_missed_only_where_the_whole_interval_lies_beyond_it() {
        let ratio = Ratio { value: 3.8, low: 3.5, high: 4.1, pairs: 5 };
        assert_eq!(Verdict::of(Want::AtLeast(3.7), &ratio), Verdict::Met);
        assert_eq!(Verdict::of(Want::AtLeast(4.0), &ratio), Verdict::Open);
        assert_eq!(Verdict::of(Want::AtLeast(4.2), &ratio), Verdict::Miss);
        assert_eq!(Verdict::of(Want::AtMost(3.8), &ratio), Verdict::Met);
        assert_eq!(Verdict::of(Want::AtMost(3.6), &ratio), Verdict::Open);
        assert_eq!(Verdict::of(Want::AtMost(3.0), &ratio), Verdict::Miss);
        assert_eq!(Verdict::of(Want::Nothing, &ratio), Verdict::Shown);
    }

    #[test]
    fn a_miss_is_printed_as_one() {
        let ratio = Ratio { value: 0.5, low: 0.4, high: 0.6, pairs: 5 };
        let row = Row::new(5, "4K random write qd1", Want::AtLeast(1.0), ratio).note("why");
        let facts = Facts::of(std::path::Path::new("/"));
        let outcome = Outcome { facts, setup: Vec::new(), rows: vec![row], phases: Vec::new() };
        assert_eq!(outcome.missed(), 1);
        let text = outcome.table().markdown();
        assert!(text.contains(">= 1.00x | 0.50x | 0.40-0.60 | MISS"), "{text}");
        assert_eq!(outcome.notes(), ["5, 4K random write qd1: why"]);
    }
}
