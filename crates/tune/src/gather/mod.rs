//! Facts are gathered here: of hosts from the kernel's files, of the cluster by commands to its daemons.

pub(crate) mod asked;
mod cluster;
pub(crate) mod daemon;
pub(crate) mod devices;
mod disks;
mod host;
mod join;
pub(crate) mod lists;
mod nics;
mod osds;
mod placed;
pub(crate) mod processes;
pub mod remote;
pub(crate) mod threads;
mod topology;
pub(crate) mod units;

pub use cluster::{cluster, fsid};
pub use host::{HostReport, host_name, look};
pub use join::join;
