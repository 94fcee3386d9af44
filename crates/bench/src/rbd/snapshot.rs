//! Figure 6: how long writes wait while another client takes a snapshot and the cache is full of dirty data.

use std::fs;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};

use super::{Bench, Cached};
use crate::child::Child;
use crate::fio::{self, Job, Rw, Waited};
use crate::marks::{Row, Want};
use crate::stats::{median, ratio};
use crate::units;

/// Writes in flight.
const DEPTH: u32 = 16;
/// The factor over the p99 of the time before that a write may take.
const MARK: f64 = 3.0;
/// The longest that a snapshot may take: deadline, attempts, and some.
const LIMIT: Duration = Duration::from_secs(180);

/// The times at which a snapshot was asked for and was there, milliseconds since 1970.
#[derive(Debug, Clone, Copy)]
struct Span {
    from: u64,
    to: u64,
}

/// Runs it.
pub(super) fn run(bench: &mut Bench<'_>, cached: &mut Cached<'_>) -> Result<()> {
    let mut pairs = Vec::new();
    let (mut took, mut before, mut over, mut worst) = (Vec::new(), Vec::new(), (0, 0), 0.0f64);
    for round in 0..bench.opts.rounds {
        let share = cached.fill()?;
        let name = format!("s{round}");
        let (span, each) = under_load(bench, cached, &name)?;
        cached.check()?;
        bench.cluster.forget(&bench.image, &name)?;
        let waits = waits(&each, span, bench.opts.minute)?;
        let (longest, usual) = (waits.longest, waits.usual);
        let seconds = (span.to - span.from) as f64 / 1e3;
        bench.record.say(&format!(
            "snapshot round {} of a cache {:.0} % dirty: {seconds:.1} s; longest write {}, answered {:.1} s after the request; {} of {} \
             writes longer than the mark; before: p99 {}, longest {}",
            round + 1,
            share * 100.0,
            units::time(longest),
            waits.at,
            waits.over,
            waits.during,
            units::time(usual),
            units::time(waits.before)
        ));
        before.push(waits.before);
        over.0 += waits.over;
        over.1 += waits.during;
        worst = worst.max(longest);
        took.push(seconds);
        pairs.push((longest, usual));
    }
    let row = Row::new(
        6,
        format!("4K random write qd{DEPTH}, full cache, during a snapshot: longest write, of p99 before"),
        Want::AtMost(MARK),
        ratio(&pairs, 6),
    );
    let words = format!(
        "snapshots took {:.1} s (median); the longest write of all {}; {} of {} writes longer than {MARK} times the p99; before: p99 {}, \
         longest {} (medians)",
        median(&took),
        units::time(worst),
        over.0,
        over.1,
        units::time(median(&pairs.iter().map(|pair| pair.1).collect::<Vec<_>>())),
        units::time(median(&before))
    );
    bench.record.push(row.note(words));
    Ok(())
}

/// Writes past the full cache for the settling time and a minute, then takes the snapshot, and goes on until it is there.
fn under_load(bench: &Bench<'_>, cached: &Cached<'_>, name: &str) -> Result<(Span, Vec<Waited>)> {
    let lead = bench.opts.settle / 2 + bench.opts.minute;
    let words = bench.bed.path("snapshot.stderr");
    let mut taken: Option<(Child, u64)> = None;
    let mut done: Option<Result<u64>> = None;
    let mut job = Job::new(cached.target(), Rw::RandWrite, 4096, DEPTH);
    // It is ended when the snapshot is there.
    job = job.lasting(lead + LIMIT);
    job.seed = bench.record.seed();
    let mut ended: Option<Instant> = None;
    let mut go_on = |elapsed: Duration| {
        if elapsed < lead {
            return true;
        }
        if let Some(at) = ended {
            return at.elapsed() < Duration::from_secs(2);
        }
        match &mut taken {
            None => match bench.cluster.snapshot(&bench.image, name, &words) {
                Ok(child) => taken = Some((child, now())),
                Err(error) => done = Some(Err(error)),
            },
            Some((child, _)) => match child.try_wait() {
                Ok(None) => {}
                Ok(Some(status)) if status.success() => done = Some(Ok(now())),
                Ok(Some(_)) => {
                    let said = fs::read_to_string(&words).unwrap_or_default();
                    done = Some(Err(anyhow::anyhow!("rbd snap create failed: {}", said.trim())));
                }
                Err(error) => done = Some(Err(error.into())),
            },
        }
        if done.is_some() {
            ended = Some(Instant::now());
        }
        true
    };
    let each = fio::run_each(&job, &bench.bed.path(""), bench.bed.stop(), &mut go_on);
    let each = each.with_context(|| match &done {
        None => "while a snapshot was asked for, which was not there in the end".to_owned(),
        Some(Ok(at)) => format!(
            "writes did not end after a snapshot that took {} ms",
            at - taken.as_ref().map_or(*at, |(_, from)| *from)
        ),
        Some(Err(error)) => format!("after a snapshot that failed: {error:#}"),
    })?;
    let Some((_, from)) = taken else { bail!("fio ended before the snapshot was asked for") };
    let to = done.context("the snapshot was not there in time")??;
    Ok((Span { from, to }, each))
}

/// The waits of writes; nanoseconds.
#[derive(Debug, PartialEq)]
struct Waits {
    /// The longest of those under way during the snapshot.
    longest: f64,
    /// The time of its answer, seconds after the snapshot was asked for.
    at: f64,
    /// The number under way, and of those that waited longer than the mark.
    during: usize,
    over: usize,
    /// The 99th percentile of those answered in the time before, and the longest of them.
    usual: f64,
    before: f64,
}

/// Those of the writes that were under way during the snapshot, and of those answered in the time before it.
fn waits(each: &[Waited], span: Span, before: Duration) -> Result<Waits> {
    let since = span.from.saturating_sub(before.as_millis() as u64);
    let mut usual: Vec<u64> = each
        .iter()
        .filter(|one| one.at_ms >= since && one.at_ms < span.from)
        .map(|one| one.wait_ns)
        .collect();
    usual.sort_unstable();
    ensure!(usual.len() >= 100, "only {} writes were answered before the snapshot", usual.len());
    let p99 = usual[(usual.len() * 99).div_ceil(100) - 1];
    let mut during: Vec<&Waited> =
        each.iter().filter(|one| one.at_ms >= span.from && one.since_ms() <= span.to).collect();
    during.sort_unstable_by_key(|one| one.wait_ns);
    let longest = during.last().context("no write was answered during the snapshot or after it")?;
    let over = during.iter().filter(|one| one.wait_ns as f64 > MARK * p99 as f64).count();
    Ok(Waits {
        longest: longest.wait_ns as f64,
        at: (longest.at_ms - span.from) as f64 / 1e3,
        during: during.len(),
        over,
        usual: p99 as f64,
        before: usual[usual.len() - 1] as f64,
    })
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(at_ms: u64, wait_ms: u64) -> Waited {
        Waited { at_ms, wait_ns: wait_ms * 1_000_000, write: true }
    }

    #[test]
    fn a_write_begun_during_the_snapshot_counts_wherever_it_ends() {
        let mut each: Vec<Waited> = (0..200).map(|i| one(10_000 + i, 2)).collect();
        each.push(one(5_000, 900));
        each.push(one(14_000, 3_500));
        each.push(one(30_000, 15_000));
        each.push(one(90_000, 50_000));
        let span = Span { from: 11_000, to: 16_000 };
        let before = Duration::from_secs(2);
        let waited = waits(&each, span, before).unwrap();
        let want = Waits { longest: 15e9, at: 19.0, during: 2, over: 2, usual: 2e6, before: 2e6 };
        assert_eq!(waited, want);
        assert!(waits(&each[..50], span, before).is_err());
    }
}
