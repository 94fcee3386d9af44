//! What a volume adds to a FUSE file and to a loop device over one: a cached volume whose every request is a hit, against a
//! volume that answers at once behind the same mount, alternately. Processor time is the server's, user and system; that of
//! the kernel's own threads, which carry a loop device's requests, is in neither side.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::bed::{Bed, Mountpoint, Place, direct};
use crate::facts::Facts;
use crate::fio::{FileEngine, Job, Rw};
use crate::rbd::cpu;
use crate::server::{Server, Volume};
use crate::stats::{Ratio, median, pairs, ratio};
use crate::table::Table;
use crate::units;

/// How the comparison runs.
#[derive(Debug, Clone)]
pub struct Options {
    /// Program, folder, interrupt.
    pub place: Place,
    /// Size of the volume, bytes; the cache holds all of it.
    pub volume: u64,
    /// Runs of each side.
    pub pairs: usize,
    /// Length of a run.
    pub time: Duration,
}

impl Options {
    /// 192 MiB, seven pairs of 4 s runs of each load.
    pub fn new(place: Place) -> Options {
        Options { place, volume: 192 << 20, pairs: 7, time: Duration::from_secs(4) }
    }
}

/// A file system in memory, so that nothing but the processor takes time.
const MEMORY: &str = "/dev/shm";

/// In words, what, bytes of a request, requests at once.
const LOADS: [(&str, Rw, u64, u32); 6] = [
    ("4K random read qd64", Rw::RandRead, 4096, 64),
    ("4K random read qd32", Rw::RandRead, 4096, 32),
    ("4K random write qd32", Rw::RandWrite, 4096, 32),
    ("4K random read qd1", Rw::RandRead, 4096, 1),
    ("1M read qd32", Rw::Read, 1 << 20, 32),
    ("1M write qd32", Rw::Write, 1 << 20, 32),
];

/// A way through the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// The file in a mount.
    Fuse,
    /// The loop device over it.
    Loop,
}

/// One run.
#[derive(Debug, Clone, Copy)]
struct Run {
    iops: f64,
    /// Microseconds of the server's processor time per request.
    cpu_us: f64,
}

/// One load on one transport.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Row {
    /// The way.
    pub transport: Transport,
    /// The load in words.
    pub load: String,
    /// Median requests per second of the volume.
    pub loligo_iops: f64,
    /// The same of the target that answers at once.
    pub null_iops: f64,
    /// The first over the second.
    pub iops: Ratio,
    /// Median microseconds of the volume's processor time per request.
    pub loligo_cpu_us: f64,
    /// The same of the other.
    pub null_cpu_us: f64,
    /// The first over the second.
    pub cpu: Ratio,
}

/// The comparison.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Overhead {
    /// The machine.
    pub facts: Facts,
    /// One for each transport and load.
    pub rows: Vec<Row>,
}

/// Runs it.
pub fn run(opts: &Options) -> Result<Overhead> {
    let bed = Bed::in_folder(&opts.place, Path::new(MEMORY), opts.volume * 4)?;
    bed.file("core", opts.volume)?;
    let folder = Mountpoint::new(&bed, "mnt")?;
    let mut rows = Vec::new();
    for transport in [Transport::Fuse, Transport::Loop] {
        for (load, rw, size, depth) in LOADS {
            let one = |real: bool, round: usize| {
                one(&bed, opts, transport, (real, folder.path()), (rw, size, depth), round)
            };
            let runs = pairs(opts.pairs, |i| one(true, i), |i| one(false, i))?;
            rows.push(row(transport, load, &runs));
        }
    }
    Ok(Overhead { facts: bed.facts(), rows })
}

/// One run against a server of its own.
fn one(
    bed: &Bed,
    opts: &Options,
    transport: Transport,
    (real, folder): (bool, &Path),
    (rw, size, depth): (Rw, u64, u32),
    round: usize,
) -> Result<Run> {
    let name = format!("bench-{}", std::process::id());
    let volume = if real { "hits" } else { "null" };
    let (way, path) = match transport {
        Transport::Fuse => (format!("fuse:{}", folder.display()), folder.join(volume)),
        Transport::Loop => (format!("loop:{name}"), Path::new("/dev/loligo").join(&name)),
    };
    let server = if real { serve(bed, volume, &way, opts.volume)? } else { null(bed, &way, opts.volume)? };
    let target = direct(&path, FileEngine::Libaio);
    if real {
        // Everything is in the cache from here on.
        bed.run(&Job::new(target.clone(), Rw::Write, 1 << 20, 8).within(0, opts.volume))?;
    }
    let mut job = Job::new(target, rw, size, depth).within(0, opts.volume).lasting(opts.time);
    job.seed = round as u64 + 1;
    let before = cpu::of_process(server.id())?;
    let run = bed.run(&job)?;
    let used = cpu::of_process(server.id())? - before;
    bed.end(server)?;
    Ok(Run { iops: run.iops, cpu_us: used * 1e6 / run.requests.max(1) as f64 })
}

fn serve(bed: &Bed, name: &str, way: &str, size: u64) -> Result<Server> {
    let cache = bed.path("cache");
    let core = format!("file:{}", bed.path("core").display());
    let volume = Volume { cache, cache_bytes: size * 2, core, mode: "wb", stats: None, flush_on_stop: false };
    let mut args = volume.args();
    args.extend(["--listen".to_owned(), way.to_owned()]);
    bed.loligo(name, &args)
}

fn null(bed: &Bed, way: &str, size: u64) -> Result<Server> {
    Server::null(bed.binary(), &bed.path(""), way, size, bed.stop())
}

fn row(transport: Transport, load: &str, runs: &[(Run, Run)]) -> Row {
    let side = |pick: fn(&(Run, Run)) -> f64| median(&runs.iter().map(pick).collect::<Vec<_>>());
    let against = |pick: fn(&Run) -> f64| {
        let pairs: Vec<(f64, f64)> = runs.iter().map(|(a, b)| (pick(a), pick(b))).collect();
        ratio(&pairs, 17)
    };
    Row {
        transport,
        load: load.to_owned(),
        loligo_iops: side(|r| r.0.iops),
        null_iops: side(|r| r.1.iops),
        iops: against(|r| r.iops),
        loligo_cpu_us: side(|r| r.0.cpu_us),
        null_cpu_us: side(|r| r.1.cpu_us),
        cpu: against(|r| r.cpu_us),
    }
}

impl Overhead {
    /// One line per transport and load.
    pub fn table(&self) -> Table {
        let heads = [
            "transport",
            "load",
            "loligo IOPS",
            "null IOPS",
            "ratio",
            "95 %",
            "loligo µs CPU/IO",
            "null µs CPU/IO",
            "ratio",
            "95 %",
        ];
        let mut table = Table::new(heads);
        for row in &self.rows {
            let transport = match row.transport {
                Transport::Fuse => "FUSE file",
                Transport::Loop => "FUSE + loop",
            };
            table.row([
                transport.to_owned(),
                row.load.clone(),
                units::number(row.loligo_iops),
                units::number(row.null_iops),
                units::times(row.iops.value),
                row.iops.interval(),
                units::number(row.loligo_cpu_us),
                units::number(row.null_cpu_us),
                units::times(row.cpu.value),
                row.cpu.interval(),
            ]);
        }
        table
    }
}
