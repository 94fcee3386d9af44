//! Facts of one OSD: the values that it runs with, the source of each, and the structures that show their effect.

use super::setting::Setting;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// An OSD.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Osd {
    /// Its number.
    pub id: i64,
    /// The host that it says it runs on.
    pub host: String,
    /// The address for clients. It is no fact of the document: rules need none, and it tells who somebody is.
    #[serde(skip)]
    pub front: Option<IpAddr>,
    /// The address for other OSDs, as above.
    #[serde(skip)]
    pub back: Option<IpAddr>,
    /// Its slowest heartbeat, milliseconds; `cluster.rtt_ms` is the slowest of all.
    #[serde(skip)]
    pub rtt_ms: Option<f64>,
    /// It is up.
    pub up: bool,
    /// It is in.
    pub r#in: bool,
    /// Its device class.
    pub class: Option<String>,
    /// It takes its data device for a spinning disk.
    pub rotational: Option<bool>,
    /// Its major release.
    pub release: Option<i64>,
    /// Its version: `18.2.7`.
    pub version: Option<String>,
    /// The build type of its program, `RelWithDebInfo`; nothing: its version text does not say (before 20).
    pub build_type: Option<String>,
    /// `bluestore`.
    pub objectstore: Option<String>,
    /// The size of its store.
    pub bytes: Option<i64>,
    /// Bytes of it that are used.
    pub used: Option<i64>,
    /// Its placement groups.
    pub pgs: Option<i64>,
    /// Its database.
    pub db: Option<Database>,
    /// The unit of allocation that it was made with.
    pub min_alloc_size: Option<i64>,
    /// The sharding of its RocksDB.
    pub sharding: Option<String>,
    /// Copies of its label.
    pub label_copies: Option<i64>,
    /// Its process uses tcmalloc.
    pub tcmalloc: Option<bool>,
    /// The page size of its tcmalloc.
    pub tcmalloc_page_size: Option<i64>,
    /// Its build can use io_uring.
    pub liburing: Option<bool>,
    /// Options that were set, and that it runs without until it starts anew.
    pub ignores: Option<Vec<String>>,
    /// Memory that its process has, bytes.
    pub rss: Option<i64>,
    /// The memory limit of its control group; 0: none.
    pub cgroup_limit: Option<i64>,
    /// Processors that its control group may use; 0: all.
    pub cpu_limit: Option<f64>,
    /// Threads of its process.
    pub threads: Option<i64>,
    /// Shards of its operation queue that run.
    pub shards: Option<i64>,
    /// Threads of each.
    pub shard_threads: Option<i64>,
    /// Options with their values.
    pub options: BTreeMap<String, Setting>,
    /// `wpq` or `mclock_scheduler`.
    pub scheduler: Option<String>,
    /// The profile of mClock.
    pub profile: Option<String>,
    /// Backfills that its reservers admit.
    pub backfills_max: Option<i64>,
    /// Recoveries under way that it admits.
    pub recovery_max: Option<i64>,
    /// I/O a second that mClock takes its device to do.
    pub capacity_iops: Option<f64>,
    /// Bytes a second that mClock takes its device to do.
    pub capacity_bandwidth: Option<i64>,
    /// Its store, as measured.
    pub measured: Option<Measured>,
    /// Its counters.
    pub perf: Option<Perf>,
    /// Plugins that load.
    pub plugins: Option<Plugins>,
    /// The node that it is bound to; -1: none.
    pub numa_node: Option<i64>,
    /// The node of its data device; -1: not known to it.
    pub numa_storage: Option<i64>,
    /// The node of its public interface.
    pub numa_public: Option<i64>,
    /// The node of its cluster interface.
    pub numa_cluster: Option<i64>,
    /// The cache in front of its data device.
    pub cache: Option<Behind>,
    /// The interface of its public network.
    pub public_iface: Option<String>,
    /// The interface of its cluster network.
    pub cluster_iface: Option<String>,
    /// The disk of its host that its data are on.
    pub device: Option<String>,
    /// The disk that its database is on, if that is another.
    pub db_device: Option<String>,
    /// Its unit of systemd; empty: none.
    pub unit: Option<String>,
    /// This program's drop-in of that unit; empty: there is none.
    pub drop_in: Option<String>,
    /// The variables of its environment that rules set; one that is not among them is not set.
    pub environment: Option<BTreeMap<String, String>>,
    /// Processors that its threads may use, by group.
    pub allowed: BTreeMap<String, String>,
    /// Its part of its host's processors.
    pub partition: Option<Part>,
    /// Errors of interest in its log.
    pub log_errors: Option<Vec<String>>,
    /// The release that it was made with; 0: not known.
    pub created: Option<i64>,
}

/// The part of a host's processors that an OSD has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// The NUMA node.
    pub node: i64,
    /// `apart` or `shared`.
    pub level: String,
    /// All of it.
    pub cpus: String,
    /// Processors for messengers.
    pub msgr_worker: String,
    /// For threads of operations.
    pub tp_osd_tp: String,
    /// For the store and its database.
    pub bstore: String,
    /// For its other threads.
    pub other: String,
    /// The drop-in of its unit that keeps it.
    pub drop_in: String,
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

/// A store, as measured by the OSD itself.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// Random writes of 4 KiB a second.
    pub iops: f64,
    /// Bytes a second of large writes.
    pub bandwidth: i64,
    /// The median of one write alone, microseconds.
    pub p50_us: Option<f64>,
    /// Seconds since 1970 at which it was measured.
    pub taken: Option<i64>,
}

/// Counters of an OSD.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Perf {
    /// The share of onodes found in the cache.
    pub onode_hit_ratio: Option<f64>,
    /// Messages of clients that waited for the throttle.
    pub throttle_messages_wait: Option<i64>,
    /// The time that a flush of the database takes, milliseconds.
    pub kv_flush_ms: Option<f64>,
    /// The share of a processor that the thread bstore_kv_sync takes.
    pub kv_sync_busy: Option<f64>,
    /// The same of the busiest msgr-worker.
    pub msgr_busy: Option<f64>,
    /// Deferred writes that wait.
    pub deferred_queue: Option<i64>,
    /// Placement groups that trim snapshots.
    pub snaptrim_pgs: Option<i64>,
    /// The fragmentation of free space, 0 to 1.
    pub fragmentation: Option<f64>,
    /// Memory of the logs of placement groups, bytes.
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
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Behind {
    /// `loligo`, `opencas`, `bcache`, `dm-cache`, `dm-writecache`, or nothing.
    pub kind: String,
    /// Its name among the caches of the host.
    pub name: Option<String>,
    /// Its size.
    pub bytes: Option<i64>,
    /// Its mode: `wb`.
    pub mode: Option<String>,
}
