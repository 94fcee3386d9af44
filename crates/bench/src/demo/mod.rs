//! `loligo demo`: one slow disk, before and after, with proof that the data is right.

pub mod ceph;
mod content;
mod plan;
mod progress;
mod verify;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;

use crate::bed::{Bed, Place};
use crate::facts::Facts;
use crate::fio::{FileEngine, Job, Measured, Target};
use crate::interrupt::Interrupted;
use crate::report::{Check, Phase, Report, Timeline};
use crate::server::{Server, Volume, bare_args, disk_model};
use crate::table::Table;
use crate::watch::Watch;
use crate::{fio, units};

use plan::Load;
use progress::Progress;
use verify::Digests;

/// Names of the sides.
const SIDES: [&str; 2] = ["bare", "cached"];

/// Statistics of the cached volume.
const STATS: &str = "stats.json";

/// Seed of the content of both cores.
const SEED: u64 = 0x0007_2000;

/// The demonstration, and its place.
#[derive(Debug, Clone)]
pub struct DemoOptions {
    /// Program, folder, interrupt.
    pub place: Place,
    /// The place of the report.
    pub report: PathBuf,
    /// Print JSON instead of a table.
    pub json: bool,
}

/// The output of `--json`.
#[derive(Serialize)]
struct Output<'a> {
    html: &'a Path,
    #[serde(flatten)]
    report: &'a Report,
}

/// Runs the demo. Fails where any data was wrong (after writing the report), and with
/// [`Interrupted`] after Ctrl-C, for which [`crate::interrupt::exit_code`] gives 130. Whatever the end, nothing keeps
/// running and nothing stays but the report.
pub fn run(opts: &DemoOptions) -> Result<()> {
    fio::version()?;
    has_folder(&opts.report)?;
    let begun = Instant::now();
    // Declared before the servers, so that it outlives them.
    let bed = Bed::new(&opts.place, plan::NEED)?;
    let report = Demo::new(&bed).run()?.after(begun.elapsed());
    show(&report, &opts.report, opts.json)?;
    if let Some(check) = report.checks.iter().find(|check| !check.passed) {
        bail!("verification failed: {}", check.what);
    }
    Ok(())
}

/// Fails early where a report could not be written later.
fn has_folder(report: &Path) -> Result<()> {
    let folder = report.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    ensure!(
        folder.is_dir(),
        "the report's folder {} is not there: make it, or give another --report",
        folder.display()
    );
    Ok(())
}

/// Writes a report and prints its table, or all of it as JSON.
fn show(report: &Report, path: &Path, json: bool) -> Result<()> {
    report.write(path)?;
    let html = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if json {
        loligo_log::out!("{}\n", serde_json::to_string_pretty(&Output { html: &html, report })?);
        return Ok(());
    }
    let heads = Phase::heads(report.sides.each_ref().map(String::as_str));
    let mut table = Table::new(heads.each_ref().map(String::as_str));
    for phase in &report.phases {
        table.row(phase.cells());
    }
    loligo_log::out!("{}\n", table.text());
    for check in &report.checks {
        loligo_log::outln!("{} {}", if check.passed { "right:" } else { "WRONG:" }, check.what);
    }
    loligo_log::outln!("report: {}", html.display());
    Ok(())
}

/// The running demo.
struct Demo<'a> {
    bed: &'a Bed,
    progress: Progress,
    watch: Watch,
    commands: Vec<String>,
    phases: Vec<Phase>,
    timeline: Option<Timeline>,
    checks: Vec<Check>,
}

/// Both sides of each load.
struct Sides {
    bare: Server,
    cached: Server,
    /// File of the cached side's core.
    core: PathBuf,
}

impl<'a> Demo<'a> {
    fn new(bed: &'a Bed) -> Demo<'a> {
        Demo {
            bed,
            progress: Progress::new(plan::expected()),
            watch: Watch::new(&bed.path(STATS)),
            commands: Vec::new(),
            phases: Vec::new(),
            timeline: None,
            checks: Vec::new(),
        }
    }

    fn run(mut self) -> Result<Report> {
        let facts = self.bed.facts();
        let mut sides = self.serve()?;
        let cached = sides.cached.target();
        self.load("writing data to be verified later", &plan::checksummed(cached.clone()))?;
        self.load("writing data to be overwritten later", &plan::versioned(cached.clone(), 1))?;
        let warmth = self.warm_up(&sides.cached)?;
        for load in plan::loads() {
            self.phase(&load, &mut sides)?;
        }
        let Sides { bare, cached: server, core } = sides;
        bare.stop(self.bed.stop(), Duration::from_secs(30))?;
        self.load("overwriting the versioned data", &plan::versioned(cached.clone(), 2))?;
        let seen = self.check_volume(&cached)?;
        self.progress.stage("stopping with --flush-on-stop: all dirty data goes to the core");
        server.stop(self.bed.stop(), Duration::from_secs(180))?;
        self.check_core(&core, &seen)?;
        Ok(self.report(facts, &warmth))
    }

    /// Two cores of the same content, one served bare, the other behind a cache.
    fn serve(&mut self) -> Result<Sides> {
        let stage = format!("making two cores of {} with the same content", units::bytes(plan::CORE as f64));
        self.progress.stage(&stage);
        let progress = &self.progress;
        let mut made = |bytes: u64| progress.tick(&stage, &format!(": {}", units::bytes(bytes as f64)));
        let bare_core = content::core(self.bed, "bare.core", plan::CORE, SEED, &mut made)?;
        let core = content::core(self.bed, "cached.core", plan::CORE, SEED, &mut made)?;
        self.progress.stage("starting the bare core and the cached volume");
        let bare = self.bed.loligo("bare", &bare_args(&disk_model(&bare_core)))?;
        let volume = Volume {
            stats: Some(self.bed.path(STATS)),
            flush_on_stop: true,
            ..self.bed.volume("cache", plan::CACHE, disk_model(&core))
        };
        let cached = self.bed.serve("cached", &volume)?;
        self.commands.extend([bare.command().to_owned(), cached.command().to_owned()]);
        Ok(Sides { bare, cached, core })
    }

    /// Checks the volume as clients see it; its digests.
    fn check_volume(&mut self, cached: &Target) -> Result<Digests> {
        let region = units::bytes(plan::REGION as f64);
        self.verify(
            &format!("{region} with CRC32C written before the loads, read through NBD by fio"),
            &plan::checksummed(cached.clone()),
        )?;
        self.verify(
            &format!(
                "{region} written twice in 4 KiB blocks: every block is the newer one, read through NBD by fio"
            ),
            &plan::versioned(cached.clone(), 2),
        )?;
        let (socket, stop) = (self.bed.path("cached.nbd"), self.bed.stop());
        self.digest("reading the whole volume through NBD", |tick| {
            Digests::of_export(&socket, "cached", stop, tick)
        })
    }

    /// The file of the core alone holds what clients have `seen`.
    fn check_core(&mut self, core: &Path, seen: &Digests) -> Result<()> {
        let file = || Target::File { path: core.to_owned(), engine: FileEngine::Psync, direct: false };
        self.verify(
            "the same CRC32C data, read by fio from the core file alone after the stop",
            &plan::checksummed(file()),
        )?;
        self.verify(
            "the same newer blocks, read by fio from the core file alone after the stop",
            &plan::versioned(file(), 2),
        )?;
        let stop = self.bed.stop();
        let lies = self.digest("reading the core file", |tick| Digests::of_file(core, stop, tick))?;
        let difference = seen.first_difference(&lies);
        if let Some(mib) = difference {
            self.progress.say(&format!("the core differs from the volume in MiB {mib}"));
        }
        self.check(
            "every byte of the core file after the stop is what clients read from the volume before it",
            plan::CORE,
            difference.is_none(),
        );
        let same = verify::untouched_is_untouched(core, SEED)?;
        self.check(
            "a region that nothing wrote to still holds its first content on the core",
            plan::REGION,
            same,
        );
        Ok(())
    }

    fn report(self, facts: Facts, warmth: &str) -> Report {
        let [core, cache] = [plan::CORE, plan::CACHE].map(|size| units::bytes(size as f64));
        let setup = [
            (
                "Core",
                format!(
                    "{core} file behind a real-time model of a 7,200 rpm disk: seeks, rotation, transfer per track, 32 queued commands ordered by shortest positioning time, write cache off"
                ),
            ),
            ("Cache", format!("{cache} file on the file system above, write-back")),
            ("Path", "fio's nbd engine, one connection, unix socket".to_owned()),
        ];
        let summary = format!(
            "One {core} core behind a model of a 7,200 rpm disk, served bare and through a {cache} write-back cache, driven with the same loads over NBD."
        );
        Report {
            facts: facts.with(setup.map(|(name, value)| (name.to_owned(), value))),
            phases: self.phases,
            timeline: self.timeline,
            checks: self.checks,
            commands: self.commands,
            notes: vec![
                format!("Both sides are files with the same content on the same file system; they ran one after the other. {warmth}"),
                "IOPS and latency of the random write are means over the whole run, from an empty cache through a full one; the course below shows every second.".to_owned(),
            ],
            ..Report::new("Loligo: a slow disk before and after", &summary, SIDES)
        }
    }

    /// Runs a job with the stage's name on the progress bar and the dirty share beside it.
    fn load(&mut self, stage: &str, job: &Job) -> Result<Measured> {
        self.progress.stage(stage);
        self.commands.push(job.command_line());
        let (progress, watch) = (&self.progress, &mut self.watch);
        let mut tick = |_| {
            watch.look();
            progress.tick(stage, &dirty(watch));
        };
        self.bed.run_watched(job, &mut tick).with_context(|| format!("during: {stage}"))
    }

    /// Reads the working set until it comes from the cache: a first read only makes a block a candidate.
    fn warm_up(&mut self, cached: &Server) -> Result<String> {
        let mut speeds = Vec::new();
        for pass in 1..=4 {
            let stage = format!("warming the cache, pass {pass}");
            let result = self.load(&stage, &plan::warm_up(cached.target()))?;
            speeds.push(result.bytes_per_second);
            self.progress.say(&format!("warm-up pass {pass}: {}/s", units::bytes(result.bytes_per_second)));
            if pass > 2 && result.bytes_per_second > 4.0 * speeds[0] {
                break;
            }
        }
        let told: Vec<String> = speeds.iter().map(|speed| format!("{}/s", units::bytes(*speed))).collect();
        let held = self.watch.last().map_or(String::new(), |stats| {
            format!(", after which the cache held {}", units::bytes(stats.occupied_bytes as f64))
        });
        Ok(format!(
            "Warm-up: {} sequential passes over the working set at {}{held}.",
            told.len(),
            told.join(", ")
        ))
    }

    /// One load on both sides, the bare one first.
    fn phase(&mut self, load: &Load, sides: &mut Sides) -> Result<()> {
        let job = load.job(sides.bare.target(), load.bare);
        let before = self.load(&format!("{}, bare core", load.name), &job)?;
        self.settle()?;
        if load.fills {
            self.watch.restart();
        }
        let job = load.job(sides.cached.target(), load.cached);
        let after = self.load(&format!("{}, cached", load.name), &job)?;
        sides.bare.check()?;
        sides.cached.check()?;
        let phase = Phase { name: load.name.to_owned(), detail: load.detail.clone(), before, after };
        self.progress.say(&format!(
            "{:22} {:>7} -> {:>7} IOPS   {}",
            phase.name,
            units::number(phase.before.iops),
            units::number(phase.after.iops),
            units::times(phase.ratio())
        ));
        if load.fills {
            self.timeline = Some(Timeline {
                name: phase.name.clone(),
                before: phase.before.series.clone(),
                after: phase.after.series.clone(),
                dirty: self.watch.course().to_vec(),
            });
        }
        self.phases.push(phase);
        Ok(())
    }

    /// Lets the last load's dirty data drain, so that one load's backlog is not the next one's cost.
    fn settle(&mut self) -> Result<(), Interrupted> {
        let begun = Instant::now();
        while begun.elapsed() < plan::SETTLE && self.watch.last().is_some_and(|stats| stats.dirty() > 0.05) {
            self.bed.stop().sleep(Duration::from_millis(100))?;
            self.watch.look();
            self.progress.tick("letting dirty data drain", &dirty(&self.watch));
        }
        Ok(())
    }

    /// Verifies what a job wrote; a failure is shown and noted, so that the report tells of it.
    fn verify(&mut self, what: &str, job: &Job) -> Result<()> {
        self.progress.stage(&format!("verifying {what}"));
        let result = self.bed.verify(job);
        match &result {
            Ok(checked) => self.commands.push(checked.command.clone()),
            Err(error) if error.is::<Interrupted>() => return Err(Interrupted.into()),
            Err(error) => self.progress.say(&format!("{error:#}")),
        }
        self.check(what, job.size.unwrap_or(0), result.is_ok());
        Ok(())
    }

    fn check(&mut self, what: &str, bytes: u64, passed: bool) {
        self.checks.push(Check { what: what.to_owned(), bytes, passed });
    }

    fn digest(
        &self,
        stage: &str,
        gather: impl FnOnce(&mut dyn FnMut(u64)) -> Result<Digests>,
    ) -> Result<Digests> {
        self.progress.stage(stage);
        let mut tick = |bytes: u64| self.progress.tick(stage, &format!(": {}", units::bytes(bytes as f64)));
        gather(&mut tick).with_context(|| format!("during: {stage}"))
    }
}

/// The dirty share in words, for the progress bar.
fn dirty(watch: &Watch) -> String {
    watch.last().map_or(String::new(), |stats| format!("   dirty {:.0} %", stats.dirty() * 100.0))
}
