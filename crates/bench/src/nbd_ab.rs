//! Figure 6: what the NBD server costs, against nbdkit's file plugin and qemu-nbd, on the same file with the same load,
//! alternately. Loligo serves the file as a pass-through volume, so that its whole engine is in the path.

use std::path::Path;

use anyhow::Result;
use serde::Serialize;

use crate::bed::{Bed, MEMORY, Place};
use crate::facts::Facts;
use crate::figure::{Figure, Runs};
use crate::fio::{Job, Measured, Rw};
use crate::server::{Server, Volume};
use crate::stats::{Ratio, median_of, pairs, ratio_of};
use crate::table::Table;
use crate::units;

/// Seven pairs of 4 s runs.
pub const RUNS: Runs = Runs::new(7, 4);

/// Bytes of the served file.
const FILE: u64 = 512 << 20;
const CACHE: u64 = 64 << 20;

/// A server to compare with.
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Peer {
    NbdkitFile,
    /// With cache=none and aio=io_uring.
    QemuNbd,
}

#[derive(Serialize)]
struct Row {
    /// The medium under the file.
    medium: &'static str,
    peer: Peer,
    load: &'static str,
    loligo_iops: f64,
    peer_iops: f64,
    loligo_p99_ns: f64,
    peer_p99_ns: f64,
    ratio: Ratio,
}

#[derive(Serialize)]
struct Comparison {
    facts: Facts,
    rows: Vec<Row>,
}

const LOADS: [(&str, Rw, u64, u32); 4] = [
    ("4K random read qd16", Rw::RandRead, 4096, 16),
    ("4K random write qd16", Rw::RandWrite, 4096, 16),
    ("1M sequential read qd4", Rw::Read, 1 << 20, 4),
    ("1M sequential write qd4", Rw::Write, 1 << 20, 4),
];

/// Runs it: on tmpfs against both peers, on disk against qemu-nbd.
///
/// # Errors
/// Where a peer is missing, or a run fails.
pub fn run(place: &Place, runs: Runs) -> Result<impl Figure> {
    let need = FILE + CACHE + (16 << 20);
    let disk = Bed::new(place, need)?;
    let memory = Bed::in_folder(place, Path::new(MEMORY), need)?;
    for bed in [&memory, &disk] {
        bed.file("file", FILE)?;
    }
    let mut rows = Vec::new();
    for (bed, medium, peer) in [
        (&memory, "tmpfs", Peer::NbdkitFile),
        (&memory, "tmpfs", Peer::QemuNbd),
        (&disk, "disk", Peer::QemuNbd),
    ] {
        let file = bed.path("file");
        for (load, rw, block, depth) in LOADS {
            // Each run has a server of its own: two servers cannot both lock the file.
            let one = |server: Server| -> Result<Measured> {
                let job = Job::new(server.target(), rw, block, depth).within(0, FILE).lasting(runs.time);
                let run = bed.run(&job)?;
                bed.end(server)?;
                Ok(run)
            };
            let all = pairs(runs.rounds, |_| one(loligo(bed, &file)?), |_| one(peer.serve(bed, &file)?))?;
            rows.push(Row {
                medium,
                peer,
                load,
                loligo_iops: median_of(&all, |run| run.0.iops),
                peer_iops: median_of(&all, |run| run.1.iops),
                loligo_p99_ns: median_of(&all, |run| run.0.latency.p99_ns as f64),
                peer_p99_ns: median_of(&all, |run| run.1.latency.p99_ns as f64),
                ratio: ratio_of(&all, |run| run.iops, 6),
            });
        }
    }
    Ok(Comparison { facts: disk.facts(), rows })
}

fn loligo(bed: &Bed, file: &Path) -> Result<Server> {
    let core = format!("file:{}", file.display());
    bed.serve("pt", &Volume { mode: "pt", ..bed.volume("cache", CACHE, core) })
}

impl Peer {
    fn serve(self, bed: &Bed, file: &Path) -> Result<Server> {
        match self {
            Peer::NbdkitFile => bed.nbdkit("peer", &["file", &file.display().to_string()]),
            Peer::QemuNbd => bed.qemu_nbd("peer", file),
        }
    }
}

impl Figure for Comparison {
    fn table(&self) -> Table {
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
        Table::of(heads, &self.rows, |row| {
            let peer = match row.peer {
                Peer::NbdkitFile => "nbdkit file",
                Peer::QemuNbd => "qemu-nbd",
            };
            let [iops, peer_iops] = [row.loligo_iops, row.peer_iops].map(units::number);
            let [p99, peer_p99] = [row.loligo_p99_ns, row.peer_p99_ns].map(units::time);
            let [times, interval] = row.ratio.cells();
            let [load, medium, peer] = [row.load, row.medium, peer].map(str::to_owned);
            [load, medium, peer, iops, peer_iops, times, interval, p99, peer_p99]
        })
    }
}
