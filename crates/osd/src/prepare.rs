//! Making an OSD on a cached volume.
//!
//! Volume, folder and store come first, and the cluster hears of the OSD last: whatever ends this halfway, be it SIGKILL, leaves no half
//! OSD in the cluster's map. What was done before is taken back on an error and on Ctrl-C. Where ceph-volume makes the store the cluster hears of
//! it earlier, and is told to forget it again.

use crate::behind::{Behind, Via};
use crate::ceph_volume::{self, By};
use crate::cluster::Cluster;
use crate::devices::{Devices, Found, disks_under};
use crate::place::{self, Place};
use crate::settings::{self, SETTINGS};
use crate::undo::Undo;
use crate::{activate, before_anything, daemon, folder, lvm, user, wipe};
use anyhow::{Context, Result, bail, ensure};
use loligo_block::DeviceSpec;
use loligo_client::api::daemon::{Create, Stop};
use loligo_client::api::definition::{Leave, VolumeConfig};
use loligo_client::api::status::Status;
use loligo_client::client::DaemonClient;
use loligo_client::outcome::Ended;
use loligo_format::core_label::MIN_HOME;
use loligo_lab::ceph::uuid;
use loligo_lab::interrupt::Interrupt;
use loligo_lab::process;
use loligo_log::say;
use serde_json::json;
use std::cell::RefCell;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

/// How long the making of a store may take.
const MKFS: Duration = Duration::from_secs(600);

/// An OSD to be made.
#[derive(Debug, Clone)]
pub struct Prepare {
    /// Its cache, and the cluster it goes to.
    pub behind: Behind,
    /// Its data: a device, a file, or a modelled disk.
    pub data: DeviceSpec,
    /// The same as it was given.
    pub text: String,
    /// Its database.
    pub db: Option<PathBuf>,
    /// Its log.
    pub wal: Option<PathBuf>,
    /// Its number; nothing: the least that is free.
    pub id: Option<u32>,
    /// Its CRUSH class; nothing: the core's.
    pub class: Option<String>,
    /// Who makes its store.
    pub by: By,
    /// Start it.
    pub start: bool,
}

impl Prepare {
    fn devices(&self) -> Devices {
        Devices {
            data: self.data.clone(),
            text: self.text.clone(),
            cache: self.behind.cache.clone(),
            cache_size: self.behind.cache_size,
            db: self.db.clone(),
            wal: self.wal.clone(),
        }
    }
}

/// An OSD, as far as it is known before anything is made.
struct Plan<'a> {
    wanted: &'a Prepare,
    devices: Devices,
    found: Found,
    place: Place,
    class: String,
    cluster: Cluster,
}

/// Makes an OSD, and starts it unless told otherwise. Its number.
///
/// # Errors
/// What stands in the way, with the mend; everything that was done is taken back then, or it is said what is not and how it can be.
pub fn prepare(wanted: &Prepare, stop: &Interrupt) -> Result<u32> {
    let Prepare { behind, .. } = wanted;
    let cluster = Cluster::new(&behind.cluster, stop);
    let daemon = DaemonClient::new()?;
    daemon.about()?;
    let fsid = cluster.answers()?;
    let map = cluster.map()?;
    let id = wanted.id.unwrap_or_else(|| map.free());
    if map.osd(id).is_some() && !map.destroyed(id) {
        bail!(Ended::refused(format!(
            "there is an osd.{id} in the cluster already: give another --id, or none for the next free one"
        )));
    }
    let devices = wanted.devices().lasting();
    let dir = behind.dir(id)?;
    let user = behind.user.clone().unwrap_or_else(|| match wanted.by.is_ceph_osd() {
        true => user::of(id, &dir, &cluster),
        // It knows no other.
        false => user::USER.to_owned(),
    });
    let place = Place {
        id,
        uuid: uuid()?,
        dir,
        cluster: behind.cluster.clone(),
        user,
        by: wanted.by,
        db: devices.db.clone(),
        wal: devices.wal.clone(),
        adopted: None,
        unit: None,
        fsid: Some(fsid),
    };
    before_anything(daemon::can_be_started(&place))?;
    before_anything(ceph_volume::possible(wanted, &place))?;
    let volumes = daemon.volumes()?;
    let told = || {
        format!(
            "there is a volume '{}' already: 'loligo osd list' shows what it is; 'loligo osd remove {id}' takes an OSD and its volume away",
            place.volume()
        )
    };
    ensure!(volumes.iter().all(|v| v.name != place.volume()), Ended::refused(told()));
    let found = before_anything(devices.check(&map, behind.force))?;
    if let Some(held) = found.held {
        say!("{} held {held}: overwritten, as --force ordered", devices.data.path().display());
    }
    warn_of_shared(&daemon, &devices.cache, &behind.mode, id)?;
    let class =
        wanted.class.clone().unwrap_or_else(|| if found.rotational { "hdd" } else { "ssd" }.to_owned());
    let mut plan = Plan { wanted, devices, found, place, class, cluster };
    // Whatever can be refused is, before anything is written over.
    before_anything(behind.check(&plan.place, &plan.definition()?))?;
    let mut undo = Undo::default();
    let made = plan.make(&daemon, &mut undo);
    if let Err(why) = made {
        say!("taking back what was done");
        undo.take_back();
        return Err(why);
    }
    if wanted.start
        && let Err(why) = plan.start(&daemon)
    {
        return Err(plan.give_up(undo, why));
    }
    Ok(id)
}

/// Caches that write back take the OSDs above them along when they die.
pub(crate) fn warn_of_shared(daemon: &DaemonClient, cache: &Path, mode: &str, id: u32) -> Result<()> {
    if mode != "wb" && mode != "wo" {
        return Ok(());
    }
    // A cache that is yet to be made lies where its folder does.
    let at = if cache.exists() { cache } else { cache.parent().unwrap_or(cache) };
    let own = disks_under(at);
    let mut others = Vec::new();
    for known in place::all(daemon)? {
        let Some(cache) = &known.volume.definition.cache else { continue };
        if !disks_under(cache).is_disjoint(&own) {
            others.push(format!("osd.{}", known.place.id));
        }
    }
    if !others.is_empty() {
        say!(
            "warning: the cache of osd.{id} lies on {} with that of {}: when it dies, they all die. Keep no more copies of anything on them than \
             you can lose at once: make their host, or a CRUSH bucket above them, the failure domain",
            own.into_iter().collect::<Vec<_>>().join(", "),
            others.join(", ")
        );
    }
    Ok(())
}

impl Plan<'_> {
    fn make(&mut self, daemon: &DaemonClient, undo: &mut Undo) -> Result<()> {
        let (id, dir) = (self.place.id, self.place.dir.clone());
        let stop = self.cluster.interrupt().clone();
        let existed = dir.exists();
        folder::begin(&dir)?;
        let folder = dir.clone();
        undo.note(format!("rm -r {}", dir.display()), move || match existed {
            true => folder::empty(&folder),
            false => folder::remove(&folder),
        });
        self.make_volume(daemon, undo)?;
        stop.check()?;
        let device = place::target(&self.place.volume(), &self.definition()?.listen)?;
        for path in [&self.place.db, &self.place.wal].into_iter().flatten() {
            let device = path.clone();
            undo.note(format!("wipefs -a {}", path.display()), move || wipe::head(&device));
        }
        if self.place.by.is_ceph_osd() {
            let key = self.cluster.key()?;
            folder::fill(&self.place, &device, &key)?;
            say!("osd.{id}: making the store");
            self.mkfs(daemon, &key)?;
            folder::own(&self.place)?;
            self.set_options(undo)?;
            self.at_boot(undo)?;
            stop.check()?;
            // From here on it is an OSD.
            self.tell(&key)?;
        } else {
            // The store is made with what the cluster says of the OSD.
            self.set_options(undo)?;
            self.at_boot(undo)?;
            self.by_ceph_volume(daemon, &device, undo)?;
        }
        folder::finish(&dir)?;
        say!("osd.{id}: in the cluster, of class {}", self.class);
        Ok(())
    }

    fn set_options(&self, undo: &mut Undo) -> Result<()> {
        let id = self.place.id;
        say!("osd.{id}: what depends on the kind of device is set by name:");
        let (cluster, uuid) = (self.cluster.past_interrupts(), self.place.uuid.clone());
        undo.note(format!("ceph config rm osd.{id} OPTION, for each in 'ceph config dump'"), move || {
            match cluster.map()?.osd(id) {
                // Somebody else was given the number meanwhile.
                Some(osd) if osd.uuid != uuid => Ok(()),
                _ => settings::forget(&cluster, id),
            }
        });
        settings::apply(&self.cluster, id)
    }

    fn at_boot(&self, undo: &mut Undo) -> Result<()> {
        let id = self.place.id;
        // A logical volume may come later than the volume: the daemon starts the OSD when both are there.
        if self.place.by == By::Lvm {
            return Ok(());
        }
        daemon::at_boot(id, true, self.cluster.interrupt())?;
        undo.note(format!("systemctl disable {}", daemon::unit(id)), move || {
            daemon::at_boot(id, false, &Interrupt::default())
        });
        Ok(())
    }

    /// Has ceph-volume make the store, which tells the cluster of it first.
    fn by_ceph_volume(&mut self, daemon: &DaemonClient, device: &Path, undo: &mut Undo) -> Result<()> {
        let (id, stop) = (self.place.id, self.cluster.interrupt().clone());
        let node = device.canonicalize().with_context(|| format!("the device {}", device.display()))?;
        if self.place.by == By::Lvm {
            say!("osd.{id}: making the logical volume {}", lvm::name(id));
            let device = device.to_owned();
            undo.note(format!("vgchange --activate n; its device is {}", node.display()), move || {
                lvm::let_go(id, &device, &Interrupt::default())
            });
            lvm::make(id, &node, &stop)?;
        }
        let cluster = self.cluster.past_interrupts();
        // Another host may have been given the same number: only what is ours is taken back.
        let own = Rc::new(RefCell::new((self.place.by == By::Lvm).then(|| self.place.uuid.clone())));
        let ours = own.clone();
        undo.note(format!("ceph osd purge-new {id} --yes-i-really-mean-it"), move || {
            match (cluster.map()?.osd(id), &*ours.borrow()) {
                (Some(osd), Some(uuid)) if osd.uuid == *uuid => purge_new(&cluster, id),
                (Some(_), None) => bail!("osd.{id} of the cluster may be another host's"),
                _ => Ok(()),
            }
        });
        let (dir, seen) = (self.place.dir.clone(), own.clone());
        undo.note(format!("umount {}", dir.display()), move || {
            if let Ok(text) = std::fs::read_to_string(dir.join("fsid")) {
                seen.borrow_mut().get_or_insert(text.trim().to_owned());
            }
            folder::onto_disk(&dir).map(drop)
        });
        say!("osd.{id}: ceph-volume makes the store");
        let uuid = ceph_volume::prepare(&self.place, &self.class, &node, &self.cluster)?;
        *own.borrow_mut() = Some(uuid.clone());
        folder::onto_disk(&self.place.dir)?;
        if uuid != self.place.uuid {
            self.place.uuid = uuid;
            self.define_again(daemon)?;
        }
        let target = self.place.block(device.to_owned());
        folder::link(&self.place, &target)?;
        activate::restore(&self.place, &target, &stop)?;
        folder::own(&self.place)
    }

    /// Writes the OSD's id down with its volume, now that it is known.
    fn define_again(&self, daemon: &DaemonClient) -> Result<()> {
        let name = self.place.volume();
        daemon.stop(&name, &Stop { flush: false, force: false })?;
        daemon.delete(&name, true)?;
        let wanted = Create { name, definition: self.definition()?, allow: Leave::default() };
        is_serving(&wanted.name, &daemon.create(&wanted)?)
    }

    /// The definition of its volume.
    fn definition(&self) -> Result<VolumeConfig> {
        let d = &self.devices;
        self.wanted.behind.definition(&self.place, &d.core(), &d.cache, MIN_HOME)
    }

    fn make_volume(&self, daemon: &DaemonClient, undo: &mut Undo) -> Result<()> {
        let volume = self.place.volume();
        say!("osd.{}: making volume {volume}", self.place.id);
        self.wanted.behind.make_mountpoint(&self.place)?;
        wipe::content(self.devices.data.path(), self.found.old_label)?;
        let allow = Leave { create: true, force: self.wanted.behind.force, ..Leave::default() };
        let begun = daemon.create(&Create { name: volume.clone(), definition: self.definition()?, allow })?;
        let (name, core, cache) =
            (volume.clone(), self.devices.data.path().to_owned(), self.devices.cache.clone());
        let made = !self.found.cache_exists;
        let by_hand = format!(
            "loligo volume stop {volume}; loligo volume delete --force {volume}; wipe its core and cache"
        );
        undo.note(by_hand, move || take_volume(&name, &core, Some(&cache), made, true));
        is_serving(&volume, &begun)
    }

    fn mkfs(&self, daemon: &DaemonClient, key: &str) -> Result<()> {
        let dir = &self.place.dir;
        let (map, secret) = (dir.join("monmap"), dir.join("key"));
        self.cluster.run(&["mon", "getmap", "-o", &map.display().to_string()])?;
        private(&secret, key)?;
        folder::own(&self.place)?;
        let mut command = daemon::osd_command(&self.place, self.cluster.interrupt());
        command.args(["--mkfs", "--osd-objectstore", "bluestore", "--osd-uuid", &self.place.uuid]);
        // It has no standing with the cluster yet, and so gets no configuration from there.
        command.arg("--no-mon-config").arg("--monmap").arg(&map).arg("--keyfile").arg(&secret);
        command.args(SETTINGS.map(|s| format!("--{}={}", s.option, s.value)));
        if self.wanted.behind.via == Via::Fuse {
            let size = daemon.volume(&self.place.volume())?.size.context("the volume is not served")?;
            command.arg(format!("--bluestore_block_size={size}"));
        }
        let made = process::run(&mut command, MKFS, self.cluster.interrupt());
        for path in [&map, &secret] {
            std::fs::remove_file(path).with_context(|| format!("removing {}", path.display()))?;
        }
        made.with_context(|| {
            let (id, user) = (self.place.id, &self.place.user);
            format!("making the store of osd.{id} as {user} (--user says otherwise)")
        })
        .map(drop)
    }

    /// Tells the cluster of the OSD, its key and its class.
    fn tell(&self, key: &str) -> Result<()> {
        let secrets = self.place.dir.join("secrets");
        private(&secrets, &json!({ "cephx_secret": key, "crush_device_class": self.class }).to_string())?;
        let id = self.place.id.to_string();
        let told = self.cluster.past_interrupts().run(&[
            "osd",
            "new",
            &self.place.uuid,
            &id,
            "-i",
            &secrets.display().to_string(),
        ]);
        let removed = std::fs::remove_file(&secrets);
        told.with_context(|| {
            format!("the cluster does not take osd.{id}: somebody else may have taken that number meanwhile; try again")
        })?;
        removed.with_context(|| format!("removing {}", secrets.display()))
    }

    fn start(&self, daemon: &DaemonClient) -> Result<()> {
        let known = place::one(daemon, self.place.id)?;
        activate::activate(daemon, &known, self.cluster.interrupt())
    }

    /// It did not come up. One that never was up can be taken back; one that was holds data.
    fn give_up(&self, undo: Undo, why: anyhow::Error) -> anyhow::Error {
        let id = self.place.id;
        let _ = daemon::stop(id, &self.place.dir, &Interrupt::default());
        let cluster = self.cluster.past_interrupts();
        match purge_new(&cluster, id) {
            Ok(()) => {
                say!("taking back what was done");
                undo.take_back();
                why
            }
            Err(_) => why.context(format!(
                "osd.{id} is made and stays: 'loligo osd activate {id}' starts it, 'loligo osd remove {id}' takes it away"
            )),
        }
    }
}

/// Has the cluster forget an OSD that never was up.
fn purge_new(cluster: &Cluster, id: u32) -> Result<()> {
    cluster.run(&["osd", "purge-new", &id.to_string(), "--yes-i-really-mean-it"]).map(drop)
}

/// Refuses to go on with a volume that was made and is not served.
pub(crate) fn is_serving(volume: &str, status: &Status) -> Result<()> {
    match status {
        Status::Serving => Ok(()),
        other => {
            bail!("volume '{volume}' is {}: {}", other.word(), other.why().unwrap_or("somebody stopped it"))
        }
    }
}

/// Stops and deletes a volume, and frees its devices; it may have no cache by now. `made`: that was made as a file with it.
pub(crate) fn take_volume(
    name: &str,
    core: &Path,
    cache: Option<&Path>,
    made: bool,
    zap: bool,
) -> Result<()> {
    let daemon = DaemonClient::new()?;
    daemon.stop(name, &Stop { flush: false, force: false })?;
    daemon.delete(name, true)?;
    if let Some(cache) = cache {
        wipe::cache(cache, name, made)?;
    }
    wipe::core(core, name, zap)
}

/// Writes a file for nobody else to read.
fn private(path: &Path, text: &str) -> Result<()> {
    let write = || -> std::io::Result<()> {
        let file = std::fs::File::options().create_new(true).write(true).mode(0o600).open(path)?;
        std::io::Write::write_all(&mut &file, text.as_bytes())
    };
    write().with_context(|| format!("writing {}", path.display()))
}
