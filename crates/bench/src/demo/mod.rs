//! `loligo demo`: one slow disk, before and after, with proof that the data is right.

pub mod ceph;
mod plan;
mod progress;
mod scratch;
mod verify;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;

use crate::facts::Facts;
use crate::fio::{FileEngine, Job, Measured, Target};
use crate::interrupt::{Interrupt, Interrupted};
use crate::report::{Check, Phase, Report, Timeline};
use crate::server::{Server, Volume, bare_args, disk_model};
use crate::table::Table;
use crate::watch::Watch;
use crate::{fio, units};

use plan::Load;
pub use plan::{Sizes, Times};
use progress::Progress;
use scratch::Scratch;
use verify::Digests;

/// Names of the sides.
const SIDES: [&str; 2] = ["bare", "cached"];

/// Seed of the content of both cores.
const SEED: u64 = 0x0007_2000;

/// The demonstration, and its place.
#[derive(Debug, Clone)]
pub struct DemoOptions {
    /// The `loligo` program; the running one by default.
    pub binary: Option<PathBuf>,
    /// Parent of the scratch folder; the system's temporary folder by default.
    pub dir: Option<PathBuf>,
    /// The file of the report.
    pub report: PathBuf,
    /// Print JSON instead of a table.
    pub json: bool,
    /// Sizes of core and cache.
    pub sizes: Sizes,
    /// How long each load runs.
    pub times: Times,
    /// Stops the run; by default SIGINT, SIGTERM and SIGHUP do.
    pub interrupt: Option<Interrupt>,
}

impl Default for DemoOptions {
    fn default() -> DemoOptions {
        DemoOptions {
            binary: None,
            dir: None,
            report: PathBuf::from("loligo-demo.html"),
            json: false,
            sizes: Sizes::default(),
            times: Times::default(),
            interrupt: None,
        }
    }
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
pub fn run(opts: DemoOptions) -> Result<()> {
    let stop = match &opts.interrupt {
        Some(stop) => stop.clone(),
        None => Interrupt::on_signals().context("catching Ctrl-C")?,
    };
    fio::version()?;
    has_folder(&opts.report)?;
    let report = measure(&opts, &stop)?;
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
    opts: &'a DemoOptions,
    stop: &'a Interrupt,
    dir: &'a Path,
    progress: Progress,
    watch: Watch,
    commands: Vec<String>,
    checks: Vec<Check>,
}

fn measure(opts: &DemoOptions, stop: &Interrupt) -> Result<Report> {
    let begun = Instant::now();
    let (sizes, times) = (&opts.sizes, &opts.times);
    let binary = match &opts.binary {
        Some(binary) => binary.clone(),
        None => std::env::current_exe().context("the path of this program")?,
    };
    // Declared before the servers, so that it outlives them.
    let scratch = Scratch::new(opts.dir.as_deref(), sizes.need())?;
    let dir = scratch.path();
    let stats = dir.join("stats.json");
    let mut demo = Demo {
        opts,
        stop,
        dir,
        progress: Progress::new(times.expected()),
        watch: Watch::new(&stats),
        commands: Vec::new(),
        checks: Vec::new(),
    };
    let facts = Facts::of(dir);

    let size = units::bytes(sizes.core as f64);
    let stage = format!("making two cores of {size} with the same content");
    demo.progress.stage(&stage);
    let progress = &demo.progress;
    let mut made = |bytes: u64| progress.tick(&stage, &format!(": {}", units::bytes(bytes as f64)));
    let bare_core = scratch.core("bare.core", sizes.core, SEED, stop, &mut made)?;
    let core = scratch.core("cached.core", sizes.core, SEED, stop, &mut made)?;

    demo.progress.stage("starting the bare core and the cached volume");
    let mut bare = Server::loligo(&binary, dir, "bare", &bare_args(&disk_model(&bare_core)), stop)?;
    let volume = Volume {
        cache: dir.join("cache"),
        cache_bytes: sizes.cache,
        core: disk_model(&core),
        mode: "wb",
        stats: Some(stats.clone()),
        flush_on_stop: true,
    };
    let mut cached = Server::loligo(&binary, dir, "cached", &volume.args(), stop)?;
    demo.commands.extend([bare.command().to_owned(), cached.command().to_owned()]);

    let region = units::bytes(sizes.region() as f64);
    demo.load("writing data to be verified later", &plan::checksummed(sizes, cached.target()))?;
    demo.load("writing data to be overwritten later", &plan::versioned(sizes, cached.target(), 1))?;
    let warmth = demo.warm_up(&cached)?;

    let mut phases = Vec::new();
    let mut timeline = None;
    for load in plan::loads(sizes, times) {
        let (before, after) = demo.phase(&load, &bare, &cached)?;
        bare.check()?;
        cached.check()?;
        let phase = Phase { name: load.name.to_owned(), detail: load.detail.clone(), before, after };
        demo.progress.say(&format!(
            "{:22} {:>7} -> {:>7} IOPS   {}",
            phase.name,
            units::number(phase.before.iops),
            units::number(phase.after.iops),
            units::times(phase.ratio())
        ));
        if load.fills {
            timeline = Some(Timeline {
                name: phase.name.clone(),
                before: phase.before.series.clone(),
                after: phase.after.series.clone(),
                dirty: demo.watch.course().to_vec(),
            });
        }
        phases.push(phase);
    }
    bare.stop(stop, Duration::from_secs(30))?;

    demo.load("overwriting the versioned data", &plan::versioned(sizes, cached.target(), 2))?;
    let early = plan::checksummed(sizes, cached.target());
    demo.verify(&format!("{region} with CRC32C written before the loads, read through NBD by fio"), &early)?;
    let newest = plan::versioned(sizes, cached.target(), 2);
    demo.verify(
        &format!(
            "{region} written twice in 4 KiB blocks: every block is the newer one, read through NBD by fio"
        ),
        &newest,
    )?;
    let seen = demo.digest("reading the whole volume through NBD", |demo, tick| {
        Digests::of_export(&dir.join("cached.nbd"), "cached", demo.stop, tick)
    })?;

    demo.progress.stage("stopping with --flush-on-stop: all dirty data goes to the core");
    cached.stop(stop, Duration::from_secs(180))?;
    let on_core = || Target::File { path: core.clone(), engine: FileEngine::Psync, direct: false };
    demo.verify(
        "the same CRC32C data, read by fio from the core file alone after the stop",
        &plan::checksummed(sizes, on_core()),
    )?;
    demo.verify(
        "the same newer blocks, read by fio from the core file alone after the stop",
        &plan::versioned(sizes, on_core(), 2),
    )?;
    let lies = demo.digest("reading the core file", |demo, tick| Digests::of_file(&core, demo.stop, tick))?;
    let difference = seen.first_difference(&lies);
    if let Some(mib) = difference {
        demo.progress.say(&format!("the core differs from the volume in MiB {mib}"));
    }
    demo.check(
        "every byte of the core file after the stop is what clients read from the volume before it",
        sizes.core,
        difference.is_none(),
    );
    let same = verify::untouched_is_untouched(&core, sizes, SEED)?;
    demo.check(
        "a region that nothing wrote to still holds its first content on the core",
        sizes.region(),
        same,
    );

    let Demo { commands, checks, .. } = demo;
    Ok(report(opts, facts, phases, timeline, checks, commands, &warmth, begun.elapsed()))
}

#[expect(clippy::too_many_arguments, reason = "the parts of one page, each used once")]
fn report(
    opts: &DemoOptions,
    facts: Facts,
    phases: Vec<Phase>,
    timeline: Option<Timeline>,
    checks: Vec<Check>,
    commands: Vec<String>,
    warmth: &str,
    took: Duration,
) -> Report {
    let [core, cache] = [opts.sizes.core, opts.sizes.cache].map(|size| units::bytes(size as f64));
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
        phases,
        timeline,
        checks,
        commands,
        notes: vec![
            format!("Both sides are files with the same content on the same file system; they ran one after the other. {warmth}"),
            "IOPS and latency of the random write are means over the whole run, from an empty cache through a full one; the course below shows every second.".to_owned(),
        ],
        ..Report::new("Loligo: a slow disk before and after", &summary, SIDES).after(took)
    }
}

impl Demo<'_> {
    /// Runs a job with the stage's name on the progress bar and the dirty share beside it.
    fn load(&mut self, stage: &str, job: &Job) -> Result<Measured> {
        self.progress.stage(stage);
        self.commands.push(job.command_line());
        let (progress, watch) = (&self.progress, &mut self.watch);
        fio::run(job, self.dir, self.stop, &mut |_| {
            watch.look();
            progress.tick(stage, &dirty(watch));
        })
        .with_context(|| format!("during: {stage}"))
    }

    /// Reads the working set until it comes from the cache: a first read only makes a block a candidate.
    fn warm_up(&mut self, cached: &Server) -> Result<String> {
        let mut speeds = Vec::new();
        for pass in 1..=4 {
            let stage = format!("warming the cache, pass {pass}");
            let result = self.load(&stage, &plan::warm_up(&self.opts.sizes, cached.target()))?;
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
    fn phase(&mut self, load: &Load, bare: &Server, cached: &Server) -> Result<(Measured, Measured)> {
        let before = self.load(&format!("{}, bare core", load.name), &load.job(bare.target(), load.bare))?;
        self.settle()?;
        if load.fills {
            self.watch.restart();
        }
        let after = self.load(&format!("{}, cached", load.name), &load.job(cached.target(), load.cached))?;
        Ok((before, after))
    }

    /// Lets the last load's dirty data drain, so that one load's backlog is not the next one's cost.
    fn settle(&mut self) -> Result<(), Interrupted> {
        let begun = Instant::now();
        while begun.elapsed() < self.opts.times.settle
            && self.watch.last().is_some_and(|stats| stats.dirty() > 0.05)
        {
            self.stop.sleep(Duration::from_millis(100))?;
            self.watch.look();
            self.progress.tick("letting dirty data drain", &dirty(&self.watch));
        }
        Ok(())
    }

    /// Verifies what a job wrote; a failure is shown and noted, so that the report tells of it.
    fn verify(&mut self, what: &str, job: &Job) -> Result<()> {
        self.progress.stage(&format!("verifying {what}"));
        let result = fio::verify(job, self.dir, self.stop, &mut |_| ());
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
        &mut self,
        stage: &str,
        gather: impl FnOnce(&Self, &mut dyn FnMut(u64)) -> Result<Digests>,
    ) -> Result<Digests> {
        self.progress.stage(stage);
        let demo = &*self;
        let mut tick = |bytes: u64| demo.progress.tick(stage, &format!(": {}", units::bytes(bytes as f64)));
        gather(demo, &mut tick).with_context(|| format!("during: {stage}"))
    }
}

/// The dirty share in words, for the progress bar.
fn dirty(watch: &Watch) -> String {
    watch.last().map_or(String::new(), |stats| format!("   dirty {:.0} %", stats.dirty() * 100.0))
}
