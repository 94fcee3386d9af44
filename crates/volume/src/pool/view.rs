//! A pool as it is shown.

use super::{Pool, map_of};
use anyhow::Result;
use loligo_block::CacheDevice;
use loligo_client::api::pool::{PoolCore, PoolView};
use loligo_format::superblock::{SuperError, Superblock};
use loligo_format::units::BLOCK;
use std::sync::Arc;

/// The state of a member.
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
    /// Describes what the pool and its members have.
    ///
    /// # Errors
    /// If the device fails.
    pub fn view(&self) -> Result<PoolView> {
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
            cores.push(PoolCore {
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
        Ok(PoolView {
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
