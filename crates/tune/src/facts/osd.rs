//! Facts of one OSD: the values that it runs with, the source of each, and the structures that show their effect.

use super::setting::Setting;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// An OSD.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Osd {
    /// Its number.
    pub id: i64,
    /// The host that it says it runs on.
    pub host: String,
    /// It is up.
    pub up: bool,
    /// It is in.
    pub r#in: bool,
    /// Its device class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// It takes its data device for a spinning disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rotational: Option<bool>,
    /// Its major release.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release: Option<i64>,
    /// Its version: `18.2.7`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// `bluestore`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objectstore: Option<String>,
    /// The size of its store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<i64>,
    /// Bytes of it that are used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used: Option<i64>,
    /// Its placement groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pgs: Option<i64>,
    /// Its database.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub db: Option<Database>,
    /// The unit of allocation that it was made with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_alloc_size: Option<i64>,
    /// The sharding of its RocksDB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sharding: Option<String>,
    /// Copies of its label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_copies: Option<i64>,
    /// Its process uses tcmalloc.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcmalloc: Option<bool>,
    /// The page size of its tcmalloc.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcmalloc_page_size: Option<i64>,
    /// Its build can use io_uring.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub liburing: Option<bool>,
    /// Options that were set, and that it runs without until it starts anew.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ignores: Option<Vec<String>>,
    /// Memory that its process has, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rss: Option<i64>,
    /// The memory limit of its control group; 0: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup_limit: Option<i64>,
    /// Processors that its control group may use; 0: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_limit: Option<f64>,
    /// Threads of its process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<i64>,
    /// Shards of its operation queue that run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shards: Option<i64>,
    /// Threads of each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shard_threads: Option<i64>,
    /// Options with their values.
    pub options: BTreeMap<String, Setting>,
    /// `wpq` or `mclock_scheduler`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<String>,
    /// The profile of mClock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Backfills that its reservers admit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backfills_max: Option<i64>,
    /// Recoveries under way that it admits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recovery_max: Option<i64>,
    /// I/O a second that mClock takes its device to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity_iops: Option<f64>,
    /// Bytes a second that mClock takes its device to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity_bandwidth: Option<i64>,
    /// Its store, as measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured: Option<Measured>,
    /// Its counters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub perf: Option<Perf>,
    /// Plugins that load.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plugins: Option<Plugins>,
    /// The node that it is bound to; -1: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numa_node: Option<i64>,
    /// The node of its data device; -1: not known to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numa_storage: Option<i64>,
    /// The node of its public interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numa_public: Option<i64>,
    /// The node of its cluster interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numa_cluster: Option<i64>,
    /// The cache in front of its data device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<Behind>,
    /// The disk of its host that its data are on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Errors of interest in its log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_errors: Option<Vec<String>>,
    /// The release that it was made with; 0: not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<i64>,
}

/// The database of an OSD.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Database {
    /// It has a device of its own.
    pub separate: bool,
    /// It takes that for a spinning disk.
    pub rotational: bool,
    /// The size of that device, bytes.
    pub bytes: i64,
    /// Bytes of it that lie on the data device for want of room.
    pub slow_used: i64,
}

/// A store, as measured.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// Random writes of 4 KiB a second.
    pub iops: f64,
    /// Bytes a second of large writes.
    pub bandwidth: i64,
    /// The median of one write alone, microseconds.
    pub p50_us: f64,
}

/// Counters of an OSD.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Perf {
    /// The share of onodes found in the cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub onode_hit_ratio: Option<f64>,
    /// Messages of clients that waited for the throttle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throttle_messages_wait: Option<i64>,
    /// The time that a flush of the database takes, milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kv_flush_ms: Option<f64>,
    /// The share of a processor that the thread bstore_kv_sync takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kv_sync_busy: Option<f64>,
    /// The same of the busiest msgr-worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub msgr_busy: Option<f64>,
    /// Deferred writes that wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deferred_queue: Option<i64>,
    /// Placement groups that trim snapshots.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snaptrim_pgs: Option<i64>,
    /// The fragmentation of free space, 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fragmentation: Option<f64>,
    /// Memory of the logs of placement groups, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pglog_bytes: Option<i64>,
}

/// Plugins that load in an OSD.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plugins {
    /// Compressors.
    pub compressors: Vec<String>,
    /// Erasure codes.
    pub ec: Vec<String>,
}

/// The cache in front of an OSD's data device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Behind {
    /// `loligo`, `opencas`, `bcache`, `dm-cache`, or nothing.
    pub kind: String,
    /// Its size.
    pub bytes: i64,
    /// Its mode: `wb`.
    pub mode: String,
}
