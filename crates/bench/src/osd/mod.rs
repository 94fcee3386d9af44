//! The published experiment with flash caches under OSDs: the same loads on OSDs on modelled disks, bare and behind caches, and on
//! OSDs on files, which show what Ceph can do on this machine at most.

mod arm;
mod scan;

use std::num::ParseIntError;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use loligo_block::parse_size;
use loligo_lab::config::{Data, Kind as DiskKind, LabConfig, key_value};

use crate::bed::{Bed, Place};
use crate::fio::{Job, Measured, Rw};
use crate::marks::{Outcome, Record, Row, Side, Want, Words};
use crate::rbd::Cell;
use crate::report::Timeline;
use crate::stats::{Ratio, ratio};
use crate::units;
use arm::{Arm, Kind};

/// Requests in flight.
const DEPTH: u32 = 64;
/// Bytes of a request that warms a cache.
const WARM: u64 = 64 << 10;
/// Most passes over an image to warm a cache.
const PASSES: u32 = 6;
/// With a smaller share of reads that miss it is warm.
const COLD: f64 = 0.0005;
/// Sequential requests in flight: the article's.
const SEQUENTIAL_DEPTH: u32 = 16;
/// Bytes of an OSD besides its objects.
const OSD_REST: u64 = 3 << 30;
/// Bytes of each lab besides its OSDs.
const LAB_REST: u64 = 512 << 20;
/// Within this share of OSDs on files Ceph is what limits, not the disk.
const CEILING: f64 = 0.95;
/// Between two looks at the dirty share.
const LOOK: Duration = Duration::from_secs(2);

const WORDS: Words = Words {
    title: "Loligo: flash caches under OSDs",
    summary: "The same loads on real Ceph clusters whose OSDs stand on modelled disks, bare and behind caches.",
    heads: ["bare OSDs", "OSDs on files", "cached OSDs"],
    sides: ["bare OSDs", "cached OSDs"],
};

/// The measurements, in the order in which they are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Load {
    /// 4K random writes past a full cache.
    Full,
    /// 512K in order, through caches of a quarter of the data.
    Sequential,
    /// A cache's content through scrub, compaction and backfill.
    Scans,
    /// 4K reads, writes and both, where the cache holds everything.
    Room,
}

fn seconds(text: &str) -> Result<Duration, ParseIntError> {
    text.parse().map(Duration::from_secs)
}

/// The settings by which it is measured
#[derive(Debug, clap::Args)]
pub struct Options {
    /// The loads to measure: full, sequential, scans, room [default: all]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', hide_possible_values = true)]
    loads: Vec<Load>,
    /// Seconds of each run
    #[arg(long = "seconds", value_name = "S", default_value = "20", value_parser = seconds)]
    time: Duration,
    /// Interleaved rounds
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: usize,
    /// Seconds that a full cache is written to before it is measured
    #[arg(long, value_name = "S", default_value = "60", value_parser = seconds)]
    settle: Duration,
    /// OSDs of each lab
    #[arg(long, value_name = "N", default_value_t = 2)]
    osds: u32,
    /// Copies of each object
    #[arg(long, value_name = "N", default_value_t = 2)]
    replicas: u32,
    /// Bytes of the image
    #[arg(long = "image-size", value_name = "SIZE", default_value = "1g", value_parser = parse_size)]
    image: u64,
    /// Bytes of each OSD's cache where it is to become full
    #[arg(long = "cache-size", value_name = "SIZE", default_value = "256m", value_parser = parse_size)]
    cache: u64,
    /// The folder that the caches lie in [default: beside the disks]
    #[arg(long, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
    /// A tunable of the caches, as 'loligo param' names it; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_value)]
    cache_set: Vec<(String, String)>,
}

impl Options {
    /// Bytes of the image that one OSD holds.
    fn per_osd(&self) -> u64 {
        self.image * u64::from(self.replicas) / u64::from(self.osds.max(1))
    }

    fn lab(&self, kind: Kind, cache: u64) -> LabConfig {
        let disk = if kind == Kind::Files { DiskKind::File } else { DiskKind::Hdd };
        LabConfig {
            osds: self.osds,
            replicas: Some(self.replicas),
            osd_size: Some((self.per_osd() / 4 * 5 + OSD_REST).to_string()),
            data: Data::Kind(disk),
            cache: (kind == Kind::Cached).then(|| cache.to_string()),
            cache_dir: self.cache_dir.clone().filter(|_| kind == Kind::Cached),
            cache_set: match kind {
                Kind::Cached => self.cache_set.iter().cloned().collect(),
                Kind::Bare | Kind::Files => Default::default(),
            },
            // A scrub that was asked for begins at the next look, and not after a throw of dice.
            set: [("osd.osd_scrub_backoff_ratio".to_owned(), "0".to_owned())].into(),
            ..LabConfig::default()
        }
    }

    /// Bytes of an OSD's cache that holds all that the OSD holds.
    fn roomy(&self) -> u64 {
        (self.per_osd() * 2 + (1 << 30)).next_multiple_of(1 << 20)
    }

    fn need(&self) -> u64 {
        let lab = (self.per_osd() / 4 * 5 + OSD_REST) * u64::from(self.osds) + LAB_REST;
        3 * lab + self.roomy() * u64::from(self.osds)
    }
}

struct Bench<'a> {
    opts: &'a Options,
    record: Record,
}

/// Measures.
///
/// # Errors
/// Where a lab does not come up, fio fails, or after an interrupt. A missed mark is no error.
pub fn run(place: &Place, opts: &Options) -> Result<Outcome> {
    ensure!(opts.rounds > 0, "at least one round is needed");
    let place = Place { verbose: false, ..place.clone() };
    let bed = Bed::new(&place, opts.need())?;
    let mut bench = Bench { opts, record: Record::new() };
    let up = |bench: &Bench<'_>, name: &str, kind: Kind, cache: u64| {
        Arm::new(&bed, &place, name, kind, opts.lab(kind, cache), opts.image, &|text| bench.record.say(text))
    };
    let bare = up(&bench, "bare", Kind::Bare, 0)?;
    let small = up(&bench, "small", Kind::Cached, opts.cache)?;
    let mut setup = setup(opts, &bare, &small)?;
    let wanted = |load: Load| opts.loads.is_empty() || opts.loads.contains(&load);
    if wanted(Load::Full) {
        bench.past_full(&bare, &small)?;
    }
    if wanted(Load::Sequential) {
        bench.sequential(&bare, &small)?;
    }
    if wanted(Load::Scans) {
        bench.scans(&small)?;
    }
    drop(small);
    if wanted(Load::Room) {
        let roomy = up(&bench, "roomy", Kind::Cached, opts.roomy())?;
        let files = up(&bench, "files", Kind::Files, 0)?;
        setup.push(("BlueStore, on files".to_owned(), files.bluestore()?));
        bench.with_room(&bare, &roomy, &files)?;
    }
    drop(bare);
    Ok(bench.record.outcome(&WORDS, bed.facts(), setup))
}

fn setup(o: &Options, bare: &Arm<'_>, cached: &Arm<'_>) -> Result<Vec<(String, String)>> {
    let bytes = |n: u64| units::bytes(n as f64);
    let (on_bare, on_cached) = (bare.bluestore()?, cached.bluestore()?);
    ensure!(
        on_bare == on_cached,
        "BlueStore is set differently on both sides, so that they cannot be compared: {on_bare}; {on_cached}"
    );
    let clusters = format!(
        "{} OSDs on modelled 7,200 rpm disks, {} copies, one image of {}",
        o.osds,
        o.replicas,
        bytes(o.image)
    );
    let caches = format!(
        "{} an OSD where they become full (it holds {} of the image), {} where all fits; wb, profile osd-hdd{}",
        bytes(o.cache),
        bytes(o.per_osd()),
        bytes(o.roomy()),
        o.cache_set.iter().map(|(k, v)| format!(", {k} {v}")).collect::<String>()
    );
    let runs = format!("{} rounds of {} s, alternated, medians", o.rounds, o.time.as_secs_f64());
    let all = [
        ("Clusters", clusters),
        ("Caches", caches),
        ("BlueStore, on both sides", on_bare),
        ("Client", "fio with librbd, rbd_cache=false, on the same machine".to_owned()),
        ("Runs", runs),
    ];
    Ok(all.map(|(name, value)| (name.to_owned(), value)).to_vec())
}

/// Runs of the arms of one load, round by round.
type Rounds<const N: usize> = Vec<[Measured; N]>;

fn over<const N: usize>(rounds: &Rounds<N>, [a, b]: [usize; 2], pick: fn(&Measured) -> f64) -> Ratio {
    ratio(&rounds.iter().map(|r| (pick(&r[a]), pick(&r[b]))).collect::<Vec<_>>(), 5)
}

fn iops(run: &Measured) -> f64 {
    run.iops
}

fn mean(run: &Measured) -> f64 {
    run.latency.mean_ns
}

impl Bench<'_> {
    fn cell(&self, rw: Rw, block: u64, depth: u32) -> Cell {
        Cell::new(rw, block, depth, self.opts.time)
    }

    /// One run on each arm, beginning with another from round to round.
    fn rounds<const N: usize>(
        &mut self,
        arms: [&Arm<'_>; N],
        cell: &Cell,
        mut before: impl FnMut(&Arm<'_>, &Bench<'_>) -> Result<()>,
    ) -> Result<Rounds<N>> {
        let mut rounds = Vec::new();
        for round in 0..self.opts.rounds {
            let mut of: [Option<Measured>; N] = [const { None }; N];
            for at in (0..N).map(|i| (i + round) % N) {
                before(arms[at], self)?;
                of[at] = Some(self.one(arms[at], cell, round, &mut |_| ())?);
            }
            let all: Vec<Measured> = of.into_iter().flatten().collect();
            let all: [Measured; N] = all.try_into().ok().context("each arm ran")?;
            rounds.push(all);
        }
        Ok(rounds)
    }

    fn one(
        &self,
        arm: &Arm<'_>,
        cell: &Cell,
        round: usize,
        tick: &mut dyn FnMut(Duration),
    ) -> Result<Measured> {
        let ramp = if arm.kind == Kind::Cached { cell.ramp } else { cell.ramp.min(Duration::from_secs(10)) };
        let run = arm.run(&cell.job(arm.target(), ramp, self.record.seed()), tick)?;
        self.record.tell(&cell.what, arm.kind.words(), round, &run);
        Ok(run)
    }

    /// Keeps the middle pair of a load for the report.
    fn keep<const N: usize>(&mut self, cell: &Cell, detail: &str, rounds: &Rounds<N>) {
        self.record.keep(&cell.what, detail, rounds.iter().map(|arms| (&arms[0], &arms[1])));
    }

    /// Notes a comparison with its sides.
    fn push<const N: usize>(&mut self, mut row: Row, rounds: &Rounds<N>) {
        let side = |at: usize| Side::of(rounds.iter().map(|arms| &arms[at]));
        row.native = Some(side(0));
        row.cached = Some(side(1));
        row.shipped = (N > 2).then(|| side(N - 1));
        self.record.push(row);
    }

    /// Random writes past a full cache, with the course of the first such run.
    fn past_full(&mut self, bare: &Arm<'_>, small: &Arm<'_>) -> Result<()> {
        let mut cell = self.cell(Rw::RandWrite, 4096, DEPTH);
        let timeline = self.course(bare, small, &cell)?;
        self.record.timeline = Some(timeline);
        cell.ramp = self.opts.settle;
        let mut shares = Vec::new();
        let rounds = self.rounds([bare, small], &cell, |arm, _| {
            if arm.kind == Kind::Cached {
                shares.push(arm.stats()?.dirty() * 100.0);
            }
            Ok(())
        })?;
        let what = format!("{}, full cache: IOPS", cell.what);
        let ratio = over(&rounds, [1, 0], iops);
        let shares: Vec<String> = shares.iter().map(|s| format!("{s:.0} %")).collect();
        let note = format!(
            "after {} s past a full cache; dirty before the runs: {}",
            self.opts.settle.as_secs(),
            shares.join(", ")
        );
        self.push(Row::new(1, what, Want::AtLeast(10.0), ratio).note(note), &rounds);
        self.keep(&cell, "cache full of dirty data", &rounds);
        small.flush()
    }

    /// The first seconds of random writes into a clean cache until long after it is full, and as long on bare OSDs.
    fn course(&self, bare: &Arm<'_>, small: &Arm<'_>, cell: &Cell) -> Result<Timeline> {
        small.flush()?;
        let long = Cell { time: self.opts.settle + self.opts.time * 2, ..cell.clone() };
        let mut dirty = Vec::new();
        let mut next = Duration::ZERO;
        let after = self.one(small, &long, 0, &mut |at| {
            if at >= next {
                next = at + LOOK;
                // One look that fails leaves a gap in a curve.
                if let Ok(stats) = small.stats() {
                    dirty.push((at.as_secs_f64(), stats.dirty()));
                }
            }
        })?;
        let before = self.one(bare, &Cell { time: self.opts.time, ..cell.clone() }, 0, &mut |_| ())?;
        Ok(Timeline { name: cell.what.clone(), before: before.series, after: after.series, dirty })
    }

    /// 512K in order on OSDs whose caches do not hold the image.
    fn sequential(&mut self, bare: &Arm<'_>, small: &Arm<'_>) -> Result<()> {
        for (rw, least) in [(Rw::Read, 0.99), (Rw::Write, 0.98)] {
            let cell = self.cell(rw, 512 << 10, SEQUENTIAL_DEPTH);
            let rounds = self.rounds([bare, small], &cell, |arm, _| arm.flush())?;
            let ratio = over(&rounds, [1, 0], iops);
            let row = Row::new(1, format!("{}: IOPS", cell.what), Want::AtLeast(least), ratio);
            self.push(row.note("caches hold a quarter of what an OSD holds of the image"), &rounds);
            self.keep(&cell, "caches of a quarter of the data, clean", &rounds);
        }
        Ok(())
    }

    /// Reads everything until nothing misses: what was written in order went past the cache, and so do the few reads that follow on one
    /// another by chance.
    fn warm(&self, arm: &Arm<'_>) -> Result<()> {
        for pass in 1..=PASSES {
            let before = arm.stats()?;
            let all = Job { seed: self.record.seed(), ..Job::new(arm.target(), Rw::RandRead, WARM, DEPTH) };
            arm.run(&all, &mut |_| ())?;
            let missed = 1.0 - arm.stats()?.hits_since(&before);
            let missed_percent = missed * 100.0;
            let text = format!("warming, pass {pass}: {missed_percent:.2} % of the reads of the OSDs missed");
            self.record.say(&text);
            if missed < COLD {
                break;
            }
        }
        Ok(())
    }

    /// 4K reads that all hit, writes while the cache is clean, and the mix; beside OSDs on files.
    fn with_room(&mut self, bare: &Arm<'_>, roomy: &Arm<'_>, files: &Arm<'_>) -> Result<()> {
        let arms = [bare, roomy, files];
        // Marks of IOPS, and of the latency's share as the article has it.
        let loads = [
            (Rw::RandRead, [120.0, 1.0 / 0.008], "every read hits"),
            (Rw::RandWrite, [87.0, 1.0 / 0.012], "clean cache"),
            (Rw::RandMix(70), [0.0; 2], "clean cache"),
        ];
        self.warm(roomy)?;
        for (rw, [times, less], detail) in loads {
            let cell = self.cell(rw, 4096, DEPTH);
            let mut before = roomy.stats()?;
            let mut hits = Vec::new();
            let rounds = self.rounds(arms, &cell, |arm, _| {
                if arm.kind == Kind::Cached {
                    let now = arm.stats()?;
                    hits.push(now.hits_since(&before) * 100.0);
                    before = now;
                    arm.flush()?;
                }
                Ok(())
            })?;
            let last = roomy.stats()?.hits_since(&before) * 100.0;
            let want = |mark: f64| if mark > 0.0 { Want::AtLeast(mark) } else { Want::Nothing };
            let seen: Vec<String> = hits.iter().skip(1).chain([&last]).map(|h| format!("{h:.1} %")).collect();
            let note = format!("reads of the OSDs that hit, round by round: {}", seen.join(", "));
            let mut push = |what: &str, want: Want, ratio: Ratio, note: &str| {
                let what = format!("{}, {detail}: {what}", cell.what);
                self.push(Row::new(1, what, want, ratio).note(note), &rounds);
            };
            push("IOPS", want(times), over(&rounds, [1, 0], iops), &note);
            push("mean latency", want(less), over(&rounds, [0, 1], mean), "how many times less");
            let ceiling =
                "Ceph's own ceiling on this machine: met here, the marks above are out of reach of any cache";
            push("of OSDs on files", Want::AtLeast(CEILING), over(&rounds, [1, 2], iops), ceiling);
            self.keep(&cell, detail, &rounds);
        }
        Ok(())
    }
}
