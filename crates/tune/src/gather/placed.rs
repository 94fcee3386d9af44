//! The partition of each host's processors, entered into the facts, so that rules may set it.

use super::units::drop_in_text;
use crate::facts::{Facts, Osd, Part};
use crate::partition::{OsdPart, Partition};

/// Enters the partition of each host.
pub(super) fn enter(facts: &mut Facts) {
    let names: Vec<String> = facts.hosts.iter().map(|host| host.name.clone()).collect();
    for name in names {
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
