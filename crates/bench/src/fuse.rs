//! A FUSE mount's share in a slow disk's queue: the modelled disk through `loligo serve --bare` and the kernel, against
//! the same model driven in this process, alternately. Without a queue that arrives whole the disk has nothing to choose from.

use std::path::Path;

use anyhow::{Context, Result};
use loligo_block::DeviceSpec;
use serde::Serialize;
use serde_json::Value;

use crate::bed::{Bed, MEMORY, Mountpoint, Place, direct};
use crate::direct_disk::DirectDisk;
use crate::facts::Facts;
use crate::figure::{Figure, Runs};
use crate::fio::{FileEngine, Job, Rw};
use crate::server::bare_args;
use crate::stats::{Ratio, median_of, pairs, ratio};
use crate::table::Table;
use crate::units;

/// Five pairs of 10 s runs.
pub const RUNS: Runs = Runs::new(5, 10);

/// Bytes of the disk.
const DISK: u64 = 1 << 30;
/// Requests in flight on both sides.
const DEPTH: u32 = 32;

#[derive(Serialize)]
struct Row {
    load: &'static str,
    fuse_iops: f64,
    model_iops: f64,
    ratio: Ratio,
    /// The most requests that the model behind the mount had at once.
    queue: u64,
}

#[derive(Serialize)]
struct Queue {
    facts: Facts,
    rows: Vec<Row>,
}

/// Runs it.
///
/// # Errors
/// There is no FUSE, or a run fails.
pub fn run(place: &Place, runs: Runs) -> Result<impl Figure> {
    let bed = Bed::in_folder(place, Path::new(MEMORY), DISK * 2)?;
    let mounted = bed.disk("mounted", DISK)?;
    let own: DeviceSpec = bed.disk("own", DISK)?.parse()?;
    let mut own = DirectDisk::open(&own)?;
    let folder = Mountpoint::new(&bed, "mnt")?;
    let mut rows = Vec::new();
    for (load, rw) in [("4K random read qd32", Rw::RandRead), ("4K random write qd32", Rw::RandWrite)] {
        let mut queue = 0;
        let ours = |round| -> Result<f64> {
            let (iops, most) = through_mount(&bed, &mounted, folder.path(), rw, round, runs)?;
            queue = queue.max(most);
            Ok(iops)
        };
        let theirs = |_| -> Result<f64> {
            loligo_log::say!("{load}, the model in process");
            own.random(rw == Rw::RandWrite, DEPTH as usize, runs.time, bed.stop())
        };
        let iops = pairs(runs.rounds, ours, theirs)?;
        rows.push(Row {
            load,
            fuse_iops: median_of(&iops, |pair| pair.0),
            model_iops: median_of(&iops, |pair| pair.1),
            ratio: ratio(&iops, 16),
            queue,
        });
    }
    Ok(Queue { facts: bed.facts(), rows })
}

/// One run against a server of its own: requests a second, and the most at the model at once.
fn through_mount(
    bed: &Bed,
    core: &str,
    folder: &Path,
    rw: Rw,
    round: usize,
    runs: Runs,
) -> Result<(f64, u64)> {
    let stats = bed.path("stats.json");
    let mut args = bare_args(core);
    args.extend(["--listen".to_owned(), format!("fuse:{}", folder.display())]);
    args.extend(["--stats-json".to_owned(), stats.display().to_string()]);
    let server = bed.loligo("mounted", &args)?;
    let target = direct(&folder.join("mounted"), FileEngine::Libaio);
    let run = bed.run(&Job::new(target, rw, 4096, DEPTH).lasting(runs.time).seeded(round as u64 + 1))?;
    bed.end(server)?;
    // The last numbers are written at the stop.
    let last: Value = serde_json::from_slice(&std::fs::read(&stats)?).context("the server's statistics")?;
    let most = last["core_queue_max"].as_u64().context("the statistics say how long the core's queue was")?;
    Ok((run.iops, most))
}

impl Figure for Queue {
    fn table(&self) -> Table {
        let heads = ["load", "FUSE IOPS", "model IOPS", "ratio", "95 %", "queue at the model"];
        Table::of(heads, &self.rows, |row| {
            let [times, interval] = row.ratio.cells();
            let [fuse, model] = [row.fuse_iops, row.model_iops].map(units::number);
            [row.load.to_owned(), fuse, model, times, interval, row.queue.to_string()]
        })
    }
}
