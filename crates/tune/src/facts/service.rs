//! Facts of what runs beside OSDs: clients of the cluster, and caches.

use super::setting::Setting;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;
use std::collections::BTreeMap;

/// A client of the cluster.
#[skip_serializing_none]
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
    pub perf: Option<ClientPerf>,
    /// Of a guest.
    pub qemu: Option<Qemu>,
}

/// Counters of a client.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClientPerf {
    /// Operations that waited for the throttle of librados.
    pub objecter_wait: Option<i64>,
    /// The share of a processor that its busiest msgr-worker takes.
    pub msgr_busy: Option<f64>,
}

/// The drive of a guest.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Qemu {
    /// It has an I/O thread.
    pub iothread: Option<bool>,
    /// Its cache mode: `none`.
    pub cache: Option<String>,
    /// Its process uses tcmalloc.
    pub tcmalloc: Option<bool>,
}

/// A cache in front of a disk or an image.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Cache {
    /// `loligo`, `opencas`, `bcache`, `dm-cache` or `dm-writecache`.
    pub kind: String,
    /// Its volume, its device, or the number of its cache.
    pub name: String,
    /// Its host.
    pub host: String,
    /// The slow device, or the image.
    pub core: Option<String>,
    /// The fast device.
    pub device: Option<String>,
    /// `wt`, `wb`, `wa`, `wo`, `wi` or `pt`.
    pub mode: Option<String>,
    /// Its line, bytes.
    pub line_size: Option<i64>,
    /// Its size.
    pub bytes: Option<i64>,
    /// The share of it that is dirty.
    pub dirty_percent: Option<f64>,
    /// The share of reads that it answered.
    pub hit_percent: Option<f64>,
    /// `always`, `full` or `never`.
    pub seq_cutoff_policy: Option<String>,
    /// The length from which a stream goes past it, KiB.
    pub seq_cutoff_kib: Option<i64>,
    /// The policy of destaging: `alru`.
    pub cleaning: Option<String>,
    /// The policy of promotion: `always`, `nhit`.
    pub promotion: Option<String>,
    /// An OSD stands on it.
    pub on_osd: Option<bool>,
    /// The rules of its I/O classes.
    pub io_classes: Option<Vec<String>>,
    /// Its device has a mirror.
    pub mirrored: Option<bool>,
    /// `yes`, `no` or `unknown`: its device keeps what it has in memory when power fails.
    pub plp: Option<String>,
    /// Slow devices behind the same fast one.
    pub shared_by: Option<i64>,
}
