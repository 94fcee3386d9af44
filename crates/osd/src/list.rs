//! The OSDs on volumes of this host.

use crate::cluster::{Access, Cluster, Map, Mapped};
use crate::daemon::holder;
use crate::devices::disks_under;
use crate::{folder, labels, place};
use anyhow::Result;
use loligo_client::client::DaemonClient;
use loligo_lab::interrupt::Interrupt;
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// An OSD as it is now.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// Its number.
    pub id: u32,
    /// Its id.
    pub uuid: String,
    /// `up`, `down`, `absent` from the map, `unfinished`, or `unknown` where the cluster does not answer.
    pub state: &'static str,
    /// True if it is in; nothing where that is not known.
    pub r#in: Option<bool>,
    /// Its process runs.
    pub runs: bool,
    /// It was there before its volume: `loligo osd release` takes that away.
    pub adopted: bool,
    /// The program that made its store; it is not known for an adopted one.
    pub by: Option<&'static str>,
    /// Its volume.
    pub volume: String,
    /// The state of that volume.
    pub volume_state: &'static str,
    /// The reason why it is so, where there is more to say.
    pub why: Option<String>,
    /// The cache's mode.
    pub mode: Option<String>,
    /// The slow device.
    pub core: String,
    /// The cache.
    pub cache: Option<PathBuf>,
    /// Bytes that the core lacks; nothing while that is not known.
    pub dirty_bytes: Option<u64>,
    /// OSDs whose caches lie on the same device: they die together if they write back.
    pub shares_cache_with: Vec<u32>,
    /// Its folder.
    pub dir: PathBuf,
    /// Bytes of its own device where copies of the store's label show, for anybody to start it without its cache.
    pub labels_at: Vec<u64>,
}

/// All of them.
///
/// # Errors
/// If no daemon runs.
pub fn list(stop: &Interrupt) -> Result<Vec<Row>> {
    let daemon = DaemonClient::new()?;
    let all = place::all(&daemon)?;
    let mut maps: Vec<(Access, Option<Map>)> = Vec::new();
    for known in &all {
        let access = &known.place.cluster;
        if !maps.iter().any(|(a, _)| a == access) {
            maps.push((access.clone(), Cluster::new(access, stop).map().ok()));
            stop.check()?;
        }
    }
    let disks: Vec<BTreeSet<String>> = all
        .iter()
        .map(|k| k.volume.definition.cache.as_deref().map(disks_under).unwrap_or_default())
        .collect();
    let rows = all.iter().enumerate().map(|(i, known)| {
        let (place, volume) = (&known.place, &known.volume);
        let map = maps.iter().find(|(a, _)| *a == place.cluster).and_then(|(_, map)| map.as_ref());
        let mapped = map.map(|map| map.osd(place.id).filter(|o| o.uuid == place.uuid));
        let shares =
            all.iter().zip(&disks).filter(|(k, d)| k.place.id != place.id && !d.is_disjoint(&disks[i]));
        Row {
            id: place.id,
            uuid: place.uuid.clone(),
            state: state(mapped.as_ref(), folder::unfinished(&place.dir)),
            r#in: mapped.flatten().map(|o| o.r#in),
            runs: holder(&place.dir).is_some(),
            adopted: place.adopted.is_some(),
            by: place.adopted.is_none().then(|| place.by.word()),
            volume: volume.name.clone(),
            volume_state: volume.status.word(),
            why: volume.status.why().map(str::to_owned),
            mode: volume.definition.mode.clone(),
            core: volume.definition.core.clone(),
            cache: volume.definition.cache.clone(),
            dirty_bytes: volume.dirty_bytes,
            shares_cache_with: shares.map(|(k, _)| k.place.id).collect(),
            dir: place.dir.clone(),
            labels_at: labels::of(known),
        }
    });
    Ok(rows.collect())
}

fn state(mapped: Option<&Option<Mapped>>, unfinished: bool) -> &'static str {
    match mapped {
        _ if unfinished => "unfinished",
        None => "unknown",
        Some(None) => "absent",
        Some(Some(osd)) if osd.up => "up",
        Some(Some(_)) => "down",
    }
}
