//! Requests to the daemon, and its answers.

use super::cache_config::CacheConfig;
use super::definition::{Leave, VolumeConfig};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use utoipa::ToSchema;

/// The daemon.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct About {
    /// Its version.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// The file it was started with.
    pub config: String,
    /// Seconds.
    pub uptime_s: f64,
    /// The folder in which it keeps what it must remember.
    #[schema(value_type = String)]
    pub state_dir: PathBuf,
}

/// A volume to be made.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Create {
    /// Its name.
    pub name: String,
    /// The definition of the volume.
    pub definition: VolumeConfig,
    /// Permissions for its first start.
    #[serde(default)]
    pub allow: Leave,
}

/// The options of a stop.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Stop {
    /// Write everything dirty to the core first.
    pub flush: bool,
    /// Give up what the stop waits for: users of a block device get errors, and dirty data stays on the cache.
    pub force: bool,
}

/// A cache that is to be put in front of a served volume.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Attach {
    /// The part of the volume's definition that concerns its cache, from then on.
    pub cache: CacheConfig,
    /// Overwrite the data on it.
    #[serde(default)]
    pub force: bool,
}

/// The size that a volume is to have.
#[derive(Debug, Default, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Resize {
    /// Make a core in a file so many bytes long first; left out: the size that the core has by now.
    pub bytes: Option<u64>,
}

/// The size that a share of a pool is to have.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResizeCache {
    /// As near to it as extents allow.
    pub bytes: u64,
}

/// The result of reading the file again.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct Reloaded {
    /// Actions that were taken, in lines.
    pub done: Vec<String>,
    /// Sections that are not right, or not served, and files for TLS that cannot be used, each with its reason: their volumes are as
    /// they were, or refused.
    pub refused: Vec<String>,
}

/// A cache that a volume is not served through any more, as far as the daemon knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Forgotten {
    /// The path at which it was.
    #[schema(value_type = String)]
    pub cache: PathBuf,
    /// The UUID of the cache.
    pub uuid: String,
    /// Data that it holds and its core does not have, in words; nothing if it holds no such thing.
    pub lost: Option<String>,
}
