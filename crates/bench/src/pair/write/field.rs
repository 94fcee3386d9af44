//! The lab with all arms.

use super::options::Options;
use super::point::{Link, Point};
use crate::bed::{Bed, Place};
use crate::fio::{Job, Measured, Rw, Target};
use crate::folder::{LAB, OwnLab};
use anyhow::{Context, Result, bail, ensure};
use loligo_agent::client::AgentClient;
use loligo_lab::ceph::Ceph;
use loligo_lab::config::LabConfig;
use loligo_lab::layout::Layout;
use loligo_lab::pairs::place::{Controller, Side};
use loligo_lab::state::State;
use loligo_lab::up::{self, CLIENT, UpOptions};
use loligo_lab::{links, process, status};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Bytes of an OSD beside its objects.
const OSD_REST: u64 = 3 << 30;
/// Bytes of a lab beside its OSDs and caches.
const LAB_REST: u64 = 1 << 30;
/// The time that the volume may take to be served.
const SERVED: Duration = Duration::from_secs(60);
/// The longest that a command may take: a full cache that is written out.
const COMMAND: Duration = Duration::from_secs(1800);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(200);
/// OSDs write what they deferred after the answer; a client that comes next is not to pay for it.
const QUIET: Duration = Duration::from_secs(2);
/// The most that a run writes into a cache with room, of its bytes.
const ROOM: f64 = 0.4;
/// What is dirty before such a run, of the cache's bytes: enough that destaging runs beside it.
const BEGUN: f64 = 0.15;
/// Growth of the dirty share that a piece of filling makes at least while the cache fills.
const GROWTH: f64 = 0.02;
/// Pieces of filling after which it is as full as it gets.
const PIECES: u64 = 20;
/// The tunable by which each acknowledgement is durable.
const ACK: &str = "ack";

/// Counters of the volume.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
pub(super) struct Counters {
    pub(super) cache_bytes: u64,
    pub(super) dirty_bytes: u64,
    pub(super) cache_flushes: u64,
    pub(super) cache_write_bytes: u64,
    pub(super) destaged_blocks: u64,
    pub(super) bypass: Bypass,
    #[serde(default)]
    pub(super) mirror: Option<Mirror>,
}

/// Of a mirrored volume.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
pub(super) struct Mirror {
    /// The times that a leg was left.
    pub(super) left: u64,
}

/// Of them the requests past the cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
pub(super) struct Bypass {
    pub(super) large: u64,
}

/// The counters over a run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Counted {
    /// Writes that were answered.
    pub acks: u64,
    /// Flushes of the array's LUN.
    pub flushes: u64,
    /// Bytes written to the LUN.
    pub array_bytes: u64,
    /// Bytes destaged meanwhile.
    pub destaged_bytes: u64,
    /// Writes that went past the cache.
    pub past_the_cache: u64,
    /// Dirty share before the run and after it, 0 to 1.
    pub dirty: [f64; 2],
    /// Times that a leg of a mirrored volume was left: such a run had no mirror for a while.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left: Option<u64>,
}

/// A volume of a pair, as an arm.
#[derive(Debug)]
pub(super) struct Served {
    home: Controller,
    volume: String,
    target: Target,
}

/// The arms. What was made on a lab that is not its own goes with it.
pub(super) struct Field<'a> {
    bed: &'a Bed,
    place: &'a Place,
    dir: PathBuf,
    /// The namespace of clients.
    client: String,
    native: Target,
    /// Fast ack without a mirror, and with one.
    fast: Served,
    mirrored: Option<Served>,
    pool: String,
    image: String,
    image_bytes: u64,
    own: Option<OwnLab>,
}

impl Drop for Field<'_> {
    fn drop(&mut self) {
        if self.own.is_none() {
            self.leave();
        }
    }
}

/// Free space that a run needs, bytes.
pub(super) fn need(options: &Options, pairs: u32) -> u64 {
    if options.lab.is_some() {
        return 64 << 20;
    }
    let osds = u64::from(pairs) * 2;
    let mirrors = if options.mirror { u64::from(pairs) } else { 0 };
    osds * osd_bytes(options, osds) + (osds + mirrors) * options.cache_size + LAB_REST
}

/// All images, three copies each, with a fifth more.
fn osd_bytes(options: &Options, osds: u64) -> u64 {
    let images = if options.mirror { 3 } else { 2 };
    images * options.image_size * 3 / osds.max(1) * 6 / 5 + OSD_REST
}

/// The lab as it is made.
pub(super) fn sized(options: &Options, base: LabConfig) -> LabConfig {
    let osds = u64::from(base.pairs) * 2;
    LabConfig {
        osd_size: Some(osd_bytes(options, osds).to_string()),
        volumes: Some(options.image_size.to_string()),
        volume_cache: options.cache_size.to_string(),
        mirror: options.mirror,
        // The arm without is on the same arrays.
        mirror_only: options.mirror.then_some(Side::B),
        ..base
    }
}

/// The first volume of a lab with a mirror, or the first without.
fn served(dir: &Path, config: &LabConfig, is_mirrored: bool) -> Result<Option<Served>> {
    for volume in status::status(dir)?.volumes {
        let home = Controller::named(&volume.home, config.pairs).context("the volume's home")?;
        if home.is_mirrored(config) == is_mirrored {
            let target = Target::NbdTcp { address: volume.address, export: volume.name.clone() };
            return Ok(Some(Served { home, volume: volume.name, target }));
        }
    }
    Ok(None)
}

impl<'a> Field<'a> {
    /// Brings the lab up, or finds it, and writes all images whole.
    pub(super) fn new(
        bed: &'a Bed,
        place: &'a Place,
        options: &Options,
        config: LabConfig,
        say: &dyn Fn(&str),
    ) -> Result<Field<'a>> {
        let (dir, own) = match &options.lab {
            Some(dir) => (dir.clone(), None),
            None => {
                let dir = bed.path(LAB);
                let program = place.binary.clone();
                let up = UpOptions { dir: dir.clone(), config, program, force: false };
                let came = up::up(&up, bed.stop(), &mut |step: &str| say(&format!("lab: {step}")));
                // Also where it did not come up: after an interrupt alone nothing is left of it.
                let own = Layout::at(&dir)?.state().exists().then_some(OwnLab(dir.clone()));
                came?;
                (dir, own)
            }
        };
        let at = Layout::at(&dir)?;
        let state = State::of(&at)?;
        ensure!(
            state.config.pairs >= 3 && state.config.volumes.is_some() && state.config.agents,
            "the write path needs a lab of three pairs or more, with agents and volumes: 'loligo lab up --pairs 3 --volumes 2g'"
        );
        let [fast, mirrored] = [false, true].map(|is_mirrored| served(&dir, &state.config, is_mirrored));
        let mirrored = mirrored?.filter(|_| options.mirror);
        let fast = fast?.context("the lab has no volume without a mirror: set mirror-only in its file")?;
        ensure!(
            mirrored.is_some() == options.mirror,
            "the lab has no mirrored volume: bring one up with --mirror, and mirror-only = \"b\" in its file"
        );
        let (pool, image) = (state.config.volume_pool(), format!("native-{}", std::process::id()));
        let conf = bed.path("native.conf");
        let text = std::fs::read_to_string(at.conf()).context("the cluster's configuration")?;
        std::fs::write(&conf, format!("{text}\n[client.{CLIENT}]\nrbd_cache = false\nadmin_socket =\n"))?;
        let native = Target::Rbd { conf, id: CLIENT.to_owned(), pool: pool.clone(), image: image.clone() };
        let client = status::namespace(&dir, "client")?;
        let image_bytes = state.config.volume_bytes()?.unwrap_or(options.image_size);
        let field = Field { bed, place, dir, client, native, fast, mirrored, pool, image, image_bytes, own };
        field.prepare(say)?;
        Ok(field)
    }

    fn prepare(&self, say: &dyn Fn(&str)) -> Result<()> {
        say("waiting for the volume");
        for served in self.volumes() {
            self.wait_served(served)?;
            self.ask(served, &["param", "set", &served.volume, ACK, "durable"])?;
        }
        let size = format!("{}B", self.image_bytes);
        self.ceph()?.tool("rbd", &["create", "--size", &size, &format!("{}/{}", self.pool, self.image)])?;
        say(&format!("writing images of {}", crate::units::bytes(self.image_bytes as f64)));
        for target in std::iter::once(&self.native).chain(self.volumes().map(|served| &served.target)) {
            self.bed.run(&self.job(target, Rw::Write, 4 << 20, 8))?;
        }
        // Each slot of the caches once too, so that no run pays for what its file lacks.
        for served in self.volumes() {
            let mut whole = self.job(&served.target, Rw::RandWrite, 32 << 10, 32);
            whole.total = Some(self.counters(served)?.cache_bytes);
            self.bed.run(&whole)?;
        }
        self.flush()
    }

    fn volumes(&self) -> impl Iterator<Item = &Served> {
        std::iter::once(&self.fast).chain(&self.mirrored)
    }

    /// The mirrored volume, where it is measured.
    pub(super) fn mirrored(&self) -> Option<&Served> {
        self.mirrored.as_ref()
    }

    /// The volume without a mirror.
    pub(super) fn unmirrored(&self) -> &Served {
        &self.fast
    }

    fn leave(&self) {
        let image = format!("{}/{}", self.pool, self.image);
        let undone = links::limit(&self.dir, None)
            .and_then(|()| {
                self.volumes().try_for_each(|served| {
                    self.ask(served, &["param", "set", &served.volume, ACK, "written"]).map(drop)
                })
            })
            .and_then(|()| self.ceph()?.tool("rbd", &["rm", "--no-progress", &image]).map(drop));
        if let Err(error) = undone {
            loligo_log::say!("the lab is not as it was: {error:#}");
        }
    }

    fn ceph(&self) -> Result<Ceph> {
        Ok(Ceph::of(&Layout::at(&self.dir)?, &Default::default()))
    }

    /// The number of the lab's daemons, and how it was made.
    pub(super) fn facts(&self) -> Result<String> {
        let config = State::of(&Layout::at(&self.dir)?)?.config;
        let bytes = |n: u64| crate::units::bytes(n as f64);
        Ok(format!(
            "{} pairs, {} OSDs on arrays, pool {} of {} copies, images of {}, a cache of {} on the array of {}{}",
            config.pairs,
            config.pairs * 2,
            self.pool,
            config.copies(),
            bytes(self.image_bytes),
            bytes(config.volume_cache_bytes()?),
            self.fast.home.node,
            self.mirrored.as_ref().map_or("", |_| "; another with a mirror on a second array"),
        ))
    }

    fn wait_served(&self, served: &Served) -> Result<()> {
        let socket = served.home.run(&Layout::at(&self.dir)?).join("pair.sock");
        let begun = Instant::now();
        let is_running = || -> Result<bool> {
            let units = AgentClient::at(&socket)?.status()?.units;
            Ok(units.iter().any(|unit| unit.name.ends_with(&served.volume) && unit.state == "running"))
        };
        while !is_running().unwrap_or(false) {
            if begun.elapsed() > SERVED {
                bail!(
                    "{} is not served after {} s: see 'loligo pair status'",
                    served.volume,
                    SERVED.as_secs()
                );
            }
            self.bed.stop().sleep(LOOK)?;
        }
        Ok(())
    }

    /// Runs `loligo ARGS` on a volume's controller.
    fn ask(&self, served: &Served, args: &[&str]) -> Result<String> {
        let words: Vec<String> = args.iter().map(|word| (*word).to_owned()).collect();
        let program = self.place.binary.display().to_string();
        let mut command = status::command(&self.dir, Some(&served.home.to_string()), &program, &words)?;
        process::run(&mut command, COMMAND, self.bed.stop())
            .with_context(|| format!("loligo {}", args.join(" ")))
    }

    fn job(&self, target: &Target, rw: Rw, block: u64, depth: u32) -> Job {
        Job::new(target.clone(), rw, block, depth).from_namespace(&self.client)
    }

    fn counters(&self, served: &Served) -> Result<Counters> {
        let text = self.ask(served, &["stats", &served.volume, "--json"])?;
        serde_json::from_str(&text).context("what 'loligo stats' says")
    }

    fn dirty(&self) -> Result<f64> {
        let now = self.counters(&self.fast)?;
        Ok(now.dirty_bytes as f64 / now.cache_bytes.max(1) as f64)
    }

    /// Everything dirty is on the cluster, and stays so while nobody writes.
    pub(super) fn flush(&self) -> Result<()> {
        self.write_back()?;
        Ok(self.bed.stop().sleep(QUIET)?)
    }

    fn write_back(&self) -> Result<()> {
        self.volumes().try_for_each(|served| self.ask(served, &["flush", &served.volume]).map(drop))
    }

    /// Limits the links.
    pub(super) fn set_link(&self, link: Link) -> Result<()> {
        links::limit(&self.dir, link.0)
    }

    /// Makes so much of a clean cache dirty that destaging runs, and no other destages.
    pub(super) fn begin_destaging(&self, served: &Served, seed: u64) -> Result<()> {
        self.write_back()?;
        let mut job = self.job(&served.target, Rw::RandWrite, 32 << 10, 32).seeded(seed);
        job.total = Some((self.counters(served)?.cache_bytes as f64 * BEGUN) as u64 / 4096 * 4096);
        self.bed.run(&job).map(drop)
    }

    /// Writes until no more becomes dirty, and on for as long as `settle`: the dirty share.
    pub(super) fn fill(&self, settle: Duration, seed: u64) -> Result<f64> {
        let bytes = self.counters(&self.fast)?.cache_bytes;
        let (mut before, mut still) = (self.dirty()?, 0);
        for piece in 0..PIECES {
            let mut job = self.job(&self.fast.target, Rw::RandWrite, 16 << 10, 64).seeded(seed + piece);
            job.total = Some(bytes / 4);
            self.bed.run(&job)?;
            let after = self.dirty()?;
            still = if after < before + GROWTH { still + 1 } else { 0 };
            before = after;
            if still == 2 {
                break;
            }
        }
        let load = self.job(&self.fast.target, Rw::RandWrite, 4096, 64).lasting(settle).seeded(seed + PIECES);
        self.bed.run(&load)?;
        self.dirty()
    }

    /// One native run.
    pub(super) fn native(&self, point: &Point, cap: bool, time: Duration, seed: u64) -> Result<Measured> {
        self.measure(&self.native, point, cap, time, seed)
    }

    /// One run of fast ack, on this volume.
    pub(super) fn fast(
        &self,
        served: &Served,
        point: &Point,
        cap: bool,
        time: Duration,
        seed: u64,
    ) -> Result<(Measured, Counted)> {
        let before = self.counters(served)?;
        let run = self.measure(&served.target, point, cap, time, seed)?;
        let after = self.counters(served)?;
        let share = |of: &Counters| of.dirty_bytes as f64 / of.cache_bytes.max(1) as f64;
        let counted = Counted {
            acks: run.requests,
            flushes: after.cache_flushes - before.cache_flushes,
            array_bytes: after.cache_write_bytes - before.cache_write_bytes,
            destaged_bytes: (after.destaged_blocks - before.destaged_blocks) * 4096,
            past_the_cache: after.bypass.large - before.bypass.large,
            dirty: [share(&before), share(&after)],
            left: after.mirror.zip(before.mirror).map(|(after, before)| after.left - before.left),
        };
        Ok((run, counted))
    }

    /// A run is over after its time, or in a cache with room (`cap`) once that has taken what it is to take.
    fn measure(
        &self,
        target: &Target,
        point: &Point,
        cap: bool,
        time: Duration,
        seed: u64,
    ) -> Result<Measured> {
        let job = self.job(target, point.pattern.rw(), point.block, point.depth).lasting(time);
        let mut job = job.seeded(seed);
        if cap {
            let room = self.counters(&self.fast)?.cache_bytes as f64 * ROOM;
            job.total = Some((room as u64 / point.block).max(1) * point.block);
        }
        let run = self.bed.run(&job)?;
        // The course of a run of seconds says nothing.
        Ok(Measured { series: Vec::new(), ..run })
    }
}
