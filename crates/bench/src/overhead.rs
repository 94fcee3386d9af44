//! A volume's cost beside its transport, against a target that answers at once behind the same one, alternately: requests and
//! processor time. Processor time is the server's, user and system; that of the kernel's own threads, which carry a loop
//! device's requests, is in neither side.

use std::path::{Path, PathBuf};

use anyhow::Result;
use serde::Serialize;

use crate::bed::{Bed, MEMORY, Mountpoint, Place, direct};
use crate::cpu;
use crate::facts::Facts;
use crate::figure::{Figure, Runs};
use crate::fio::{FileEngine, Job, Rw};
use crate::server::{Server, bare_args};
use crate::stats::{Ratio, median_of, pairs, ratio_of};
use crate::table::Table;
use crate::units;

/// Seven pairs of 4 s runs of each load.
pub const BLOCK: Runs = Runs::new(7, 4);
/// Five pairs of 5 s runs.
pub const UBLK: Runs = Runs::new(5, 5);

/// Bytes of the volume behind a mount; the cache holds all of it.
const VOLUME: u64 = 192 << 20;
/// Bytes of the ublk device.
const DEVICE: u64 = 64 << 20;

/// In words, what, bytes of a request, requests at once.
type Load = (&'static str, Rw, u64, u32);

const BLOCK_LOADS: [Load; 6] = [
    ("4K random read qd64", Rw::RandRead, 4096, 64),
    ("4K random read qd32", Rw::RandRead, 4096, 32),
    ("4K random write qd32", Rw::RandWrite, 4096, 32),
    ("4K random read qd1", Rw::RandRead, 4096, 1),
    ("1M read qd32", Rw::Read, 1 << 20, 32),
    ("1M write qd32", Rw::Write, 1 << 20, 32),
];
const UBLK_LOADS: [Load; 4] = [
    ("4K random write qd1", Rw::RandWrite, 4096, 1),
    ("4K random write qd32", Rw::RandWrite, 4096, 32),
    ("4K random read qd1", Rw::RandRead, 4096, 1),
    ("4K random read qd32", Rw::RandRead, 4096, 32),
];

/// A way through the kernel.
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Transport {
    /// The file in a mount.
    Fuse,
    /// The loop device over it.
    Loop,
}

/// Of a run, or medians of several: requests a second, and microseconds of the server's processor time for each.
#[derive(Clone, Copy)]
struct Cost {
    iops: f64,
    cpu_us: f64,
}

impl Cost {
    /// Of `job` to its server.
    fn of(bed: &Bed, server: &Server, job: &Job) -> Result<Cost> {
        let before = cpu::of_process(server.id())?;
        let run = bed.run(job)?;
        let used = cpu::of_process(server.id())? - before;
        Ok(Cost { iops: run.iops, cpu_us: used * 1e6 / run.requests.max(1) as f64 })
    }

    /// Medians of each side.
    fn medians(runs: &[(Cost, Cost)]) -> [Cost; 2] {
        [|pair: &(Cost, Cost)| pair.0, |pair: &(Cost, Cost)| pair.1].map(|side| Cost {
            iops: median_of(runs, |pair| side(pair).iops),
            cpu_us: median_of(runs, |pair| side(pair).cpu_us),
        })
    }
}

#[derive(Serialize)]
struct BlockRow {
    transport: Transport,
    load: &'static str,
    loligo_iops: f64,
    null_iops: f64,
    iops: Ratio,
    loligo_cpu_us: f64,
    null_cpu_us: f64,
    cpu: Ratio,
}

#[derive(Serialize)]
struct Block {
    facts: Facts,
    rows: Vec<BlockRow>,
}

/// A cached volume whose every request is a hit, as a FUSE file and as a loop device over one. Each run has a server of its own.
///
/// # Errors
/// Where there is no FUSE or no loop device, or a run fails.
pub fn block(place: &Place, runs: Runs) -> Result<impl Figure> {
    let bed = Bed::in_folder(place, Path::new(MEMORY), VOLUME * 4)?;
    bed.file("core", VOLUME)?;
    let folder = Mountpoint::new(&bed, "mnt")?;
    let mut rows = Vec::new();
    for transport in [Transport::Fuse, Transport::Loop] {
        for load in BLOCK_LOADS {
            let one =
                |real: bool, round| behind_mount(&bed, transport, folder.path(), load, real, round, runs);
            let all = pairs(runs.rounds, |round| one(true, round), |round| one(false, round))?;
            let [ours, null] = Cost::medians(&all);
            rows.push(BlockRow {
                transport,
                load: load.0,
                loligo_iops: ours.iops,
                null_iops: null.iops,
                iops: ratio_of(&all, |cost| cost.iops, 17),
                loligo_cpu_us: ours.cpu_us,
                null_cpu_us: null.cpu_us,
                cpu: ratio_of(&all, |cost| cost.cpu_us, 17),
            });
        }
    }
    Ok(Block { facts: bed.facts(), rows })
}

fn behind_mount(
    bed: &Bed,
    transport: Transport,
    folder: &Path,
    (_, rw, size, depth): Load,
    real: bool,
    round: usize,
    runs: Runs,
) -> Result<Cost> {
    let name = format!("bench-{}", std::process::id());
    let volume = if real { "hits" } else { "null" };
    let (listen, path) = match transport {
        Transport::Fuse => (format!("fuse:{}", folder.display()), folder.join(volume)),
        Transport::Loop => (format!("loop:{name}"), Path::new("/dev/loligo").join(&name)),
    };
    let target = direct(&path, FileEngine::Libaio);
    let server = if real {
        let core = format!("file:{}", bed.path("core").display());
        let mut args = bed.volume("cache", VOLUME * 2, core).args();
        args.extend(["--listen".to_owned(), listen]);
        let server = bed.loligo(volume, &args)?;
        // Everything is in the cache from here on.
        bed.run(&Job::new(target.clone(), Rw::Write, 1 << 20, 8).within(0, VOLUME))?;
        server
    } else {
        bed.null(&listen, VOLUME)?
    };
    let job = Job::new(target, rw, size, depth).within(0, VOLUME).lasting(runs.time).seeded(round as u64 + 1);
    let cost = Cost::of(bed, &server, &job)?;
    bed.end(server)?;
    Ok(cost)
}

impl Figure for Block {
    fn table(&self) -> Table {
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
        Table::of(heads, &self.rows, |row| {
            let transport = match row.transport {
                Transport::Fuse => "FUSE file",
                Transport::Loop => "FUSE + loop",
            };
            let ([iops, iops_interval], [cpu, cpu_interval]) = (row.iops.cells(), row.cpu.cells());
            let [ours, null, ours_cpu, null_cpu] =
                [row.loligo_iops, row.null_iops, row.loligo_cpu_us, row.null_cpu_us].map(units::number);
            [
                transport.to_owned(),
                row.load.to_owned(),
                ours,
                null,
                iops,
                iops_interval,
                ours_cpu,
                null_cpu,
                cpu,
                cpu_interval,
            ]
        })
    }
}

#[derive(Serialize)]
struct UblkRow {
    load: &'static str,
    /// `bare` or `cached`.
    volume: &'static str,
    iops: f64,
    null_iops: f64,
    ratio: Ratio,
    cpu_us: f64,
    null_cpu_us: f64,
}

#[derive(Serialize)]
struct Ublk {
    facts: Facts,
    rows: Vec<UblkRow>,
}

/// A ublk device over memory, bare and cached.
///
/// # Errors
/// Where there is no ublk, or a run fails.
pub fn ublk(place: &Place, runs: Runs) -> Result<impl Figure> {
    let bed = Bed::in_folder(place, Path::new(MEMORY), DEVICE * 4)?;
    let device = |volume: &str| -> (String, PathBuf) {
        let name = format!("{volume}-{}", std::process::id());
        (format!("ublk:{name}"), Path::new("/dev/loligo").join(&name))
    };
    let (listen, null_path) = device("null");
    let null = bed.null(&listen, DEVICE)?;
    let core = bed.file("core", DEVICE)?.display().to_string();
    let mut rows = Vec::new();
    for volume in ["bare", "cached"] {
        let mut args = match volume {
            "bare" => bare_args(&core),
            // Everything fits: no destaging is waited for, only done.
            _ => bed.volume("cache", DEVICE * 2, core.clone()).args(),
        };
        let (listen, path) = device(volume);
        args.extend(["--listen".to_owned(), listen]);
        let server = bed.loligo(volume, &args)?;
        for (load, rw, size, depth) in UBLK_LOADS {
            let one = |server: &Server, path: &Path, round: usize| {
                let job = Job::new(direct(path, FileEngine::IoUring), rw, size, depth);
                Cost::of(&bed, server, &job.lasting(runs.time).seeded(round as u64 + 1))
            };
            let all = pairs(
                runs.rounds,
                |round| one(&server, &path, round),
                |round| one(&null, &null_path, round),
            )?;
            let [ours, theirs] = Cost::medians(&all);
            rows.push(UblkRow {
                load,
                volume,
                iops: ours.iops,
                null_iops: theirs.iops,
                ratio: ratio_of(&all, |cost| cost.iops, 17),
                cpu_us: ours.cpu_us,
                null_cpu_us: theirs.cpu_us,
            });
        }
        bed.end(server)?;
    }
    bed.end(null)?;
    Ok(Ublk { facts: bed.facts(), rows })
}

impl Figure for Ublk {
    fn table(&self) -> Table {
        let heads = ["load", "volume", "IOPS", "null IOPS", "ratio", "95 %", "CPU us", "null CPU us"];
        Table::of(heads, &self.rows, |row| {
            let [times, interval] = row.ratio.cells();
            let [iops, null, cpu, null_cpu] =
                [row.iops, row.null_iops, row.cpu_us, row.null_cpu_us].map(units::number);
            [row.load.to_owned(), row.volume.to_owned(), iops, null, times, interval, cpu, null_cpu]
        })
    }
}
