//! `loligo demo ceph`: RBD images on a real cluster of modelled spinning disks, through librbd and through a cache.

use std::time::Duration;

use anyhow::Result;
use loligo_lab::config::{Data, Kind, LabConfig};

use super::DemoOptions;
use crate::fio::{self, Rw};
use crate::rbd::{Before, Bench, Cached, Cell, Librbd, Options, on_cluster, read};
use crate::report::{Phase, Report, Round, Timeline};
use crate::units;

/// OSDs, and copies of each object.
const OSDS: u32 = 3;
/// Bytes of each image: four times what the OSDs cache together, so that native reads come from the disks.
const IMAGE: u64 = 4 * OSDS as u64 * loligo_lab::conf::OSD_CACHE;
/// Length of a run of each load.
const TIME: Duration = Duration::from_secs(10);
/// Length of a round while the cache warms.
const ROUND: Duration = Duration::from_secs(3);
/// Rounds after which it is as warm as it gets.
const ROUNDS: usize = 25;
/// The time for which an empty cache is written to until it counts as settled.
const FILL: Duration = Duration::from_secs(75);
/// Length of the runs past a full cache.
const SUSTAINED: Duration = Duration::from_secs(20);
/// Requests in flight.
const DEPTH: u32 = 32;
/// Requests in flight past a full cache.
const DEEP: u32 = 64;

/// Everything that the loads gave.
#[derive(Default)]
struct Gathered {
    phases: Vec<Phase>,
    ramp: Vec<Round>,
    commands: Vec<String>,
}

/// Runs the demo. Whatever its end, nothing keeps running and nothing stays but the report.
///
/// # Errors
/// Where Ceph or fio is missing, the lab does not come up, or after an interrupt.
pub fn run(opts: &DemoOptions, replicas: u32) -> Result<()> {
    fio::version()?;
    super::has_folder(&opts.report)?;
    let lab = LabConfig {
        osds: OSDS,
        replicas: Some(replicas),
        data: Data::Kind(Kind::Hdd),
        ..LabConfig::default()
    };
    let bench = Options {
        image: IMAGE,
        cache: IMAGE / 4,
        time: TIME,
        rounds: 1,
        ..Options::new(opts.place.clone(), lab)
    };
    let report = on_cluster(&bench, |bench| {
        let mut all = Gathered::default();
        warm_volume(bench, &mut all)?;
        let timeline = full_volume(bench, &mut all)?;
        Ok(report(bench, all, timeline))
    })?;
    super::show(&report, &opts.report, opts.json)
}

/// The published table: an image that fits into the cache, write-through and write-back.
fn warm_volume(bench: &mut Bench<'_>, all: &mut Gathered) -> Result<()> {
    let cells = [Rw::RandRead, Rw::RandWrite, Rw::RandMix(70)].map(|rw| Cell::new(rw, 4096, DEPTH, TIME));
    let natives =
        cells.iter().map(|cell| bench.native(cell, Librbd::Uncached, 0)).collect::<Result<Vec<_>>>()?;
    let image = bench.image.clone();
    let mut cached = bench.serve("warm", &image, bench.opts.roomy(), "wt")?;
    all.commands.push(cached.command().to_owned());
    warm(bench, &mut cached, all)?;
    for mode in ["wt", "wb"] {
        cached.mode(mode)?;
        bench.record.say(&format!("mode {mode}"));
        for (cell, native) in cells.iter().zip(&natives) {
            let after = bench.cached(&mut cached, cell, Before::Nothing, 0)?;
            let held = units::bytes(bench.opts.image as f64);
            all.phases.push(Phase {
                name: format!("{}, {mode}", short(cell)),
                detail: format!("depth {DEPTH}; {held}, all of it in the cache"),
                before: native.clone(),
                after,
            });
        }
    }
    // Its image goes with the lab: what is dirty need not be written.
    Ok(())
}

/// Rounds of random reads, with a quarter of the image read whole after each, until they come from the cache.
fn warm(bench: &mut Bench<'_>, cached: &mut Cached<'_>, all: &mut Gathered) -> Result<()> {
    let cell = Cell::new(Rw::RandRead, 4096, DEPTH, ROUND);
    let quarter = bench.opts.image / 4;
    for number in 0..ROUNDS {
        let before = cached.stats()?;
        let run = bench.cached(cached, &cell, Before::Nothing, number)?;
        let hits = cached.stats()?.hits_since(&before);
        bench.record.say(&format!("  {:.1} % hits", hits * 100.0));
        all.ramp.push(Round { hits, run });
        if hits >= read::WARM {
            break;
        }
        read::sweep(bench, cached, number as u64 % 4 * quarter, quarter)?;
    }
    Ok(())
}

/// Random writes from an empty cache through a full one, and then past it.
fn full_volume(bench: &mut Bench<'_>, all: &mut Gathered) -> Result<Timeline> {
    let cell = Cell::new(Rw::RandWrite, 4096, DEEP, SUSTAINED);
    let before = bench.native(&cell, Librbd::Uncached, 0)?;
    // No native load comes after this one, so that its image is free.
    let image = bench.native.clone();
    let mut cached = bench.serve("full", &image, bench.opts.cache, "wb")?;
    all.commands.push(cached.command().to_owned());
    let long = Cell { time: FILL, ..cell.clone() };
    let filling = long.job(cached.target(), Duration::ZERO, bench.record.seed());
    cached.watch().restart();
    let course = bench.bed.run_watched(&filling, &mut |_| cached.watch().look())?;
    cached.check()?;
    let dirty = cached.watch().course().to_vec();
    bench.record.tell("from empty to full", "cached", 0, &course);
    let after = bench.cached(&mut cached, &cell, Before::Nothing, 0)?;
    let timeline = Timeline {
        name: format!("{}, from an empty cache", cell.what),
        before: before.series.clone(),
        after: course.series,
        dirty,
    };
    let cache = units::bytes(bench.opts.cache as f64);
    all.phases.push(Phase {
        name: format!("{}, sustained", short(&cell)),
        detail: format!(
            "depth {DEEP}, past a full cache of {cache}, {} s after the first write",
            FILL.as_secs()
        ),
        before,
        after,
    });
    Ok(timeline)
}

/// A load's name without its depth.
fn short(cell: &Cell) -> &str {
    cell.what.rsplit_once(" qd").map_or(cell.what.as_str(), |(load, _)| load)
}

fn report(bench: &Bench<'_>, all: Gathered, timeline: Timeline) -> Report {
    let [roomy, small] = [bench.opts.roomy(), bench.opts.cache].map(|n| units::bytes(n as f64));
    let cache = format!("{roomy} in front of one image, {small} for the sustained write");
    let setup = bench.setup().into_iter().chain([("Cache".to_owned(), cache)]);
    let mut commands = all.commands;
    commands.extend(Phase::commands(&all.phases));
    commands.dedup();
    let title = "Loligo: an RBD image through a cache";
    let summary = "A real Ceph cluster whose OSDs stand on models of 7,200 rpm disks: the same loads through librbd and \
                   through a cached volume, write-through (wt) and write-back (wb).";
    Report {
        facts: bench.bed.facts().with(setup),
        phases: all.phases,
        ramp: all.ramp,
        timeline: Some(timeline),
        commands,
        notes: vec![
            "librbd runs without its own cache (rbd_cache=false): an answer means committed on the OSDs.".to_owned(),
            "While the cache warms, each round of random reads is followed by a quarter of the image read whole: a first read \
             only makes a block a candidate."
                .to_owned(),
            "One run of each load; 'loligo bench rbd' measures pairs with intervals.".to_owned(),
        ],
        ..Report::new(title, summary, ["librbd", "cached"]).after(bench.record.elapsed())
    }
}
