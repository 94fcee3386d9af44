//! A run as it is written down.

use super::ledger::Counts;
use super::map::MapChange;
use super::rows::{Limit, Operations, Phase, Row, VOLUME};
use loligo_agent::status::HistoryEntry;
use loligo_pair::machine::{Notice, RoleName};
use serde::Serialize;

/// The longest operations of a pool in a phase, seconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Worst {
    /// The pool, or `volume`.
    pub pool: String,
    /// The phase.
    pub phase: Phase,
    /// The longest read.
    pub read: f64,
    /// The longest write.
    pub write: f64,
}

/// Something that an agent wrote into its history, seconds after the fault.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Noted {
    /// The controller.
    pub controller: String,
    /// Seconds after the fault.
    pub at: f64,
    /// What.
    pub notice: Notice,
}

/// A change of the map, seconds after the fault.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Mapped {
    /// Seconds after the fault.
    pub at: f64,
    /// What.
    #[serde(flatten)]
    pub change: MapChange,
}

/// The places where the time goes, seconds after the fault; nothing: it did not happen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Times {
    /// The partner raced: all evidence was there.
    pub detected: Option<f64>,
    /// The quorum LUN was won and read back.
    pub fenced: Option<f64>,
    /// The map had the victim's OSD down.
    pub down: Option<f64>,
    /// The process of the OSD had opened its store on the partner.
    pub started: Option<f64>,
    /// The map had it up.
    pub up: Option<f64>,
}

/// A run of a row.
#[derive(Debug, Clone, Serialize)]
pub struct Run {
    /// The row.
    pub row: Row,
    /// Its number, from 0.
    pub number: u32,
    /// The object of the fault.
    pub target: String,
    /// The client's seed.
    pub seed: u64,
    /// Load averages of the machine before it: 1, 5 and 15 minutes.
    pub load_average: [f64; 3],
    /// The same at its end.
    pub load_average_after: [f64; 3],
    /// When the fault began, milliseconds since 1970.
    pub fault_ms: u64,
    /// When the units were given back, seconds after the fault.
    pub given_back: Option<f64>,
    /// The longest operations. `before`: in the seconds before the fault, of both kinds.
    pub worst: Vec<Worst>,
    /// The longest operation in the seconds before the fault.
    pub before: f64,
    /// By pool, and the volume last.
    pub counts: Vec<Counts>,
    /// Words of the first errors of the client.
    pub client_errors: Vec<String>,
    /// Writes that the arrays rejected in the run.
    pub rejected: u64,
    /// Writes that landed after the fence.
    pub landed: u64,
    /// True if the array refused a write that was made by the victim's path after the takeover; nothing: none was made.
    pub late_write_refused: Option<bool>,
    /// Takeovers, of any pair.
    pub takeovers: u32,
    /// OSDs that were marked out.
    pub outs: u32,
    /// Where the time goes.
    pub times: Times,
    /// Changes of roles, alarms and steps.
    pub history: Vec<Noted>,
    /// Changes of the map of OSDs.
    pub map: Vec<Mapped>,
    /// The reason why the run could not be played to its end.
    pub failed: Option<String>,
}

impl Run {
    /// Before anything has happened.
    pub(crate) fn new(row: Row, number: u32, target: String, seed: u64) -> Run {
        Run {
            row,
            number,
            target,
            seed,
            load_average: load_average(),
            load_average_after: [0.0; 3],
            fault_ms: 0,
            given_back: None,
            worst: Vec::new(),
            before: 0.0,
            counts: Vec::new(),
            client_errors: Vec::new(),
            rejected: 0,
            landed: 0,
            late_write_refused: None,
            takeovers: 0,
            outs: 0,
            times: Times::default(),
            history: Vec::new(),
            map: Vec::new(),
            failed: None,
        }
    }

    fn worst(&self, pool: &str, phase: Phase) -> Option<&Worst> {
        self.worst.iter().find(|worst| worst.pool == pool && worst.phase == phase)
    }

    /// The longest operation of a pool in a phase.
    pub(crate) fn longest(&self, pool: &str, phase: Phase) -> Option<f64> {
        self.worst(pool, phase).map(|of| of.read.max(of.write))
    }

    /// The longest operation that a limit is about.
    pub(crate) fn longest_of(&self, limit: &Limit) -> Option<f64> {
        match limit.operations {
            Operations::All => self.longest(limit.pool, limit.phase),
            Operations::Writes => self.worst(limit.pool, limit.phase).map(|of| of.write),
        }
    }

    /// Operations that failed or did not end: on the pools, and on the volume.
    pub(crate) fn failed_operations(&self) -> (u64, u64) {
        let has_volume = self.worst.iter().any(|worst| worst.pool == VOLUME);
        let (pools, volume) = self.counts.split_at(self.counts.len() - usize::from(has_volume));
        let sum = |counts: &[Counts]| counts.iter().map(|c| c.errors + c.stuck).sum();
        (sum(pools), sum(volume))
    }

    /// A sum over the pools.
    pub(crate) fn sum(&self, of: impl Fn(&Counts) -> u64) -> u64 {
        self.counts.iter().map(of).sum()
    }

    /// True if data was lost or read wrong, or a fence did not hold.
    pub(crate) fn is_harmed(&self) -> bool {
        let has_landed = self.landed > 0 || self.late_write_refused == Some(false);
        has_landed || self.sum(|c| c.lost + c.stale + c.wrong) > 0
    }

    fn since(&self, at_ms: u64) -> f64 {
        (at_ms as f64 - self.fault_ms as f64) / 1e3
    }

    /// Takes in what agents wrote since `from`, milliseconds since 1970.
    pub(crate) fn take_history(&mut self, all: Vec<(String, Vec<HistoryEntry>)>, from: u64) {
        let mut noted: Vec<Noted> = Vec::new();
        for (controller, entries) in all {
            let new = entries.into_iter().filter(|entry| entry.at_ms >= from);
            noted.extend(new.map(|entry| Noted {
                controller: controller.clone(),
                at: self.since(entry.at_ms),
                notice: entry.notice,
            }));
        }
        noted.sort_by(|a, b| a.at.total_cmp(&b.at));
        let becomes = |noted: &Noted, role: RoleName| {
            matches!(&noted.notice, Notice::Role { to, from, .. } if *to == role && *from == RoleName::Race)
                || matches!(&noted.notice, Notice::Role { to, .. } if *to == role && role == RoleName::Race)
        };
        let first = |role| noted.iter().find(|noted| becomes(noted, role)).map(|noted| noted.at);
        self.times.detected = first(RoleName::Race);
        self.times.fenced = first(RoleName::Dual);
        self.takeovers = noted.iter().filter(|noted| becomes(noted, RoleName::Dual)).count() as u32;
        self.history = noted;
    }

    /// Takes in the changes of the map, and when the OSDs `of` the fault went and came.
    pub(crate) fn take_map(&mut self, changes: Vec<MapChange>, of: &[u32]) {
        let map: Vec<Mapped> =
            changes.into_iter().map(|change| Mapped { at: self.since(change.at_ms), change }).collect();
        let first = |what: &str| {
            let is_it =
                |m: &&Mapped| m.change.what == what && m.at >= -1.0 && of.contains(&(m.change.osd as u32));
            map.iter().find(is_it).map(|m| m.at)
        };
        self.times.down = first("down");
        self.times.up = first("up");
        self.outs = map.iter().filter(|m| m.change.what == "out").count() as u32;
        let names: Vec<String> = of.iter().map(|osd| format!("osd.{osd} runs here")).collect();
        let started = self.history.iter().find(|noted| match &noted.notice {
            Notice::Step(text) => noted.at >= 0.0 && names.contains(text),
            _ => false,
        });
        self.times.started = started.map(|noted| noted.at);
        self.map = map;
    }
}

/// The load averages of 1, 5 and 15 minutes.
pub(crate) fn load_average() -> [f64; 3] {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let mut words = text.split(' ').map(|word| word.parse().unwrap_or(0.0));
    std::array::from_fn(|_| words.next().unwrap_or(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(at_ms: u64, from: RoleName, to: RoleName) -> HistoryEntry {
        HistoryEntry { at_ms, notice: Notice::Role { from, to, why: String::new() } }
    }

    #[test]
    fn a_takeover_is_counted_once_and_timed_from_the_fault() {
        let mut run = Run::new(Row::Controller, 0, "n0a".to_owned(), 1);
        run.fault_ms = 10_000;
        let old = role(2000, RoleName::Race, RoleName::Dual);
        let b = vec![
            old,
            role(11_200, RoleName::Normal, RoleName::Race),
            role(11_250, RoleName::Race, RoleName::Dual),
            HistoryEntry { at_ms: 12_500, notice: Notice::Step("osd.0 runs here".to_owned()) },
            role(30_000, RoleName::Dual, RoleName::Giveback),
        ];
        let restarted = vec![role(25_000, RoleName::Starting, RoleName::Dual)];
        run.take_history(vec![("n0b".to_owned(), b), ("n1b".to_owned(), restarted)], 9000);
        let change = |at_ms, what| MapChange { at_ms, epoch: 1, osd: 0, what };
        run.take_map(vec![change(12_000, "down"), change(13_000, "up"), change(14_000, "down")], &[0]);
        assert_eq!(run.takeovers, 1);
        let times = Times {
            detected: Some(1.2),
            fenced: Some(1.25),
            down: Some(2.0),
            started: Some(2.5),
            up: Some(3.0),
        };
        assert_eq!(run.times, times);
    }

    #[test]
    fn one_late_write_or_lost_block_is_harm() {
        let mut run = Run::new(Row::Nic, 0, "n0a".to_owned(), 1);
        run.counts = vec![Counts { errors: 3, ..Counts::default() }, Counts::default()];
        assert!(!run.is_harmed());
        run.counts[1].lost = 1;
        assert!(run.is_harmed());
        run.counts[1].lost = 0;
        run.landed = 1;
        assert!(run.is_harmed());
    }
}
