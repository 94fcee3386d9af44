//! The plan of an adoption, and the checks before it changes anything.

use crate::behind::{Behind, Via};
use crate::ceph_volume::{self, By};
use crate::cluster::{Cluster, Map};
use crate::daemon::{self, holder, linked_from};
use crate::devices::{Devices, bluestore_uuid, free, lasting};
use crate::place::{self, Place};
use crate::prepare::warn_of_shared;
use crate::raw::first_block;
use crate::release::origin;
use crate::wipe::look_at;
use crate::{labels, user};
use anyhow::{Context, Result, bail, ensure};
use loligo_block::masked_head::body;
use loligo_block::{DeviceSpec, MaskedHead, SyncFile};
use loligo_client::api::definition::VolumeConfig;
use loligo_client::client::DaemonClient;
use loligo_format::core_label::CoreLabel;
use loligo_format::in_place_label;
use loligo_format::superblock::Superblock;
use loligo_log::say;
use loligo_volume::identity::device_id;
use std::path::{Path, PathBuf};

/// An OSD to be adopted.
#[derive(Debug, Clone)]
pub struct Adopt {
    /// Its number.
    pub id: u32,
    /// Its own device, where `block` in its folder leads to a volume that nobody knows any more.
    pub data: Option<PathBuf>,
    /// Its future cache, and its cluster.
    pub behind: Behind,
}

/// An adoption, as far as it is known before anything is done.
pub(super) struct Plan<'a> {
    pub(super) wanted: &'a Adopt,
    pub(super) place: Place,
    /// Its own device.
    pub(super) core: PathBuf,
    /// The cache is there, and not to be made as a file.
    pub(super) cache_exists: bool,
    /// It is this OSD's, which has the label on its device already.
    pub(super) cache_begun: bool,
    /// It was adopted once, and this host has forgotten its volume: it has no device to run on, or waits for the one that it has.
    pub(super) is_lost: bool,
    /// Its process runs, and is to be stopped.
    pub(super) runs: bool,
    /// The epoch in which it came up, if it is up.
    pub(super) before: Option<u64>,
    pub(super) cluster: Cluster,
}

impl Plan<'_> {
    /// The definition of its volume.
    pub(super) fn definition(&self) -> Result<VolumeConfig> {
        let behind = &self.wanted.behind;
        behind.definition(&self.place, &self.core.display().to_string(), &lasting(&behind.cache), 0)
    }
}

/// Everything that can be refused is, while the OSD still runs.
pub(super) fn check<'a>(wanted: &'a Adopt, daemon: &DaemonClient, cluster: Cluster) -> Result<Plan<'a>> {
    let id = wanted.id;
    let map = cluster.map()?;
    let mapped = map.osd(id).with_context(|| format!("there is no osd.{id} in the cluster"))?;
    let (place, core) = check_folder(wanted, &mapped.uuid, &cluster)?;
    check_host(wanted, &place, daemon)?;
    let label = check_core(&core, &place)?;
    let devices = Devices {
        data: DeviceSpec::File(core.clone()),
        text: String::new(),
        cache: lasting(&wanted.behind.cache),
        cache_size: wanted.behind.cache_size,
        db: None,
        wal: None,
    };
    let cache_exists = devices.cache.exists();
    let cache_begun = check_cache(wanted, &devices, label.as_ref(), &map)?;
    if let Some(label) = label.filter(|_| !cache_begun) {
        lacks_nothing(&label, &core, id)?;
    }
    warn_of_shared(daemon, &devices.cache, &wanted.behind.mode, id)?;
    let is_lost = cache_begun && wanted.data.is_some();
    let runs = !is_lost && holder(&place.dir).is_some();
    let before = mapped.up.then_some(mapped.up_from);
    let plan = Plan { wanted, place, core, cache_exists, cache_begun, is_lost, runs, before, cluster };
    wanted.behind.check(&plan.place, &plan.definition()?)?;
    Ok(plan)
}

/// The folder is that of the OSD that the cluster has as `mapped`: what is known of it, and its own device.
fn check_folder(wanted: &Adopt, mapped: &str, cluster: &Cluster) -> Result<(Place, PathBuf)> {
    let id = wanted.id;
    let dir = wanted.behind.dir(id)?;
    let text = |name: &str| std::fs::read_to_string(dir.join(name)).map(|t| t.trim().to_owned());
    let uuid = match (text("fsid"), &wanted.data) {
        (Ok(uuid), _) => uuid,
        // The store itself tells, and its folder is written again from it.
        (Err(_), Some(_)) => mapped.to_owned(),
        (Err(why), None) => {
            return Err(why).with_context(|| {
                format!(
                    "osd.{id} is not on this host, or its folder is not {}: give --osd-dir",
                    dir.display()
                )
            });
        }
    };
    ensure!(
        uuid == mapped,
        "{} is the folder of OSD {uuid}, but osd.{id} of the cluster is {mapped}: check --osd-dir and \
        --conf",
        dir.display()
    );
    let kind = text("type").unwrap_or_else(|_| "bluestore".to_owned());
    ensure!(kind == "bluestore", "osd.{id} is a store of the kind {kind}: only BlueStore can be adopted");
    let origin = own_device(wanted, &dir)?;
    let core = lasting(&dir.join(&origin));
    // ceph-volume looks for what lies beside anew at each start of its own, and links it by the name of the moment. From now on the link stays.
    let beside = |name: &str| -> Option<PathBuf> {
        let link = std::fs::read_link(dir.join(name)).ok()?;
        let device = dir.join(&link);
        let kept = lasting(&device);
        Some(if kept == device { link } else { kept })
    };
    let place = Place {
        id,
        db: beside("block.db"),
        wal: beside("block.wal"),
        user: wanted.behind.user.clone().unwrap_or_else(|| user::of(id, &dir, cluster)),
        dir,
        cluster: wanted.behind.cluster.clone(),
        by: By::CephOsd,
        adopted: Some(origin),
        unit: ceph_volume::unit_that_starts(id, &uuid, cluster.interrupt()),
        uuid,
        fsid: Some(cluster.answers()?),
    };
    Ok((place, core))
}

/// The host can start the OSD, and has no volume of its name.
fn check_host(wanted: &Adopt, place: &Place, daemon: &DaemonClient) -> Result<()> {
    daemon::can_be_started(place)?;
    if wanted.behind.via == Via::Ublk {
        // Nothing but the volume's start would say so, and the OSD is down by then.
        loligo_export::ublk::available().context("--via ublk; --via block does without")?;
    }
    ensure!(
        daemon.volumes()?.iter().all(|v| v.name != place.volume()),
        "volume '{}' exists already and is no OSD's: delete it first, or give it another name",
        place.volume()
    );
    Ok(())
}

/// The cache is free, or can be made. True if it is this OSD's already, whose device has `label`.
fn check_cache(wanted: &Adopt, devices: &Devices, label: Option<&CoreLabel>, map: &Map) -> Result<bool> {
    devices.distinct()?;
    if let Some(link) = linked_from(&devices.cache, Path::new("")) {
        bail!("the cache {} is in use: {} leads to it", devices.cache.display(), link.display());
    }
    if !devices.cache.exists() {
        devices.check_new_cache()?;
        return Ok(false);
    }
    let file = free("the cache", &devices.cache)?;
    // One that only has the right name may be from before the OSD ran on its own disk.
    let own = Superblock::load(&mut SyncFile::new(file.clone()))
        .ok()
        .filter(|sb| label.is_some_and(|l| l.cache == sb.uuid));
    match &own {
        Some(sb) if sb.mode.name() != wanted.behind.mode => say!(
            "osd.{}: its cache changes from mode {} to {}; --mode chooses another",
            wanted.id,
            sb.mode.name(),
            wanted.behind.mode
        ),
        Some(_) => {}
        None => devices.check_cache(&file, map, wanted.behind.force)?,
    }
    Ok(own.is_some())
}

/// The target of the OSD's `block` when it has no volume.
fn own_device(wanted: &Adopt, dir: &Path) -> Result<PathBuf> {
    let id = wanted.id;
    let file = dir.join("volume").join(place::volume_of(id));
    let is_volume = |origin: &Path| origin.starts_with("/dev/loligo") || dir.join(origin) == file;
    let Some(data) = &wanted.data else {
        let origin = origin(dir)?;
        ensure!(
            !is_volume(&origin),
            "osd.{id} was adopted, but its 'block' leads to {}, a volume that this host no longer \
            knows. Give its own device with --data and its former cache with --cache; 'loligo probe \
            DEVICE' says whose a cache is",
            origin.display()
        );
        return Ok(origin);
    };
    let Some(origin) = std::fs::read_link(dir.join("block")).ok().filter(|o| !is_volume(o)) else {
        return Ok(lasting(data));
    };
    ensure!(
        device_id(&dir.join(&origin)).is_some_and(|now| device_id(data) == Some(now)),
        "'block' of osd.{id} leads to {}, but --data names {}: leave --data out. It is for an OSD whose \
        volume this host no longer knows",
        origin.display(),
        data.display()
    );
    Ok(origin)
}

/// Refuses another cache where the one before may hold what the core lacks. Overwriting data on the new one is another matter.
fn lacks_nothing(label: &CoreLabel, core: &Path, id: u32) -> Result<()> {
    let lost = match label.lacks() {
        Some(0) => return Ok(()),
        Some(n) => format!("{n} bytes that the disk does not have"),
        None => "an unknown amount of data that the disk does not have".to_owned(),
    };
    bail!(
        "{} belongs to cache {}, which holds {lost}. --force does not give that up: adopt osd.{id} with \
        that cache. If the cache is lost, remove the OSD from the cluster with 'ceph osd purge'",
        core.display(),
        label.cache_text()
    )
}

/// The OSD's own device can be veiled, and is its own. The label that is there already.
fn check_core(core: &Path, place: &Place) -> Result<Option<CoreLabel>> {
    let path = core.display();
    let mut dev = look_at(core).with_context(|| format!("the OSD's device {path}"))?;
    ensure!(
        !is_encrypted(core),
        "{path} is encrypted by dm-crypt, and cannot be adopted: its first block would be hidden behind \
        the encryption, and ceph-volume opens it only for its OSD"
    );
    let raw = first_block(&mut dev).with_context(|| format!("the OSD's device {path}"))?;
    if let Ok(label) = in_place_label::decode(&raw) {
        ensure!(
            label.name == place.volume(),
            "{path} is the core of volume '{}', not of osd.{}",
            label.name,
            place.id
        );
        // The same number may be another's, in another cluster.
        if let Some(uuid) = MaskedHead::of_block(raw).head().as_deref().and_then(bluestore_uuid) {
            ensure!(
                uuid == place.uuid,
                "{path} is the store of OSD {uuid}, but osd.{} is {}",
                place.id,
                place.uuid
            );
        }
        return Ok(Some(label));
    }
    if let Ok(label) = CoreLabel::load(&mut dev) {
        bail!(
            "{path} is the core of volume '{}' behind a label, made by 'loligo osd prepare'. Only its \
            volume can serve it: run 'loligo volume create --data-offset {}'",
            label.name,
            label.data_start
        );
    }
    let found = bluestore_uuid(&raw);
    ensure!(
        found.as_deref() == Some(&place.uuid),
        "{path} is not the store of osd.{}: it begins {}",
        place.id,
        found.map_or("without a label of BlueStore".to_owned(), |other| format!("with that of OSD {other}"))
    );
    ensure!(
        MaskedHead::before(raw).is_some(),
        "BlueStore's label on {path} has more than {} bytes: it does not fit behind Loligo's label",
        body::MOST
    );
    if let Some(at) = labels::on(&mut dev)?.first() {
        bail!(
            "{path} holds another copy of BlueStore's label at byte {at} (bluestore_bdev_label_multi). \
            Ceph would find the store by that copy, so it cannot be hidden. Make the OSD anew with \
            'loligo osd remove' and 'loligo osd prepare'"
        );
    }
    Ok(None)
}

/// True if a device is one of dm-crypt's.
fn is_encrypted(path: &Path) -> bool {
    let Ok(s) = rustix::fs::stat(path) else { return false };
    let number = format!("{}:{}", rustix::fs::major(s.st_rdev), rustix::fs::minor(s.st_rdev));
    std::fs::read_to_string(format!("/sys/dev/block/{number}/dm/uuid"))
        .is_ok_and(|id| id.starts_with("CRYPT-"))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::cluster::Access;
    use loligo_block::masked_head::HEAD;
    use loligo_volume::first_block::relabel;

    const OURS: &str = "0f0e0d0c-0000-1111-2222-333344445555";
    const ANOTHER: &str = "ffffffff-0000-1111-2222-333344445555";

    /// osd.4 of our cluster.
    pub(in crate::adopt) fn place() -> Place {
        Place {
            id: 4,
            uuid: OURS.to_owned(),
            dir: "/x".into(),
            cluster: Access { conf: "/x".into(), name: "client.admin".to_owned(), keyring: None },
            user: "root:root".to_owned(),
            by: By::CephOsd,
            db: None,
            wal: None,
            adopted: Some("/x".into()),
            unit: None,
            fsid: None,
        }
    }

    /// The disk of OSD `uuid`, bare or veiled by the label of `volume`.
    fn disk(dir: &Path, uuid: &str, volume: Option<&str>) -> PathBuf {
        let mut first = vec![0; HEAD as usize];
        let text = format!("bluestore block device\n{uuid}\n");
        first[..text.len()].copy_from_slice(text.as_bytes());
        if let Some(name) = volume {
            let label = CoreLabel {
                generation: 2,
                cache: [3; 16],
                name: name.to_owned(),
                data_start: 0,
                dirty_bytes: Some(0),
                through: false,
            };
            first = relabel(&MaskedHead::before(first).expect("room"), &label);
        }
        let path = dir.join("disk");
        std::fs::write(&path, [&first[..], &[5; 8192]].concat()).expect("a disk");
        path
    }

    #[test]
    fn a_disk_of_our_number_in_another_cluster_is_not_ours() {
        let dir = tempfile::tempdir().expect("a folder");
        let look = |uuid, volume| {
            let path = disk(dir.path(), uuid, volume);
            let before = std::fs::read(&path).expect("a disk");
            let found = check_core(&path, &place()).map_err(|why| format!("{why:#}"));
            assert_eq!(std::fs::read(&path).expect("a disk"), before, "it was only to be looked at");
            found
        };
        assert_eq!(look(OURS, None), Ok(None));
        let own = look(OURS, Some("osd4")).expect("it is ours");
        assert_eq!(own.map(|label| label.cache), Some([3; 16]));
        let why = look(ANOTHER, Some("osd4")).expect_err("the number is no proof");
        assert!(why.contains(&format!("is the store of OSD {ANOTHER}, but osd.4 is {OURS}")), "{why}");
        let why = look(ANOTHER, None).expect_err("the same of a bare one");
        assert!(why.contains(&format!("begins with that of OSD {ANOTHER}")), "{why}");
        let why = look(OURS, Some("osd5")).expect_err("another number");
        assert!(why.contains("core of volume 'osd5', not of osd.4"), "{why}");
    }
}
