//! A pool as it is shown, in lines or as JSON.

use super::{Pool, map_of};
use anyhow::Result;
use loligo_block::CacheDevice;
use loligo_format::superblock::{SuperError, Superblock};
use loligo_format::units::BLOCK;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use utoipa::ToSchema;

/// A pool, for show; `loligo cache show --json`, and `GET /v1/caches`. Sizes are in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = PoolView)]
pub struct View {
    /// Its device.
    pub path: String,
    /// What tells it from every other.
    pub uuid: String,
    /// What it was made with, or has grown to.
    pub size: u64,
    /// One extent.
    pub extent: u64,
    /// How many there are.
    pub extents: u32,
    /// What nobody has.
    pub free_bytes: u64,
    /// Its cores, by number.
    pub cores: Vec<Member>,
}

/// A core of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = PoolCore)]
pub struct Member {
    /// Its number.
    pub core: u16,
    /// Its name.
    pub name: String,
    /// WWN or serial of the disk, empty where that is not known.
    pub core_id: String,
    /// What it gets of what several want.
    pub weight: u32,
    /// What nobody takes from it.
    pub min: u64,
    /// What it may have.
    pub max: u64,
    /// What it has.
    pub size: u64,
    /// What of that holds data.
    pub cache_bytes: u64,
    /// Shards of its cache.
    pub shards: u16,
    /// How it is, in words.
    pub state: String,
    /// The mode of its cache.
    pub mode: Option<String>,
    /// Its cache was stopped cleanly.
    pub clean: Option<bool>,
    /// What its core does not have, where the cache was stopped cleanly.
    pub dirty_bytes: Option<u64>,
}

/// How a member is.
fn state(cache: &Result<Superblock, SuperError>, in_use: bool) -> String {
    match cache {
        _ if in_use => "in use".to_owned(),
        Ok(sb) if sb.clean && sb.dirty_blocks == 0 => "clean".to_owned(),
        Ok(sb) if sb.clean => format!("{} dirty bytes", sb.dirty_blocks * BLOCK),
        Ok(_) => "not stopped cleanly".to_owned(),
        Err(SuperError::Absent) => "never served".to_owned(),
        Err(e) => e.to_string(),
    }
}

impl Pool {
    /// What the pool and its members have.
    ///
    /// # Errors
    /// Where the device fails.
    pub fn view(&self) -> Result<View> {
        let (pool, table, maps) = {
            let state = self.state();
            let table = state.table.table().clone();
            let map = |m: &loligo_format::pool::Member| (Arc::new(map_of(&state, m)), state.is_out(m.number));
            let maps: Vec<_> = table.members().iter().map(map).collect();
            (state.table.superblock().clone(), table, maps)
        };
        // Read without the lock: whoever changes a size does not wait for a device that is slow.
        let mut cores = Vec::new();
        for (m, (map, in_use)) in table.members().iter().zip(maps) {
            let cache = Superblock::load(&mut CacheDevice::Share(self.inner.file.clone(), map).sync_io());
            if self.state().table.table().member(m.number).is_none_or(|now| now.name != m.name) {
                // It has gone meanwhile, and what was read may be another's.
                continue;
            }
            let sb = cache.as_ref().ok();
            cores.push(Member {
                core: m.number,
                name: m.name.clone(),
                core_id: m.core.clone(),
                weight: m.weight,
                min: m.min,
                max: m.max,
                size: table.extents_of(m.number).len() as u64 * pool.division.extent,
                cache_bytes: u64::from(table.limit(m.number)?) * u64::from(m.shards) * BLOCK,
                shards: m.shards,
                state: state(&cache, in_use),
                mode: sb.map(|sb| sb.mode.name().to_owned()),
                clean: sb.map(|sb| sb.clean),
                dirty_bytes: sb.filter(|sb| sb.clean).map(|sb| sb.dirty_blocks * BLOCK),
            });
        }
        Ok(View {
            path: self.path().display().to_string(),
            uuid: pool.uuid_text(),
            size: pool.division.size,
            extent: pool.division.extent,
            extents: pool.division.extents,
            free_bytes: u64::from(table.free()) * pool.division.extent,
            cores,
        })
    }
}

/// A pool as lines: itself, a heading, its members.
pub fn view_rows(v: &View) -> Vec<String> {
    let mut rows = vec![
        format!("pool {} ({})", v.path, v.uuid),
        format!("{} bytes in {} extents of {}, {} bytes free", v.size, v.extents, v.extent, v.free_bytes),
    ];
    if !v.cores.is_empty() {
        rows.push(format!(
            "{:>5}  {:<20} {:>16} {:>16} {:>16} {:>7}  {}",
            "core", "name", "size", "min", "max", "weight", "state"
        ));
    }
    rows.extend(v.cores.iter().map(|m| {
        format!(
            "{:>5}  {:<20} {:>16} {:>16} {:>16} {:>7}  {}",
            m.core, m.name, m.size, m.min, m.max, m.weight, m.state
        )
    }));
    rows
}
