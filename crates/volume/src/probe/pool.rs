//! A pool's description of itself and of the cores that share it, also while it is served.

use super::{Reader, dirty};
use anyhow::{Result, bail};
use loligo_block::{ExtentMap, MappedIo};
use loligo_engine::pool::store::Pool;
use loligo_format::pool::format::Found;
use loligo_format::pool::{Member, PoolError, PoolSuper};
use loligo_format::superblock::{SuperError, Superblock};
use serde_json::{Value, json};
use std::sync::Arc;

/// A pool that is served changes while it is read: so often it is read again before it counts as damaged.
const TRIES: u32 = 3;

/// A pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pooled {
    /// Its own.
    pub uuid: String,
    /// Bytes of the device in use.
    pub size: u64,
    /// Of these, those that nobody has.
    pub free: u64,
    /// The cores that share it.
    pub members: Vec<Sharing>,
}

/// A core that shares a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sharing {
    /// Its number.
    pub number: u16,
    /// Its volume.
    pub name: String,
    /// Bytes that it has.
    pub bytes: u64,
    /// Bytes that nobody takes from it, and those that it may have.
    pub bounds: (u64, u64),
    /// Its cache; nothing where it has none yet; or why it cannot be used.
    pub cache: Result<Option<Box<Superblock>>, String>,
}

/// Finds the pool on a device: one, one that cannot be used and why, or none.
pub(super) fn find(dev: &mut Reader) -> Result<Option<Result<Pooled, String>>> {
    let mut last = String::new();
    for _ in 0..TRIES {
        match PoolSuper::look(dev) {
            Ok(Found::Absent) => return Ok(None),
            Ok(Found::Unfinished) => {
                return Ok(Some(Err("it was never finished, and nothing was in it".to_owned())));
            }
            Ok(Found::Pool(_)) => {}
            Err(PoolError::Io(e)) => return Err(e.into()),
            Err(e) => return Ok(Some(Err(e.to_string()))),
        }
        match Pool::load(dev) {
            Ok(pool) => return pooled(dev, &pool).map(|found| Some(Ok(found))),
            Err(PoolError::Io(e)) => return Err(e.into()),
            Err(e) => last = e.to_string(),
        }
    }
    Ok(Some(Err(last)))
}

fn pooled(dev: &Reader, pool: &Pool) -> Result<Pooled> {
    let (sb, table) = (pool.superblock(), pool.table());
    let members = table.members().iter().map(|m| sharing(dev, pool, m)).collect::<Result<_>>()?;
    let free = u64::from(table.free()) * pool.extent();
    Ok(Pooled { uuid: sb.uuid_text(), size: sb.division.size, free, members })
}

fn sharing(dev: &Reader, pool: &Pool, m: &Member) -> Result<Sharing> {
    let (d, extents) = (pool.superblock().division, pool.table().extents_of(m.number));
    let map = ExtentMap::new(d.start, d.extent, m.max);
    for (here, there) in &extents {
        map.set(*here, Some(*there));
    }
    let cache = match Superblock::load(&mut MappedIo::new(dev.again()?, Arc::new(map))) {
        Ok(sb) => Ok(Some(Box::new(sb))),
        Err(SuperError::Absent) => Ok(None),
        Err(SuperError::Io(e)) => bail!("the share of core {}: {e}", m.number),
        Err(e) => Err(e.to_string()),
    };
    Ok(Sharing {
        number: m.number,
        name: m.name.clone(),
        bytes: extents.len() as u64 * d.extent,
        bounds: (m.min, m.max),
        cache,
    })
}

impl Sharing {
    /// Bytes that its core lacks; nothing if that is not known.
    fn dirty(&self) -> Option<u64> {
        match &self.cache {
            Ok(Some(sb)) => dirty(sb),
            Ok(None) => Some(0),
            Err(_) => None,
        }
    }

    fn json(&self) -> Value {
        let cache = self.cache.as_ref().ok().and_then(Option::as_ref);
        json!({
            "core": self.number,
            "volume": self.name,
            "bytes": self.bytes,
            "min": self.bounds.0,
            "max": self.bounds.1,
            "cache": cache.map(|sb| sb.uuid_text()),
            "mode": cache.map(|sb| sb.mode.name()),
            "clean": cache.map(|sb| sb.clean),
            "dirty_bytes": self.dirty(),
            "unusable": self.cache.as_ref().err(),
        })
    }

    pub(super) fn sentence(&self) -> String {
        let (number, name, bytes) = (self.number, &self.name, self.bytes);
        let cache = match (&self.cache, self.dirty()) {
            (Err(why), _) => format!("a cache that cannot be used: {why}"),
            (Ok(None), _) => "no cache yet".to_owned(),
            (Ok(Some(sb)), Some(0)) => format!("mode {}, its core has everything", sb.mode.name()),
            (Ok(Some(sb)), Some(n)) => format!("mode {}, {n} bytes are newer than its core", sb.mode.name()),
            (Ok(Some(sb)), None) => format!(
                "mode {}, served now, or not stopped cleanly: what its core lacks is not known",
                sb.mode.name()
            ),
        };
        format!("core {number}, volume '{name}', {bytes} bytes: {cache}")
    }
}

impl Pooled {
    /// Bytes that all cores together lack; nothing if that is not known of one.
    pub(super) fn dirty(&self) -> Option<u64> {
        self.members.iter().map(Sharing::dirty).sum()
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "uuid": self.uuid,
            "size": self.size,
            "free_bytes": self.free,
            "dirty_bytes": self.dirty(),
            "members": self.members.iter().map(Sharing::json).collect::<Vec<_>>(),
        })
    }

    pub(super) fn sentence(&self) -> String {
        format!(
            "the pool {} of {} bytes, {} of them free, shared by {}",
            self.uuid,
            self.size,
            self.free,
            match self.members.len() {
                0 => "nobody".to_owned(),
                1 => "1 core".to_owned(),
                n => format!("{n} cores"),
            }
        )
    }
}
