//! Facts are gathered here: of hosts from the kernel's files, of the cluster by commands to its daemons.

pub(crate) mod asked;
pub(crate) mod by_socket;
mod cache_words;
mod caches;
mod casadm;
mod cgroup;
mod cluster;
pub(crate) mod daemon;
pub(crate) mod devices;
mod disks;
mod dm_cache;
pub(crate) mod environment;
pub(crate) mod ethtool;
mod host;
mod images;
mod join;
pub(crate) mod lists;
pub(crate) mod mtu;
mod nics;
pub(crate) mod osd_log;
mod osds;
mod pids;
mod placed;
pub(crate) mod processes;
pub mod remote;
mod stack;
pub(crate) mod subnets;
pub(crate) mod threads;
mod topology;
pub(crate) mod units;
mod volumes;

pub use cluster::{cluster, fsid};
pub use host::{HostReport, host_name, look};
pub use join::join;
