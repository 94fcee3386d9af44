//! Pools: as they are shown, and what can be asked of them.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use utoipa::ToSchema;

/// A pool, for show; `loligo cache show --json`, and `GET /v1/caches`. Sizes are in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoolView {
    /// Its device.
    pub path: String,
    /// The UUID that tells it from every other.
    pub uuid: String,
    /// Bytes that it was made with, or has grown to.
    pub size: u64,
    /// One extent.
    pub extent: u64,
    /// The number of extents.
    pub extents: u32,
    /// Bytes that nobody has.
    pub free_bytes: u64,
    /// Its cores, by number.
    pub cores: Vec<PoolCore>,
}

/// A core of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoolCore {
    /// Its number.
    pub core: u16,
    /// Its name.
    pub name: String,
    /// WWN or serial of the disk, empty where that is not known.
    pub core_id: String,
    /// Its weight when what several want is divided.
    pub weight: u32,
    /// Bytes that nobody takes from it.
    pub min: u64,
    /// The most bytes that it may have.
    pub max: u64,
    /// Bytes that it has.
    pub size: u64,
    /// Bytes of that size which hold data.
    pub cache_bytes: u64,
    /// Shards of its cache.
    pub shards: u16,
    /// Its state, in words.
    pub state: String,
    /// The mode of its cache.
    pub mode: Option<String>,
    /// Its cache was stopped cleanly.
    pub clean: Option<bool>,
    /// Bytes that its core does not have, if the cache was stopped cleanly.
    pub dirty_bytes: Option<u64>,
}

/// A pool as lines: itself, a heading, its members.
pub fn view_rows(v: &PoolView) -> Vec<String> {
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

/// A core that is to have a share of a pool. Sizes are in bytes.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AttachCore {
    /// The pool's device, by its whole path.
    #[schema(value_type = String)]
    pub path: PathBuf,
    /// Its number, 0 to 4095; left out: the lowest free one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core: Option<u16>,
    /// Its name.
    pub name: String,
    /// Bytes that nobody takes from it.
    pub min: u64,
    /// The most bytes that it may have; left out: eight times the least, at most the pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<u64>,
    /// Its weight when what several want is divided.
    #[serde(default = "usual_weight")]
    pub weight: u32,
    /// Shards of its cache.
    #[serde(default = "one")]
    pub shards: u16,
}

fn usual_weight() -> u32 {
    100
}

fn one() -> u16 {
    1
}

/// A core that has a share.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct CoreAttached {
    /// Its number.
    pub core: u16,
}

/// A core that is to have no share any more.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DetachCore {
    /// The pool's device, by its whole path.
    #[schema(value_type = String)]
    pub path: PathBuf,
    /// Its number or name.
    pub core: String,
    /// Also if its cache holds data that the core does not have.
    #[serde(default)]
    pub force: bool,
}

/// The result of the detach.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct CoreDetached {
    /// Data that its cache held, which is lost; in words, and only if that was ordered.
    pub lost: Option<String>,
}

/// Changes to a core's share; a field that is left out stays as it is.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResizeCore {
    /// The pool's device, by its whole path.
    #[schema(value_type = String)]
    pub path: PathBuf,
    /// Its number or name.
    pub core: String,
    /// Bytes that it has; only while it is not served. While it is served: `/v1/volumes/{name}/resize-cache`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Bytes that nobody takes from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<u64>,
    /// Its weight when what several want is divided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
}
