//! Devices of a host: the disks below another, NUMA nodes, and interrupts.

use crate::facts::Irq;
use loligo_block::host_files::HostFiles;
use std::collections::BTreeSet;

/// Words in the names of interrupts that are not those of queues.
const NO_QUEUES: [&str; 6] = ["config", "async", "misc", "mgmnt", "fdir", "event"];
/// Layers of devices that are followed.
const DEEPEST: usize = 8;

/// The NUMA node of a device in `/sys`: its own word, or that of the nearest device above it.
pub(super) fn node(files: &HostFiles, device: &str) -> Option<i64> {
    let root = files.at("/").canonicalize().ok()?;
    let mut at = files.at(device).canonicalize().ok()?;
    while at.starts_with(&root) {
        let said = std::fs::read_to_string(at.join("numa_node")).ok();
        if let Some(node) = said.and_then(|it| it.trim().parse().ok()) {
            return Some(node);
        }
        at = at.parent()?.to_owned();
    }
    None
}

/// The disks below a block device: of a partition its disk, of a mapping those that it lies on.
pub(super) fn disks(files: &HostFiles, name: &str) -> BTreeSet<String> {
    below(files, name, DEEPEST)
}

fn below(files: &HostFiles, name: &str, depth: usize) -> BTreeSet<String> {
    let here = format!("/sys/block/{name}");
    if files.has(&here) {
        let slaves = files.names(format!("{here}/slaves"));
        return match slaves.is_empty() || depth == 0 {
            true => BTreeSet::from([name.to_owned()]),
            false => slaves.iter().flat_map(|slave| below(files, slave, depth - 1)).collect(),
        };
    }
    whole(files, name).into_iter().collect()
}

/// The device that a partition is a part of; a whole one is its own. Nothing: there is no such device.
pub(super) fn whole(files: &HostFiles, name: &str) -> Option<String> {
    if files.has(format!("/sys/block/{name}")) {
        return Some(name.to_owned());
    }
    let holds = |disk: &String| files.has(format!("/sys/block/{disk}/{name}/partition"));
    files.names("/sys/block").into_iter().find(holds)
}

/// Interrupts of the queues of a device in `/sys`; nothing: it has none of its own.
pub(crate) fn interrupts(files: &HostFiles, device: &str) -> Option<Vec<Irq>> {
    // Those of virtio belong to the device that carries it.
    let folders = ["msi_irqs", "../msi_irqs"].map(|it| files.names(format!("{device}/{it}")));
    let all = folders.into_iter().find(|it| !it.is_empty())?;
    let table = files.read("/proc/interrupts").unwrap_or_default();
    let is_queue = |irq: &&String| {
        let line = table.lines().find(|line| line.trim_start().split(':').next() == Some(irq));
        !line.is_some_and(|line| NO_QUEUES.iter().any(|word| line.contains(word)))
    };
    let queues: Vec<&String> = all.iter().filter(is_queue).collect();
    let one = |irq: &String| {
        let cpus = files.read(format!("/proc/irq/{irq}/smp_affinity_list"))?;
        Some(Irq { id: irq.parse().ok()?, cpus })
    };
    let mut irqs: Vec<Irq> = queues.into_iter().filter_map(one).collect();
    irqs.sort_by_key(|it| it.id);
    (!irqs.is_empty()).then_some(irqs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::small_tree::put;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_node_is_that_of_the_device_above() {
        let dir = tempfile::tempdir().expect("a folder");
        let put = |path: &str, text: &str| put(dir.path(), path, text);
        put("sys/devices/pci0000:17/0000:17:00.0/numa_node", "1\n");
        put("sys/devices/pci0000:17/0000:17:00.0/msi_irqs/37", "msix\n");
        put("sys/devices/pci0000:17/0000:17:00.0/msi_irqs/36", "msix\n");
        put("sys/devices/pci0000:17/0000:17:00.0/msi_irqs/35", "msix\n");
        put("sys/devices/pci0000:17/0000:17:00.0/host0/block/sda/sda1/partition", "1\n");
        put("sys/devices/pci0000:17/0000:17:00.0/virtio3/net/eth0/mtu", "1500\n");
        put("sys/devices/virtual/block/dm-0/slaves/sda1/start", "1\n");
        for irq in ["35", "36", "37"] {
            put(&format!("proc/irq/{irq}/smp_affinity_list"), "0-3\n");
        }
        put(
            "proc/interrupts",
            " CPU0\n 35: 1 PCI virtio3-config\n 36: 1 PCI virtio3-rx\n 37: 1 PCI virtio3-tx\n",
        );
        std::fs::create_dir_all(dir.path().join("sys/block")).expect("a folder");
        std::fs::create_dir_all(dir.path().join("sys/class/net")).expect("a folder");
        let pci = "../devices/pci0000:17/0000:17:00.0";
        for (at, to) in [
            ("sys/block/sda", format!("{pci}/host0/block/sda")),
            ("sys/block/dm-0", "../devices/virtual/block/dm-0".to_owned()),
            ("sys/class/net/eth0", format!("../{pci}/virtio3/net/eth0")),
            ("sys/devices/pci0000:17/0000:17:00.0/virtio3/net/eth0/device", "../../../virtio3".to_owned()),
        ] {
            symlink(to, dir.path().join(at)).expect("a link");
        }
        let files = HostFiles::new(dir.path());
        assert_eq!(node(&files, "/sys/block/sda"), Some(1));
        assert_eq!(node(&files, "/sys/class/net/eth0"), Some(1));
        assert_eq!(node(&files, "/sys/block/dm-0"), None);
        assert_eq!(disks(&files, "dm-0"), BTreeSet::from(["sda".to_owned()]));
        assert_eq!(disks(&files, "nothing"), BTreeSet::new());
        let irqs = interrupts(&files, "/sys/class/net/eth0/device").expect("interrupts");
        assert_eq!(irqs.iter().map(|it| it.id).collect::<Vec<_>>(), [36, 37]);
    }
}
