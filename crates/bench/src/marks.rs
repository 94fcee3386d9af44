//! Marks: the wanted figure, the measured one, and whether that is enough.

use std::cell::Cell;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::facts::Facts;
use crate::fio::Measured;
use crate::report::{Listing, Phase, Report, Timeline};
use crate::stats::{Ratio, median_of};
use crate::table::Table;
use crate::units;

/// A mark.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Want {
    /// The ratio must not be less.
    AtLeast(f64),
    /// The ratio must not be more.
    AtMost(f64),
    /// Shown for itself.
    Nothing,
}

/// The verdict on a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
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
    pub(crate) fn of(want: Want, ratio: &Ratio) -> Verdict {
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

    pub(crate) fn word(self) -> &'static str {
        match self {
            Verdict::Met => "met",
            Verdict::Open => "open",
            Verdict::Miss => "MISS",
            Verdict::Shown => "",
        }
    }
}

/// Medians of one side's runs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
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
        Side {
            iops: median_of(&runs, |run| run.iops),
            mean_ns: median_of(&runs, |run| run.latency.mean_ns),
            p99_ns: median_of(&runs, |run| run.latency.p99_ns as f64),
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
#[derive(Debug, Clone, PartialEq, Serialize)]
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
    /// The figures.
    pub ratio: Ratio,
    /// True if it is enough.
    pub verdict: Verdict,
    /// A remark.
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

    /// Its cells, as the heads of [`Outcome::table`] name them.
    pub fn cells(&self) -> [String; 9] {
        let want = match self.want {
            Want::AtLeast(mark) => format!(">= {}", units::times(mark)),
            Want::AtMost(mark) => format!("<= {}", units::times(mark)),
            Want::Nothing => String::new(),
        };
        let [native, shipped, cached] =
            [&self.native, &self.shipped, &self.cached].map(|side| Side::cell(side.as_ref()));
        let [measured, interval] = self.ratio.cells();
        let (figure, what, verdict) =
            (self.figure.to_string(), self.what.clone(), self.verdict.word().to_owned());
        [figure, what, native, shipped, cached, want, measured, interval, verdict]
    }
}

/// The figures of a run so far, and its words about them.
pub(crate) struct Record {
    begun: Instant,
    seed: Cell<u64>,
    rows: Vec<Row>,
    phases: Vec<Phase>,
    /// The course of the load that fills a cache.
    pub(crate) timeline: Option<Timeline>,
}

impl Record {
    /// Of a run that begins.
    pub(crate) fn new() -> Record {
        let (rows, phases) = (Vec::new(), Vec::new());
        Record { begun: Instant::now(), seed: Cell::new(0), rows, phases, timeline: None }
    }

    /// The time for which it has been running.
    pub(crate) fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// A line of progress.
    pub(crate) fn say(&self, text: &str) {
        loligo_log::say!("[{:5.0} s] {text}", self.begun.elapsed().as_secs_f64());
    }

    /// Says what a run measured.
    pub(crate) fn tell(&self, what: &str, side: &str, round: usize, run: &Measured) {
        let [mean, p99] = [run.latency.mean_ns, run.latency.p99_ns as f64].map(units::time);
        let iops = units::number(run.iops);
        self.say(&format!(
            "{what:26} {side:17} round {}  {iops:>8} IOPS  mean {mean:>8}  p99 {p99:>8}",
            round + 1
        ));
    }

    /// Addresses that no load had before: what was read just now is in some cache.
    pub(crate) fn seed(&self) -> u64 {
        self.seed.set(self.seed.get() + 1);
        self.seed.get()
    }

    /// Keeps the pair in the middle of a load's runs, without the cache and with it.
    pub(crate) fn keep<'a>(
        &mut self,
        name: &str,
        detail: &str,
        pairs: impl Iterator<Item = (&'a Measured, &'a Measured)>,
    ) {
        let mut pairs: Vec<(&Measured, &Measured)> = pairs.collect();
        pairs.sort_by(|a, b| (a.1.iops / a.0.iops).total_cmp(&(b.1.iops / b.0.iops)));
        if let Some((before, after)) = pairs.get(pairs.len() / 2) {
            let (before, after) = ((*before).clone(), (*after).clone());
            self.phases.push(Phase { name: name.to_owned(), detail: detail.to_owned(), before, after });
        }
    }

    /// Notes a comparison, and shows it.
    pub(crate) fn push(&mut self, row: Row) {
        let [figure, what, .., want, measured, interval, verdict] = row.cells();
        self.say(&format!("=> figure {figure}: {what}: {measured} ({interval}) {want} {verdict}"));
        self.rows.push(row);
    }

    /// All of it, on a machine and clusters that are `facts` and `setup`.
    pub(crate) fn outcome(
        &mut self,
        words: &'static Words,
        facts: Facts,
        setup: Vec<(String, String)>,
    ) -> Outcome {
        let (rows, phases) = (std::mem::take(&mut self.rows), std::mem::take(&mut self.phases));
        Outcome { facts, setup, rows, phases, timeline: self.timeline.take(), words }
    }
}

/// The names of an experiment and of its sides.
#[derive(Debug)]
pub(crate) struct Words {
    pub(crate) title: &'static str,
    pub(crate) summary: &'static str,
    /// The heads of [`Row::native`], [`Row::shipped`] and [`Row::cached`].
    pub(crate) heads: [&'static str; 3],
    /// The sides of a phase.
    pub(crate) sides: [&'static str; 2],
}

/// The whole result.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// The machine and the file system.
    pub facts: Facts,
    /// The clusters and the volumes.
    pub setup: Vec<(String, String)>,
    /// One for each comparison.
    pub rows: Vec<Row>,
    /// The pair of runs in the middle of each load.
    #[serde(skip)]
    phases: Vec<Phase>,
    /// From a clean cache to long after it is full, where that was looked at.
    pub timeline: Option<Timeline>,
    #[serde(skip)]
    words: &'static Words,
}

impl Outcome {
    fn heads(&self) -> [&'static str; 9] {
        let [native, shipped, cached] = self.words.heads;
        ["figure", "load", native, shipped, cached, "want", "measured", "95 %", "verdict"]
    }

    /// One line per comparison.
    pub fn table(&self) -> Table {
        Table::of(self.heads(), &self.rows, Row::cells)
    }

    /// Remarks on how to read the rows.
    pub fn notes(&self) -> Vec<String> {
        let of = |row: &Row| format!("{}, {}: {}", row.figure, row.what, row.note);
        self.rows.iter().filter(|row| !row.note.is_empty()).map(of).collect()
    }

    /// As a page.
    pub fn report(&self) -> Report {
        let cells = |row: &Row| row.cells().into_iter().chain([row.note.clone()]).collect();
        let verdicts = Listing {
            title: "What was wanted and what was measured".to_owned(),
            detail: "Medians of interleaved rounds and their 95 % intervals; a mark is missed where the whole interval \
                     lies beyond it."
                .to_owned(),
            heads: self.heads().into_iter().chain(["remark"]).map(str::to_owned).collect(),
            rows: self.rows.iter().map(cells).collect(),
        };
        Report {
            facts: self.facts.with(self.setup.clone()),
            phases: self.phases.clone(),
            timeline: self.timeline.clone(),
            listings: vec![verdicts],
            commands: Phase::commands(&self.phases),
            notes: vec![
                "Of each load the pair in the middle is shown here; the medians are below.".to_owned(),
            ],
            ..Report::new(self.words.title, self.words.summary, self.words.sides)
        }
    }

    /// The number of marks that were missed.
    pub fn missed(&self) -> usize {
        self.rows.iter().filter(|row| row.verdict == Verdict::Miss).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_missed_where_the_whole_interval_lies_beyond_it() {
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
        static WORDS: Words = Words { title: "", summary: "", heads: [""; 3], sides: [""; 2] };
        let mut record = Record::new();
        record.push(row);
        let outcome = record.outcome(&WORDS, Facts::of(std::path::Path::new("/")), Vec::new());
        assert_eq!(outcome.missed(), 1);
        let text = outcome.table().markdown();
        assert!(text.contains(">= 1.00x | 0.50x | 0.40-0.60 | MISS"), "{text}");
        assert_eq!(outcome.notes(), ["5, 4K random write qd1: why"]);
    }
}
