//! Facts of what runs beside OSDs: clients of the cluster, and caches.

use super::setting::Setting;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A client of the cluster.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Client {
    /// Its name, or that of its process.
    pub name: String,
    /// Its host.
    pub host: String,
    /// `qemu`, `krbd`, `librbd` or `rgw`.
    pub kind: String,
    /// Options with their values.
    pub options: BTreeMap<String, Setting>,
    /// Its counters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub perf: Option<ClientPerf>,
    /// Of a guest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qemu: Option<Qemu>,
}

/// Counters of a client.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClientPerf {
    /// Operations that waited for the throttle of librados.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objecter_wait: Option<i64>,
    /// The share of a processor that its busiest msgr-worker takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub msgr_busy: Option<f64>,
}

/// The drive of a guest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Qemu {
    /// It has an I/O thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iothread: Option<bool>,
    /// Its cache mode: `none`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<String>,
    /// Its process uses tcmalloc.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcmalloc: Option<bool>,
}

/// A cache in front of a disk or an image.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Cache {
    /// `loligo` or `opencas`.
    pub kind: String,
    /// Its volume, or the number of its cache.
    pub name: String,
    /// Its host.
    pub host: String,
    /// The slow device, or the image.
    pub core: String,
    /// `wt`, `wb`, `wa`, `wo`, `wi` or `pt`.
    pub mode: String,
    /// Its line, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line_size: Option<i64>,
    /// Its size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<i64>,
    /// The share of it that is dirty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dirty_percent: Option<f64>,
    /// The share of reads that it answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hit_percent: Option<f64>,
    /// `always`, `full` or `never`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq_cutoff_policy: Option<String>,
    /// The length from which a stream goes past it, KiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq_cutoff_kib: Option<i64>,
    /// The policy of destaging: `alru`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cleaning: Option<String>,
    /// The policy of promotion: `always`, `nhit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub promotion: Option<String>,
    /// An OSD stands on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_osd: Option<bool>,
    /// The rules of its I/O classes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io_classes: Option<Vec<String>>,
    /// Its device has a mirror.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mirrored: Option<bool>,
    /// `yes`, `no` or `unknown`: its device keeps what it has in memory when power fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plp: Option<String>,
    /// Slow devices behind the same fast one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shared_by: Option<i64>,
}
