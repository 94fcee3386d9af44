//! `loligo bench rbd`.

use super::{Shown, ended};
use anyhow::{Result, bail};
use loligo_bench::rbd::{self, FIGURES, Options, Source};
use loligo_lab::config::{Data, LabConfig};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// An RBD image through a cache against librbd, on a real cluster: seven figures, alternated
///
/// Makes a lab (three OSDs) and removes it, or uses an existing cluster. Native clients are fio with librbd
/// and rbd_cache=false on an image of their own, of the same size and written whole. librbd with its default
/// settings is shown beside. The cached volume is flushed before each native load. Before each of its own
/// loads it is driven back to the dirty share that it settles at. Missed marks are printed as MISS and are no
/// error. All figures together take about two hours, with --quick a quarter.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Figures:
  1  sustained 4K random write qd64 past a full cache     5  a full cache at qd 1, 16, 64, 128
  2  4K write qd1; 4K to 4M random and sequential write   6  longest write while another client takes a snapshot
  3  warm random read                                     7  client processor time a destaged 4K
  4  reads, writes and a mix, wt and wb

Examples:
  Everything, OSDs on files; the same on modelled disks:
    loligo bench rbd --report rbd-file.html
    loligo bench rbd --data hdd --report rbd-hdd.html
  Two figures, briefly:
    loligo bench rbd --figures 1,3 --quick
  On a cluster that is there:
    loligo bench rbd --conf /etc/ceph/ceph.conf --id bench --pool rbd --dir /ssd")]
pub(crate) struct Args {
    /// The figures to draw up [default: all]
    #[arg(long, value_delimiter = ',', value_name = "N,...", value_parser = clap::value_parser!(u8).range(1..=7))]
    figures: Vec<u8>,
    /// Smaller images and short runs: to see that all works
    #[arg(long)]
    quick: bool,
    /// Seconds of each run, a quarter of it for the sizes of figure 2 [default: 20; 5 with --quick]
    #[arg(long, value_name = "S")]
    seconds: Option<u64>,
    /// Interleaved pairs [default: 5; 2 with --quick]
    #[arg(long, value_name = "N")]
    rounds: Option<usize>,
    /// Seconds that a full cache is written to before it is measured [default: 60; 5 with --quick]
    #[arg(long, value_name = "S")]
    settle: Option<u64>,
    /// The devices of the lab's OSDs: file, or hdd (modelled 7,200 rpm disks)
    #[arg(long, value_name = "KIND", default_value = "file", conflicts_with_all = ["lab", "conf"])]
    data: Data,
    /// OSDs of the lab
    #[arg(long, value_name = "N", default_value_t = 3, conflicts_with_all = ["lab", "conf"])]
    osds: u32,
    /// Copies of each object in the lab
    #[arg(long, value_name = "N", default_value_t = 3, conflicts_with_all = ["lab", "conf"])]
    replicas: u32,
    /// Use the lab that runs in this folder
    #[arg(long, value_name = "DIR", conflicts_with = "conf")]
    lab: Option<PathBuf>,
    /// Use the cluster of this configuration file
    #[arg(long, value_name = "FILE")]
    conf: Option<PathBuf>,
    /// Its client, without 'client.'
    #[arg(long, requires = "conf", default_value = "admin")]
    id: String,
    /// The client's keyring [default: as the configuration says]
    #[arg(long, value_name = "FILE", requires = "conf")]
    keyring: Option<PathBuf>,
    /// Its pool
    #[arg(long, requires = "conf", default_value = "rbd")]
    pool: String,
    /// The cluster's disks are slow: reads are held to the marks for disks (with --conf)
    #[arg(long, requires = "conf")]
    slow: bool,
    /// Sizes of the writes of figure 2, 4k to 4m [default: 4k,16k,64k,256k,1m,4m; 4k,64k,4m with --quick]
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', value_parser = block)]
    blocks: Vec<u64>,
    /// Bytes of each of two images: four times the OSDs' caches or more [default: 1g; 768m with --quick]
    #[arg(long, value_name = "SIZE", value_parser = crate::values::size)]
    image_size: Option<u64>,
    /// Bytes of the cache that is filled with dirty data [default: 256m; 64m with --quick]
    #[arg(long, value_name = "SIZE", value_parser = crate::values::size)]
    cache_size: Option<u64>,
    /// The way the cache destages: auto, grouped or librbd [default: as 'loligo serve' does]
    #[arg(long, value_name = "HOW")]
    destage: Option<String>,
    #[command(flatten)]
    shown: Shown,
}

/// A size that an image's writes can have.
fn block(text: &str) -> Result<u64, String> {
    let bytes = crate::values::size(text).map_err(|error| error.to_string())?;
    let fits = (4096..=4 << 20).contains(&bytes) && bytes.is_multiple_of(4096);
    if fits { Ok(bytes) } else { Err("sizes of writes are multiples of 4k, up to 4m".to_owned()) }
}

/// Measures.
pub(crate) fn run(a: Args) -> Result<ExitCode> {
    ended(options(&a).and_then(|options| a.shown.show(&rbd::run(&options)?)))
}

fn options(a: &Args) -> Result<Options> {
    let place = a.shown.place()?;
    if matches!(a.data, Data::Devices(_)) {
        bail!("--data: file or hdd; for OSDs on devices bring a lab up and name it with --lab");
    }
    let lab =
        LabConfig { osds: a.osds, replicas: Some(a.replicas), data: a.data.clone(), ..LabConfig::default() };
    let mut o = Options::new(place, lab);
    if a.quick {
        o = o.quick();
    }
    if let Some(dir) = &a.lab {
        o = o.on(Source::Running(dir.clone()))?;
    }
    if let Some(conf) = &a.conf {
        let (conf, keyring) = (conf.clone(), a.keyring.clone());
        o = o.on(Source::Given { conf, id: a.id.clone(), keyring, pool: a.pool.clone() })?;
        o.fast = !a.slow;
    }
    o.figures = if a.figures.is_empty() { FIGURES.to_vec() } else { a.figures.clone() };
    o.time = a.seconds.map_or(o.time, Duration::from_secs);
    o.settle = a.settle.map_or(o.settle, Duration::from_secs);
    o.rounds = a.rounds.unwrap_or(o.rounds);
    if !a.blocks.is_empty() {
        o.blocks.clone_from(&a.blocks);
    }
    o.image = a.image_size.unwrap_or(o.image);
    o.cache = a.cache_size.unwrap_or(o.cache);
    o.destage.clone_from(&a.destage);
    Ok(o)
}
