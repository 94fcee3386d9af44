//! Many cores on one pool: whether a busy one starves the others, how shares follow who wants them, what all reach together, and
//! what the way through a share costs. In this process, without a transport: a thread and a ring for each core, as in a service.

mod load;
mod member;

use crate::bed::{Bed, Place};
use crate::facts::Facts;
use crate::figure::{Figure, Runs};
use crate::in_process::InProcess;
use crate::stats::{Ratio, median, median_of, pairs, ratio, ratio_of};
use crate::table::Table;
use crate::units;
use anyhow::Result;
use load::{Steady, steady, storm};
use loligo_block::DeviceSpec;
use loligo_volume::pool::{Attach, Pool, create};
use member::Member;
use serde::Serialize;
use std::time::Duration;

const MIB: u64 = 1 << 20;
/// Bytes that every core is promised.
const PROMISED: u64 = 28 * MIB;
/// Bytes that nobody is promised.
const OPEN: u64 = 512 * MIB;
/// Bytes that one may have.
const MOST: u64 = 640 * MIB;
/// Bytes of a core: a modelled disk over a sparse file.
const CORE: u64 = 1024 * MIB;
/// Requests a second to each core that is not busy.
const RATE: u32 = 10;
/// Requests that the busy core has under way.
const DEPTH: usize = 32;
/// The time that shares are given to follow.
const FOLLOW: Duration = Duration::from_secs(40);

/// Five pairs of 6 s runs.
pub const RUNS: Runs = Runs::new(5, 6);
const CORES: u16 = 64;

/// Bytes that the two busy cores had.
#[derive(Serialize)]
struct Shares {
    /// The time of the look.
    seconds: u64,
    first: u64,
    second: u64,
    /// The smallest of all the others'.
    least: u64,
}

#[derive(Serialize)]
struct Many {
    facts: Facts,
    cores: u16,
    /// Requests a second that the others are asked for together.
    asked: f64,
    /// Medians of the runs without a busy core.
    alone: Steady,
    /// With one.
    beside: Steady,
    /// Answers with over without.
    rate: Ratio,
    /// 99th percentile with over without.
    p99: Ratio,
    /// Writes of the busy core meanwhile, requests a second.
    busy_iops: f64,
    /// The course of the shares: one core busy, then a second as well.
    shares: Vec<Shares>,
    /// Cached overwrites a second of so many cores together, at 64 requests under way in all.
    together: Vec<(u16, f64)>,
    /// Write-back rate of a cache in a share over one on a file of its own.
    through_share: Ratio,
}

/// Runs it.
///
/// # Errors
/// Where something cannot be made, or a request fails.
pub fn run(place: &Place, runs: Runs) -> Result<impl Figure> {
    let size = u64::from(CORES) * PROMISED + OPEN + 16 * MIB;
    let bed = Bed::new(place, size + 2048 * MIB)?;
    let through_share = through_share(&bed, runs)?;
    let pool = create(&bed.path("pool"), Some(size), false, false)?;
    let mut members = Vec::new();
    for n in 0..CORES {
        bed.stop().check()?;
        attach(&pool, n, PROMISED, MOST)?;
        let core: DeviceSpec = bed.disk(&format!("core{n}"), CORE)?.parse()?;
        members.push(Member::new(&pool, n, &core)?);
    }
    let (busy, others) = members.split_at(1);
    let locals: Vec<_> = others.iter().map(Member::local).collect();
    let mut all: Vec<(Steady, Steady)> = Vec::new();
    let mut busy_iops = Vec::new();
    for round in 0..runs.rounds as u64 {
        bed.stop().check()?;
        let alone = steady(&locals, RATE, runs.time, round)?;
        let (beside, wrote) = std::thread::scope(|s| {
            let first = [busy[0].local()];
            let storm = s.spawn(move || storm(&first, DEPTH, CORE, runs.time, round));
            (steady(&locals, RATE, runs.time, 100 + round), storm.join().expect("it does not panic"))
        });
        busy_iops.push(wrote?);
        all.push((beside?, alone));
        busy[0].flush()?;
    }
    let shares = follow(&bed, &members)?;
    let together = together(&members, runs)?;
    members.into_iter().try_for_each(Member::end)?;
    let side = |pick: fn(&(Steady, Steady)) -> &Steady| Steady {
        iops: median_of(&all, |pair| pick(pair).iops),
        p50: median_of(&all, |pair| pick(pair).p50),
        p99: median_of(&all, |pair| pick(pair).p99),
        least_percent: median_of(&all, |pair| pick(pair).least_percent),
    };
    Ok(Many {
        facts: bed.facts(),
        cores: CORES,
        asked: f64::from(RATE) * locals.len() as f64,
        alone: side(|pair| &pair.1),
        beside: side(|pair| &pair.0),
        rate: ratio_of(&all, |side| side.iops, 7),
        p99: ratio_of(&all, |side| side.p99, 7),
        busy_iops: median(&busy_iops),
        shares,
        together,
        through_share,
    })
}

fn attach(pool: &Pool, number: u16, min: u64, max: u64) -> Result<()> {
    let name = format!("core{number}");
    pool.attach(&Attach { number: Some(number), name, min, max: Some(max), weight: 100, shards: 1 }).map(drop)
}

/// One core writes more than its share holds, then a second one as well: what they have as time goes on.
fn follow(bed: &Bed, members: &[Member]) -> Result<Vec<Shares>> {
    let step = FOLLOW / 4;
    let mut seen = Vec::new();
    for (phase, busy) in [1, 2].into_iter().enumerate() {
        let locals: Vec<_> = members[..busy].iter().map(Member::local).collect();
        for look in 0..4 {
            bed.stop().check()?;
            storm(&locals, DEPTH * busy, CORE, step, 1000 + phase as u64 * 10 + look)?;
            let size = |m: &Member| m.share.limit().map(|slots| u64::from(slots) * 4096);
            let others = members[2..].iter().map(size).collect::<Result<Vec<_>>>()?;
            seen.push(Shares {
                seconds: step.as_secs() * (look + 1 + 4 * phase as u64),
                first: size(&members[0])?,
                second: size(&members[1])?,
                least: others.into_iter().min().unwrap_or(0),
            });
        }
    }
    Ok(seen)
}

/// Overwrites of what is cached, by ever more cores with as many requests under way in all.
fn together(members: &[Member], runs: Runs) -> Result<Vec<(u16, f64)>> {
    let all = members.len() as u16;
    let mut rates = Vec::new();
    for n in [1, 2, 8, all].into_iter().filter(|n| *n <= all) {
        // The last ones, which nobody has made busy so far.
        let locals: Vec<_> = members[members.len() - usize::from(n)..].iter().map(Member::local).collect();
        rates.push((n, storm(&locals, 64, 4 * MIB, runs.time, 2000 + u64::from(n))?));
    }
    Ok(rates)
}

/// The same cache, in a share and on a file of its own, alternated.
fn through_share(bed: &Bed, runs: Runs) -> Result<Ratio> {
    let size = 256 * MIB;
    let (own, shared) = (bed.file("own", size)?, bed.path("shared"));
    let pool = create(&shared, Some(size + 64 * MIB), false, false)?;
    attach(&pool, 0, size, size)?;
    let share = pool.share(0)?;
    let core = |name: &str| -> Result<DeviceSpec> {
        std::fs::File::create(bed.path(name))?.set_len(CORE)?;
        Ok(DeviceSpec::File(bed.path(name)))
    };
    let mut plain = InProcess::new(&own, &core("core-of-own")?)?;
    let mut member = InProcess::on(share.device(), share.limit()?, &core("core-of-share")?)?;
    let write = |cache: &mut InProcess| -> Result<f64> {
        Ok(cache.write(DEPTH, 64 * MIB, runs.time / 2, bed.stop())?.iops)
    };
    let rates = pairs(runs.rounds * 2, |_| write(&mut member), |_| write(&mut plain))?;
    drop((plain, member, share, pool));
    std::fs::remove_file(own)?;
    std::fs::remove_file(shared)?;
    Ok(ratio(&rates, 7))
}

impl Figure for Many {
    fn table(&self) -> Table {
        let mut table = Table::new(["one pool", "IOPS", "p50", "p99", "least served"]);
        let none = String::new;
        let cores = self.cores - 1;
        for (name, s) in [("nobody busy", &self.alone), ("beside a busy one", &self.beside)] {
            let name = format!("{cores} cores, {} IOPS asked, {name}", units::number(self.asked));
            let [p50, p99] = [s.p50, s.p99].map(units::time);
            table.row([name, units::number(s.iops), p50, p99, format!("{:.0} %", s.least_percent)]);
        }
        table.row(["ratio".to_owned(), self.rate.to_string(), none(), self.p99.to_string(), none()]);
        let busy = "the busy one: 4K random writes past its share".to_owned();
        table.row([busy, units::number(self.busy_iops), none(), none(), none()]);
        for s in &self.shares {
            let [first, second, least] = [s.first, s.second, s.least].map(|b| units::bytes(b as f64));
            let name = format!("slots after {} s: first, second, least of the others", s.seconds);
            table.row([name, first, second, least, none()]);
        }
        let mut rate = |name: String, iops: String| table.row([name, iops, none(), none(), none()]);
        for (n, iops) in &self.together {
            let name = format!("{n} core(s) together, cached 4K overwrites, 64 under way");
            rate(name, units::number(*iops));
        }
        rate("write-back in a share over a file of its own".to_owned(), self.through_share.to_string());
        table
    }
}
