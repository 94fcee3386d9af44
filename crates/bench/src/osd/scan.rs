//! A cache's content after reads and writes of OSDs behind their clients' backs: scrub, compaction, backfill.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::arm::Arm;
use super::{Bench, DEPTH, WARM};
use crate::fio::{Job, Rw};
use crate::marks::{Row, Want};
use crate::stats::ratio;
use crate::units;

/// The time for which it is warmed, in times that a full cache is given to settle: a block is kept when it is missed again before long.
const WARMING: u32 = 2;
/// Between two looks at the cluster.
const LOOK: Duration = Duration::from_secs(1);
/// The longest that a scan may take.
pub(super) const LIMIT: Duration = Duration::from_secs(1800);
/// An OSD drops a request for a scrub where it cannot begin it: it is asked again.
const AGAIN: Duration = Duration::from_secs(20);

/// The OSDs' own work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scan {
    /// Nothing: how much is gone when nobody did anything.
    Nothing,
    /// Every byte of every copy is read.
    DeepScrub,
    /// The databases are read and written anew.
    Compaction,
    /// All copies but the first are dropped, and made again.
    Backfill,
}

impl Scan {
    const ALL: [Scan; 4] = [Scan::Nothing, Scan::DeepScrub, Scan::Compaction, Scan::Backfill];

    /// Those that there can be with so many copies.
    fn with(replicas: u32) -> &'static [Scan] {
        if replicas > 1 { &Scan::ALL } else { &Scan::ALL[..3] }
    }

    fn words(self) -> &'static str {
        match self {
            Scan::Nothing => "nothing",
            Scan::DeepScrub => "a deep scrub of every group",
            Scan::Compaction => "a compaction of every OSD",
            Scan::Backfill => "a backfill of all but the first copies",
        }
    }

    /// Has it done, and waits for its end.
    fn run(self, arm: &Arm<'_>, replicas: u32) -> Result<()> {
        match self {
            Scan::Nothing => Ok(()),
            Scan::DeepScrub => deep_scrub(arm),
            Scan::Compaction => {
                for osd in osds(arm)? {
                    arm.ceph.run(&["tell", &format!("osd.{osd}"), "compact"])?;
                }
                Ok(())
            }
            Scan::Backfill => backfill(arm, replicas),
        }
    }
}

impl Bench<'_> {
    /// Reads of a hot part of the image that fits the caches, before and after each kind of scan.
    pub(super) fn scans(&mut self, arm: &Arm<'_>) -> Result<()> {
        // Clients read from first copies alone, and half of a cache is to be enough for them.
        let hot = self.opts.cache * u64::from(self.opts.osds) / 2;
        let warm = Job::new(arm.target(), Rw::RandRead, WARM, DEPTH).within(0, hot);
        arm.flush()?;
        arm.run(&warm.lasting(self.opts.settle * WARMING), &mut |_| ())?;
        let scans = Scan::with(self.opts.replicas);
        let mut kept: Vec<Vec<(f64, f64)>> = vec![Vec::new(); scans.len()];
        for round in 0..self.opts.rounds {
            for (scan, kept) in scans.iter().zip(&mut kept) {
                let before = self.hits(arm, hot)?;
                let begun = Instant::now();
                scan.run(arm, self.opts.replicas)?;
                let took = units::time(begun.elapsed().as_nanos() as f64);
                let after = self.hits(arm, hot)?;
                self.record.say(&format!(
                    "{:38} round {}  hits of the hot part {:5.1} % before, {:5.1} % after; it took {took}",
                    scan.words(),
                    round + 1,
                    before * 100.0,
                    after * 100.0
                ));
                kept.push((after, before));
            }
        }
        for (scan, kept) in scans.iter().zip(&kept) {
            let want = if *scan == Scan::Nothing { Want::Nothing } else { Want::AtLeast(0.9) };
            let shares: Vec<String> = kept
                .iter()
                .map(|(after, before)| format!("{:.1} to {:.1} %", before * 100.0, after * 100.0))
                .collect();
            let note = format!(
                "each block of {} read once, share of reads of the OSDs that hit: {}",
                units::bytes(hot as f64),
                shares.join(", ")
            );
            let what = format!("hits of a hot part after {}, of those before", scan.words());
            self.record.push(Row::new(1, what, want, ratio(kept, 5)).note(note));
        }
        Ok(())
    }

    /// Reads each block of the hot part once; the share of reads that hit, 0..=1.
    fn hits(&self, arm: &Arm<'_>, hot: u64) -> Result<f64> {
        let before = arm.stats()?;
        let mut job = Job::new(arm.target(), Rw::RandRead, 4096, DEPTH).within(0, hot);
        job.seed = self.record.seed();
        arm.run(&job, &mut |_| ())?;
        Ok(arm.stats()?.hits_since(&before))
    }
}

fn osds(arm: &Arm<'_>) -> Result<Vec<u64>> {
    let listed = arm.ceph.json(&["osd", "ls"])?;
    Ok(listed.as_array().into_iter().flatten().filter_map(serde_json::Value::as_u64).collect())
}

/// The times at which placement groups were last scrubbed deeply, as the cluster writes them.
fn scrubbed(arm: &Arm<'_>) -> Result<BTreeMap<String, String>> {
    let listed = arm.ceph.json(&["pg", "ls"])?;
    let text = |v: &serde_json::Value| v.as_str().unwrap_or_default().to_owned();
    let groups = listed["pg_stats"].as_array().into_iter().flatten();
    Ok(groups.map(|pg| (text(&pg["pgid"]), text(&pg["last_deep_scrub_stamp"]))).collect())
}

fn deep_scrub(arm: &Arm<'_>) -> Result<()> {
    let before = scrubbed(arm)?;
    let begun = Instant::now();
    let mut asked: Option<Instant> = None;
    loop {
        let now = scrubbed(arm)?;
        let left: Vec<&String> =
            before.iter().filter(|(pg, at)| now.get(*pg) == Some(*at)).map(|(pg, _)| pg).collect();
        if left.is_empty() {
            return Ok(());
        }
        ensure!(
            begun.elapsed() < LIMIT,
            "{} groups are not scrubbed after {} s",
            left.len(),
            LIMIT.as_secs()
        );
        if asked.is_none_or(|at| at.elapsed() > AGAIN) {
            for pg in left {
                arm.ceph.run(&["pg", "deep-scrub", pg])?;
            }
            asked = Some(Instant::now());
        }
        arm.sleep(LOOK)?;
    }
}

fn backfill(arm: &Arm<'_>, replicas: u32) -> Result<()> {
    for count in [1, replicas] {
        let copies = count.to_string();
        arm.ceph.run(&["osd", "pool", "set", &arm.pool, "size", &copies, "--yes-i-really-mean-it"])?;
        clean(arm, count)?;
    }
    Ok(())
}

/// Waits until every placement group is whole, with so many copies.
fn clean(arm: &Arm<'_>, copies: u32) -> Result<()> {
    let begun = Instant::now();
    loop {
        let listed = arm.ceph.json(&["pg", "ls"])?;
        let whole = |pg: &serde_json::Value| {
            pg["state"].as_str().is_some_and(|s| s.starts_with("active+clean"))
                && pg["acting"].as_array().is_some_and(|osds| osds.len() == copies as usize)
        };
        let groups = listed["pg_stats"].as_array();
        if groups.is_some_and(|all| !all.is_empty() && all.iter().all(whole)) {
            return Ok(());
        }
        ensure!(begun.elapsed() < LIMIT, "the cluster is not whole after {} s", LIMIT.as_secs());
        arm.sleep(LOOK)?;
    }
}
