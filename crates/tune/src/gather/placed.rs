//! The partition of each host's processors, entered into the facts, so that rules may set it.

use super::units::drop_in_text;
use crate::cpus::Cpus;
use crate::facts::{Facts, Osd, Part};
use crate::partition::{OsdPart, Partition};

/// Enters the partition of each host.
pub(super) fn enter(facts: &mut Facts) {
    let names: Vec<String> = facts.hosts.iter().map(|host| host.name.clone()).collect();
    for name in names {
        steer(facts, &name);
        if let Some(partition) = Partition::of(facts, &name) {
            enter_one(facts, &name, &partition);
        }
    }
}

fn enter_one(facts: &mut Facts, host: &str, partition: &Partition) {
    let has_nodes = facts.host(host).and_then(|it| it.numa.as_ref()).is_some_and(|it| it.len() > 1);
    for part in &partition.osds {
        let is_it = |osd: &&mut Osd| osd.id == part.id && osd.host == host;
        if let Some(osd) = facts.osds.iter_mut().find(is_it) {
            osd.partition = Some(fact(part, has_nodes));
        }
    }
    facts.nics.iter_mut().filter(|nic| nic.host == host).for_each(|nic| nic.irq_plan = Some(String::new()));
    for part in &partition.nics {
        let nics = facts.nics.iter_mut().filter(|nic| nic.host == host);
        nics.filter(|nic| nic.name == part.device).for_each(|nic| nic.irq_plan = Some(part.value()));
    }
    let daemon = facts.hosts.iter_mut().find(|it| it.name == host).and_then(|it| it.loligod.as_mut());
    if let Some((daemon, part)) = daemon.zip(partition.loligod.as_ref()) {
        daemon.cpus = part.cpus.to_string();
        daemon.wanted = drop_in_text("loligod", None, None);
    }
}

/// Processors for packets of each interface: those of its node, or all. Isolated ones are left.
fn steer(facts: &mut Facts, name: &str) {
    let Some(host) = facts.host(name) else { return };
    let isolated: Vec<i64> = host.isolated.iter().flatten().copied().collect();
    let online: Cpus = host.cpus.iter().flatten().copied().filter(|cpu| !isolated.contains(cpu)).collect();
    let nodes = host.numa.clone().unwrap_or_default();
    let on = |node: Option<i64>| {
        let node = nodes.iter().find(|it| nodes.len() > 1 && Some(it.id) == node);
        let cpus: Cpus = online.iter().filter(|cpu| node.is_none_or(|it| it.cpus.contains(cpu))).collect();
        if cpus.is_empty() { online.clone() } else { cpus }
    };
    for nic in facts.nics.iter_mut().filter(|nic| nic.host == name) {
        nic.rps_plan = Some(on(nic.numa_node)).filter(|it| !it.is_empty()).map(|it| it.to_string());
    }
}

fn fact(part: &OsdPart, has_nodes: bool) -> Part {
    Part {
        node: part.node,
        level: part.level.word().to_owned(),
        cpus: part.cpus.to_string(),
        msgr_worker: part.msgr_worker.to_string(),
        tp_osd_tp: part.tp_osd_tp.to_string(),
        bstore: part.bstore.to_string(),
        other: part.other.to_string(),
        drop_in: drop_in_text(&part.id.to_string(), Some(&part.cpus), has_nodes.then_some(part.node)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{Host, Nic, Node};

    #[test]
    fn packets_go_to_the_node_of_their_interface() {
        let node = |id, cpus: [i64; 2]| Node { id, cpus: cpus.to_vec(), memory: 0 };
        let nic = |name: &str, node| Nic {
            name: name.into(),
            host: "n1".into(),
            numa_node: Some(node),
            ..Nic::default()
        };
        let host = Host {
            name: "n1".into(),
            cpus: Some(vec![0, 1, 2, 3]),
            isolated: Some(vec![3]),
            numa: Some(vec![node(0, [0, 1]), node(1, [2, 3])]),
            ..Host::default()
        };
        let of = |host: Host| {
            let nics = vec![nic("e0", 0), nic("e1", 1), nic("e2", -1)];
            let mut facts = Facts { hosts: vec![host], nics, ..Facts::default() };
            enter(&mut facts);
            facts.nics.into_iter().map(|nic| nic.rps_plan.unwrap_or_default()).collect::<Vec<_>>()
        };
        assert_eq!(of(Host { numa: Some(vec![node(0, [0, 1])]), ..host.clone() }), ["0-2", "0-2", "0-2"]);
        assert_eq!(of(host), ["0-1", "2", "0-2"]);
    }
}
