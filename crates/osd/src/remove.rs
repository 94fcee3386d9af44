//! Taking an OSD away for good, with its volume.

use crate::ceph_volume::By;
use crate::cluster::{Cluster, Mapped};
use crate::devices::bluestore_uuid;
use crate::place::{self, Known, Place};
use crate::prepare::take_volume;
use crate::raw::first_block;
use crate::{before_anything, daemon, folder, lvm, settings, wipe};
use anyhow::{Context, Result, bail, ensure};
use loligo_block::DeviceSpec;
use loligo_client::client::DaemonClient;
use loligo_client::outcome::Ended;
use loligo_client::progress::Progress;
use loligo_lab::interrupt::{Interrupt, Interrupted};
use loligo_log::say;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Between two questions whether an OSD may go.
const LOOK: Duration = Duration::from_secs(2);

/// The options of a removal.
#[derive(Debug, Clone, Copy, Default)]
pub struct Remove {
    /// Have its data go elsewhere, and wait for that.
    pub wait: bool,
    /// Take it away though that leaves fewer copies.
    pub force: bool,
    /// Write over the start of its devices.
    pub zap: bool,
}

/// Takes an OSD out of the cluster and its volume from the host.
///
/// # Errors
/// If it may not go, or something stands in the way.
pub fn remove(id: u32, how: Remove, stop: &Interrupt) -> Result<()> {
    let daemon = DaemonClient::new()?;
    let known = place::one(&daemon, id)?;
    let place = &known.place;
    let cluster = Cluster::new(&place.cluster, stop);
    before_anything(is_its_own(place, &cluster))?;
    let mapped = cluster.map()?.osd(id);
    let is_unknown = mapped.is_none();
    let ours = mapped.filter(|o| o.uuid == place.uuid);
    match &ours {
        Some(osd) => may_go(&cluster, id, osd, how)?,
        None => {
            say!(
                "osd.{id}: the cluster knows no OSD with this volume's store; only the volume is \
                removed"
            )
        }
    }
    stop.check()?;
    // From here on nothing is left that an interrupt could save.
    let cluster = cluster.past_interrupts();
    let past = cluster.interrupt();
    daemon::at_boot(id, false, past)?;
    if place.dir.exists() {
        // Its volume may have come just now, and is not to start it again behind what follows.
        folder::begin_release(&place.dir)?;
    }
    say!("osd.{id}: stopping");
    daemon::stop(id, &place.dir, past)?;
    // One in memory hides what is noted on disk, and would stay.
    folder::onto_disk(&place.dir)?;
    if ours.is_some() {
        purge(&cluster, id, how.force)?;
        say!("osd.{id}: no longer in the cluster");
    }
    if ours.is_some() || is_unknown {
        settings::forget(&cluster, id)?;
    }
    // What was never finished holds nothing.
    free(&known, how.zap || folder::unfinished(&place.dir))
}

/// The cluster that answers is the OSD's: what another says of that number is of another OSD.
fn is_its_own(place: &Place, cluster: &Cluster) -> Result<()> {
    // One that was made before its cluster was noted has it in its folder.
    let noted = place.fsid.clone().or_else(|| std::fs::read_to_string(place.dir.join("ceph_fsid")).ok());
    let answers = cluster.answers()?;
    match noted {
        Some(noted) => is_same_cluster(place, noted.trim(), &answers),
        None => Ok(()),
    }
}

fn is_same_cluster(place: &Place, noted: &str, answers: &str) -> Result<()> {
    let (id, conf) = (place.id, place.cluster.conf.display());
    ensure!(
        noted == answers,
        "osd.{id} is of cluster {noted}, but {conf} leads to {answers}. Have {conf} lead to its own \
        cluster. If that cluster is gone, 'loligo volume delete --force {}' removes the volume alone",
        place.volume()
    );
    Ok(())
}

/// Checks that the cluster can do without it.
fn may_go(cluster: &Cluster, id: u32, osd: &Mapped, how: Remove) -> Result<()> {
    let number = id.to_string();
    let why = match cluster.run(&["osd", "safe-to-destroy", &number]) {
        Ok(_) => return Ok(()),
        Err(why) => said(&why),
    };
    if how.force {
        return before_anything(only_copies(cluster, id));
    }
    ensure!(
        how.wait,
        Ended::refused(format!(
            "osd.{id} cannot be removed yet: {why}. --wait marks it out and waits until its data are \
            elsewhere. --force removes it at once, if each of its placement groups has another whole \
            copy"
        ))
    );
    if osd.up {
        let fine = cluster.run(&["osd", "ok-to-stop", &number]);
        if let Err(why) = fine {
            say!("osd.{id} may not stop yet: {}", said(&why));
        }
    }
    if osd.r#in {
        cluster.run(&["osd", "out", &number])?;
    }
    let mut progress = Progress::new(format!("osd.{id}"));
    loop {
        let why = match cluster.run(&["osd", "safe-to-destroy", &number]) {
            Ok(_) => {
                progress.end("its data are elsewhere");
                return Ok(());
            }
            Err(why) if why.is::<Interrupted>() => None,
            Err(why) => Some(said(&why)),
        };
        if let Some(why) = &why {
            progress.say(&format!("waiting: {why}"));
        }
        if cluster.interrupt().sleep(LOOK).is_err() {
            progress.end("given up");
            if osd.r#in {
                cluster.past_interrupts().run(&["osd", "in", &number])?;
                say!("osd.{id}: in again; nothing else was changed");
            }
            return Err(Interrupted.into());
        }
    }
}

/// The cluster's answer, without how it was asked.
pub(crate) fn said(why: &anyhow::Error) -> String {
    let text = format!("{why:#}");
    text.rsplit_once("Error ").map_or(&*text, |(_, rest)| rest).trim_end_matches('.').to_owned()
}

/// Every placement group that the OSD has goes on without it, from a copy that lacks nothing.
fn only_copies(cluster: &Cluster, id: u32) -> Result<()> {
    let number = id.to_string();
    if let Err(why) = cluster.run(&["osd", "ok-to-stop", &number]) {
        bail!("osd.{id} cannot be removed, also not with --force: {}", said(&why));
    }
    let listed = cluster.json(&["pg", "ls-by-osd", &number])?;
    for pg in listed["pg_stats"].as_array().into_iter().flatten() {
        if !is_whole_elsewhere(pg, id) {
            bail!(
                "osd.{id} cannot be removed, also not with --force: placement group {} ({}) may have no \
                other whole copy",
                pg["pgid"].as_str().unwrap_or("?"),
                pg["state"].as_str().unwrap_or("?")
            );
        }
    }
    say!(
        "osd.{id}: every placement group has another whole copy. There are fewer copies until the \
        cluster has recovered"
    );
    Ok(())
}

fn is_whole_elsewhere(pg: &Value, id: u32) -> bool {
    let state = pg["state"].as_str().unwrap_or_default();
    let clean = state.split('+').any(|s| s == "clean") && state.split('+').any(|s| s == "active");
    let others = |set: &Value| set.as_array().into_iter().flatten().any(|o| *o != id);
    clean && others(&pg["acting"])
}

fn purge(cluster: &Cluster, id: u32, force: bool) -> Result<()> {
    let number = id.to_string();
    cluster.run(&["osd", "down", &number])?;
    let mut words = vec!["osd", "purge", number.as_str(), "--yes-i-really-mean-it"];
    if force {
        words.push("--force");
    }
    cluster.run(&words).map(drop).with_context(|| {
        format!("osd.{id} is stopped and still in the cluster: 'loligo osd activate {id}' starts it again")
    })
}

/// Takes away its volume and its folder.
fn free(known: &Known, zap: bool) -> Result<()> {
    let (place, d) = (&known.place, &known.volume.definition);
    let core: DeviceSpec = d.core.parse().with_context(|| format!("the core {}", d.core))?;
    let core: PathBuf = core.path().to_owned();
    if place.by == By::Lvm {
        lvm::let_go(place.id, &known.device()?, &Interrupt::default())?;
    }
    // As a file its cache was made for this volume.
    take_volume(&known.volume.name, &core, d.cache.as_deref(), true, zap)?;
    if zap {
        for path in [&place.db, &place.wal].into_iter().flatten() {
            // That of an adopted OSD is a link as it stood in its folder, which may lead to somebody else's device by now.
            let path = place.dir.join(path);
            if place.adopted.is_some() && !is_of(&path, &place.uuid) {
                say!("warning: {} no longer belongs to this OSD, and is left as it is", path.display());
                continue;
            }
            wipe::head(&path)?;
        }
    }
    folder::remove(&place.dir)?;
    say!("osd.{}: volume {} is gone, {} is free", place.id, known.volume.name, core.display());
    Ok(())
}

/// True if the device says that it is OSD `uuid`'s.
fn is_of(path: &Path, uuid: &str) -> bool {
    let head = wipe::look_at(path).and_then(|mut dev| first_block(&mut dev));
    head.is_ok_and(|head| bluestore_uuid(&head).as_deref() == Some(uuid))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_copy_elsewhere_counts_only_where_nothing_is_missing() {
        let whole =
            |state: &str, acting: &[u32]| is_whole_elsewhere(&json!({ "state": state, "acting": acting }), 1);
        assert!(whole("active+clean", &[1, 2]) && whole("active+clean+scrubbing+deep", &[0, 1]));
        assert!(!whole("active+clean", &[1]), "the only copy");
        assert!(
            !whole("active+undersized+degraded", &[1, 2])
                && !whole("down", &[1, 2])
                && !whole("unknown", &[])
        );
    }

    #[test]
    fn another_cluster_is_not_asked_of_an_osd() {
        let text = r#"{"id": 3, "uuid": "u", "dir": "/x", "user": "a:b", "fsid": "f-1",
            "cluster": {"conf": "/etc/ceph/ceph.conf", "name": "client.admin"}}"#;
        let place: Place = text.parse().expect("a place");
        assert_eq!(place.fsid.as_deref(), Some("f-1"));
        is_same_cluster(&place, "f-1", "f-1").expect("its own");
        let why = is_same_cluster(&place, "f-1", "f-2").expect_err("another").to_string();
        assert!(why.contains("f-1") && why.contains("f-2") && why.contains("volume delete"), "{why}");
    }

    #[test]
    fn a_refusal_is_told_in_the_clusters_words_alone() {
        let why = anyhow::anyhow!("ceph failed (exit status: 16): Error EBUSY: OSD(s) 1 have 8 pgs")
            .context("ceph osd x");
        assert_eq!(said(&why), "EBUSY: OSD(s) 1 have 8 pgs");
    }
}
