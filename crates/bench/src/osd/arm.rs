//! One arm: a lab of OSDs on one kind of disk, with an image on it.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use loligo_lab::config::LabConfig;
use loligo_lab::layout::Layout;
use loligo_lab::status::{Cache, caches};
use loligo_lab::up::{CLIENT, UpOptions};
use loligo_lab::{down, process, up};

use crate::bed::{Bed, Place};
use crate::fio::{Job, Measured, Rw, Target};
use crate::watch::Stats;

/// How long a flush of all caches may take.
const FLUSH_LIMIT: Duration = Duration::from_secs(900);
/// How long one of Ceph's tools may take.
const TOOL_LIMIT: Duration = Duration::from_secs(120);
/// After a flush the disks finish what BlueStore itself put off.
const QUIET: Duration = Duration::from_secs(2);
/// The image of each arm.
const IMAGE: &str = "image";

/// What the OSDs of an arm stand on.
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

/// A running lab; goes when dropped. Declare it after the bed.
pub(crate) struct Arm<'a> {
    pub(crate) kind: Kind,
    bed: &'a Bed,
    dir: PathBuf,
    conf: PathBuf,
    pool: String,
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
        let dir = bed.path(&format!("{}-{name}", crate::folder::LAB));
        let pool = config.pool.clone();
        let cached = config.cache.is_some();
        let options = UpOptions { dir: dir.clone(), config, program: place.binary.clone(), force: false };
        let mut arm = Arm { kind, bed, dir, conf: PathBuf::new(), pool, caches: Vec::new() };
        up::up(&options, bed.stop(), &mut |step: &str| say(&format!("{name}: {step}")))?;
        arm.conf = bed.path(&format!("{name}.conf"));
        let text =
            std::fs::read_to_string(Layout::at(&arm.dir)?.conf()).context("the lab's configuration")?;
        // An answer means committed on the OSDs; and several clients of one name would fight over one admin socket.
        std::fs::write(&arm.conf, format!("{text}\n[client.{CLIENT}]\nrbd_cache = false\nadmin_socket =\n"))?;
        if cached {
            arm.caches = caches(&arm.dir)?;
        }
        say(&format!("{name}: writing an image of {}", crate::units::bytes(image as f64)));
        let mut create = Command::new("rbd");
        for name in ["CEPH_ARGS", "CEPH_KEYRING", "CEPH_KEY"] {
            create.env_remove(name);
        }
        let spec = format!("{}/{IMAGE}", arm.pool);
        create.env("CEPH_CONF", &arm.conf).args([
            "--id",
            CLIENT,
            "create",
            "--size",
            &format!("{image}B"),
            &spec,
        ]);
        process::run(&mut create, TOOL_LIMIT, bed.stop()).context("rbd create")?;
        bed.run(&Job::new(arm.target(), Rw::Write, 4 << 20, 8))?;
        Ok(arm)
    }

    /// Where fio reaches the image: librbd without its cache.
    pub(crate) fn target(&self) -> Target {
        Target::Rbd {
            conf: self.conf.clone(),
            id: CLIENT.to_owned(),
            pool: self.pool.clone(),
            image: IMAGE.to_owned(),
        }
    }

    /// Runs a load, calling `tick` several times a second.
    pub(crate) fn run(&self, job: &Job, tick: &mut dyn FnMut(Duration)) -> Result<Measured> {
        self.bed.run_watched(job, tick)
    }

    fn loligo(&self, cache: &Cache, args: &[&str]) -> Result<String> {
        let mut command = Command::new(self.bed.binary());
        command.args(args).env("LOLIGO_RUNTIME_DIR", &cache.runtime_dir);
        process::run(&mut command, FLUSH_LIMIT, self.bed.stop())
            .with_context(|| format!("loligo {}", args.join(" ")))
    }

    /// The caches' numbers together; zeros where there is none.
    pub(crate) fn stats(&self) -> Result<Stats> {
        let mut all = Stats::default();
        for (osd, cache) in &self.caches {
            let text = self.loligo(cache, &["stats", &cache.volume, "--json"])?;
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
            self.loligo(cache, &["flush", &cache.volume])?;
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
        let said = self.json(&["--admin-daemon", &socket, "config", "get", option])?;
        Ok(said[option].as_str().unwrap_or("?").to_owned())
    }

    fn metadata(&self, key: &str) -> Result<String> {
        let said = self.json(&["osd", "metadata", "0"])?;
        Ok(said[key].as_str().unwrap_or("not said").to_owned())
    }

    /// What the cluster answers.
    pub(crate) fn ceph(&self, words: &[&str], limit: Duration) -> Result<String> {
        let mut ask = Command::new("ceph");
        ask.env("CEPH_CONF", Layout::at(&self.dir)?.conf()).args(words);
        process::run(&mut ask, limit, self.bed.stop()).with_context(|| format!("ceph {}", words.join(" ")))
    }

    /// The same, where it is JSON.
    pub(crate) fn json(&self, words: &[&str]) -> Result<serde_json::Value> {
        let words = [words, &["--format", "json"]].concat();
        let text = self.ceph(&words, TOOL_LIMIT)?;
        serde_json::from_str(&text).with_context(|| format!("what ceph {} answers", words.join(" ")))
    }

    /// The pool that the image is in.
    pub(crate) fn pool(&self) -> &str {
        &self.pool
    }

    /// Waits a moment.
    pub(crate) fn sleep(&self, time: Duration) -> Result<()> {
        Ok(self.bed.stop().sleep(time)?)
    }
}

impl Drop for Arm<'_> {
    fn drop(&mut self) {
        let exists = Layout::at(&self.dir).is_ok_and(|at| at.state().exists());
        if exists && let Err(error) = down::down(&self.dir, false, &mut |_: &str| ()) {
            loligo_log::say!("the lab in {} could not be taken down: {error:#}", self.dir.display());
        }
    }
}
