//! Facts of the cluster as a whole, of its pools and of images.

use super::setting::Setting;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;
use std::collections::BTreeMap;

/// The cluster.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Cluster {
    /// It answered.
    pub reached: bool,
    /// Its id.
    pub fsid: Option<String>,
    /// `HEALTH_OK`, `HEALTH_WARN` or `HEALTH_ERR`.
    pub health: Option<String>,
    /// Names of its health checks: `OSD_DOWN`.
    pub checks: Vec<String>,
    /// The oldest major release of a daemon that runs.
    pub release: Option<i64>,
    /// Daemons of more than one version run.
    pub mixed: Option<bool>,
    /// Kinds of daemons, with the versions that run and their number.
    pub versions: BTreeMap<String, BTreeMap<String, i64>>,
    /// The release that OSDs must have: `reef`.
    pub require_osd_release: Option<String>,
    /// The oldest release that clients must have.
    pub min_compat_client: Option<String>,
    /// `cephadm`, `rook` or nothing.
    pub orchestrator: Option<String>,
    /// Flags of the OSD map: `noout`.
    pub flags: Vec<String>,
    /// The balancer.
    pub balancer: Option<Balancer>,
    /// Monitors.
    pub mons: Option<i64>,
    /// Hosts of monitors and of managers, one entry for each daemon; `hosts[]` have their numbers.
    #[serde(skip)]
    pub hosts_of: Option<HostsOf>,
    /// Entries of the configuration database.
    pub config: Vec<Entry>,
    /// Options of monitors, managers and their modules, with their values.
    pub options: BTreeMap<String, Setting>,
    /// Entries whose option no daemon of this release knows.
    pub unknown_keys: Vec<Unknown>,
    /// Connected clients.
    pub clients: Option<Clients>,
    /// The slowest heartbeat between two OSDs, milliseconds.
    pub rtt_ms: Option<f64>,
    /// The fullest OSD against the average of its class.
    pub var_max: Option<f64>,
    /// Pairs of controllers that take each other over.
    pub pairs: Option<i64>,
}

/// Hosts of daemons, without their domains.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostsOf {
    /// Of monitors.
    pub mons: Vec<String>,
    /// Of managers.
    pub mgrs: Vec<String>,
}

/// The balancer of placement groups.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Balancer {
    /// It is on.
    pub active: bool,
    /// Its mode: `upmap`.
    pub mode: String,
}

/// An entry of the configuration database.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// The section: `global`, `osd`, `osd.3`.
    pub who: String,
    /// The mask, or nothing: `class:hdd`, `host:n1`.
    pub mask: String,
    /// The option.
    pub key: String,
    /// Its value.
    pub value: String,
}

impl Entry {
    /// The section with its mask, as `ceph config set` takes it.
    pub fn whole_who(&self) -> String {
        if self.mask.is_empty() { self.who.clone() } else { format!("{}/{}", self.who, self.mask) }
    }
}

/// An entry whose option is not known.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unknown {
    /// The section with its mask.
    pub who: String,
    /// The name.
    pub key: String,
}

/// Connected clients.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Clients {
    /// All have the features of 18 or newer.
    pub all_reef: bool,
    /// Connections of clients.
    pub count: i64,
    /// Releases whose features they have, the oldest name of each kind.
    pub releases: Vec<String>,
}

/// A pool.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Pool {
    /// Its name.
    pub name: String,
    /// Its number.
    pub id: i64,
    /// `replicated` or `erasure`.
    pub kind: String,
    /// Copies, or data and coding chunks.
    pub size: i64,
    /// Copies without which it answers nothing.
    pub min_size: i64,
    /// Placement groups.
    pub pg_num: i64,
    /// Placement groups that the autoscaler wants.
    pub pg_target: Option<i64>,
    /// `on`, `warn` or `off`.
    pub autoscale: Option<String>,
    /// It is expected to fill the cluster.
    pub bulk: Option<bool>,
    /// Applications: `rbd`.
    pub applications: Vec<String>,
    /// `none`, `passive`, `aggressive` or `force`.
    pub compression_mode: Option<String>,
    /// The plugin.
    pub compression_algorithm: Option<String>,
    /// Of an erasure-coded pool.
    pub ec: Option<Erasure>,
    /// 1 where reads are spread evenly over OSDs.
    pub read_balance_score: Option<f64>,
    /// The device class of its CRUSH rule; nothing: all classes.
    pub class: Option<String>,
    /// The type of bucket that no two copies share.
    pub failure_domain: Option<String>,
    /// Bytes that clients stored.
    pub bytes: Option<i64>,
    /// Objects.
    pub objects: Option<i64>,
    /// Copies of its placement groups on one OSD, on average.
    pub pgs_per_osd: Option<f64>,
}

/// The profile of an erasure-coded pool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Erasure {
    /// `jerasure`, `isa`.
    pub plugin: String,
    /// `reed_sol_van`.
    pub technique: String,
    /// Data chunks.
    pub k: i64,
    /// Coding chunks.
    pub m: i64,
    /// It has `allow_ec_optimizations`.
    pub optimizations: bool,
}

/// An RBD image.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Image {
    /// Its pool.
    pub pool: String,
    /// Its name.
    pub name: String,
    /// Its features.
    pub features: Vec<String>,
    /// The logarithm of its object size.
    pub order: i64,
    /// Bytes that lie together before the next object's turn comes.
    pub stripe_unit: i64,
    /// Objects that take turns.
    pub stripe_count: i64,
    /// Options that the image or its pool overrides: `rbd_cache=false (image)`.
    pub overrides: Vec<String>,
    /// A limit on its I/O is set.
    pub qos: bool,
    /// A persistent cache of librbd is on.
    pub persistent_cache: bool,
    /// It is a clone.
    pub parent: bool,
    /// It is mirrored to another cluster.
    pub mirrored: bool,
}
