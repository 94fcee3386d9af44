//! Measuring the points.

use super::field::{self, Field};
use super::options::Options;
use super::outcome::{Mirrored, Outcome, PointOutcome, Run};
use super::point::{Figure, Link, Point};
use crate::bed::{Bed, Place};
use crate::pair::record::load_average;
use crate::units;
use anyhow::{Result, ensure};
use loligo_lab::config::LabConfig;
use std::time::{Duration, Instant};

/// The time for which each load runs on a full journal before it is measured.
const RAMP: Duration = Duration::from_secs(1);

/// Measures. Missed goals are in the outcome, and no error. `each` is called with it after each point.
///
/// # Errors
/// If the lab does not come up, a load fails, or after an interrupt, or if `each` fails.
pub fn run(
    place: &Place,
    options: &Options,
    lab: LabConfig,
    mut each: impl FnMut(&Outcome) -> Result<()>,
) -> Result<Outcome> {
    ensure!(options.rounds > 0, "at least one round is needed");
    ensure!(lab.pairs >= 3, "native images have three copies: three pairs are needed");
    let place = Place { verbose: false, ..place.clone() };
    let begun = Instant::now();
    let say = |text: &str| loligo_log::say!("[{:5.0} s] {text}", begun.elapsed().as_secs_f64());
    let bed = Bed::new(&place, field::need(options, lab.pairs))?;
    let field = Field::new(&bed, &place, options, field::sized(options, lab), &say)?;
    let mut outcome = Outcome::new(options, bed.facts(), field.facts()?, load_average());
    let mut bench = Bench { options, field, seed: 0, say: &say };
    for link in options.links() {
        bench.field.set_link(link)?;
        for figure in options.figures() {
            match figure {
                Figure::Sustained => bench.sustained(link, &mut outcome)?,
                burst => {
                    for point in bench.points(burst, link) {
                        let found = bench.burst(point)?;
                        bench.tell(&found);
                        outcome.points.push(found);
                        each(&outcome)?;
                    }
                }
            }
            each(&outcome)?;
        }
    }
    Ok(outcome)
}

/// An arm of a burst.
#[derive(Debug, Clone, Copy)]
enum Arm {
    Native,
    Fast,
    Mirrored,
}

struct Bench<'a> {
    options: &'a Options,
    field: Field<'a>,
    seed: u64,
    say: &'a dyn Fn(&str),
}

impl Bench<'_> {
    fn points(&self, figure: Figure, link: Link) -> Vec<Point> {
        let sizes = self.options.sizes();
        let of = |block| self.options.patterns().into_iter().map(move |p| Point::new(figure, block, p, link));
        sizes.into_iter().flat_map(of).collect()
    }

    /// Addresses that no load had before.
    fn seed(&mut self) -> u64 {
        self.seed += 100;
        self.seed
    }

    /// A point in a cache with room, all arms alternately; the first one changes from round to round.
    fn burst(&mut self, point: Point) -> Result<PointOutcome> {
        let mut runs = Vec::new();
        for round in 0..self.options.rounds {
            let load = load_average();
            let (mut native, mut fast, mut mirrored) = (None, None, None);
            let is_mirrored = self.field.mirrored().is_some() && !point.mirror_goals().is_empty();
            let mut arms = [Arm::Native, Arm::Fast, Arm::Mirrored];
            let arms = &mut arms[..if is_mirrored { 3 } else { 2 }];
            arms.rotate_left(round % arms.len());
            for arm in arms {
                let (seed, time) = (self.seed(), self.options.seconds);
                let acked = |served| {
                    self.field.begin_destaging(served, seed + 1)?;
                    self.field.fast(served, &point, true, time, seed)
                };
                match arm {
                    Arm::Native => {
                        self.field.flush()?;
                        native = Some(self.field.native(&point, true, time, seed)?);
                    }
                    Arm::Fast => fast = Some(acked(self.field.unmirrored())?),
                    Arm::Mirrored => mirrored = self.field.mirrored().map(acked).transpose()?,
                }
            }
            if let (Some(native), Some((fast, counted))) = (native, fast) {
                let mirrored = mirrored.map(|(run, counted)| Mirrored { run, counted });
                runs.push(Run { native, fast, counted, mirrored, load_average: load });
            }
        }
        Ok(PointOutcome::new(point, runs))
    }

    /// All points on a journal that has been full for a while: each round fills it once.
    fn sustained(&mut self, link: Link, outcome: &mut Outcome) -> Result<()> {
        let points = self.points(Figure::Sustained, link);
        let mut runs: Vec<Vec<Run>> = points.iter().map(|_| Vec::new()).collect();
        for round in 0..self.options.rounds {
            let (mut native, mut fast) = (Vec::new(), Vec::new());
            let load = load_average();
            for is_native in if round.is_multiple_of(2) { [true, false] } else { [false, true] } {
                if is_native {
                    self.field.flush()?;
                } else {
                    let seed = self.seed();
                    let dirty = self.field.fill(self.options.settle, seed)?;
                    (self.say)(&format!("round {}: the journal is {:.0} % dirty", round + 1, dirty * 100.0));
                }
                for point in &points {
                    let seed = self.seed();
                    if is_native {
                        native.push(self.field.native(point, false, self.options.seconds, seed)?);
                    } else {
                        let served = self.field.unmirrored();
                        self.field.fast(served, point, false, RAMP, seed + 1)?;
                        fast.push(self.field.fast(served, point, false, self.options.seconds, seed)?);
                    }
                }
            }
            for ((native, (fast, counted)), runs) in native.into_iter().zip(fast).zip(&mut runs) {
                runs.push(Run { native, fast, counted, mirrored: None, load_average: load });
            }
            // A run that is cut keeps what there is of its last rounds.
            outcome.points.retain(|one| one.point.figure != Figure::Sustained || one.point.link != link);
            let so_far =
                points.iter().zip(&runs).map(|(point, runs)| PointOutcome::new(*point, runs.clone()));
            outcome.points.extend(so_far);
        }
        outcome
            .points
            .iter()
            .filter(|one| one.point.figure == Figure::Sustained)
            .for_each(|one| self.tell(one));
        Ok(())
    }

    fn tell(&self, found: &PointOutcome) {
        let point = &found.point;
        let rate = |run: &dyn Fn(&Run) -> f64| units::time(crate::stats::median_of(&found.runs, run));
        let (native, fast) = (rate(&|run| run.native.latency.mean_ns), rate(&|run| run.fast.latency.mean_ns));
        let goals: Vec<String> = found.goals.iter().map(super::outcome::Goal::words).collect();
        (self.say)(&format!(
            "figure {}, links {}: {:16} native {native:>8}, fast {fast:>8}; {}; load {:.1}",
            point.figure.name(),
            point.link.name(),
            point.name(),
            goals.join("; "),
            load_average()[0],
        ));
    }
}
