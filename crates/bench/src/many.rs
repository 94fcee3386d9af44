//! Many cores on one pool: whether a busy one starves the others, how shares follow who wants them, what all reach together, and
//! what the way through a share costs. In this process, without a transport: a thread and a ring for each core, as in a service.

mod load;
mod member;

use crate::bed::{Bed, Place};
use crate::facts::Facts;
use crate::in_process::InProcess;
use crate::stats::{Ratio, median, ratio};
use crate::table::Table;
use crate::units;
use anyhow::Result;
use load::{Steady, steady, storm};
use loligo_block::DeviceSpec;
use loligo_service::pool::{Attach, Pool, create};
use member::Member;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

const MIB: u64 = 1 << 20;
/// What every core is promised.
const PROMISED: u64 = 28 * MIB;
/// What nobody is.
const OPEN: u64 = 512 * MIB;
/// What one may have.
const MOST: u64 = 640 * MIB;
/// Bytes of a core: a modelled disk over a sparse file.
const CORE: u64 = 1024 * MIB;
/// Requests a second to each core that is not busy.
const RATE: u32 = 10;
/// Requests that the busy core has under way.
const DEPTH: usize = 32;
/// How long shares are given to follow.
const FOLLOW: Duration = Duration::from_secs(40);

/// How the experiment runs.
#[derive(Debug, Clone)]
pub struct Options {
    /// Program, folder, interrupt.
    pub place: Place,
    /// Cores.
    pub cores: u16,
    /// Length of each run.
    pub time: Duration,
    /// Interleaved pairs of runs without and with a busy core.
    pub pairs: usize,
}

impl Options {
    /// 64 cores, five pairs of 6 s runs.
    pub fn new(place: Place) -> Options {
        Options { place, cores: 64, time: Duration::from_secs(6), pairs: 5 }
    }
}

/// A run of the cores that are not busy.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Side {
    /// Requests a second that were answered, of all of them.
    pub iops: f64,
    /// Median latency, nanoseconds.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// The fewest answers that one core got, in percent of what it asked for.
    pub least_percent: f64,
}

/// Bytes that the two busy cores had.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Shares {
    /// When it was looked at.
    pub seconds: u64,
    /// The first's.
    pub first: u64,
    /// The second's.
    pub second: u64,
    /// The smallest of all the others'.
    pub least: u64,
}

/// The experiment's result.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Many {
    /// The machine.
    pub facts: Facts,
    /// Cores.
    pub cores: u16,
    /// Requests a second that the others are asked for together.
    pub asked: f64,
    /// Medians of the runs without a busy core.
    pub alone: Side,
    /// With one.
    pub beside: Side,
    /// Answers with over without.
    pub rate: Ratio,
    /// 99th percentile with over without.
    pub p99: Ratio,
    /// What the busy core wrote meanwhile, requests a second.
    pub busy_iops: f64,
    /// How shares followed: one core busy, then a second as well.
    pub shares: Vec<Shares>,
    /// Cached overwrites a second of so many cores together, at 64 requests under way in all.
    pub together: Vec<(u16, f64)>,
    /// Write-back rate of a cache in a share over one on a file of its own.
    pub through_share: Ratio,
}

/// Runs it.
///
/// # Errors
/// Where something cannot be made, or a request fails.
pub fn run(opts: &Options) -> Result<Many> {
    let size = u64::from(opts.cores) * PROMISED + OPEN + 16 * MIB;
    let bed = Bed::new(&opts.place, size + 2048 * MIB)?;
    let through_share = through_share(&bed, opts)?;
    let path = bed.path("pool");
    let pool = create(&path, Some(size), false, false)?;
    let mut members = Vec::new();
    for n in 0..opts.cores {
        bed.stop().check()?;
        attach(&pool, n, PROMISED, MOST)?;
        members.push(Member::new(&pool, n, &disk(&bed, n)?)?);
    }
    let (busy, others) = members.split_at(1);
    let locals: Vec<_> = others.iter().map(Member::local).collect();
    let mut pairs: Vec<(Steady, Steady)> = Vec::new();
    let mut busy_iops = Vec::new();
    for pair in 0..opts.pairs {
        bed.stop().check()?;
        let alone = steady(&locals, RATE, opts.time, pair as u64)?;
        let (beside, wrote) = std::thread::scope(|s| {
            let first = [busy[0].local()];
            let storm = s.spawn(move || storm(&first, DEPTH, CORE, opts.time, pair as u64));
            (steady(&locals, RATE, opts.time, 100 + pair as u64), storm.join().expect("it does not panic"))
        });
        busy_iops.push(wrote?);
        pairs.push((beside?, alone));
        busy[0].flush()?;
    }
    let shares = follow(&bed, &members)?;
    let together = together(&members, opts)?;
    members.into_iter().try_for_each(Member::end)?;
    let side = |pick: fn(&(Steady, Steady)) -> &Steady| {
        let of = |f: fn(&Steady) -> f64| median(&pairs.iter().map(|p| f(pick(p))).collect::<Vec<_>>());
        Side {
            iops: of(|s| s.iops),
            p50: of(|s| s.p50),
            p99: of(|s| s.p99),
            least_percent: of(|s| s.least_percent),
        }
    };
    let each =
        |f: fn(&Steady) -> f64| pairs.iter().map(|(with, without)| (f(with), f(without))).collect::<Vec<_>>();
    Ok(Many {
        facts: bed.facts(),
        cores: opts.cores,
        asked: f64::from(RATE) * locals.len() as f64,
        alone: side(|p| &p.1),
        beside: side(|p| &p.0),
        rate: ratio(&each(|s| s.iops), 7),
        p99: ratio(&each(|s| s.p99), 7),
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

/// A modelled disk of [`CORE`] bytes.
fn disk(bed: &Bed, number: u16) -> Result<DeviceSpec> {
    let path: PathBuf = bed.path(&format!("core{number}"));
    std::fs::File::create(&path)?.set_len(CORE)?;
    Ok(crate::server::disk_model(&path).parse()?)
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
fn together(members: &[Member], opts: &Options) -> Result<Vec<(u16, f64)>> {
    let all = members.len() as u16;
    let mut rates = Vec::new();
    for n in [1, 2, 8, all].into_iter().filter(|n| *n <= all) {
        // The last ones, which nobody has made busy so far.
        let locals: Vec<_> = members[members.len() - usize::from(n)..].iter().map(Member::local).collect();
        rates.push((n, storm(&locals, 64, 4 * MIB, opts.time, 2000 + u64::from(n))?));
    }
    Ok(rates)
}

/// The same cache, in a share and on a file of its own, alternated.
fn through_share(bed: &Bed, opts: &Options) -> Result<Ratio> {
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
    let mut pairs = Vec::new();
    for pair in 0..opts.pairs * 2 {
        let write =
            |cache: &mut InProcess| cache.write(DEPTH, 64 * MIB, opts.time / 2, bed.stop()).map(|m| m.iops);
        let (first, second) = (pair % 2 == 0, pair % 2 == 1);
        let mut rates = (0.0, 0.0);
        if first {
            rates.0 = write(&mut member)?;
        }
        rates.1 = write(&mut plain)?;
        if second {
            rates.0 = write(&mut member)?;
        }
        pairs.push(rates);
    }
    drop((plain, member, share, pool));
    std::fs::remove_file(own)?;
    std::fs::remove_file(shared)?;
    Ok(ratio(&pairs, 7))
}

impl Many {
    /// The figures, one table.
    pub fn table(&self) -> Table {
        let mut table = Table::new(["one pool", "IOPS", "p50", "p99", "least served"]);
        let cores = self.cores - 1;
        for (name, s) in [("nobody busy", &self.alone), ("beside a busy one", &self.beside)] {
            table.row([
                format!("{cores} cores, {} IOPS asked, {name}", units::number(self.asked)),
                units::number(s.iops),
                units::time(s.p50),
                units::time(s.p99),
                format!("{:.0} %", s.least_percent),
            ]);
        }
        let shown = |r: &Ratio| format!("{} ({})", units::times(r.value), r.interval());
        let none = String::new;
        table.row(["ratio".to_owned(), shown(&self.rate), none(), shown(&self.p99), none()]);
        table.row([
            "the busy one: 4K random writes past its share".to_owned(),
            units::number(self.busy_iops),
            none(),
            none(),
            none(),
        ]);
        for s in &self.shares {
            let sizes = [s.first, s.second, s.least].map(|b| units::bytes(b as f64));
            let [first, second, least] = sizes;
            table.row([
                format!("slots after {} s: first, second, least of the others", s.seconds),
                first,
                second,
                least,
                none(),
            ]);
        }
        for (n, iops) in &self.together {
            let name = format!("{n} core(s) together, cached 4K overwrites, 64 under way");
            table.row([name, units::number(*iops), none(), none(), none()]);
        }
        table.row([
            "write-back in a share over a file of its own".to_owned(),
            shown(&self.through_share),
            none(),
            none(),
            none(),
        ]);
        table
    }
}
