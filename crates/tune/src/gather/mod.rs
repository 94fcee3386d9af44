//! Facts are gathered here: of hosts from the kernel's files, of the cluster by Ceph's own commands.

mod cluster;
mod disks;
mod host;
mod lists;
mod nics;
mod osds;

pub use cluster::cluster;
pub use host::{HostReport, host_name, look};
