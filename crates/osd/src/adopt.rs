//! Putting a cache under an OSD that exists, without making it anew.
//!
//! Everything is checked while the OSD runs. It is down from when it is stopped until it runs on the volume; cut off there, the same
//! command goes on once the volume is made, and before that the OSD is as it was.

use crate::activate;
use crate::ceph_volume::{self, By};
use crate::cluster::{Access, Cluster, default_dir};
use crate::daemon::{self, has_open, holder, linked_from};
use crate::devices::{BLUESTORE, Devices, bluestore_uuid, free, lasting};
use crate::folder;
use crate::place::{self, Known, Place};
use crate::prepare::{Via, warn_of_shared};
use crate::raw::first_block;
use crate::release::{self, forget, may_stop, origin, part};
use crate::say;
use crate::undo::Undo;
use anyhow::{Context, Result, anyhow, bail, ensure};
use loligo_block::veil::body;
use loligo_block::{DeviceFile, DeviceSpec, OpenOptions, SyncFile, SyncIo, Veil};
use loligo_cache::home::HomeLabel;
use loligo_cache::superblock::Superblock;
use loligo_cache::veil;
use loligo_export::blockdev::Owner;
use loligo_lab::interrupt::Interrupt;
use loligo_service::client::{Create, DaemonClient};
use loligo_service::daemon::config::{Leave, VolumeConfig};
use loligo_service::daemon::entry::Status;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Where later releases of Ceph keep further copies of a store's label.
const MORE_LABELS: [u64; 4] = [1 << 30, 10 << 30, 100 << 30, 1000 << 30];

/// An OSD to be adopted.
#[derive(Debug, Clone)]
pub struct Adopt {
    /// Its number.
    pub id: u32,
    /// Its cache.
    pub cache: PathBuf,
    /// Bytes of a new cache.
    pub cache_size: Option<u64>,
    /// The cache's mode.
    pub mode: String,
    /// A named set of the cache's tunables.
    pub profile: Option<String>,
    /// Tunables of the cache.
    pub params: BTreeMap<String, String>,
    /// The cluster.
    pub cluster: Access,
    /// Its folder; nothing: where the packages' units look for it.
    pub dir: Option<PathBuf>,
    /// As whom it runs, as `ceph:ceph`.
    pub user: String,
    /// How it is to reach its volume.
    pub via: Via,
    /// Give up what the cache device holds, where nobody counts on it.
    pub force: bool,
    /// This program, by its whole path.
    pub program: PathBuf,
}

/// What is done, in so far as it is known before anything is.
struct Plan<'a> {
    wanted: &'a Adopt,
    place: Place,
    /// Its own device.
    core: PathBuf,
    /// The cache is there, and not to be made as a file.
    cache_exists: bool,
    /// It was made for this OSD already.
    cache_begun: bool,
    cluster: Cluster,
}

/// Puts a cache under an OSD, and returns when it is up again.
///
/// # Errors
/// What stands in the way, with the mend; the OSD then runs as before, or it is said what is to be done.
pub fn adopt(wanted: &Adopt, stop: &Interrupt) -> Result<()> {
    let id = wanted.id;
    let cluster = Cluster::new(&wanted.cluster, stop);
    let daemon = DaemonClient::new()?;
    daemon.about()?;
    cluster.answers()?;
    if let Some(known) = place::all(&daemon)?.into_iter().find(|k| k.place.id == id) {
        return go_on(&daemon, &known, stop);
    }
    let plan = check(wanted, &daemon, cluster)?;
    let before = plan.cluster.map()?.osd(id).filter(|o| o.up).map(|o| o.up_from);
    if holder(&plan.place.dir).is_some() {
        may_stop(&plan.cluster, id)?;
    }
    stop.check()?;
    let mut undo = Undo::default();
    match plan.act(&daemon, &mut undo, before) {
        Ok(()) => Ok(()),
        Err(why) => {
            say!("taking back what was done");
            undo.take_back();
            Err(why)
        }
    }
}

/// It has a volume already: its adoption may have been cut off.
fn go_on(daemon: &DaemonClient, known: &Known, stop: &Interrupt) -> Result<()> {
    let id = known.place.id;
    ensure!(
        known.place.adopted.is_some(),
        "osd.{id} was made by 'loligo osd prepare', on volume {}: it has a cache already",
        known.volume.name
    );
    let runs = known.volume.status == Status::Serving
        && holder(&known.place.dir).is_some_and(|pid| known.target().is_ok_and(|t| has_open(pid, &t)));
    ensure!(!runs, "osd.{id} is adopted already, and runs on volume {}", known.volume.name);
    say!("osd.{id}: its adoption was begun: going on");
    activate::activate(daemon, known, stop)
}

/// Everything that can be refused is, while the OSD still runs.
fn check<'a>(wanted: &'a Adopt, daemon: &DaemonClient, cluster: Cluster) -> Result<Plan<'a>> {
    let id = wanted.id;
    let map = cluster.map()?;
    let mapped = map.osd(id).with_context(|| format!("there is no osd.{id} in the cluster"))?;
    let dir = std::path::absolute(wanted.dir.clone().unwrap_or_else(|| default_dir(id)))?;
    let text = |name: &str| std::fs::read_to_string(dir.join(name)).map(|t| t.trim().to_owned());
    let uuid = text("fsid").with_context(|| {
        format!("osd.{id} is not on this host, or its folder is not {}: give --osd-dir", dir.display())
    })?;
    ensure!(
        uuid == mapped.uuid,
        "{} is the folder of OSD {uuid}, and osd.{id} of the cluster is {}: check --osd-dir and --conf",
        dir.display(),
        mapped.uuid
    );
    let kind = text("type").unwrap_or_else(|_| "bluestore".to_owned());
    ensure!(kind == "bluestore", "osd.{id} is a store of the kind {kind}: only BlueStore can be adopted");
    let origin = origin(&dir)?;
    let core = lasting(&dir.join(&origin));
    let beside = |name: &str| std::fs::read_link(dir.join(name)).ok();
    let place = Place {
        id,
        uuid,
        db: beside("block.db"),
        wal: beside("block.wal"),
        dir,
        cluster: wanted.cluster.clone(),
        user: wanted.user.clone(),
        by: By::CephOsd,
        adopted: Some(origin),
        unit: ceph_volume::unit_that_starts(id, &mapped.uuid, cluster.interrupt()),
    };
    daemon::can_be_started(&place)?;
    if wanted.via == Via::Ublk {
        // Nothing but the volume's start would say so, and the OSD is down by then.
        loligo_export::ublk::available().context("--via ublk; --via block does without")?;
    }
    ensure!(
        daemon.volumes()?.iter().all(|v| v.name != place.volume()),
        "there is a volume '{}' already, which is no OSD's: delete it first, or give it another name",
        place.volume()
    );
    let label = check_core(&core, &place)?;
    let devices = Devices {
        data: DeviceSpec::File(core.clone()),
        text: String::new(),
        cache: lasting(&wanted.cache),
        cache_size: wanted.cache_size,
        db: None,
        wal: None,
    };
    devices.distinct()?;
    if let Some(link) = linked_from(&devices.cache, Path::new("")) {
        bail!("the cache {} is in use: {} leads to it", devices.cache.display(), link.display());
    }
    let cache_exists = devices.cache.exists();
    let mut cache_begun = false;
    if cache_exists {
        let file = free("the cache", &devices.cache)?;
        // One that only has the right name may be from before the OSD ran on its own disk.
        cache_begun = Superblock::load(&mut SyncFile::new(file.clone()))
            .is_ok_and(|sb| label.as_ref().is_some_and(|l| l.cache == sb.uuid));
        if !cache_begun {
            devices.check_cache(&file, &map, wanted.force)?;
        }
    } else {
        devices.check_new_cache()?;
    }
    if let Some(label) = label.filter(|_| !cache_begun) {
        lacks_nothing(&label, &core, id)?;
    }
    warn_of_shared(daemon, &devices.cache, &wanted.mode, id)?;
    let plan = Plan { wanted, place, core, cache_exists, cache_begun, cluster };
    plan.definition()?.options(&plan.place.volume(), Leave::default())?;
    let _: Owner = wanted.user.parse().map_err(|why| anyhow!("--user {}: {why}", wanted.user))?;
    Ok(plan)
}

/// Refuses another cache where the one before may hold what the core lacks. What may be overwritten on the new one is another matter.
fn lacks_nothing(label: &HomeLabel, core: &Path, id: u32) -> Result<()> {
    let lost = match label.dirty_bytes {
        Some(0) => return Ok(()),
        Some(n) => format!("{n} bytes that the disk does not have"),
        None => "whatever the disk did not have when it was served last".to_owned(),
    };
    bail!(
        "{} belongs to cache {}, which holds {lost}, and --force does not give that up: adopt osd.{id} with that cache; where it is lost, \
         have the cluster make up for the OSD ('ceph osd purge')",
        core.display(),
        label.cache_text()
    )
}

/// The OSD's own device can be veiled, and is its own. The label that is there already.
fn check_core(core: &Path, place: &Place) -> Result<Option<HomeLabel>> {
    let path = core.display();
    // The OSD has it: it is looked at beside that.
    let options = OpenOptions { read_only: true, exclusive: None, ..OpenOptions::default() };
    let file = DeviceFile::open(core, &options).with_context(|| format!("the OSD's device {path}"))?;
    ensure!(
        !is_encrypted(core),
        "{path} is encrypted by dm-crypt: its first block would be veiled behind the encryption, and ceph-volume opens it only for its OSD"
    );
    let mut dev = SyncFile::new(file);
    let raw = first_block(&mut dev).with_context(|| format!("the OSD's device {path}"))?;
    if let Ok(label) = veil::decode(&raw) {
        ensure!(
            label.name == place.volume(),
            "{path} is the core of volume '{}', and not of osd.{}",
            label.name,
            place.id
        );
        return Ok(Some(label));
    }
    let found = bluestore_uuid(&raw);
    ensure!(
        found.as_deref() == Some(&place.uuid),
        "{path} is not the store of osd.{}: it begins {}",
        place.id,
        found.map_or("without a label of BlueStore".to_owned(), |other| format!("with that of OSD {other}"))
    );
    ensure!(
        Veil::before(raw).is_some(),
        "the label of BlueStore on {path} has more than {} bytes: it has no room behind one of ours",
        body::MOST
    );
    let size = dev.size();
    for at in MORE_LABELS.into_iter().filter(|at| at + 4096 <= size) {
        let mut copy = vec![0; 4096];
        dev.read_at(at, &mut copy)?;
        ensure!(
            !copy.starts_with(BLUESTORE),
            "{path} holds a further copy of BlueStore's label at byte {at} (bluestore_bdev_label_multi): it would be found there, so such \
             a store cannot be hidden yet; make it anew with 'loligo osd remove' and 'prepare'"
        );
    }
    Ok(None)
}

/// Whether a device is one of dm-crypt's.
fn is_encrypted(path: &Path) -> bool {
    let Ok(s) = rustix::fs::stat(path) else { return false };
    let number = format!("{}:{}", rustix::fs::major(s.st_rdev), rustix::fs::minor(s.st_rdev));
    std::fs::read_to_string(format!("/sys/dev/block/{number}/dm/uuid"))
        .is_ok_and(|id| id.starts_with("CRYPT-"))
}

impl Plan<'_> {
    fn act(&self, daemon: &DaemonClient, undo: &mut Undo, before: Option<u64>) -> Result<()> {
        let (id, dir) = (self.place.id, &self.place.dir);
        let stop = self.cluster.interrupt();
        let place = self.place.clone();
        if holder(dir).is_some() {
            undo.note(format!("systemctl start {}", daemon::unit(id)), move || {
                release::start(&place, &Interrupt::default(), before)
            });
        }
        say!("osd.{id}: stopping");
        daemon::stop(id, dir, stop)?;
        // Nobody else may have it: a mount, a device on top, another program.
        drop(free("the OSD's device", &self.core)?);
        stop.check()?;
        self.make_volume(daemon, undo)?;
        stop.check()?;
        let known = place::one(daemon, id)?;
        activate::bring_up(daemon, &known, before, stop)
    }

    fn make_volume(&self, daemon: &DaemonClient, undo: &mut Undo) -> Result<()> {
        let (name, id) = (self.place.volume(), self.place.id);
        say!("osd.{id}: making volume {name}");
        if self.wanted.via == Via::Fuse {
            let mount = self.place.dir.join("volume");
            std::fs::create_dir_all(&mount).with_context(|| format!("making {}", mount.display()))?;
        }
        let create = self.cache_exists && !self.cache_begun;
        let allow = Leave { create, force: create && self.wanted.force, ..Leave::default() };
        let (dir, made) = (self.place.dir.clone(), !self.cache_exists);
        undo.note(format!("loligo osd release {id}"), move || {
            let daemon = DaemonClient::new()?;
            let Ok(known) = place::one(&daemon, id) else { return Ok(()) };
            folder::begin_release(&dir)?;
            daemon::stop(id, &dir, &Interrupt::default())?;
            part(&daemon, &known, false, &Interrupt::default())?;
            forget(&daemon, &known, made)
        });
        match daemon.create(&Create { name: name.clone(), definition: self.definition()?, allow })? {
            Status::Serving => Ok(()),
            other => {
                bail!("volume '{name}' is {}: {}", other.word(), other.why().unwrap_or("somebody stopped it"))
            }
        }
    }

    /// The definition of its volume.
    fn definition(&self) -> Result<VolumeConfig> {
        let w = self.wanted;
        let volume = self.place.volume();
        let listen = w.via.way(&volume, &self.place.dir);
        let mut all = json!({
            "core": self.core,
            "cache": lasting(&w.cache),
            "mode": w.mode,
            "home-offset": "0",
            "listen": [listen],
            "params": w.params,
            "after-start": self.place.words(&w.program),
        });
        let mut put = |key: &str, value: Option<String>| {
            if let Some(value) = value {
                all[key] = value.into();
            }
        };
        put("cache-size", w.cache_size.map(|n| n.to_string()));
        put("profile", w.profile.clone());
        put("dev-owner", (w.via != Via::Fuse).then(|| w.user.clone()));
        serde_json::from_value(all).context("the volume's definition")
    }
}
