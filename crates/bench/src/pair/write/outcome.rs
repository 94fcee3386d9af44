//! What was measured: all runs, and the table.

use super::field::Counted;
use super::options::Options;
use super::point::{Arms, Number, Point};
use crate::facts::Facts;
use crate::fio::Measured;
use crate::marks::{Verdict, Want};
use crate::stats::{Ratio, median_of, ratio};
use crate::table::Table;
use crate::units;
use serde::Serialize;
use serde_json::{Value, json};

/// A run of a mirrored volume, and what it counted meanwhile.
#[derive(Debug, Clone, Serialize)]
pub struct Mirrored {
    /// Fast ack with a mirror.
    pub run: Measured,
    /// The volume's own counts.
    pub counted: Counted,
}

/// One run of each arm.
#[derive(Debug, Clone, Serialize)]
pub struct Run {
    /// librbd without its cache.
    pub native: Measured,
    /// Fast ack.
    pub fast: Measured,
    /// What the volume counted meanwhile.
    pub counted: Counted,
    /// The mirrored arm, if it was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mirrored: Option<Mirrored>,
    /// Load averages of the machine before: 1, 5 and 15 minutes.
    pub load_average: [f64; 3],
}

/// A goal, and what became of it.
#[derive(Debug, Clone, Serialize)]
pub struct Goal {
    /// The arms that are compared.
    pub arms: Arms,
    /// The number that is compared.
    pub number: Number,
    /// The goal.
    pub want: Want,
    /// What was measured.
    pub ratio: Ratio,
    /// Whether that is enough.
    pub verdict: Verdict,
}

/// A point.
#[derive(Debug, Clone, Serialize)]
pub struct PointOutcome {
    /// The load.
    pub point: Point,
    /// Its goals.
    pub goals: Vec<Goal>,
    /// All pairs.
    pub runs: Vec<Run>,
}

/// The outcome.
#[derive(Debug, Serialize)]
pub struct Outcome {
    /// The arguments.
    pub arguments: Value,
    /// Versions of Ceph and of this program.
    pub versions: [String; 2],
    /// The machine.
    pub machine: Facts,
    /// The lab.
    pub setup: String,
    /// Load averages at the beginning.
    pub load_average: [f64; 3],
    /// The points, in the order in which they were measured.
    pub points: Vec<PointOutcome>,
}

impl Goal {
    /// In a few words.
    pub(super) fn words(&self) -> String {
        let arms = match self.arms {
            Arms::FastNative => "",
            Arms::MirroredFast => "mirrored/fast ",
            Arms::MirroredNative => "mirrored/native ",
        };
        format!("{arms}{} {} {}", self.number.name(), self.ratio, self.judged())
    }

    fn judged(&self) -> String {
        let want = match self.want {
            Want::AtLeast(mark) => format!(">= {mark}"),
            Want::AtMost(mark) => format!("<= {mark}"),
            Want::Nothing => return String::new(),
        };
        format!("{want} {}", self.verdict.word())
    }
}

impl PointOutcome {
    /// Of these pairs.
    ///
    /// # Panics
    /// If there are none.
    pub(super) fn new(point: Point, runs: Vec<Run>) -> PointOutcome {
        let sides = |run: &Run, arms| match (arms, &run.mirrored) {
            (Arms::FastNative, _) => Some([run.fast.clone(), run.native.clone()]),
            (Arms::MirroredFast, Some(mirrored)) => Some([mirrored.run.clone(), run.fast.clone()]),
            (Arms::MirroredNative, Some(mirrored)) => Some([mirrored.run.clone(), run.native.clone()]),
            (Arms::MirroredFast | Arms::MirroredNative, None) => None,
        };
        let goal = |(arms, number, want): (Arms, Number, Want)| {
            let both = runs.iter().filter_map(|run| sides(run, arms));
            let pairs: Vec<(f64, f64)> = both.map(|[of, over]| (number.of(&of), number.of(&over))).collect();
            let ratio = ratio(&pairs, 5);
            Goal { arms, number, want, ratio, verdict: Verdict::of(want, &ratio) }
        };
        let is_mirrored = runs.iter().any(|run| run.mirrored.is_some());
        let own = point.goals().into_iter().map(|(number, want)| (Arms::FastNative, number, want));
        let mirrors = point.mirror_goals().into_iter().filter(|_| is_mirrored);
        PointOutcome { point, goals: own.chain(mirrors).map(goal).collect(), runs }
    }

    fn side<'a>(&'a self, of: impl Fn(&'a Run) -> Option<&'a Measured>) -> String {
        let all: Vec<&Measured> = self.runs.iter().filter_map(of).collect();
        let middle = |pick: &dyn Fn(&Measured) -> f64| median_of(&all, |run| pick(run));
        let [mean, p99] =
            [middle(&|m| m.latency.mean_ns), middle(&|m| m.latency.p99_ns as f64)].map(units::time);
        let (iops, rate) = (units::number(middle(&|m| m.iops)), middle(&|m| m.bytes_per_second) / 1e6);
        format!("{mean}, p99 {p99}, {iops} IOPS, {} MB/s", units::number(rate))
    }

    fn cells(&self) -> [String; 10] {
        let counted = |pick: &dyn Fn(&Counted) -> f64| median_of(&self.runs, |run| pick(&run.counted));
        let per_ack = counted(&|c| c.flushes as f64 / c.acks.max(1) as f64);
        let past = counted(&|c| c.past_the_cache as f64 / c.acks.max(1) as f64 * 100.0);
        let destaged = counted(&|c| c.destaged_bytes as f64);
        let ceiling = self.point.link.ceiling().map_or_else(
            || "-".to_owned(),
            |most| {
                let share = |of: &dyn Fn(&Run) -> f64| median_of(&self.runs, of) / most * 100.0;
                let (native, fast) =
                    (share(&|run| run.native.bytes_per_second), share(&|run| run.fast.bytes_per_second));
                format!("{native:.0} % / {fast:.0} %")
            },
        );
        let own = || self.goals.iter().filter(|goal| goal.arms == Arms::FastNative);
        let goals = |of: &dyn Fn(&Goal) -> String| own().map(of).collect::<Vec<_>>().join(", ");
        [
            format!("{} {}", self.point.figure.name(), self.point.name()),
            self.point.link.name(),
            self.side(|run| Some(&run.native)),
            self.side(|run| Some(&run.fast)),
            goals(&|goal| format!("{} {}", goal.number.name(), goal.ratio)),
            goals(&Goal::judged),
            format!("{per_ack:.2}"),
            units::bytes(destaged),
            format!("{past:.0} %"),
            ceiling,
        ]
    }
}

impl PointOutcome {
    fn mirror_cells(&self) -> [String; 7] {
        let of = |arms: Arms| {
            let goals = self.goals.iter().filter(|goal| goal.arms == arms);
            goals.map(|g| format!("{} {} {}", g.number.name(), g.ratio, g.judged())).collect::<String>()
        };
        let mirrored = || self.runs.iter().filter_map(|run| run.mirrored.as_ref()).collect::<Vec<_>>();
        let per_ack = |m: &&Mirrored| m.counted.flushes as f64 / m.counted.acks.max(1) as f64;
        [
            format!("{} {}", self.point.figure.name(), self.point.name()),
            self.point.link.name(),
            self.side(|run| run.mirrored.as_ref().map(|mirrored| &mirrored.run)),
            of(Arms::MirroredFast),
            of(Arms::MirroredNative),
            format!("{:.2}", median_of(&mirrored(), per_ack)),
            mirrored().iter().filter(|m| m.counted.left > Some(0)).count().to_string(),
        ]
    }
}

impl Outcome {
    /// A row for each point that a mirrored volume was measured at; nothing: there is none.
    pub fn mirror_table(&self) -> Option<Table> {
        let is_mirrored = |one: &&PointOutcome| one.runs.iter().any(|run| run.mirrored.is_some());
        let points: Vec<PointOutcome> = self.points.iter().filter(is_mirrored).cloned().collect();
        let head = [
            "load",
            "links",
            "mirrored",
            "mirrored / fast (95 %)",
            "mirrored / native (95 %)",
            "flushes / ack",
            "runs that left a leg",
        ];
        (!points.is_empty()).then(|| Table::of(head, &points, PointOutcome::mirror_cells))
    }

    /// Without a point yet.
    pub(super) fn new(options: &Options, machine: Facts, setup: String, load_average: [f64; 3]) -> Outcome {
        let said = std::process::Command::new("ceph-osd").arg("--version").output();
        let ceph = said.map(|out| String::from_utf8_lossy(&out.stdout).trim().to_owned()).unwrap_or_default();
        let arguments = json!({
            "figures": options.figures(),
            "sizes": options.sizes(),
            "patterns": options.patterns(),
            "rounds": options.rounds,
            "seconds": options.seconds.as_secs(),
            "settle": options.settle.as_secs(),
            "links": options.links(),
            "image_size": options.image_size,
            "cache_size": options.cache_size,
            "mirror": options.mirror,
        });
        let versions = [ceph, format!("loligo {}", env!("CARGO_PKG_VERSION"))];
        Outcome { arguments, versions, machine, setup, load_average, points: Vec::new() }
    }

    /// A row for each point.
    pub fn table(&self) -> Table {
        let head = [
            "load",
            "links",
            "native",
            "fast ack",
            "fast / native (95 %)",
            "goal",
            "flushes / ack",
            "destaged",
            "past the cache",
            "of the link",
        ];
        Table::of(head, &self.points, PointOutcome::cells)
    }

    /// Lines to read the table with.
    pub fn notes(&self) -> Vec<String> {
        let m = &self.machine;
        let ram = units::bytes(m.ram_bytes as f64);
        let count =
            |verdict| self.points.iter().flat_map(|p| &p.goals).filter(|g| g.verdict == verdict).count();
        vec![
            "medians of all pairs: mean latency, 99th percentile, rate; the ratio is the median of the pairs' ratios with its \
             95 % interval. A goal is missed where the whole interval lies beyond it, and open where a part of it does not"
                .to_owned(),
            "native: librbd with rbd_cache=false; fast ack: a volume whose every answer is durable on the array".to_owned(),
            format!("goals: {} met, {} open, {} missed", count(Verdict::Met), count(Verdict::Open), self.missed()),
            format!("lab: {}", self.setup),
            format!("machine: {} ({} cores), {ram}, kernel {}, {}", m.cpu, m.cores, m.kernel, m.file_system),
            format!("versions: {}; {}; {}", self.versions[0], self.versions[1], m.fio),
            format!("arguments: {}", self.arguments),
            format!("load averages at the beginning: {:?}", self.load_average),
        ]
    }

    /// The number of goals that were missed.
    pub fn missed(&self) -> usize {
        self.points.iter().flat_map(|p| &p.goals).filter(|goal| goal.verdict == Verdict::Miss).count()
    }

    /// As a page in Markdown.
    pub fn markdown(&self) -> String {
        let notes: String = self.notes().iter().map(|line| format!("* {line}\n")).collect();
        let mirrored = self.mirror_table().map_or_else(String::new, |table| table.markdown() + "\n");
        format!("{}\n{mirrored}{notes}", self.table().markdown())
    }
}

#[cfg(test)]
mod tests {
    use super::super::point::{Figure, Link, Pattern};
    use super::*;
    use crate::fio::Latency;

    fn measured(mean_us: f64) -> Measured {
        let latency =
            Latency { mean_ns: mean_us * 1e3, p99_ns: (mean_us * 2e3) as u64, ..Latency::default() };
        Measured {
            requests: 100,
            iops: 1e6 / mean_us,
            bytes_per_second: 4096e6 / mean_us,
            latency,
            ..Measured::default()
        }
    }

    #[test]
    fn a_page_shows_goals_flushes_and_the_links_ceiling() {
        let point = Point::new(Figure::Latency, 4096, Pattern::Rand, Link(Some(1000)));
        let counted = Counted {
            acks: 100,
            flushes: 150,
            array_bytes: 1,
            destaged_bytes: 1 << 20,
            past_the_cache: 0,
            dirty: [0.1, 0.2],
            left: None,
        };
        let run = |native, fast| Run {
            native: measured(native),
            fast: measured(fast),
            counted,
            mirrored: None,
            load_average: [0.0; 3],
        };
        let one = PointOutcome::new(point, vec![run(1000.0, 300.0), run(1000.0, 320.0), run(1000.0, 310.0)]);
        let words: Vec<String> = one.goals.iter().map(Goal::words).collect();
        assert_eq!(words, ["latency 0.31x (0.30-0.32) <= 0.2 MISS", "p99 0.31x (0.30-0.32) <= 1 met"]);
        let page = Table::of([""; 10], &[one], PointOutcome::cells).markdown();
        assert!(
            page.contains("| 5 4K rand qd1 | 1g | 1.00 ms, p99 2.00 ms, 1,000 IOPS, 4.10 MB/s |"),
            "{page}"
        );
        assert!(page.contains("| 1.50 | 1 MiB | 0 % | 3 % / 11 % |"), "{page}");
        assert!(!words.iter().any(|word| word.contains("mirrored")), "it was not measured");
    }

    #[test]
    fn a_mirrored_arm_is_judged_against_both_others() {
        let point = Point::new(Figure::Latency, 4096, Pattern::Rand, Link(None));
        let counted = Counted {
            acks: 100,
            flushes: 100,
            array_bytes: 1,
            destaged_bytes: 0,
            past_the_cache: 0,
            dirty: [0.1, 0.2],
            left: None,
        };
        let run = |mirrored| Run {
            native: measured(1000.0),
            fast: measured(300.0),
            counted,
            mirrored: Some(Mirrored { run: measured(mirrored), counted }),
            load_average: [0.0; 3],
        };
        let one = PointOutcome::new(point, vec![run(660.0), run(690.0), run(720.0)]);
        let words: Vec<String> = one.goals[2..].iter().map(Goal::words).collect();
        assert_eq!(
            words,
            [
                "mirrored/fast latency 2.30x (2.20-2.40) <= 2 MISS",
                "mirrored/native latency 0.69x (0.66-0.72) <= 0.5 MISS"
            ]
        );
        assert!(one.cells()[4].matches("latency").count() == 1, "the other table has them");
        assert!(one.mirror_cells()[2].starts_with("690"), "{:?}", one.mirror_cells());
    }
}
