//! One arm: a lab of OSDs on one kind of disk, with an image on it.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use loligo_lab::ceph::Ceph;
use loligo_lab::config::LabConfig;
use loligo_lab::layout::Layout;
use loligo_lab::status::{Cache, caches};

use super::scan;
use crate::bed::{Bed, Place};
use crate::fio::{Job, Measured, Target};
use crate::folder::LAB;
use crate::rbd::{Cluster, Librbd, Source};
use crate::watch::Stats;

/// After a flush the disks finish what BlueStore itself put off.
const QUIET: Duration = Duration::from_secs(2);
/// The devices under the OSDs of an arm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Modelled disks.
    Bare,
    /// Modelled disks behind caches.
    Cached,
    /// Files: what Ceph can do on this machine at most.
    Files,
}

impl Kind {
    /// In words.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Kind::Bare => "bare OSDs",
            Kind::Cached => "cached OSDs",
            Kind::Files => "OSDs on files",
        }
    }
}

/// A running lab with an image on it; goes when dropped. Declare it after the bed.
pub(crate) struct Arm<'a> {
    pub(crate) kind: Kind,
    /// The pool that the image is in.
    pub(crate) pool: String,
    /// The client of the cluster.
    pub(crate) ceph: Ceph,
    bed: &'a Bed,
    dir: PathBuf,
    cluster: Cluster,
    image: String,
    caches: Vec<(String, Cache)>,
}

impl<'a> Arm<'a> {
    /// Brings it up and writes its image whole.
    pub(crate) fn new(
        bed: &'a Bed,
        place: &Place,
        name: &str,
        kind: Kind,
        config: LabConfig,
        image: u64,
        say: &dyn Fn(&str),
    ) -> Result<Arm<'a>> {
        let name = format!("{LAB}-{name}");
        let (dir, pool) = (bed.path(&name), config.pool.clone());
        let caches_of = |dir| if config.cache.is_some() { caches(dir) } else { Ok(Vec::new()) };
        let mut cluster = Cluster::new(bed, place, &name, &Source::Lab(Box::new(config.clone())), say)?;
        let caches = caches_of(&dir)?;
        say(&format!("{name}: writing an image of {}", crate::units::bytes(image as f64)));
        let image = cluster.image(bed, "image", image)?;
        let ceph = Ceph::of(&Layout::at(&dir)?, bed.stop()).within(scan::LIMIT);
        Ok(Arm { kind, pool, ceph, bed, dir, cluster, image, caches })
    }

    /// The image's address for fio: librbd without its cache.
    pub(crate) fn target(&self) -> Target {
        self.cluster.native(&self.image, Librbd::Uncached)
    }

    /// Runs a load, calling `tick` several times a second.
    pub(crate) fn run(&self, job: &Job, tick: &mut dyn FnMut(Duration)) -> Result<Measured> {
        self.bed.run_watched(job, tick)
    }

    /// The caches' numbers together; zeros where there is none.
    pub(crate) fn stats(&self) -> Result<Stats> {
        let mut all = Stats::default();
        for (osd, cache) in &self.caches {
            let text = self.bed.ask(&cache.runtime_dir, &["stats", &cache.volume, "--json"])?;
            let one: Stats = serde_json::from_str(&text).with_context(|| format!("the numbers of {osd}"))?;
            all.cache_bytes += one.cache_bytes;
            all.occupied_bytes += one.occupied_bytes;
            all.dirty_bytes += one.dirty_bytes;
            all.read_hits += one.read_hits;
            all.read_misses += one.read_misses;
            all.destaged_blocks += one.destaged_blocks;
        }
        Ok(all)
    }

    /// Everything dirty goes to the disks. OSDs go on writing a little: some of it is dirty again at once.
    pub(crate) fn flush(&self) -> Result<()> {
        for (_, cache) in &self.caches {
            self.bed.ask(&cache.runtime_dir, &["flush", &cache.volume])?;
        }
        if !self.caches.is_empty() {
            let stats = self.stats()?;
            ensure!(
                stats.dirty() < 0.05,
                "the caches are {:.0} % dirty after a flush",
                stats.dirty() * 100.0
            );
        }
        Ok(self.bed.stop().sleep(QUIET)?)
    }

    /// The settings of BlueStore that one OSD runs with and that say how it treats its disk.
    pub(crate) fn bluestore(&self) -> Result<String> {
        const ASKED: [&str; 5] = [
            "bluestore_prefer_deferred_size",
            "bluestore_deferred_batch_ops",
            "bluestore_throttle_cost_per_io",
            "osd_op_num_shards",
            "osd_op_num_threads_per_shard",
        ];
        let rotates = self.metadata("rotational")?;
        let mut words = vec![format!("rotational {rotates}")];
        for option in ASKED {
            // Zero stands for what there is for this kind of disk.
            let kind = if rotates == "1" { "hdd" } else { "ssd" };
            let own = self.setting(option)?;
            let value = if own == "0" { self.setting(&format!("{option}_{kind}"))? } else { own };
            words.push(format!("{option} {value}"));
        }
        for option in ["bluestore_cache_size", "osd_op_queue"] {
            words.push(format!("{option} {}", self.setting(option)?));
        }
        words.push(format!("min_alloc_size {}", self.metadata("bluestore_min_alloc_size")?));
        Ok(words.join(", "))
    }

    fn setting(&self, option: &str) -> Result<String> {
        let socket = Layout::at(&self.dir)?.run().join("osd.0.asok").display().to_string();
        let said = self.ceph.json(&["--admin-daemon", &socket, "config", "get", option])?;
        Ok(said[option].as_str().unwrap_or("?").to_owned())
    }

    fn metadata(&self, key: &str) -> Result<String> {
        let said = self.ceph.json(&["osd", "metadata", "0"])?;
        Ok(said[key].as_str().unwrap_or("not said").to_owned())
    }

    /// Waits a moment.
    pub(crate) fn sleep(&self, time: Duration) -> Result<()> {
        Ok(self.bed.stop().sleep(time)?)
    }
}
