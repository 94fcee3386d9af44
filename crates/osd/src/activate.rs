//! Starting an OSD on its volume: by hand, and by the daemon each time the volume has come.

use crate::ceph_volume::{self, By};
use crate::cluster::Cluster;
use crate::daemon::{self, has_open, holder};
use crate::place::{self, Known, Place};
use crate::{folder, labels, lvm};
use anyhow::{Context, Result, bail, ensure};
use loligo_client::api::definition::Leave;
use loligo_client::api::status::Status;
use loligo_client::client::DaemonClient;
use loligo_lab::interrupt::Interrupt;
use loligo_lab::process;
use loligo_log::say;
use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

/// The time that an OSD may take to be up, once its process has begun.
const UP: Duration = Duration::from_secs(180);
/// Between two looks at the map.
const LOOK: Duration = Duration::from_secs(1);
/// The number of times that an OSD that ends at once is started again, where nobody else does.
const TRIES: u32 = 3;
/// One that has run so long has not ended at once.
const LASTS: Duration = Duration::from_secs(5);

/// Serves the volume, mends the links, starts the OSD and waits until the cluster sees it up.
///
/// # Errors
/// If something stands in the way; the error says what.
pub fn activate(daemon: &DaemonClient, known: &Known, stop: &Interrupt) -> Result<()> {
    bring_up(daemon, known, None, stop)
}

/// The same for one that was up `since` an epoch before it was stopped: the map may not have noticed yet.
///
/// # Errors
/// If something stands in the way; the error says what.
pub(crate) fn bring_up(
    daemon: &DaemonClient,
    known: &Known,
    since: Option<u64>,
    stop: &Interrupt,
) -> Result<()> {
    let Place { id, dir, .. } = &known.place;
    ensure!(
        !folder::unfinished(dir),
        "osd.{id} was never finished. Run 'loligo osd remove {id}', then prepare it again"
    );
    let volume = &known.volume.name;
    if known.volume.status != Status::Serving {
        match daemon.start(volume, Leave::default())? {
            Status::Serving => {}
            other => bail!(
                "osd.{id} cannot start: volume '{volume}' is {}: {}",
                other.word(),
                other.why().unwrap_or("somebody stopped it")
            ),
        }
    }
    // Not before: while the volume cannot be served, what was begun with the raw disk is not over.
    folder::end_release(dir);
    // Its start has the daemon run the same for the OSD: whoever comes second finds it running.
    let cluster = Cluster::new(&known.place.cluster, stop);
    let before = cluster.map().ok().and_then(|map| map.osd(*id)).filter(|o| o.up).map(|o| o.up_from);
    let started = run(known, stop)?;
    wait_up(&cluster, &known.place, since.or(before.filter(|_| started)))
}

/// Waits until the cluster says that an OSD whose process has begun is up, and since another epoch than `before`.
///
/// # Errors
/// If it does not come up, or ends.
pub(crate) fn wait_up(cluster: &Cluster, place: &Place, before: Option<u64>) -> Result<()> {
    let (id, dir, stop) = (place.id, &place.dir, cluster.interrupt());
    let begun = Instant::now();
    loop {
        let now = cluster.map().with_context(|| format!("osd.{id} runs, but the cluster does not answer"))?;
        let now = now.osd(id).with_context(|| format!("there is no osd.{id} in the cluster"))?;
        // The map may not have noticed yet that the OSD was gone.
        if now.up && before != Some(now.up_from) {
            say!(
                "osd.{id}: up{}",
                if now.r#in { " and in" } else { ", but out: 'ceph osd in' lets data come" }
            );
            return Ok(());
        }
        ensure!(holder(dir).is_some(), "osd.{id} has ended: see its log");
        ensure!(begun.elapsed() < UP, "osd.{id} runs, but is not up after {} s: see its log", UP.as_secs());
        stop.sleep(LOOK)?;
    }
}

/// Run by the daemon when the volume has come: the cluster is not asked, for it may be this OSD that it waits for.
///
/// # Errors
/// If the OSD does not run; the error says why.
pub fn volume_came(place: &Place, stop: &Interrupt) -> Result<()> {
    if !place.dir.exists() || folder::unfinished(&place.dir) {
        // It is being made right now.
        return Ok(());
    }
    // Where systemd runs it starts the OSD again; elsewhere nobody else does.
    let mut left = if daemon::systemd() { 1 } else { TRIES };
    loop {
        left -= 1;
        match run_if_wanted(place, stop) {
            Ok(false) => return Ok(()),
            Ok(true) => {}
            Err(why) if left == 0 => return Err(why),
            Err(why) => say!("osd.{}: {why:#}", place.id),
        }
        stop.sleep(LASTS)?;
        if holder(&place.dir).is_some() {
            return Ok(());
        }
        ensure!(left > 0, "osd.{} ends as soon as it is started: see its log", place.id);
    }
}

/// Has the OSD run on its volume, unless somebody is taking that away: whoever does waits for the lock first. True if it had to be
/// started.
fn run_if_wanted(place: &Place, stop: &Interrupt) -> Result<bool> {
    let _lock = folder::lock(&place.dir)?;
    if folder::is_releasing(&place.dir) {
        return Ok(false);
    }
    let known = place::one(&DaemonClient::new()?, place.id)?;
    run_locked(&known, stop)
}

/// Has the OSD run on its volume as that is served now. True if it had to be started.
fn run(known: &Known, stop: &Interrupt) -> Result<bool> {
    // It may have been lost with the system's disk.
    folder::make(&known.place.dir)?;
    let _lock = folder::lock(&known.place.dir)?;
    run_locked(known, stop)
}

fn run_locked(known: &Known, stop: &Interrupt) -> Result<bool> {
    let (place, target) = (&known.place, &known.target()?);
    labels::warn(known);
    ceph_volume::stands_aside(place, stop)?;
    let _on_disk = onto_disk(place)?;
    if place.by == By::Lvm {
        lvm::activate(place.id, &known.device()?, stop)?;
    }
    folder::link(place, target)?;
    restore(place, target, stop)?;
    folder::own(place)?;
    if let Some(pid) = holder(&place.dir) {
        if has_open(pid, target) {
            return Ok(false);
        }
        say!("osd.{}: its device went away under it: it is started again", place.id);
        daemon::bury(place.id, &place.dir, stop)?;
    }
    daemon::start(place, stop)?;
    Ok(true)
}

/// A folder that ceph-volume made in memory, where nothing of ours would last, goes once nobody runs in it. The lock in what is there instead.
fn onto_disk(place: &Place) -> Result<Option<File>> {
    let may = place.adopted.is_some() && holder(&place.dir).is_none();
    Ok(if may && folder::onto_disk(&place.dir)? { Some(folder::lock(&place.dir)?) } else { None })
}

/// Writes the missing files of the folder again from the store's own label: the folder may have been lost with the system's disk.
pub(crate) fn restore(place: &Place, target: &Path, stop: &Interrupt) -> Result<()> {
    if place.dir.join("keyring").exists() && place.dir.join("fsid").exists() {
        return Ok(());
    }
    say!("osd.{}: its folder is written again from its store", place.id);
    let mut command = place.cluster.tool("ceph-bluestore-tool");
    command.args(["prime-osd-dir", "--path"]).arg(&place.dir).arg("--dev").arg(target);
    process::run(&mut command, Duration::from_secs(60), stop)
        .with_context(|| format!("writing {} again from {}", place.dir.display(), target.display()))?;
    folder::link(place, target).map(drop)
}
