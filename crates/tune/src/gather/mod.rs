//! Facts are gathered here: of hosts from the kernel's files, of the cluster by commands to its daemons.

mod asked;
mod cluster;
mod disks;
mod host;
mod join;
mod lists;
mod nics;
mod osds;
pub mod remote;

pub use cluster::cluster;
pub use host::{HostReport, host_name, look};
pub use join::join;
