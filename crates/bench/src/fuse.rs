//! What a FUSE mount leaves of a slow disk's queue: the modelled disk through `loligo serve --bare` and the kernel, against
//! the same model driven in this process, alternately. Without a queue that arrives whole the disk has nothing to choose from.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use loligo_block::DeviceSpec;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::bed::{Bed, Mountpoint, Place, direct};
use crate::direct_disk::DirectDisk;
use crate::facts::Facts;
use crate::fio::{FileEngine, Job, Rw};
use crate::server::{bare_args, disk_model};
use crate::stats::{Ratio, median, pairs, ratio};
use crate::table::Table;
use crate::units;

/// How the comparison runs.
#[derive(Debug, Clone)]
pub struct Options {
    /// Program, folder, interrupt.
    pub place: Place,
    /// Size of the disk, bytes.
    pub disk: u64,
    /// Runs of each side.
    pub pairs: usize,
    /// Length of a run.
    pub time: Duration,
}

impl Options {
    /// A disk of 1 GiB, five pairs of 10 s runs.
    pub fn new(place: Place) -> Options {
        Options { place, disk: 1 << 30, pairs: 5, time: Duration::from_secs(10) }
    }
}

/// Requests in flight on both sides.
const DEPTH: u32 = 32;
/// A file system in memory, so that nothing but the model takes time.
const MEMORY: &str = "/dev/shm";

/// One load.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Row {
    /// The load in words.
    pub load: String,
    /// Median requests per second through the mount.
    pub fuse_iops: f64,
    /// Median requests per second of the model by itself.
    pub model_iops: f64,
    /// The first over the second.
    pub ratio: Ratio,
    /// The most requests that the model behind the mount had at once.
    pub queue: u64,
}

/// The comparison.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Queue {
    /// The machine.
    pub facts: Facts,
    /// One for each load.
    pub rows: Vec<Row>,
}

/// Runs it.
pub fn run(opts: &Options) -> Result<Queue> {
    let bed = Bed::in_folder(&opts.place, Path::new(MEMORY), opts.disk * 2)?;
    let disk = |name: &str| -> Result<String> {
        let path = bed.path(name);
        File::create_new(&path)?.set_len(opts.disk).context("a sparse disk")?;
        Ok(disk_model(&path))
    };
    let mounted = disk("mounted")?;
    let own: DeviceSpec = disk("own")?.parse()?;
    let mut own = DirectDisk::open(&own)?;
    let folder = Mountpoint::new(&bed, "mnt")?;
    let mut rows = Vec::new();
    for (load, rw) in [("4K random read qd32", Rw::RandRead), ("4K random write qd32", Rw::RandWrite)] {
        let mut queue = 0;
        let ours = |round| -> Result<f64> {
            let (iops, most) = through_mount(&bed, &mounted, folder.path(), rw, round, opts.time)?;
            queue = queue.max(most);
            Ok(iops)
        };
        let theirs = |_| -> Result<f64> {
            loligo_log::say!("{load}, the model in process");
            own.random(rw == Rw::RandWrite, DEPTH as usize, opts.time, bed.stop())
        };
        let iops = pairs(opts.pairs, ours, theirs)?;
        let side = |pick: fn(&(f64, f64)) -> f64| median(&iops.iter().map(pick).collect::<Vec<_>>());
        rows.push(Row {
            load: load.to_owned(),
            fuse_iops: side(|pair| pair.0),
            model_iops: side(|pair| pair.1),
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
    time: Duration,
) -> Result<(f64, u64)> {
    let stats = bed.path("stats.json");
    let mut args = bare_args(core);
    args.extend(["--listen".to_owned(), format!("fuse:{}", folder.display())]);
    args.extend(["--stats-json".to_owned(), stats.display().to_string()]);
    let server = bed.loligo("mounted", &args)?;
    let target = direct(&folder.join("mounted"), FileEngine::Libaio);
    let mut job = Job::new(target, rw, 4096, DEPTH).lasting(time);
    job.seed = round as u64 + 1;
    let run = bed.run(&job)?;
    bed.end(server)?;
    // The last numbers are written at the stop.
    let last: Value = serde_json::from_slice(&std::fs::read(&stats)?).context("the server's statistics")?;
    let most = last["core_queue_max"].as_u64().context("the statistics say how long the core's queue was")?;
    Ok((run.iops, most))
}

impl Queue {
    /// One line per load.
    pub fn table(&self) -> Table {
        let mut table =
            Table::new(["load", "FUSE IOPS", "model IOPS", "ratio", "95 %", "queue at the model"]);
        for row in &self.rows {
            table.row([
                row.load.clone(),
                units::number(row.fuse_iops),
                units::number(row.model_iops),
                units::times(row.ratio.value),
                row.ratio.interval(),
                row.queue.to_string(),
            ]);
        }
        table
    }
}
