//! The part of a host's facts that a partition is made of.

use crate::cpus::Cpus;
use crate::facts::{Disk, Facts, Host, Irq, Nic, Osd};
use crate::gather::units::HOOK;
use std::collections::{BTreeMap, BTreeSet};

/// Cores by node, each with its threads.
pub(super) type Nodes = BTreeMap<i64, Vec<Cpus>>;

/// An OSD that wants cores.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Wish {
    pub(super) id: i64,
    /// The node that it binds itself to.
    pub(super) bound: Option<i64>,
    /// The node of its data.
    pub(super) data: Option<i64>,
    /// The node of its database.
    pub(super) db: Option<i64>,
    /// The node of its network.
    pub(super) net: Option<i64>,
}

/// A device with interrupts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Device {
    pub(super) name: String,
    pub(super) node: Option<i64>,
    pub(super) irqs: Vec<i64>,
}

/// A host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Machine {
    pub(super) name: String,
    /// Cores that may be used, by node, each with its threads. No node is without one.
    pub(super) nodes: Nodes,
    pub(super) osds: Vec<Wish>,
    /// loligod's shards, and the node of its devices.
    pub(super) shards: Option<(i64, Option<i64>)>,
    pub(super) nics: Vec<Device>,
    pub(super) nvmes: Vec<Device>,
    pub(super) notes: Vec<String>,
}

/// The host of this name; nothing: its processors are not known.
pub(super) fn machine(facts: &Facts, name: &str) -> Option<Machine> {
    let host = facts.host(name)?;
    let (nodes, mut notes) = nodes(host)?;
    if host.irqbalance == Some(true) {
        notes.push("irqbalance runs, and moves interrupts: stop it before they are placed".to_owned());
    }
    let has_unit = |osd: &&Osd| osd.host == name && osd.unit.as_deref().is_some_and(|unit| !unit.is_empty());
    if host.hook == Some(false) && facts.osds.iter().any(|osd| has_unit(&osd)) {
        notes.push(format!("{HOOK} is not installed: nothing is set again after a restart. Install the package of this program"));
    }
    let nics = carriers(facts, name);
    let near: BTreeSet<i64> = nics.iter().filter_map(|nic| known(nic.numa_node)).collect();
    // Interfaces of several nodes are near to none.
    let net = near.first().copied().filter(|_| near.len() == 1);
    let disks = || facts.disks.iter().filter(|disk| disk.host == name);
    let node_of = |device: &Option<String>| {
        let disk = disks().find(|disk| Some(&disk.name) == device.as_ref())?;
        known(disk.numa_node)
    };
    let wish = |osd: &Osd| Wish {
        id: osd.id,
        bound: known(osd.numa_node),
        data: node_of(&osd.device).or(known(osd.numa_storage)),
        db: node_of(&osd.db_device),
        net: known(osd.numa_public).or(net),
    };
    let mut osds: Vec<Wish> = facts.osds.iter().filter(|osd| osd.host == name).map(wish).collect();
    osds.sort_by_key(|osd| osd.id);
    Some(Machine {
        name: name.to_owned(),
        nodes,
        osds,
        shards: host.loligod.as_ref().map(|it| (it.shards, known(Some(it.node)))),
        nics: nics.into_iter().map(|nic| device(&nic.name, nic.numa_node, nic.irqs.as_deref())).collect(),
        nvmes: disks()
            .filter(|disk| is_nvme(disk))
            .map(|it| device(&it.name, it.numa_node, it.irqs.as_deref()))
            .collect(),
        notes,
    })
}

/// Interfaces with interrupts that carry Ceph's networks, or that carry others which do. All count if OSDs name none.
fn carriers<'a>(facts: &'a Facts, host: &str) -> Vec<&'a Nic> {
    let all: Vec<&Nic> = facts.nics.iter().filter(|nic| nic.host == host).collect();
    let mut names: BTreeSet<&str> =
        all.iter().filter(|nic| !nic.role.is_empty()).map(|nic| nic.name.as_str()).collect();
    let has_role = !names.is_empty();
    loop {
        let above = all.iter().filter(|nic| names.contains(nic.name.as_str()));
        let lower: Vec<&str> = above.flat_map(|nic| nic.lower.iter().map(String::as_str)).collect();
        let before = names.len();
        names.extend(lower);
        if names.len() == before {
            break;
        }
    }
    let is_meant = |nic: &&Nic| nic.irqs.is_some() && (!has_role || names.contains(nic.name.as_str()));
    all.into_iter().filter(is_meant).collect()
}

fn is_nvme(disk: &Disk) -> bool {
    disk.kind.as_deref() == Some("nvme") && disk.irqs.is_some()
}

fn device(name: &str, node: Option<i64>, irqs: Option<&[Irq]>) -> Device {
    let irqs = irqs.unwrap_or_default().iter().map(|it| it.id).collect();
    Device { name: name.to_owned(), node: known(node), irqs }
}

/// A node; the kernel says -1 where it knows none.
fn known(node: Option<i64>) -> Option<i64> {
    node.filter(|node| *node >= 0)
}

/// Cores by node, and what was left out.
fn nodes(host: &Host) -> Option<(Nodes, Vec<String>)> {
    let online: Cpus = host.cpus.as_ref()?.iter().copied().collect();
    let isolated: Cpus = host.isolated.iter().flatten().copied().collect();
    let mut notes = Vec::new();
    if !isolated.is_empty() {
        notes.push(format!("CPUs {isolated} are isolated: nothing is put on them"));
    }
    let usable: Cpus = online.iter().filter(|cpu| !isolated.has(*cpu)).collect();
    let usable = match usable.is_empty() {
        false => usable,
        true => {
            notes.push("all CPUs are isolated: they are used all the same".to_owned());
            online
        }
    };
    let node_of = |cpu: i64| {
        let of = host.numa.iter().flatten().find(|node| node.cpus.contains(&cpu));
        of.map_or(0, |node| node.id)
    };
    let mut cores: BTreeSet<Cpus> = BTreeSet::new();
    for core in host.core_list.iter().flatten() {
        cores.insert(core.cpus.iter().copied().filter(|cpu| usable.has(*cpu)).collect());
    }
    let listed: Cpus = cores.iter().flat_map(Cpus::iter).collect();
    // A processor of which no sibling is known is a core of its own.
    cores.extend(usable.iter().filter(|cpu| !listed.has(*cpu)).map(|cpu| Cpus::from_iter([cpu])));
    let mut nodes = Nodes::new();
    for core in cores {
        let first = core.iter().next();
        if let Some(first) = first {
            nodes.entry(node_of(first)).or_default().push(core);
        }
    }
    (!nodes.is_empty()).then_some((nodes, notes))
}
