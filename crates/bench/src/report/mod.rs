//! The report: one HTML file that holds everything, opens without a network and needs no script.

mod bars;
mod canvas;
mod gains;
mod percentiles;
mod ramp;
mod timeline;

use std::io::Write;
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use askama::Template;
use serde::{Deserialize, Serialize};

use crate::fio::{Measured, Second};
use crate::units;

/// One kind of load, driven against both sides.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Phase {
    /// Short name, e.g. `4K random write`.
    pub name: String,
    /// Depth, range and length in words.
    pub detail: String,
    /// Without the cache.
    pub before: Measured,
    /// With it.
    pub after: Measured,
}

impl Phase {
    /// IOPS with the cache over IOPS without.
    pub fn ratio(&self) -> f64 {
        self.after.iops / self.before.iops
    }

    /// The commands of all of them, in order.
    pub(crate) fn commands(phases: &[Phase]) -> Vec<String> {
        phases.iter().flat_map(|phase| [&phase.before, &phase.after]).map(|run| run.command.clone()).collect()
    }

    /// The row of the before/after table: name, IOPS, mean and 99th percentile of both sides, ratio.
    pub fn cells(&self) -> [String; 8] {
        let [before, after] = [&self.before, &self.after];
        [
            self.name.clone(),
            units::number(before.iops),
            units::number(after.iops),
            units::times(self.ratio()),
            units::time(before.latency.mean_ns),
            units::time(after.latency.mean_ns),
            units::time(before.latency.p99_ns as f64),
            units::time(after.latency.p99_ns as f64),
        ]
    }

    /// The heads of those columns, for sides of these names.
    pub fn heads([before, after]: [&str; 2]) -> [String; 8] {
        [
            "phase".to_owned(),
            format!("IOPS {before}"),
            format!("IOPS {after}"),
            "ratio".to_owned(),
            format!("mean {before}"),
            format!("mean {after}"),
            format!("p99 {before}"),
            format!("p99 {after}"),
        ]
    }
}

/// A table of its own.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Listing {
    /// Its heading.
    pub title: String,
    /// Its content, in a sentence.
    pub detail: String,
    /// Column heads.
    pub heads: Vec<String>,
    /// Rows; the first column is text.
    pub rows: Vec<Vec<String>>,
}

/// The course of one phase, second by second.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Timeline {
    /// The load.
    pub name: String,
    /// Without the cache.
    pub before: Vec<Second>,
    /// With it.
    pub after: Vec<Second>,
    /// Seconds since the start of the cached side's load, and the dirty share of the cache (0..=1).
    pub dirty: Vec<(f64, f64)>,
}

/// One round of reads while the cache takes in what is read.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Round {
    /// Share of reads that the cache answered, 0..=1.
    pub hits: f64,
    /// The figures.
    pub run: Measured,
}

/// A setting that was added to those before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Gain {
    /// Its name.
    pub name: String,
    /// Requests a second with it and all before.
    pub iops: f64,
    /// Those over the requests a second without any.
    pub total: f64,
}

/// One thing that was checked.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Check {
    /// The two sides of the comparison.
    pub what: String,
    /// Bytes checked.
    pub bytes: u64,
    /// True if every byte was right; the run fails where not.
    pub passed: bool,
}

impl Check {
    /// The bytes checked, as people read them.
    fn size(&self) -> String {
        units::bytes(self.bytes as f64)
    }
}

/// Everything a report shows.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Report {
    /// Heading.
    pub title: String,
    /// One sentence on what was compared.
    pub summary: String,
    /// The time at which it was written.
    pub written: String,
    /// Facts about the machine and the setup, name and value.
    pub facts: Vec<(String, String)>,
    /// Names of the sides of each phase: without the cache, with it.
    pub sides: [String; 2],
    /// The phases in the order in which they ran.
    pub phases: Vec<Phase>,
    /// Rounds while the cache took in what was read; empty where that was not looked at.
    pub ramp: Vec<Round>,
    /// Settings that were added one by one; empty where all were compared at once.
    pub gains: Vec<Gain>,
    /// Other tables.
    pub listings: Vec<Listing>,
    /// The course of the phase that fills the cache.
    pub timeline: Option<Timeline>,
    /// The checks.
    pub checks: Vec<Check>,
    /// Every command that ran, as typed.
    pub commands: Vec<String>,
    /// Remarks on how to read the figures.
    pub notes: Vec<String>,
}

#[derive(Template)]
#[template(path = "report.html")]
struct Page<'a> {
    report: &'a Report,
    timeline: Option<String>,
    ramp: Option<String>,
    gains: Option<String>,
    bars: String,
    percentiles: Vec<String>,
    all_passed: bool,
}

impl Report {
    /// One of this moment that shows nothing yet.
    pub(crate) fn new(title: &str, summary: &str, sides: [&str; 2]) -> Report {
        Report {
            title: title.to_owned(),
            summary: summary.to_owned(),
            written: format!("Written {}.", units::utc(SystemTime::now())),
            sides: sides.map(str::to_owned),
            ..Report::default()
        }
    }

    /// The same, after a run of this length.
    pub(crate) fn after(mut self, took: Duration) -> Report {
        self.written = format!("{} after a run of {} s.", self.written.trim_end_matches('.'), took.as_secs());
        self
    }

    /// The page.
    pub fn html(&self) -> Result<String> {
        let page = Page {
            report: self,
            timeline: self.timeline.as_ref().map(timeline::draw).transpose()?,
            ramp: (!self.ramp.is_empty()).then(|| ramp::draw(&self.ramp)).transpose()?,
            gains: (!self.gains.is_empty()).then(|| gains::draw(&self.gains)).transpose()?,
            bars: bars::draw(&self.phases)?,
            percentiles: self.phases.iter().map(percentiles::draw).collect::<Result<_>>()?,
            all_passed: self.checks.iter().all(|check| check.passed),
        };
        page.render().context("the report's template")
    }

    /// Writes the page to `path`; an interrupted write leaves nothing or the old file.
    pub fn write(&self, path: &Path) -> Result<()> {
        let html = self.html()?;
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let make = || -> std::io::Result<()> {
            let mut file = tempfile::NamedTempFile::new_in(dir)?;
            file.write_all(html.as_bytes())?;
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
            file.as_file().set_permissions(mode)?;
            file.persist(path)?;
            Ok(())
        };
        make().with_context(|| {
            format!("writing the report {}: choose a folder you can write to", path.display())
        })
    }
}
