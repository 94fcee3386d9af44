//! A partition as a document.

use crate::cpus::Cpus;
use serde::{Serialize, Serializer};

/// A group of an OSD's threads, by their names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// Messengers: `msgr-worker-0`.
    MsgrWorker,
    /// Threads of operations: `tp_osd_tp`.
    TpOsdTp,
    /// The store: `bstore_kv_sync`, `bstore_aio`.
    Bstore,
    /// The database's own: `rocksdb:low0`.
    Rocksdb,
    /// The rest.
    Other,
}

impl Group {
    /// All groups. Each thread is in one.
    pub const ALL: [Group; 5] =
        [Group::MsgrWorker, Group::TpOsdTp, Group::Bstore, Group::Rocksdb, Group::Other];

    /// The group of a thread of this name.
    pub fn of(thread: &str) -> Group {
        let starts = |word: &str| thread.starts_with(word);
        if starts("msgr-worker") {
            Group::MsgrWorker
        } else if starts("tp_osd_tp") {
            Group::TpOsdTp
        } else if starts("bstore_") {
            Group::Bstore
        } else if starts("rocksdb:") {
            Group::Rocksdb
        } else {
            Group::Other
        }
    }

    /// As rules have it.
    pub fn word(self) -> &'static str {
        match self {
            Group::MsgrWorker => "msgr-worker",
            Group::TpOsdTp => "tp_osd_tp",
            Group::Bstore => "bstore",
            Group::Rocksdb => "rocksdb",
            Group::Other => "other",
        }
    }
}

/// The degree to which OSDs of a node are kept apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// OSDs of the node share its cores.
    Shared,
    /// The OSD has cores of its own, and so have groups of its threads.
    Apart,
}

impl Level {
    /// As facts have it.
    pub fn word(self) -> &'static str {
        match self {
            Level::Shared => "shared",
            Level::Apart => "apart",
        }
    }
}

/// The part of one OSD.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OsdPart {
    /// Its number.
    pub id: i64,
    /// The NUMA node of its cores.
    pub node: i64,
    /// The degree to which it is kept apart.
    pub level: Level,
    /// All of its processors.
    #[serde(serialize_with = "list")]
    pub cpus: Cpus,
    /// Those of its messengers.
    #[serde(serialize_with = "list")]
    pub msgr_worker: Cpus,
    /// Those of its threads of operations.
    #[serde(serialize_with = "list")]
    pub tp_osd_tp: Cpus,
    /// Those of the store and its database.
    #[serde(serialize_with = "list")]
    pub bstore: Cpus,
    /// Those of its other threads.
    #[serde(serialize_with = "list")]
    pub other: Cpus,
    /// The reasons for the node, and for what it did not get.
    pub why: Vec<String>,
}

impl OsdPart {
    /// The processors of a group of its threads.
    pub fn group(&self, group: Group) -> &Cpus {
        match group {
            Group::MsgrWorker => &self.msgr_worker,
            Group::TpOsdTp => &self.tp_osd_tp,
            Group::Bstore | Group::Rocksdb => &self.bstore,
            Group::Other => &self.other,
        }
    }
}

/// The part of loligod's shards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ShardPart {
    /// Shards.
    pub shards: i64,
    /// The NUMA node of their cores.
    pub node: i64,
    /// Each shard has a core of its own.
    pub own: bool,
    /// Their processors.
    #[serde(serialize_with = "list")]
    pub cpus: Cpus,
    /// The reasons.
    pub why: Vec<String>,
}

/// The interrupts of a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InterruptPart {
    /// The device.
    pub device: String,
    /// Its NUMA node; nothing: not known.
    pub node: Option<i64>,
    /// Numbers of its interrupts, each with its processor; none: they are left as they are.
    pub to: Vec<(i64, i64)>,
    /// The reason.
    pub why: String,
}

impl InterruptPart {
    /// As a value of a rule: `36=0 37=1`.
    pub fn value(&self) -> String {
        let all: Vec<String> = self.to.iter().map(|(irq, cpu)| format!("{irq}={cpu}")).collect();
        all.join(" ")
    }
}

/// A partition of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Partition {
    /// The host.
    pub host: String,
    /// OSDs, by number.
    pub osds: Vec<OsdPart>,
    /// loligod's shards.
    pub loligod: Option<ShardPart>,
    /// Network interfaces.
    pub nics: Vec<InterruptPart>,
    /// NVMe devices.
    pub nvmes: Vec<InterruptPart>,
    /// Notes on the host.
    pub notes: Vec<String>,
}

fn list<S: Serializer>(cpus: &Cpus, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(cpus)
}
