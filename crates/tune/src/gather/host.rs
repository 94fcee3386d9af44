//! Facts of one host, read from the files of its kernel. The folder of those files may be a recorded tree of another machine.

use super::environment::TCMALLOCS;
use super::lists::{chosen, numbers};
use super::processes::{self, LIBRARIES, OsdProcess};
use super::stack::Stack;
use super::subnets::Subnet;
use super::{caches, daemon, disks, nics, pids, subnets, topology, units, volumes};
use crate::ceph_file::of_osds;
use crate::facts::{Cache, CephBuild, Crypt, Disk, Host, Kernel, Krbd, Memory, Nic, Node, Unseen};
use crate::rules::OptionTable;
use loligo_block::host_files::HostFiles;
use loligo_block::mounts;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;

/// Values of sysctl that rules name.
const SYSCTL: [&str; 24] = [
    "fs.aio-max-nr",
    "fs.file-max",
    "kernel.numa_balancing",
    "kernel.pid_max",
    "kernel.threads-max",
    "net.core.busy_poll",
    "net.core.busy_read",
    "net.core.default_qdisc",
    "net.core.netdev_budget",
    "net.core.netdev_max_backlog",
    "net.core.rmem_max",
    "net.core.rps_sock_flow_entries",
    "net.core.somaxconn",
    "net.core.wmem_max",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_mtu_probing",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_wmem",
    "vm.dirty_background_bytes",
    "vm.dirty_bytes",
    "vm.min_free_kbytes",
    "vm.swappiness",
    "vm.zone_reclaim_mode",
];

/// The folder of the first processor.
const CPU0: &str = "/sys/devices/system/cpu/cpu0";

/// The report of one host.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostReport {
    /// The host.
    pub host: Host,
    /// Its disks.
    pub disks: Vec<Disk>,
    /// Its interfaces.
    pub nics: Vec<Nic>,
    /// Subnets of its interfaces.
    pub subnets: Vec<Subnet>,
    /// Processes of OSDs.
    pub processes: Vec<OsdProcess>,
    /// Its caches.
    pub caches: Vec<Cache>,
    /// The rest.
    pub unseen: Vec<Unseen>,
}

/// The name of the host whose files lie under `root`, without its domain.
pub fn host_name(root: &Path) -> Option<String> {
    let name = HostFiles::new(root).read("/proc/sys/kernel/hostname")?;
    Some(name.split('.').next().unwrap_or(&name).to_owned())
}

/// Looks at the host whose files lie under `root`, which OSDs call `name`; `conf` is Ceph's file there. Packets are sent to those of
/// `probes` that are other hosts.
pub fn look(root: &Path, name: &str, conf: &Path, probes: &[IpAddr]) -> HostReport {
    let files = HostFiles::new(root);
    let mut unseen = Vec::new();
    let mut host = host(&files, name, &mut unseen);
    // Names and addresses are nobody's business: only options that matter for speed are kept.
    let is_kept = |key: &String| OptionTable::all().any(|table| table.find(key).is_some());
    host.conf =
        files.read(conf).map(|text| of_osds(&text).into_iter().filter(|(key, _)| is_kept(key)).collect());
    let before = ticks(&files);
    let mut processes = processes::look(root);
    // Threads were looked at for a second, where there are OSDs.
    host.cpu_busy = before.zip(ticks(&files)).and_then(|(before, after)| busy(before, after));
    let disks = disks::look(&files, name);
    let caches = caches_of(&files, &disks, name, &mut processes, &mut unseen);
    let (mut nics, subnets) = (nics::look(&files, name), subnets::look(&files));
    nics::probe(&files, &mut nics, &subnets, probes, &mut unseen);
    HostReport { host, disks, nics, subnets, processes, caches, unseen }
}

/// Caches of the host, and for each of its OSDs the one that it stands on.
fn caches_of(
    files: &HostFiles,
    disks: &[Disk],
    name: &str,
    processes: &mut [OsdProcess],
    unseen: &mut Vec<Unseen>,
) -> Vec<Cache> {
    let volumes = volumes::look(files, unseen);
    let stack = Stack { files, volumes: &volumes };
    let list = files.read("/proc/self/mountinfo").or_else(|| files.read("/proc/1/mountinfo"));
    let mounts = mounts::parse(list.unwrap_or_default().as_bytes());
    let mut found = caches::look(&stack, &mounts, disks, name);
    for process in processes {
        let Some(store) = process.store.take() else { continue };
        process.cache = caches::behind(&stack, &store.block, &store.mounts, &mut found);
        process.device = stack.disk(&store.block, &store.mounts);
    }
    found.into_iter().map(|found| found.cache).collect()
}

fn host(files: &HostFiles, name: &str, unseen: &mut Vec<Unseen>) -> Host {
    let cpuinfo = files.read("/proc/cpuinfo").unwrap_or_default();
    let cpu_flags = flags(&cpuinfo);
    let programs = programs(files);
    let sysctl: BTreeMap<String, String> = SYSCTL
        .iter()
        .filter_map(|key| {
            let value = files.read(format!("/proc/sys/{}", key.replace('.', "/")))?;
            Some(((*key).to_owned(), value.split_whitespace().collect::<Vec<_>>().join(" ")))
        })
        .collect();
    let container = is_container(files);
    if container == Some(true) {
        unseen.push(Unseen {
            what: format!("host {name}"),
            why: "this program runs in a container: disks, interrupts and other processes of the host may not be seen. Run it on the \
                  host, or give the container /proc, /sys and the host's network"
                .to_owned(),
        });
    }
    let cpus = online(files);
    let (cores, sockets) = topology(files, cpus.as_deref().unwrap_or_default());
    let has_cpus = files.has(CPU0);
    Host {
        name: name.to_owned(),
        reached: true,
        arch: arch(files, &cpuinfo),
        kernel: kernel(files),
        core_list: topology::cores(files, cpus.as_deref().unwrap_or_default()),
        isolated: topology::isolated(files),
        hook: Some(units::has_hook(files)),
        loligod: daemon::look(files),
        smt: cpus.as_ref().zip(cores).map(|(cpus, cores)| cpus.len() as i64 > cores),
        cpus,
        cores,
        sockets,
        numa: nodes(files),
        ceph: ceph(files, cpu_flags.as_deref()),
        cpu_flags,
        governor: has_cpus
            .then(|| files.read(format!("{CPU0}/cpufreq/scaling_governor")).unwrap_or_default()),
        epp: has_cpus
            .then(|| files.read(format!("{CPU0}/cpufreq/energy_performance_preference")).unwrap_or_default()),
        cstate_max_latency_us: idle(files),
        memory: memory(files),
        thp: files.read("/sys/kernel/mm/transparent_hugepage/enabled").and_then(|it| chosen(&it)),
        sysctl,
        osds: Vec::new(),
        converged: Some(
            programs.iter().any(|it| it.starts_with("qemu-") || it == "libvirtd") || has_rbd(files),
        ),
        container,
        irqbalance: Some(programs.iter().any(|it| it == "irqbalance")),
        other_bytes: others(files),
        tcmalloc_library: tcmalloc(files),
        tuned: Some(files.read("/etc/tuned/active_profile").unwrap_or_default()),
        iommu: iommu(files),
        mitigations: files.read("/proc/cmdline").map(|line| {
            let is_off = line.split_whitespace().any(|word| word == "mitigations=off");
            if is_off { "off".to_owned() } else { "on".to_owned() }
        }),
        krbd: Some(mapped(files)),
        aio_nr: files.number("/proc/sys/fs/aio-nr").map(|it| it as i64),
        crypt: Some(crypt(files)),
        ..Host::default()
    }
}

/// The names of programs that run.
fn programs(files: &HostFiles) -> Vec<String> {
    pids::all(files).iter().filter_map(|pid| pids::program(files, pid)).collect()
}

/// Memory of all processes that are no daemons of Ceph's, bytes.
fn others(files: &HostFiles) -> Option<i64> {
    const DAEMONS: [&str; 3] = ["ceph-osd", "ceph-mon", "ceph-mgr"];
    let pids = pids::all(files);
    let resident = |pid: &String| {
        let status = files.read(format!("/proc/{pid}/status"))?;
        let line = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
        let is_daemon = line("Name:").is_some_and(|name| DAEMONS.contains(&name));
        let kib: i64 = line("VmRSS:")?.split_whitespace().next()?.parse().ok()?;
        (!is_daemon).then_some(kib << 10)
    };
    (!pids.is_empty()).then(|| pids.iter().filter_map(resident).sum())
}

/// A library of tcmalloc that a process could be started with; empty: none is installed.
fn tcmalloc(files: &HostFiles) -> Option<String> {
    const FOLDERS: [&str; 4] =
        ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"];
    let mut all =
        FOLDERS.iter().flat_map(|folder| files.names(folder).into_iter().map(move |name| (folder, name)));
    let found = all.find(|(_, name)| TCMALLOCS.iter().any(|of| name.starts_with(of)));
    let path = found.map(|(folder, name)| format!("{folder}/{name}"));
    files.has("/usr/lib").then(|| path.unwrap_or_default())
}

/// Ticks of all processors since the start: those that were busy, and all.
fn ticks(files: &HostFiles) -> Option<(u64, u64)> {
    let stat = files.read("/proc/stat")?;
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    // The last two are guests, which are in the first two already.
    let all: Vec<u64> = line.split_whitespace().take(8).filter_map(|it| it.parse().ok()).collect();
    let idle = all.get(3)? + all.get(4)?;
    let sum: u64 = all.iter().sum();
    Some((sum - idle, sum))
}

/// The busy share between two looks; nothing where no time went by.
fn busy(before: (u64, u64), after: (u64, u64)) -> Option<f64> {
    let all = after.1.saturating_sub(before.1);
    (all > 0).then(|| after.0.saturating_sub(before.0) as f64 / all as f64)
}

fn is_container(files: &HostFiles) -> Option<bool> {
    let by_file = files.has("/.dockerenv") || files.has("/run/.containerenv");
    let by_init = files
        .read("/proc/1/environ")
        .is_some_and(|text| text.split('\0').any(|entry| entry.starts_with("container=")));
    Some(by_file || by_init)
}

fn arch(files: &HostFiles, cpuinfo: &str) -> Option<String> {
    if let Some(arch) = files.read("/proc/sys/kernel/arch") {
        return Some(arch);
    }
    // Kernels before 6.1 do not say it there.
    if cpuinfo.contains("CPU implementer") {
        return Some("aarch64".to_owned());
    }
    cpuinfo.contains("vendor_id").then(|| "x86_64".to_owned())
}

fn kernel(files: &HostFiles) -> Option<Kernel> {
    let version = files.read("/proc/sys/kernel/osrelease")?;
    let mut parts = version.split(['.', '-']);
    let mut number = || parts.next()?.parse::<i64>().ok();
    let (major, minor) = (number()?, number()?);
    Some(Kernel { major, minor, page_size: page_size(files), version })
}

/// The size of pages, by the map of a process: a recorded tree has that of its own machine.
fn page_size(files: &HostFiles) -> Option<i64> {
    let smaps = files.read("/proc/self/smaps").or_else(|| files.read("/proc/1/smaps"))?;
    let line = smaps.lines().find(|line| line.starts_with("KernelPageSize:"))?;
    let kib: i64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib << 10)
}

fn online(files: &HostFiles) -> Option<Vec<i64>> {
    Some(numbers(&files.read("/sys/devices/system/cpu/online")?))
}

/// Cores and sockets.
fn topology(files: &HostFiles, cpus: &[i64]) -> (Option<i64>, Option<i64>) {
    let (mut cores, mut sockets) = (BTreeSet::new(), BTreeSet::new());
    for cpu in cpus {
        let at = format!("/sys/devices/system/cpu/cpu{cpu}/topology");
        let package = files.read(format!("{at}/physical_package_id"));
        if let Some(siblings) = files.read(format!("{at}/thread_siblings_list")) {
            cores.insert(siblings);
        }
        sockets.extend(package);
    }
    let count = |set: &BTreeSet<String>| (!set.is_empty()).then_some(set.len() as i64);
    (count(&cores), count(&sockets))
}

fn nodes(files: &HostFiles) -> Option<Vec<Node>> {
    let at = "/sys/devices/system/node";
    let list = files.read(format!("{at}/online"))?;
    let node = |id: i64| {
        let meminfo = files.read(format!("{at}/node{id}/meminfo")).unwrap_or_default();
        let kib = meminfo
            .lines()
            .find(|line| line.contains("MemTotal:"))
            .and_then(|line| line.split_whitespace().nth(3)?.parse::<i64>().ok());
        let cpus = numbers(&files.read(format!("{at}/node{id}/cpulist")).unwrap_or_default());
        Node { id, cpus, memory: kib.unwrap_or(0) << 10 }
    };
    Some(numbers(&list).into_iter().map(node).collect())
}

fn flags(cpuinfo: &str) -> Option<Vec<String>> {
    let line = cpuinfo.lines().find(|line| line.starts_with("flags") || line.starts_with("Features"))?;
    Some(line.split_once(':')?.1.split_whitespace().map(str::to_owned).collect())
}

fn idle(files: &HostFiles) -> Option<i64> {
    let at = format!("{CPU0}/cpuidle");
    if !files.has(CPU0) {
        return None;
    }
    let on = files
        .names(&at)
        .into_iter()
        .filter(|state| files.number(format!("{at}/{state}/disable")).unwrap_or(0) == 0)
        .filter_map(|state| files.number(format!("{at}/{state}/latency")));
    Some(on.max().unwrap_or(0) as i64)
}

fn memory(files: &HostFiles) -> Option<Memory> {
    let meminfo = files.read("/proc/meminfo")?;
    let of = |key: &str| {
        let line = meminfo.lines().find(|line| line.split(':').next() == Some(key))?;
        Some(line.split_whitespace().nth(1)?.parse::<i64>().ok()? << 10)
    };
    let swap_total = of("SwapTotal").unwrap_or(0);
    Some(Memory {
        total: of("MemTotal")?,
        available: of("MemAvailable")?,
        swap_total,
        swap_used: swap_total - of("SwapFree").unwrap_or(swap_total),
    })
}

fn iommu(files: &HostFiles) -> Option<String> {
    if !files.has("/sys/class/iommu") {
        return None;
    }
    if files.names("/sys/class/iommu").is_empty() {
        return Some("off".to_owned());
    }
    let groups = files.names("/sys/kernel/iommu_groups");
    let kinds = groups.iter().filter_map(|it| files.read(format!("/sys/kernel/iommu_groups/{it}/type")));
    let is_translated = kinds.into_iter().any(|kind| kind.starts_with("DMA"));
    Some(if is_translated { "translated" } else { "pt" }.to_owned())
}

fn ceph(files: &HostFiles, cpu_flags: Option<&[String]>) -> Option<CephBuild> {
    let folder = LIBRARIES.iter().find(|folder| files.has(format!("{folder}/erasure-code")))?;
    let plugins: Vec<String> = files
        .names(format!("{folder}/erasure-code"))
        .iter()
        .filter_map(|name| name.strip_prefix("libec_")?.strip_suffix(".so").map(str::to_owned))
        .collect();
    let status = files.read("/var/lib/dpkg/status").unwrap_or_default();
    let package = status.split("\n\n").find(|part| part.starts_with("Package: ceph-osd\n"));
    let version = package.and_then(|part| part.lines().find_map(|line| line.strip_prefix("Version: ")));
    Some(CephBuild {
        version: version.unwrap_or_default().to_owned(),
        build_type: None,
        package: version.map(|version| {
            let is_distribution = ["+ds", "deb", "ubuntu"].iter().any(|word| version.contains(word));
            if is_distribution { "distribution" } else { "upstream-deb" }.to_owned()
        }),
        isal: Some(plugins.iter().any(|plugin| plugin == "isa")),
        crc: cpu_flags.map(crc),
        ec_plugins: Some(plugins),
    })
}

/// The instructions that Ceph's CRC32C takes on these processors (its `common/crc32c.cc`).
fn crc(flags: &[String]) -> String {
    let has = |flag: &str| flags.iter().any(|it| it == flag);
    let code = if has("sse4_2") && has("pclmulqdq") {
        "pclmul"
    } else if has("sse4_2") {
        "sse4.2"
    } else if has("crc32") {
        "armv8"
    } else {
        "software"
    };
    code.to_owned()
}

fn has_rbd(files: &HostFiles) -> bool {
    files.names("/sys/block").iter().any(|name| name.starts_with("rbd"))
}

fn mapped(files: &HostFiles) -> Vec<Krbd> {
    let names = files.names("/sys/block").into_iter().filter(|name| name.starts_with("rbd"));
    names
        .map(|name| {
            let id = name.trim_start_matches("rbd");
            let options = files.read(format!("/sys/bus/rbd/devices/{id}/config_info")).unwrap_or_default();
            let queue = files.number(format!("/sys/block/{name}/queue/nr_requests")).unwrap_or(0);
            Krbd { name, nr_requests: queue as i64, options }
        })
        .collect()
}

fn crypt(files: &HostFiles) -> Vec<Crypt> {
    let all = files.names("/sys/block").into_iter().filter_map(|name| {
        let uuid = files.read(format!("/sys/block/{name}/dm/uuid"))?;
        uuid.starts_with("CRYPT-").then_some(())?;
        Some(Crypt {
            device: files.read(format!("/sys/block/{name}/dm/name"))?,
            rotational: files.number(format!("/sys/block/{name}/queue/rotational")) == Some(1),
            // The table of the mapping alone says it, which is not read yet.
            workqueues: None,
        })
    });
    all.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::small_tree::tree;

    const NODE: &str = "/sys/devices/system/node";

    #[test]
    fn a_machine_of_two_nodes_is_read() {
        let dir = tree(&[
            ("/proc/sys/kernel/osrelease", "6.1.0-21-arm64\n"),
            ("/proc/self/smaps", "0000 r-xp\nKernelPageSize:       64 kB\n"),
            ("/proc/cpuinfo", "processor : 0\nFeatures : fp asimd aes pmull crc32\nCPU implementer : 0x48\n"),
            ("/proc/meminfo", "MemTotal: 1024 kB\nMemAvailable: 512 kB\nSwapTotal: 8 kB\nSwapFree: 6 kB\n"),
            ("/sys/devices/system/cpu/online", "0-3\n"),
            (&format!("{NODE}/online"), "0-1\n"),
            (&format!("{NODE}/node0/cpulist"), "0-1\n"),
            (&format!("{NODE}/node1/cpulist"), "2-3\n"),
            (&format!("{NODE}/node1/meminfo"), "Node 1 MemTotal:       2048 kB\n"),
            ("/proc/sys/vm/swappiness", "60\n"),
            ("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
        ]);
        let host = look(dir.path(), "n1", Path::new("/etc/ceph/ceph.conf"), &[]).host;
        assert_eq!(host.arch.as_deref(), Some("aarch64"));
        let kernel = host.kernel.expect("a kernel");
        assert_eq!((kernel.major, kernel.minor, kernel.page_size), (6, 1, Some(65536)));
        let numa = host.numa.expect("nodes");
        assert_eq!((numa.len(), &numa[1].cpus[..], numa[1].memory), (2, &[2, 3][..], 2 << 20));
        assert_eq!(host.memory.map(|it| (it.total, it.swap_used)), Some((1 << 20, 2 << 10)));
        assert_eq!(host.sysctl.get("vm.swappiness").map(String::as_str), Some("60"));
        assert_eq!(host.thp.as_deref(), Some("madvise"));
        assert_eq!((host.cpus, host.governor, host.ceph), (Some(vec![0, 1, 2, 3]), None, None));
    }

    #[test]
    fn memory_of_others_and_the_busy_share_are_read() {
        let dir = tree(&[
            ("/proc/1/status", "Name:\tsystemd\nVmRSS:\t     8 kB\n"),
            ("/proc/2/status", "Name:\tceph-osd\nVmRSS:\t     4096 kB\n"),
            ("/proc/3/status", "Name:\tkthreadd\n"),
            ("/proc/stat", "cpu  10 0 5 80 5 0 0 0 7 0\ncpu0 1 1 1 1\n"),
            ("/usr/lib64/libtcmalloc.so.4", ""),
            ("/usr/lib/x", ""),
        ]);
        let files = HostFiles::new(dir.path());
        assert_eq!(others(&files), Some(8 << 10));
        assert_eq!(tcmalloc(&files).as_deref(), Some("/usr/lib64/libtcmalloc.so.4"));
        assert_eq!(ticks(&files), Some((15, 100)));
        assert_eq!((busy((15, 100), (65, 200)), busy((15, 100), (15, 100))), (Some(0.5), None));
    }

    #[test]
    fn an_empty_tree_says_nothing() {
        let dir = tree(&[]);
        let report = look(dir.path(), "n1", Path::new("/etc/ceph/ceph.conf"), &[]);
        assert_eq!((report.host.cpus, report.host.memory, report.disks.len()), (None, None, 0));
    }

    #[test]
    fn a_container_is_named_as_one() {
        let dir = tree(&[("/run/.containerenv", "")]);
        let report = look(dir.path(), "n1", Path::new("/etc/ceph/ceph.conf"), &[]);
        assert_eq!(report.host.container, Some(true));
        assert!(report.unseen[0].why.contains("container"));
    }
}
