//! Trees of `/sys` and `/proc` of machines of several nodes, laid out in a folder from a few lines each.
//!
//! * [`xeon`]: processors, nodes and interfaces as recorded on a Supermicro SYS-4029GP with two Xeon Silver 4108 (hwloc,
//!   `tests/hwloc/linux/32intel64-2p8co2t+8ve`). NVMe devices and OSDs are modelled.
//! * [`kunpeng`]: processors and nodes as recorded on a Huawei XA320 V2 with two Kunpeng 920 (hwloc,
//!   `tests/hwloc/linux/128arm-2pa2n8cluster4co`). Devices and OSDs are modelled.
//! * [`altra`]: modelled. An Ampere Altra Q80-30 has 80 cores without threads, in one node (`lscpu` in
//!   nviennot/core-to-core-latency, issue 49). Pages of 64 KiB, devices and OSDs are modelled.

use std::os::unix::fs::symlink;
use std::path::Path;

/// Threads of an OSD of 16.2.15, with how many there are of each.
const THREADS: [(&str, usize); 12] = [
    ("ceph-osd", 1),
    ("msgr-worker-0", 1),
    ("msgr-worker-1", 1),
    ("msgr-worker-2", 1),
    ("tp_osd_tp", 16),
    ("bstore_aio", 1),
    ("bstore_kv_sync", 1),
    ("bstore_kv_final", 1),
    ("bstore_mempool", 1),
    ("rocksdb:low0", 1),
    ("rocksdb:high0", 1),
    ("safe_timer", 2),
];

/// A device of a machine, with its interrupts.
#[derive(Debug, Clone)]
pub struct Device {
    /// Its name.
    pub name: &'static str,
    /// Its NUMA node.
    pub node: i64,
    /// The first number of its interrupts.
    pub irq: usize,
    /// The number of them.
    pub irqs: usize,
}

/// A machine.
#[derive(Debug, Clone)]
pub struct Machine {
    /// `x86_64` or `aarch64`.
    pub arch: &'static str,
    /// Its kernel.
    pub kernel: &'static str,
    /// The size of its pages, KiB.
    pub page_kib: u32,
    /// A line of its `/proc/cpuinfo`.
    pub cpuinfo: &'static str,
    /// Its processors.
    pub cpus: i64,
    /// The distance between the two threads of a core; 0: cores have one.
    pub sibling: i64,
    /// Processors by node.
    pub nodes: Vec<&'static str>,
    /// Memory by node, KiB.
    pub memory: i64,
    /// The package of each node.
    pub packages: Vec<i64>,
    /// Interfaces.
    pub nics: Vec<Device>,
    /// NVMe devices, each with an OSD.
    pub nvmes: Vec<Device>,
    /// Shards of loligod.
    pub shards: usize,
}

/// Two Xeon Silver 4108, with threads.
pub fn xeon() -> Machine {
    let nic = |name, irq| Device { name, node: 0, irq, irqs: 8 };
    Machine {
        arch: "x86_64",
        kernel: "3.10.0-1160.15.2.el7.x86_64",
        page_kib: 4,
        cpuinfo: "vendor_id\t: GenuineIntel",
        cpus: 32,
        sibling: 16,
        nodes: vec!["0-7,16-23", "8-15,24-31"],
        memory: 47_925_628,
        packages: vec![0, 1],
        nics: vec![nic("enp96s0f0", 100), nic("enp96s0f1", 110)],
        nvmes: nvmes(&[0, 0, 1, 1]),
        shards: 0,
    }
}

/// Two Kunpeng 920 of 64 cores each, without threads.
pub fn kunpeng() -> Machine {
    Machine {
        arch: "aarch64",
        kernel: "5.15.0-rc1-00005-g4c1b4a4d90b6-dirty",
        page_kib: 4,
        cpuinfo: "CPU implementer\t: 0x48",
        cpus: 128,
        sibling: 0,
        nodes: vec!["0-31", "32-63", "64-95", "96-127"],
        memory: 131_732_940,
        packages: vec![36, 36, 8442, 8442],
        nics: vec![Device { name: "enp125s0f0", node: 0, irq: 400, irqs: 16 }],
        nvmes: nvmes(&[0, 0, 0, 0, 2, 2, 2, 2]),
        shards: 0,
    }
}

/// An Ampere Altra of 80 cores, with a kernel of large pages.
pub fn altra() -> Machine {
    Machine {
        arch: "aarch64",
        kernel: "6.1.0-21-arm64-64k",
        page_kib: 64,
        cpuinfo: "CPU implementer\t: 0x41",
        cpus: 80,
        sibling: 0,
        nodes: vec!["0-79"],
        memory: 263_000_000,
        packages: vec![0],
        nics: vec![Device { name: "enP2p1s0f0", node: 0, irq: 300, irqs: 32 }],
        nvmes: nvmes(&[0; 10]),
        shards: 4,
    }
}

/// NVMe devices on these nodes.
fn nvmes(nodes: &[i64]) -> Vec<Device> {
    const NAMES: [&str; 10] = [
        "nvme0n1", "nvme1n1", "nvme2n1", "nvme3n1", "nvme4n1", "nvme5n1", "nvme6n1", "nvme7n1", "nvme8n1",
        "nvme9n1",
    ];
    let all = NAMES.iter().zip(nodes).enumerate();
    all.map(|(at, (name, node))| Device { name, node: *node, irq: 1000 + 40 * at, irqs: 33 }).collect()
}

/// The numbers of a list such as `0-3,8`.
///
/// # Panics
/// If it is none.
pub fn numbers(list: &str) -> Vec<i64> {
    let part = |part: &str| {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        from.parse::<i64>().expect("a number")..=to.parse().expect("a number")
    };
    list.split(',').flat_map(part).collect()
}

fn put(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
    std::fs::write(path, format!("{text}\n")).expect("a file");
}

fn link(root: &Path, path: &str, to: &str) {
    let path = root.join(path);
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
    symlink(to, path).expect("a link");
}

impl Machine {
    /// Lays its tree out below `root`.
    ///
    /// # Panics
    /// If that cannot be written.
    pub fn lay(&self, root: &Path) {
        put(root, "proc/sys/kernel/hostname", "n1");
        put(root, "proc/sys/kernel/osrelease", self.kernel);
        put(root, "proc/sys/kernel/arch", self.arch);
        put(root, "proc/cpuinfo", self.cpuinfo);
        put(root, "proc/1/smaps", &format!("0000 r-xp\nKernelPageSize:       {} kB", self.page_kib));
        put(root, "proc/1/comm", "systemd");
        put(root, "lib/systemd/system/loligo-tune-threads@.service", "[Service]");
        self.processors(root);
        self.loligod(root);
        for nic in &self.nics {
            let pci = format!("sys/devices/pci0000:60/{}", nic.name);
            self.device(root, &pci, nic);
            put(root, &format!("{pci}/net/{}/mtu", nic.name), "9000");
            for queue in 0..nic.irqs {
                put(root, &format!("{pci}/net/{}/queues/rx-{queue}/rps_cpus", nic.name), "0");
            }
            link(root, &format!("{pci}/net/{}/device", nic.name), &format!("../../../{}", nic.name));
            link(root, &format!("sys/class/net/{}", nic.name), &format!("../../../{pci}/net/{}", nic.name));
        }
        for (id, disk) in self.nvmes.iter().enumerate() {
            let controller = disk.name.trim_end_matches("n1");
            let pci = format!("sys/devices/pci0000:17/{controller}-pci");
            self.device(root, &pci, disk);
            let block = format!("{pci}/nvme/{controller}/{}", disk.name);
            put(root, &format!("{block}/queue/rotational"), "0");
            link(root, &format!("{block}/device"), &format!("../../{controller}"));
            link(root, &format!("{pci}/nvme/{controller}/device"), &format!("../../../{controller}-pci"));
            link(root, &format!("sys/block/{}", disk.name), &format!("../../{block}"));
            put(root, &format!("sys/block/dm-{id}/slaves/{}/dev", disk.name), "259:0");
            self.osd(root, id);
        }
    }

    fn processors(&self, root: &Path) {
        let cpu = "sys/devices/system/cpu";
        let last = self.cpus - 1;
        put(root, &format!("{cpu}/online"), &format!("0-{last}"));
        put(root, &format!("{cpu}/isolated"), "");
        let node = "sys/devices/system/node";
        put(root, &format!("{node}/online"), &format!("0-{}", self.nodes.len() - 1));
        for (id, (list, package)) in self.nodes.iter().zip(&self.packages).enumerate() {
            put(root, &format!("{node}/node{id}/cpulist"), list);
            let memory = format!("Node {id} MemTotal:       {} kB", self.memory);
            put(root, &format!("{node}/node{id}/meminfo"), &memory);
            for it in numbers(list) {
                let at = format!("{cpu}/cpu{it}/topology");
                let first = if self.sibling > 0 { it % self.sibling } else { it };
                let threads = match self.sibling {
                    0 => it.to_string(),
                    apart => format!("{first},{}", first + apart),
                };
                put(root, &format!("{at}/thread_siblings_list"), &threads);
                put(root, &format!("{at}/physical_package_id"), &package.to_string());
            }
        }
    }

    /// loligod, run by its unit.
    fn loligod(&self, root: &Path) {
        for shard in 0..self.shards {
            put(root, "proc/900/comm", "loligod");
            put(root, "proc/900/cgroup", "0::/system.slice/loligod.service");
            let task = format!("proc/900/task/{}", 901 + shard);
            put(root, &format!("{task}/comm"), &format!("shard-{shard}"));
            put(root, &format!("{task}/status"), &format!("Cpus_allowed_list:\t0-{}", self.cpus - 1));
        }
    }

    fn device(&self, root: &Path, pci: &str, device: &Device) {
        put(root, &format!("{pci}/numa_node"), &device.node.to_string());
        for irq in device.irq..device.irq + device.irqs {
            put(root, &format!("{pci}/msi_irqs/{irq}"), "msix");
            put(root, &format!("proc/irq/{irq}/smp_affinity_list"), &format!("0-{}", self.cpus - 1));
        }
    }

    /// The process of an OSD with its threads, which may run anywhere.
    fn osd(&self, root: &Path, id: usize) {
        let pid = 20_000 + 100 * id;
        let at = format!("proc/{pid}");
        let allowed = format!("Name:\tceph-osd\nVmRSS:\t 1024 kB\nCpus_allowed_list:\t0-{}", self.cpus - 1);
        put(root, &format!("{at}/comm"), "ceph-osd");
        put(root, &format!("{at}/cmdline"), &format!("/usr/bin/ceph-osd\0-f\0--id\0{id}\0"));
        put(root, &format!("{at}/cgroup"), &format!("0::/system.slice/ceph-osd@{id}.service"));
        put(root, &format!("{at}/status"), &allowed);
        link(root, &format!("{at}/fd/11"), &format!("/var/lib/ceph/osd/ceph-{id}/fsid"));
        link(root, &format!("{at}/fd/20"), &format!("/dev/dm-{id}"));
        put(root, &format!("var/lib/ceph/osd/ceph-{id}/ceph_fsid"), "f");
        let names = THREADS.iter().flat_map(|(name, count)| std::iter::repeat_n(name, *count));
        for (tid, name) in (pid..).zip(names) {
            put(root, &format!("{at}/task/{tid}/comm"), name);
            put(root, &format!("{at}/task/{tid}/status"), &allowed);
            let zeros = "0 ".repeat(18);
            put(root, &format!("{at}/task/{tid}/stat"), &format!("{tid} ({name}) S {zeros}4242 0"));
        }
    }
}
