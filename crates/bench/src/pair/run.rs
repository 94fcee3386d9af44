//! Playing the rows.

use super::map;
use super::op::{self, Report};
use super::options::Options;
use super::outcome::{Fsck, Outcome};
use super::record::{Run, Worst, load_average};
use super::rows::{Phase, Plan, Row};
use super::scene::{self, Scene};
use crate::bed::Place;
use crate::facts::Facts;
use crate::rng::SplitMix64;
use anyhow::{Context, Result, ensure};
use loligo_ceph::monitors::Monitors;
use loligo_lab::config::LabConfig;
use loligo_lab::fail::now_ms;
use loligo_lab::pairs::place::Controller;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// The load runs so long before the fault.
const BEFORE: Duration = Duration::from_secs(4);
/// And so long after everything is as before.
const AFTER: Duration = Duration::from_secs(4);
/// The time that a takeover may take before the run goes on without.
const TAKEOVER: Duration = Duration::from_secs(60);
/// The time that all may take to be as before.
const SETTLED: Duration = Duration::from_secs(180);
/// The time that monitors may take to answer again.
const MONITORS: Duration = Duration::from_secs(60);
/// The tunable by which a cache keeps what is written.
const DIRTY: (&str, &str) = ("destage-low", "90");
/// Between two looks.
const LOOK: Duration = Duration::from_millis(100);

/// Plays the rows. What is found is in the outcome, also that data was lost. `each` is called with it after each row.
///
/// # Errors
/// If a lab does not come up, or after an interrupt, or if `each` fails.
pub fn run(
    place: &Place,
    options: &Options,
    mut each: impl FnMut(&Outcome) -> Result<()>,
) -> Result<Outcome> {
    ensure!(options.runs > 0, "at least one run is needed");
    let is_mirrored = options.rows().iter().any(|row| row.plan(options.freeze).mirror);
    ensure!(
        options.volumes().is_some() || !is_mirrored,
        "the rows mirror and mirror-cache need volumes: leave --volumes off out, or name other rows with --rows"
    );
    ensure!(
        options.osd_cache.is_none() || !options.rows().contains(&Row::Stock),
        "caches are started by agents, and the row stock has none: name the others with --rows"
    );
    let begun = now_ms();
    let seed = options.seed.unwrap_or(begun);
    let parent =
        place.dir.canonicalize().with_context(|| format!("the folder {}: create it", place.dir.display()))?;
    let folder = |name: &str| parent.join(format!("loligo-pair-{}-{name}", std::process::id()));
    let mut outcome = Outcome::new(options, seed, Facts::of(&parent), load_average());
    let mut player = Player { place, options, dice: SplitMix64::new(seed), begun: Instant::now() };
    let plan = |row: &Row| row.plan(options.freeze);
    let (with, without): (Vec<Row>, Vec<Row>) = options.rows().into_iter().partition(|row| plan(row).agents);
    let (mirrored, plain): (Vec<Row>, Vec<Row>) = with.into_iter().partition(|row| plan(row).mirror);
    let labs = [("agents", true, plain), ("mirror", true, mirrored), ("stock", false, without)];
    for (name, agents, rows) in labs {
        if rows.is_empty() {
            continue;
        }
        player.say(&format!("a lab of {} pairs in {}", options.pairs, folder(name).display()));
        let set = options.set.iter().cloned().collect();
        // Agents start volumes.
        let volumes = options.volumes().filter(|_| agents);
        let config = LabConfig {
            pairs: options.pairs,
            mons: options.mons,
            agents,
            cache: options.osd_cache.clone(),
            // What is taken over is dirty.
            cache_set: options.osd_cache.iter().map(|_| (DIRTY.0.to_owned(), DIRTY.1.to_owned())).collect(),
            volumes,
            mirror: name == "mirror",
            set,
            ..LabConfig::default()
        };
        let mut lab = Scene::new(place, folder(name), config, options.keep)?;
        for row in rows {
            player.row(&mut lab, row, &mut outcome)?;
            outcome.sum_up();
            each(&outcome)?;
        }
        drop(lab);
    }
    Ok(outcome)
}

struct Player<'a> {
    place: &'a Place,
    options: &'a Options,
    dice: SplitMix64,
    begun: Instant,
}

impl Player<'_> {
    fn say(&self, text: &str) {
        loligo_log::say!("[{:6.1} s] {text}", self.begun.elapsed().as_secs_f64());
    }

    fn row(&mut self, lab: &mut Scene<'_>, row: Row, outcome: &mut Outcome) -> Result<()> {
        let plan = row.plan(self.options.freeze);
        if plan.agents {
            lab.set_power(plan.power)?;
        }
        let mut osds = BTreeSet::new();
        for number in 0..self.options.runs {
            lab.ensure_up()?;
            let victim = lab.victim(number);
            let (target, of) = lab.target(&plan, victim);
            osds.extend(of.iter().copied());
            let mut run = Run::new(row, number, target, self.dice.next_u64());
            let played = self.play(lab, &plan, victim, &of, &mut run);
            self.place.stop.check()?;
            run.load_average_after = load_average();
            if let Err(why) = played {
                run.failed = Some(format!("{why:#}"));
                self.say(&format!("{} run {number} on {}: FAILED: {why:#}", row.name(), run.target));
                // What is left of the run is no start of another: all daemons are started anew.
                lab.mend()?;
                lab.stop()?;
            } else {
                self.say(&told(&run, &lab.targets()));
            }
            outcome.runs.push(run);
        }
        if self.options.fsck == "on" {
            lab.stop()?;
            for osd in osds {
                let said = lab.fsck(osd)?;
                self.say(&format!("{}: fsck of osd.{osd}: {said}", row.name()));
                outcome.fsck.push(Fsck { row, osd, said });
            }
        }
        Ok(())
    }

    fn play(
        &self,
        lab: &Scene<'_>,
        plan: &Plan,
        victim: Controller,
        osds: &[u32],
        run: &mut Run,
    ) -> Result<()> {
        let monitors = lab.monitors()?;
        // The start state: nothing of an earlier fault is left.
        lab.mend()?;
        let left = lab.settle(&monitors, SETTLED).context("before the fault")?;
        if left.is_some() {
            self.say("units were given back before the run");
        }
        if plan.mirror {
            lab.wait_in_step(victim, SETTLED).context("before the fault")?;
        }
        let before = lab.counters(victim.node)?;
        let epoch = scene::epoch(&monitors, MONITORS)?;
        let mut client = lab.verify(victim, self.options.rate, run.seed)?;
        self.place.stop.sleep(BEFORE)?;
        run.fault_ms = lab.fail(plan, victim)?;
        let given_back = self.mended(lab, plan, victim, run, osds, &monitors)?;
        if plan.mirror {
            lab.wait_in_step(victim, SETTLED).context("after the fault was mended")?;
        }
        self.place.stop.sleep(AFTER)?;
        let end = now_ms();
        let report = client.finish()?;
        run.given_back = given_back.map(|at| (at as f64 - run.fault_ms as f64) / 1e3);
        measure(run, &lab.targets(), &report, given_back, end);
        lab.settle(&monitors, SETTLED).context("after the run")?;
        let after = lab.counters(victim.node)?;
        run.rejected = after.rejected - before.rejected;
        run.landed = after.landed - before.landed;
        run.take_history(lab.history()?, run.fault_ms.saturating_sub(1000));
        run.take_map(map::changes(&monitors, epoch)?, osds);
        Ok(())
    }

    /// Waits as long as the fault lasts, mends it, and waits until all is as before: when units were given back.
    fn mended(
        &self,
        lab: &Scene<'_>,
        plan: &Plan,
        victim: Controller,
        run: &mut Run,
        osds: &[u32],
        monitors: &Monitors,
    ) -> Result<Option<u64>> {
        let begun = Instant::now();
        while plan.takeovers > 0 && !lab.has_taken_over(victim) {
            if begun.elapsed() > TAKEOVER {
                self.say("nothing was taken over");
                break;
            }
            self.place.stop.sleep(LOOK)?;
        }
        if plan.rejects && lab.has_taken_over(victim) {
            run.late_write_refused = Some(lab.refuses_late_write(victim)?);
        }
        self.place.stop.sleep(plan.lasts)?;
        lab.mend()?;
        if plan.outs > 0 {
            for osd in osds {
                lab.take_in(monitors, *osd)?;
            }
        }
        lab.settle(monitors, SETTLED).context("after the fault was mended")
    }
}

/// Enters what the client saw.
fn measure(run: &mut Run, targets: &[&str], report: &Report, given_back: Option<u64>, end: u64) {
    let (fault, end) = (run.fault_ms as f64, end as f64);
    let turn = given_back.map_or(end, |at| at as f64);
    for (image, pool) in targets.iter().enumerate() {
        for (phase, span) in [(Phase::Fault, [fault, turn]), (Phase::Giveback, [turn, end])] {
            if phase == Phase::Giveback && given_back.is_none() {
                continue;
            }
            let worst = |write| op::worst(report, image, write, span) / 1e3;
            run.worst.push(Worst { pool: (*pool).to_owned(), phase, read: worst(false), write: worst(true) });
        }
        let calm = [fault - BEFORE.as_secs_f64() * 1e3, fault - 100.0];
        let ended = report.ops.iter().filter(|op| op.image == image && op.due_ms + op.took_ms < fault);
        let calm = ended.filter(|op| op.due_ms > calm[0]).map(|op| op.took_ms / 1e3).fold(0.0, f64::max);
        run.before = run.before.max(calm);
    }
    run.counts.clone_from(&report.counts);
    run.client_errors.clone_from(&report.errors);
}

/// A run in a line.
fn told(run: &Run, targets: &[&str]) -> String {
    let worst = |pool: &&str| {
        let of = |phase| run.longest(pool, phase).map_or_else(|| "-".to_owned(), |s| format!("{s:.2}"));
        format!("{pool} {} s, giveback {}", of(Phase::Fault), of(Phase::Giveback))
    };
    let targets: Vec<String> = targets.iter().map(worst).collect();
    format!(
        "{} run {} on {}: {}; errors {}, lost {}, stale {}, wrong {}, rejected {}, landed {}, takeovers {}, outs {}; load {:.1}",
        run.row.name(),
        run.number,
        run.target,
        targets.join("; "),
        run.sum(|c| c.errors + c.stuck),
        run.sum(|c| c.lost),
        run.sum(|c| c.stale),
        run.sum(|c| c.wrong),
        run.rejected,
        run.landed,
        run.takeovers,
        run.outs,
        run.load_average[0]
    )
}
