//! Facts of a host, of its disks and of its network interfaces.

use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;
use std::collections::BTreeMap;

/// A host.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Host {
    /// Its name, as OSDs say it.
    pub name: String,
    /// It could be asked.
    pub reached: bool,
    /// `x86_64` or `aarch64`.
    pub arch: Option<String>,
    /// Its kernel.
    pub kernel: Option<Kernel>,
    /// Processors that the kernel schedules on.
    pub cpus: Option<Vec<i64>>,
    /// Cores, each with its threads.
    pub core_list: Option<Vec<Core>>,
    /// Processors that the kernel schedules nothing on by itself.
    pub isolated: Option<Vec<i64>>,
    /// Cores.
    pub cores: Option<i64>,
    /// Sockets.
    pub sockets: Option<i64>,
    /// Cores have more than one thread each.
    pub smt: Option<bool>,
    /// NUMA nodes.
    pub numa: Option<Vec<Node>>,
    /// Abilities of its processors.
    pub cpu_flags: Option<Vec<String>>,
    /// The share of its processors that was busy while it was looked at.
    pub cpu_busy: Option<f64>,
    /// The frequency governor; empty: the kernel governs no frequency.
    pub governor: Option<String>,
    /// The energy preference.
    pub epp: Option<String>,
    /// The exit latency of the deepest idle state that is on, microseconds; 0: none.
    pub cstate_max_latency_us: Option<i64>,
    /// Its memory.
    pub memory: Option<Memory>,
    /// Transparent huge pages: `always`, `madvise`, `never`.
    pub thp: Option<String>,
    /// Options for OSDs in Ceph's file.
    pub conf: Option<BTreeMap<String, String>>,
    /// Values of sysctl that rules name.
    pub sysctl: BTreeMap<String, String>,
    /// Numbers of its OSDs.
    pub osds: Vec<i64>,
    /// Monitors on it.
    pub mons: Option<i64>,
    /// Managers on it.
    pub mgrs: Option<i64>,
    /// Memory of other processes, bytes.
    pub other_bytes: Option<i64>,
    /// Guests or mapped images run on it.
    pub converged: Option<bool>,
    /// The program that looked ran in a container, and saw that only.
    pub container: Option<bool>,
    /// The daemon irqbalance runs.
    pub irqbalance: Option<bool>,
    /// The profile of the daemon tuned; empty: it does not run.
    pub tuned: Option<String>,
    /// `off`, `pt` or `translated`.
    pub iommu: Option<String>,
    /// The kernel's command line on mitigations: `on` or `off`.
    pub mitigations: Option<String>,
    /// Prefetching of the processors: `on` or `off`.
    pub prefetch: Option<String>,
    /// The build of Ceph that is installed.
    pub ceph: Option<CephBuild>,
    /// The library of tcmalloc that is installed; empty: none.
    pub tcmalloc_library: Option<String>,
    /// Queues of NVMe devices that are polled.
    pub nvme_poll_queues: Option<i64>,
    /// Images that its kernel has mapped.
    pub krbd: Option<Vec<Krbd>>,
    /// Power supplies.
    pub psus: Option<i64>,
    /// Its memory modules.
    pub dmidecode: Option<Modules>,
    /// Contexts of asynchronous I/O that are in use.
    pub aio_nr: Option<i64>,
    /// Encrypted devices.
    pub crypt: Option<Vec<Crypt>>,
    /// The unit that binds threads again after a start is installed.
    pub hook: Option<bool>,
    /// loligod, if it runs with shards.
    pub loligod: Option<Loligod>,
}

/// A core.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Core {
    /// Its processors.
    pub cpus: Vec<i64>,
}

/// The daemon of volumes on a host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Loligod {
    /// Its shards.
    pub shards: i64,
    /// The NUMA node of its devices; -1: several or none.
    pub node: i64,
    /// Its unit of systemd; empty: none.
    pub unit: String,
    /// Processors that its shards may use.
    pub allowed: String,
    /// Those that the partition has for them.
    pub cpus: String,
    /// This program's drop-in of its unit; empty: there is none.
    pub drop_in: String,
    /// The drop-in that the partition wants.
    pub wanted: String,
}

/// An interrupt.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Irq {
    /// Its number.
    pub id: i64,
    /// Processors that it may go to.
    pub cpus: String,
}

/// A kernel.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kernel {
    /// Its release: `6.12.9-amd64`.
    pub version: String,
    /// The first number of that.
    pub major: i64,
    /// The second.
    pub minor: i64,
    /// The size of its pages, bytes; nothing: the tree was recorded without it.
    pub page_size: Option<i64>,
}

/// A NUMA node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Its number.
    pub id: i64,
    /// Its processors.
    pub cpus: Vec<i64>,
    /// Its memory, bytes.
    pub memory: i64,
}

/// Memory, bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// All.
    pub total: i64,
    /// Memory that processes can have.
    pub available: i64,
    /// Swap space.
    pub swap_total: i64,
    /// Swap space in use.
    pub swap_used: i64,
}

/// The build of Ceph on a host.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CephBuild {
    /// Its version.
    pub version: String,
    /// The build type that it names; nothing: it names none.
    pub build_type: Option<String>,
    /// `upstream-deb`, `upstream-rpm`, `distribution` or `container`.
    pub package: Option<String>,
    /// It has the plugin of ISA-L.
    pub isal: Option<bool>,
    /// The instructions that its CRC32C may use: `pclmul`, `sse4.2`, `armv8`, `isal`, `software`.
    pub crc: Option<String>,
    /// Plugins of erasure codes.
    pub ec_plugins: Option<Vec<String>>,
}

/// An image that a kernel has mapped.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Krbd {
    /// Its device: `rbd0`.
    pub name: String,
    /// Its queue.
    pub nr_requests: i64,
    /// Options of the mapping.
    pub options: String,
}

/// Memory modules.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Modules {
    /// Channels with a module.
    pub channels_used: i64,
    /// Channels.
    pub channels: i64,
}

/// An encrypted device.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Crypt {
    /// Its name.
    pub device: String,
    /// It is on a spinning disk.
    pub rotational: bool,
    /// Requests go through work queues.
    pub workqueues: Option<bool>,
}

/// A disk.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Disk {
    /// Its name: `sda`.
    pub name: String,
    /// Its host.
    pub host: String,
    /// Its model.
    pub model: Option<String>,
    /// Its firmware.
    pub firmware: Option<String>,
    /// `hdd`, `ssd`, `nvme` or `virtio`.
    pub kind: Option<String>,
    /// The kernel takes it for a spinning disk.
    pub rotational: Option<bool>,
    /// It behaves as a spinning disk: measured.
    pub measured_rotational: Option<bool>,
    /// The lower quartile of single random reads of 4 KiB, microseconds: measured.
    pub measured_read_us: Option<f64>,
    /// A write of 4 KiB with a flush, microseconds: measured.
    pub measured_fsync_us: Option<f64>,
    /// The same with the disk's own cache off: measured.
    pub measured_fsync_off_us: Option<f64>,
    /// `yes`, `no` or `unknown`: it keeps what it has in memory when power fails.
    pub plp: Option<String>,
    /// `write back` or `write through`.
    pub write_cache: Option<String>,
    /// Its scheduler.
    pub scheduler: Option<String>,
    /// Those that it could have.
    pub schedulers: Option<Vec<String>>,
    /// Its queue in the kernel.
    pub nr_requests: Option<i64>,
    /// Its own queue.
    pub queue_depth: Option<i64>,
    /// Its read-ahead, KiB.
    pub read_ahead_kb: Option<i64>,
    /// The processor that a completion runs on: 0, 1 or 2.
    pub rq_affinity: Option<i64>,
    /// Merges that are not tried: 0, 1 or 2.
    pub nomerges: Option<i64>,
    /// It feeds the kernel's random numbers.
    pub add_random: Option<i64>,
    /// The kernel counts its I/O.
    pub iostats: Option<i64>,
    /// Its largest request, KiB.
    pub max_sectors_kb: Option<i64>,
    /// It takes discards.
    pub discard: Option<bool>,
    /// Its logical block, bytes.
    pub lba: Option<i64>,
    /// Its NUMA node; -1: none.
    pub numa_node: Option<i64>,
    /// Numbers of the OSDs on it.
    pub osds: Vec<i64>,
    /// Its size.
    pub bytes: Option<i64>,
    /// An encrypted device lies on it.
    pub crypt: Option<bool>,
    /// Its interrupts.
    pub irqs: Option<Vec<Irq>>,
}

/// A network interface.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Nic {
    /// Its name.
    pub name: String,
    /// Its host.
    pub host: String,
    /// `public`, `cluster`, `both`, or nothing.
    pub role: String,
    /// Its speed, Mbit/s.
    pub speed_mbit: Option<i64>,
    /// Its MTU.
    pub mtu: Option<i64>,
    /// The largest packet that reached every other host in one piece.
    pub mtu_proven: Option<i64>,
    /// Its queues.
    pub queues: Option<i64>,
    /// Queues that it could have.
    pub max_queues: Option<i64>,
    /// Its rings.
    pub rings: Option<Rings>,
    /// Processors that its interrupts go to.
    pub irqs_on: Option<Vec<i64>>,
    /// Interrupts of its queues.
    pub irqs: Option<Vec<Irq>>,
    /// The processors that the partition has for them: `36=0 37=1`.
    pub irq_plan: Option<String>,
    /// Processors that packets of its queues may be steered to: those of its node, or all.
    pub rps_plan: Option<String>,
    /// Its NUMA node; -1: none.
    pub numa_node: Option<i64>,
    /// Work that it does itself: `tso`, `gso`, `gro`, checksums.
    pub offloads: Option<Vec<String>>,
    /// It adapts the delay of interrupts to the load.
    pub adaptive_rx: Option<bool>,
    /// The delay of an interrupt, microseconds.
    pub rx_usecs: Option<i64>,
    /// Packets that were dropped.
    pub drops: Option<i64>,
    /// Its driver.
    pub driver: Option<String>,
    /// Packets are spread over processors by the kernel.
    pub rps: Option<bool>,
    /// Interfaces that it lies on.
    pub lower: Vec<String>,
    /// Interfaces that it bonds.
    pub bond_slaves: Option<i64>,
    /// Its queueing discipline.
    pub qdisc: Option<String>,
}

/// Rings of a network interface.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rings {
    /// Entries for receiving.
    pub rx: i64,
    /// The most that it could have.
    pub rx_max: i64,
}
