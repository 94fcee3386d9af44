//! Facts are gathered here: of hosts from the kernel's files, of the cluster by commands to its daemons.

pub(crate) mod asked;
mod cluster;
mod disks;
mod host;
mod join;
pub(crate) mod lists;
mod nics;
mod osds;
mod processes;
pub mod remote;

pub use cluster::{cluster, fsid};
pub use host::{HostReport, host_name, look};
pub use join::join;
