//! What was found: all runs, and the table of the worst of each row.

use super::options::Options;
use super::record::Run;
use super::rows::{Limit, Operations, Phase, Row, VOLUME};
use crate::facts::Facts;
use crate::table::Table;
use serde::Serialize;
use serde_json::{Value, json};
use std::time::Duration;

/// The check of a store after a row.
#[derive(Debug, Clone, Serialize)]
pub struct Fsck {
    /// The row.
    pub row: Row,
    /// The OSD.
    pub osd: u32,
    /// The last line of `ceph-bluestore-tool fsck --deep 1`.
    pub said: String,
}

impl Fsck {
    fn is_clean(&self) -> bool {
        self.said.ends_with("success")
    }
}

/// The outcome.
#[derive(Debug, Serialize)]
pub struct Outcome {
    /// The arguments.
    pub arguments: Value,
    /// The seed that all choices come from.
    pub seed: u64,
    /// Versions of Ceph and of this program.
    pub versions: [String; 2],
    /// The machine.
    pub machine: Facts,
    /// Load averages at the beginning.
    pub load_average: [f64; 3],
    /// All runs.
    pub runs: Vec<Run>,
    /// Checks of stores.
    pub fsck: Vec<Fsck>,
    /// The rows, as the table has them.
    pub rows: Vec<RowSummary>,
    #[serde(skip)]
    freeze: Duration,
}

/// A limit, and the worst that was seen.
#[derive(Debug, Clone, Serialize)]
pub struct Verdict {
    /// The limit.
    #[serde(flatten)]
    pub limit: Limit,
    /// Seconds; nothing: it was not measured.
    pub worst: Option<f64>,
    /// True if the worst is within the limit.
    pub met: bool,
}

/// A row of the table.
#[derive(Debug, Clone, Serialize)]
pub struct RowSummary {
    /// The row.
    pub row: Row,
    /// Runs that were played to their end.
    pub runs: usize,
    /// The limits.
    pub verdicts: Vec<Verdict>,
    /// Other expectations that were not met.
    pub unexpected: Vec<String>,
    /// True if all is as expected.
    pub met: bool,
}

impl Outcome {
    /// Without a run yet.
    pub(crate) fn new(options: &Options, seed: u64, machine: Facts, load_average: [f64; 3]) -> Outcome {
        let rows: Vec<String> = options.rows().into_iter().map(Row::name).collect();
        let said = std::process::Command::new("ceph-osd").arg("--version").output();
        let ceph = said.map(|out| String::from_utf8_lossy(&out.stdout).trim().to_owned()).unwrap_or_default();
        Outcome {
            arguments: json!({
                "rows": rows,
                "runs": options.runs,
                "pairs": options.pairs,
                "mons": options.mons,
                "rate": options.rate,
                "volumes": options.volumes,
                "freeze_seconds": options.freeze.as_secs(),
                "fsck": options.fsck,
                "osd_cache": options.osd_cache,
                "set": options.set,
            }),
            seed,
            versions: [ceph, format!("loligo {}", env!("CARGO_PKG_VERSION"))],
            machine,
            load_average,
            runs: Vec::new(),
            fsck: Vec::new(),
            rows: Vec::new(),
            freeze: options.freeze,
        }
    }

    /// Draws the rows up.
    pub(crate) fn sum_up(&mut self) {
        let mut rows: Vec<Row> = Vec::new();
        for run in &self.runs {
            if !rows.contains(&run.row) {
                rows.push(run.row);
            }
        }
        self.rows = rows.into_iter().map(|row| self.summary(row)).collect();
    }

    fn of(&self, row: Row) -> impl Iterator<Item = &Run> {
        self.runs.iter().filter(move |run| run.row == row)
    }

    fn summary(&self, row: Row) -> RowSummary {
        let plan = row.plan(self.freeze);
        let has = |pool: &str| self.of(row).any(|run| run.worst.iter().any(|worst| worst.pool == pool));
        let limits = row.limits().into_iter().filter(|limit| has(limit.pool));
        let verdicts: Vec<Verdict> = limits
            .map(|limit| {
                let all = self.of(row).filter_map(|run| run.longest_of(&limit));
                let worst = all.reduce(f64::max);
                Verdict { limit, worst, met: worst.is_some_and(|worst| worst <= limit.seconds) }
            })
            .collect();
        let mut unexpected = Vec::new();
        for run in self.of(row) {
            let mut say =
                |what: String| unexpected.push(format!("run {} on {}: {what}", run.number, run.target));
            if let Some(why) = &run.failed {
                say(format!("not played to its end: {why}"));
                continue;
            }
            if run.takeovers != plan.takeovers {
                say(format!("{} takeovers, not {}", run.takeovers, plan.takeovers));
            }
            if run.outs != plan.outs {
                say(format!("{} OSDs marked out, not {}", run.outs, plan.outs));
            }
            if plan.rejects && run.rejected == 0 {
                say("no write was rejected: the fence was not tried".to_owned());
            }
            let (on_pools, on_volume) = run.failed_operations();
            let errors = on_pools + if plan.errors { 0 } else { on_volume };
            if errors > 0 {
                say(format!("{errors} operations failed ({})", run.client_errors.join("; ")));
            }
            if plan.errors && on_volume == 0 {
                say("no operation on the volume failed: the fault was not met".to_owned());
            }
            if run.is_harmed() {
                say("DATA WAS LOST OR READ WRONG, OR A FENCE DID NOT HOLD".to_owned());
            }
        }
        for fsck in self.fsck.iter().filter(|fsck| fsck.row == row && !fsck.is_clean()) {
            unexpected.push(format!("fsck of osd.{}: {}", fsck.osd, fsck.said));
        }
        let met = unexpected.is_empty() && verdicts.iter().all(|verdict| verdict.met);
        let runs = self.of(row).filter(|run| run.failed.is_none()).count();
        RowSummary { row, runs, verdicts, unexpected, met }
    }

    /// True if a run lost data, read it wrong, had a late write land or was not played to its end, or a store is damaged.
    pub fn has_failed(&self) -> bool {
        let is_bad = |run: &Run| run.is_harmed() || run.failed.is_some();
        self.runs.iter().any(is_bad) || self.fsck.iter().any(|fsck| !fsck.is_clean())
    }

    /// The worst of each row.
    pub fn table(&self) -> Table {
        let mut table = Table::new([
            "row",
            "runs",
            "r3 read",
            "r3 write",
            "r2 read",
            "r2 write",
            "volume read",
            "volume write",
            "giveback r3",
            "giveback r2",
            "giveback volume",
            "errors",
            "lost",
            "stale",
            "rejected",
            "landed",
            "takeovers",
            "outs",
            "fsck",
            "load",
            "target",
        ]);
        for summary in &self.rows {
            let row = summary.row;
            let most = |of: &dyn Fn(&Run) -> Option<f64>| {
                self.of(row)
                    .filter_map(of)
                    .reduce(f64::max)
                    .map_or_else(|| "-".to_owned(), |s| format!("{s:.2}"))
            };
            let kind = |pool: &'static str, write: bool| {
                most(&|run: &Run| {
                    let of = run.worst.iter().find(|w| w.pool == pool && w.phase == Phase::Fault)?;
                    Some(if write { of.write } else { of.read })
                })
            };
            let back = |pool: &'static str| most(&|run: &Run| run.longest(pool, Phase::Giveback));
            let sum = |of: &dyn Fn(&Run) -> u64| self.of(row).map(of).sum::<u64>().to_string();
            let clean = self.fsck.iter().filter(|f| f.row == row).map(Fsck::is_clean);
            let fsck = clean.reduce(|a, b| a && b).map_or("-", |clean| if clean { "clean" } else { "BAD" });
            table.row([
                row.name(),
                format!("{}/{}", summary.runs, self.of(row).count()),
                kind("r3", false),
                kind("r3", true),
                kind("r2", false),
                kind("r2", true),
                kind(VOLUME, false),
                kind(VOLUME, true),
                back("r3"),
                back("r2"),
                back(VOLUME),
                sum(&|run| run.sum(|c| c.errors + c.stuck)),
                sum(&|run| run.sum(|c| c.lost)),
                sum(&|run| run.sum(|c| c.stale + c.wrong)),
                sum(&|run| run.rejected),
                sum(&|run| run.landed),
                sum(&|run| u64::from(run.takeovers)),
                sum(&|run| u64::from(run.outs)),
                fsck.to_owned(),
                most(&|run: &Run| Some(run.load_average[0])),
                target(summary),
            ]);
        }
        table
    }

    /// Where the time of each run goes, seconds after the fault.
    pub fn times(&self) -> Table {
        let head = [
            "run",
            "detected",
            "fenced",
            "down",
            "started",
            "up",
            "given back",
            "before",
            "load",
            "load after",
        ];
        let mut table = Table::new(head);
        for run in &self.runs {
            let cell = |at: Option<f64>| at.map_or_else(|| "-".to_owned(), |at| format!("{at:.2}"));
            let times = run.times;
            let all = [times.detected, times.fenced, times.down, times.started, times.up, run.given_back];
            let mut cells = vec![format!("{} {} {}", run.row.name(), run.number, run.target)];
            cells.extend(all.map(cell));
            cells.push(format!("{:.3}", run.before));
            cells.extend([run.load_average[0], run.load_average_after[0]].map(|load| format!("{load:.1}")));
            table.row(cells);
        }
        table
    }

    /// Lines to read the table with.
    pub fn notes(&self) -> Vec<String> {
        let m = &self.machine;
        let ram = crate::units::bytes(m.ram_bytes as f64);
        let mut lines = vec![
            "seconds of the longest operation of all runs, from the fault until units are given back; \
             'giveback': from that order on"
                .to_owned(),
            format!("machine: {} ({} cores), {ram}, kernel {}, {}", m.cpu, m.cores, m.kernel, m.file_system),
            format!("versions: {}; {}", self.versions[0], self.versions[1]),
            format!("arguments: {}; seed {}", self.arguments, self.seed),
            format!("load averages at the beginning: {:?}", self.load_average),
        ];
        for row in &self.rows {
            lines.extend(row.unexpected.iter().map(|what| format!("{}: {what}", row.row.name())));
        }
        lines
    }

    /// As a page in Markdown.
    pub fn markdown(&self) -> String {
        let notes: String = self.notes().iter().map(|line| format!("* {line}\n")).collect();
        format!("{}\n{}\n{notes}", self.table().markdown(), self.times().markdown())
    }
}

fn target(summary: &RowSummary) -> String {
    let each = summary.verdicts.iter().map(|verdict| {
        let word = if verdict.met { "met" } else { "MISSED" };
        let phase = if verdict.limit.phase == Phase::Giveback { " giveback" } else { "" };
        let writes = if verdict.limit.operations == Operations::Writes { " writes" } else { "" };
        format!("{}{writes}{phase} <= {} {word}", verdict.limit.pool, verdict.limit.seconds)
    });
    let mut words: Vec<String> = each.collect();
    if !summary.unexpected.is_empty() {
        words.push("UNEXPECTED".to_owned());
    }
    if words.is_empty() { "as expected".to_owned() } else { words.join(", ") }
}
