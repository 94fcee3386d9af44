//! Figure 6: what the NBD server costs, against nbdkit's file plugin and qemu-nbd, on the same file with the same load,
//! alternately. Loligo serves the file as a pass-through volume, so that its whole engine is in the path.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::bed::{Bed, Place};
use crate::facts::Facts;
use crate::fio::{Job, Measured, Rw};
use crate::server::{Server, Volume};
use crate::stats::{Ratio, median, pairs, ratio};
use crate::table::Table;
use crate::units;

/// How the comparison runs.
#[derive(Debug, Clone)]
pub struct Options {
    /// Program, folder on a disk, interrupt.
    pub place: Place,
    /// Folder on a tmpfs.
    pub memory: PathBuf,
    /// Size of the served file, bytes.
    pub file: u64,
    /// Runs of each side.
    pub pairs: usize,
    /// Length of a run.
    pub time: Duration,
}

impl Options {
    /// 512 MiB files, seven pairs of 4 s runs.
    pub fn new(place: Place) -> Options {
        Options {
            place,
            memory: PathBuf::from("/dev/shm"),
            file: 512 << 20,
            pairs: 7,
            time: Duration::from_secs(4),
        }
    }
}

/// A server to compare with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Peer {
    /// nbdkit's file plugin.
    NbdkitFile,
    /// qemu-nbd with cache=none and aio=io_uring.
    QemuNbd,
}

impl Peer {
    fn name(self) -> &'static str {
        match self {
            Peer::NbdkitFile => "nbdkit file",
            Peer::QemuNbd => "qemu-nbd",
        }
    }
}

/// One load against one peer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Row {
    /// `tmpfs` or `disk`.
    pub medium: String,
    /// The other server.
    pub peer: Peer,
    /// The load in words.
    pub load: String,
    /// Median requests per second of Loligo.
    pub loligo_iops: f64,
    /// Median requests per second of the peer.
    pub peer_iops: f64,
    /// Median of the runs' 99th percentile latencies of Loligo, nanoseconds.
    pub loligo_p99_ns: f64,
    /// The same of the peer.
    pub peer_p99_ns: f64,
    /// Loligo's requests per second over the peer's.
    pub ratio: Ratio,
}

/// The whole comparison.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Comparison {
    /// The machine and the disk's file system.
    pub facts: Facts,
    /// All rows.
    pub rows: Vec<Row>,
}

const LOADS: [(&str, Rw, u64, u32); 4] = [
    ("4K random read qd16", Rw::RandRead, 4096, 16),
    ("4K random write qd16", Rw::RandWrite, 4096, 16),
    ("1M sequential read qd4", Rw::Read, 1 << 20, 4),
    ("1M sequential write qd4", Rw::Write, 1 << 20, 4),
];

/// Runs it: on tmpfs against both peers, on disk against qemu-nbd.
pub fn run(opts: &Options) -> Result<Comparison> {
    let cache = 64 << 20;
    let need = opts.file + cache + (16 << 20);
    let disk = Bed::new(&opts.place, need)?;
    let memory = Bed::in_folder(&opts.place, &opts.memory, need)?;
    let facts = disk.facts();
    let mut rows = Vec::new();
    let sides = [
        (&memory, "tmpfs", Peer::NbdkitFile),
        (&memory, "tmpfs", Peer::QemuNbd),
        (&disk, "disk", Peer::QemuNbd),
    ];
    for bed in [&memory, &disk] {
        bed.file("file", opts.file)?;
    }
    for (bed, medium, peer) in sides {
        let file = bed.path("file");
        for (load, rw, block, depth) in LOADS {
            let job = |server: &Server| {
                Job::new(server.target(), rw, block, depth).within(0, opts.file).lasting(opts.time)
            };
            let ours = |_| serve_and_run(bed, loligo(bed, &file, cache)?, &job);
            let theirs = |_| serve_and_run(bed, start(bed, peer, &file)?, &job);
            let runs = pairs(opts.pairs, ours, theirs)?;
            rows.push(row(medium, peer, load, &runs));
        }
    }
    Ok(Comparison { facts, rows })
}

/// One run against a server of its own: two servers cannot both lock the file.
fn serve_and_run(bed: &Bed, server: Server, job: &dyn Fn(&Server) -> Job) -> Result<Measured> {
    let result = bed.run(&job(&server))?;
    bed.end(server)?;
    Ok(result)
}

fn loligo(bed: &Bed, file: &Path, cache_bytes: u64) -> Result<Server> {
    let core = format!("file:{}", file.display());
    let cache = bed.path("cache");
    bed.serve("pt", &Volume { cache, cache_bytes, core, mode: "pt", stats: None, flush_on_stop: false })
}

fn start(bed: &Bed, peer: Peer, file: &Path) -> Result<Server> {
    match peer {
        Peer::NbdkitFile => bed.nbdkit("peer", &["file", &file.display().to_string()]),
        Peer::QemuNbd => bed.qemu_nbd("peer", file),
    }
}

fn row(medium: &str, peer: Peer, load: &str, runs: &[(Measured, Measured)]) -> Row {
    let each =
        |pick: &dyn Fn(&(Measured, Measured)) -> f64| median(&runs.iter().map(pick).collect::<Vec<_>>());
    let iops: Vec<(f64, f64)> = runs.iter().map(|(ours, theirs)| (ours.iops, theirs.iops)).collect();
    Row {
        medium: medium.to_owned(),
        peer,
        load: load.to_owned(),
        loligo_iops: each(&|run| run.0.iops),
        peer_iops: each(&|run| run.1.iops),
        loligo_p99_ns: each(&|run| run.0.latency.p99_ns as f64),
        peer_p99_ns: each(&|run| run.1.latency.p99_ns as f64),
        ratio: ratio(&iops, 6),
    }
}

impl Comparison {
    /// One line per load and peer.
    pub fn table(&self) -> Table {
        let heads = [
            "load",
            "file on",
            "peer",
            "loligo IOPS",
            "peer IOPS",
            "ratio",
            "95 %",
            "loligo p99",
            "peer p99",
        ];
        let mut table = Table::new(heads);
        for row in &self.rows {
            table.row([
                row.load.clone(),
                row.medium.clone(),
                row.peer.name().to_owned(),
                units::number(row.loligo_iops),
                units::number(row.peer_iops),
                units::times(row.ratio.value),
                row.ratio.interval(),
                units::time(row.loligo_p99_ns),
                units::time(row.peer_p99_ns),
            ]);
        }
        table
    }
}
