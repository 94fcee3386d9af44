//! The same load on both sides, alternately, each in its state.

use std::time::Duration;

use anyhow::Result;

use super::Bench;
use super::cached::Cached;
use super::cluster::Librbd;
use crate::fio::{Job, Measured, Rw, Target};
use crate::interrupt::Interrupted;
use crate::marks::{Row, Side, Want};
use crate::stats::{Ratio, ratio, ratio_of};

/// The longest time that a native load runs before it is measured: it fills nothing.
const NATIVE_RAMP: Duration = Duration::from_secs(10);

/// The state that a cached volume is driven to before each load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Before {
    /// Nothing dirty.
    Flushed,
    /// As much dirty as random writes keep it.
    Full,
    /// Left as it is.
    Nothing,
}

impl Before {
    fn words(self) -> &'static str {
        match self {
            Before::Flushed => "cache with room",
            Before::Full => "cache full of dirty data",
            Before::Nothing => "warm cache",
        }
    }
}

/// A load.
#[derive(Debug, Clone)]
pub(crate) struct Cell {
    /// In words.
    pub(crate) what: String,
    pub(crate) rw: Rw,
    pub(crate) block: u64,
    pub(crate) depth: u32,
    /// From the start of the image, bytes; nothing: all of it.
    pub(crate) range: Option<u64>,
    pub(crate) time: Duration,
    /// The same load before, unmeasured.
    pub(crate) ramp: Duration,
}

impl Cell {
    /// Over the whole image, measured from its first second on.
    pub(crate) fn new(rw: Rw, block: u64, depth: u32, time: Duration) -> Cell {
        let words = match rw {
            Rw::Read => "sequential read".to_owned(),
            Rw::Write => "sequential write".to_owned(),
            Rw::RandRead => "random read".to_owned(),
            Rw::RandWrite => "random write".to_owned(),
            Rw::RandMix(reads) => format!("random {reads}/{}", 100 - reads),
        };
        let size = if block >= 1 << 20 { format!("{}M", block >> 20) } else { format!("{}K", block >> 10) };
        let what = format!("{size} {words} qd{depth}");
        Cell { what, rw, block, depth, range: None, time, ramp: Duration::ZERO }
    }

    /// The load on this target; each `seed` has its own addresses.
    pub(crate) fn job(&self, target: Target, ramp: Duration, seed: u64) -> Job {
        let mut job = Job::new(target, self.rw, self.block, self.depth).lasting(self.time).after(ramp);
        if let Some(range) = self.range {
            job = job.within(0, range);
        }
        job.seed = seed;
        job
    }
}

/// Loads that share a flush and a fill.
pub(crate) struct Group {
    loads: Vec<Load>,
    before: Before,
}

/// The results of one load so far.
struct Load {
    cell: Cell,
    cached: Vec<Measured>,
    native: Vec<Measured>,
    shipped: Option<Measured>,
}

impl Group {
    /// Nothing has run.
    pub(crate) fn new(cells: &[Cell], before: Before) -> Group {
        let load =
            |cell: &Cell| Load { cell: cell.clone(), cached: Vec::new(), native: Vec::new(), shipped: None };
        Group { loads: cells.iter().map(load).collect(), before }
    }
}

/// Both sides of a load.
#[derive(Debug, Clone)]
pub(crate) struct Both {
    pub(crate) cell: Cell,
    /// Cached and native, round by round.
    pub(crate) runs: Vec<(Measured, Measured)>,
    /// librbd as shipped, once.
    pub(crate) shipped: Option<Measured>,
    /// The state of the cache, in words.
    pub(crate) detail: &'static str,
}

impl Both {
    /// The ratio of a number of the cached side to that of the native side.
    pub(crate) fn cached_over_native(&self, pick: impl Fn(&Measured) -> f64) -> Ratio {
        ratio_of(&self.runs, pick, 5)
    }

    /// The other way round: how many times less, for latencies.
    pub(crate) fn native_over_cached(&self, pick: impl Fn(&Measured) -> f64) -> Ratio {
        ratio(&self.runs.iter().map(|(cached, native)| (pick(native), pick(cached))).collect::<Vec<_>>(), 5)
    }

    /// A row of this load with both sides in it.
    pub(crate) fn row(&self, figure: u8, what: &str, want: Want, ratio: Ratio) -> Row {
        let mut row = Row::new(figure, format!("{}{what}", self.cell.what), want, ratio);
        row.cached = Some(Side::of(self.runs.iter().map(|run| &run.0)));
        row.native = Some(Side::of(self.runs.iter().map(|run| &run.1)));
        row.shipped = self.shipped.as_ref().map(|run| Side::of([run]));
        row
    }
}

impl Bench<'_> {
    /// Runs a group of loads on both sides, as many rounds as were asked for.
    pub(crate) fn interleave(
        &mut self,
        cached: &mut Cached<'_>,
        cells: &[Cell],
        before: Before,
    ) -> Result<Vec<Both>> {
        let mut group = Group::new(cells, before);
        for round in 0..self.opts.rounds {
            self.round(&mut group, cached, round)?;
        }
        Ok(self.close(group))
    }

    /// Runs all loads of the group on one side and then on the other, and changes which goes first from round to round. The
    /// cached volume is flushed before the native loads, so that no destage runs beside them.
    pub(crate) fn round(&mut self, group: &mut Group, cached: &mut Cached<'_>, round: usize) -> Result<()> {
        for native in if round.is_multiple_of(2) { [true, false] } else { [false, true] } {
            if native {
                cached.flush()?;
            }
            for one in &mut group.loads {
                if !native {
                    one.cached.push(self.cached(cached, &one.cell, group.before, round)?);
                    continue;
                }
                one.native.push(self.native(&one.cell, Librbd::Uncached, round)?);
                if round == 0 {
                    one.shipped = self.shipped(&one.cell)?;
                }
            }
        }
        Ok(())
    }

    /// The results of a group; the middle pair of each load goes into the report.
    pub(crate) fn close(&mut self, group: Group) -> Vec<Both> {
        let detail = group.before.words();
        let both = |one: Load| Both {
            cell: one.cell,
            runs: one.cached.into_iter().zip(one.native).collect(),
            shipped: one.shipped,
            detail,
        };
        let all: Vec<Both> = group.loads.into_iter().map(both).collect();
        for both in &all {
            let pairs = both.runs.iter().map(|(cached, native)| (native, cached));
            self.record.keep(&both.cell.what, both.detail, pairs);
        }
        all
    }

    /// One native run.
    pub(crate) fn native(&mut self, cell: &Cell, librbd: Librbd, round: usize) -> Result<Measured> {
        let target = self.cluster.native(&self.native, librbd);
        let run = self.bed.run(&cell.job(target, cell.ramp.min(NATIVE_RAMP), self.record.seed()))?;
        let side = if librbd == Librbd::Uncached { "librbd, no cache" } else { "librbd as shipped" };
        self.record.tell(&cell.what, side, round, &run);
        Ok(run)
    }

    /// One run of librbd as it is shipped; it is shown beside the others, so that none of them fails with it.
    fn shipped(&mut self, cell: &Cell) -> Result<Option<Measured>> {
        match self.native(cell, Librbd::Shipped, 0) {
            Ok(run) => Ok(Some(run)),
            Err(error) if error.is::<Interrupted>() => Err(error),
            Err(error) => {
                self.record.say(&format!("librbd as shipped is left out: {error:#}"));
                Ok(None)
            }
        }
    }

    /// One run on the cached volume.
    pub(crate) fn cached(
        &mut self,
        cached: &mut Cached<'_>,
        cell: &Cell,
        before: Before,
        round: usize,
    ) -> Result<Measured> {
        match before {
            Before::Flushed => cached.flush()?,
            Before::Full => {
                let share = cached.fill()?;
                self.record.say(&format!("  the cache is {:.0} % dirty", share * 100.0));
            }
            Before::Nothing => {}
        }
        let run = self.bed.run(&cell.job(cached.target(), cell.ramp, self.record.seed()))?;
        cached.check()?;
        self.record.tell(&cell.what, "cached", round, &run);
        Ok(run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_is_named_by_its_size_order_and_depth() {
        let time = Duration::from_secs(1);
        let names = [(Rw::RandMix(70), 4096, 32), (Rw::Write, 4 << 20, 1), (Rw::RandRead, 64 << 10, 64)]
            .map(|(rw, block, depth)| Cell::new(rw, block, depth, time).what);
        assert_eq!(names, ["4K random 70/30 qd32", "4M sequential write qd1", "64K random read qd64"]);
    }

    #[test]
    fn rounds_have_addresses_of_their_own_and_stay_within_the_range() {
        let mut cell = Cell::new(Rw::RandWrite, 4096, 1, Duration::from_secs(1));
        cell.range = Some(1 << 20);
        let target = || Target::Nbd { socket: "/s".into(), export: String::new() };
        let jobs = [1, 2].map(|seed| cell.job(target(), Duration::from_secs(3), seed));
        assert_ne!(jobs[0].seed, jobs[1].seed);
        assert_eq!((jobs[0].size, jobs[0].ramp), (Some(1 << 20), Duration::from_secs(3)));
    }
}
