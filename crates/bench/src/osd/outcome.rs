//! What came of it.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use crate::facts::Facts;
use crate::rbd::Row;
use crate::rbd::outcome;
use crate::report::{Listing, Phase, Report, Timeline};
use crate::table::Table;
use crate::units;

/// The whole result.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// The machine and the file system.
    pub facts: Facts,
    /// The clusters.
    pub setup: Vec<(String, String)>,
    /// One for each comparison: `native` are bare OSDs, `shipped` OSDs on files, `cached` cached ones.
    pub rows: Vec<Row>,
    /// The middle pair of runs of each load.
    #[serde(skip)]
    pub phases: Vec<Phase>,
    /// From a clean cache to long after it is full.
    pub timeline: Option<Timeline>,
}

impl Outcome {
    const HEADS: [&str; 9] = [
        "figure",
        "load",
        "bare OSDs",
        "OSDs on files",
        "cached OSDs",
        "want",
        "measured",
        "95 %",
        "verdict",
    ];

    /// One line per comparison.
    pub fn table(&self) -> Table {
        outcome::table(Outcome::HEADS, &self.rows)
    }

    /// What the rows are to be read with.
    pub fn notes(&self) -> Vec<String> {
        let noted = self.rows.iter().filter(|row| !row.note.is_empty());
        noted.map(|row| format!("{}: {}", row.what, row.note)).collect()
    }

    /// How many marks were missed.
    pub fn missed(&self) -> usize {
        outcome::missed(&self.rows)
    }

    /// The page.
    pub fn report(&self) -> Report {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_secs());
        let facts = self.facts.lines().into_iter().map(|(name, value)| (name.to_owned(), value));
        Report {
            title: "Loligo: flash caches under OSDs".to_owned(),
            summary: "The same loads on real Ceph clusters whose OSDs stand on modelled disks, bare and behind caches.".to_owned(),
            written: format!("Written {}.", units::utc(now)),
            facts: facts.chain(self.setup.iter().cloned()).collect(),
            sides: ["bare OSDs", "cached OSDs"].map(str::to_owned),
            phases: self.phases.clone(),
            ramp: Vec::new(),
            listings: vec![Listing {
                title: "What was wanted and what was measured".to_owned(),
                detail: "Medians of interleaved rounds and their 95 % intervals.".to_owned(),
                heads: Outcome::HEADS.map(str::to_owned).into(),
                rows: self.rows.iter().map(|row| row.cells().into()).collect(),
            }],
            timeline: self.timeline.clone(),
            checks: Vec::new(),
            commands: self.phases.iter().flat_map(|p| [p.before.command.clone(), p.after.command.clone()]).collect(),
            notes: self.notes(),
        }
    }
}
