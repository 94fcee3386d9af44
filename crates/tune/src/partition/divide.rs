//! Cores are divided, node by node.
//!
//! An OSD has cores of the node of its disk: four and more of its own, which are parted among groups of its threads by the processor time
//! that each took in writes of 4 KiB. With fewer, OSDs share all cores of the node: one or two of its own would hold an
//! OSD up more than they help.

use super::document::{InterruptPart, Level, OsdPart, Partition, ShardPart};
use super::machine::{Device, Machine, Wish};
use crate::cpus::Cpus;
use crate::{counted, is_or_are};
use std::collections::BTreeMap;

/// Cores of an OSD below which groups of its threads starve when they are kept apart.
const APART: usize = 4;
/// The share of processor time that messengers take, and that the store takes, percent: measured on 16.2.15.
const SHARE: usize = 22;

/// The claims on the cores of a node.
#[derive(Debug, Default)]
struct Claims {
    /// OSDs that live there, by their place in the list.
    homes: Vec<usize>,
    /// OSDs whose messengers alone go there.
    visitors: Vec<usize>,
    /// Cores for shards.
    shards: usize,
}

/// The partition of a machine.
pub(super) fn divide(machine: &Machine) -> Partition {
    let mut homes = Vec::new();
    let mut taken: BTreeMap<i64, usize> = BTreeMap::new();
    for osd in &machine.osds {
        let (node, why) = home(machine, osd, &taken);
        *taken.entry(node).or_default() += 1;
        homes.push((node, why));
    }
    let mut claims: BTreeMap<i64, Claims> =
        machine.nodes.keys().map(|node| (*node, Claims::default())).collect();
    for (at, (node, _)) in homes.iter().enumerate() {
        claims.entry(*node).or_default().homes.push(at);
    }
    let mut loligod = shards(machine, &mut claims);
    visits(machine, &mut claims, &mut homes);
    let mut osds: Vec<OsdPart> = Vec::new();
    let mut lent: BTreeMap<usize, Cpus> = BTreeMap::new();
    for (node, claims) in &claims {
        let cores = &machine.nodes[node];
        let (rest, last) = cores.split_at(cores.len() - claims.shards);
        if let Some(part) = loligod.as_mut().filter(|part| part.own && part.node == *node) {
            part.cpus = all(last);
        }
        let visiting = per_visitor(rest.len(), claims.homes.len(), claims.visitors.len());
        let (rest, visited) = rest.split_at(rest.len() - visiting * claims.visitors.len());
        for (at, cores) in claims.visitors.iter().zip(visited.chunks(visiting.max(1))) {
            lent.insert(*at, all(cores));
        }
        let is_shared = rest.len() < APART * claims.homes.len();
        let count = claims.homes.len();
        let parts = if is_shared { vec![rest; count] } else { shares(rest, count) };
        for (at, cores) in claims.homes.iter().zip(parts) {
            let (id, why) = (machine.osds[*at].id, homes[*at].1.clone());
            osds.push(part(id, *node, cores, is_shared.then_some(count), why));
        }
    }
    osds.sort_by_key(|osd| osd.id);
    for (at, near) in lent {
        let id = machine.osds[at].id;
        if let Some(osd) = osds.iter_mut().find(|osd| osd.id == id) {
            lend(osd, near);
        }
    }
    let nics = machine.nics.iter().map(|nic| spread(machine, nic)).collect();
    let nvmes = machine.nvmes.iter().map(left).collect();
    Partition { host: machine.name.clone(), osds, loligod, nics, nvmes, notes: machine.notes.clone() }
}

/// The node of an OSD, and the reasons.
fn home(machine: &Machine, osd: &Wish, taken: &BTreeMap<i64, usize>) -> (i64, Vec<String>) {
    let mut why = Vec::new();
    let mut tries = vec![
        (osd.bound, "osd_numa_node binds it there, or its own affinity does"),
        (osd.data, "the node of its disk"),
        (osd.db, "the node of its disk is not known: that of its database"),
        (osd.net, "the nodes of its devices are not known: that of its network"),
    ];
    if osd.bound.is_some() && osd.bound == osd.data {
        tries.remove(0);
    }
    for (node, words) in tries {
        match node {
            Some(node) if machine.nodes.contains_key(&node) => {
                if machine.nodes.len() > 1 {
                    why.push(format!("node {node}: {words}"));
                }
                return (node, why);
            }
            Some(node) => why.push(format!("node {node} has no CPU that may be used")),
            None => {}
        }
    }
    // The node with the most cores for each OSD, the first of those that are alike.
    let room = |node: &i64| machine.nodes[node].len() * 1000 / (taken.get(node).copied().unwrap_or(0) + 1);
    let node = machine.nodes.keys().copied().rev().max_by_key(|node| room(node)).unwrap_or(0);
    if machine.nodes.len() > 1 {
        why.push(format!("node {node}: no device of it has a node that is known; most cores are free there"));
    }
    (node, why)
}

/// Cores for loligod's shards, which are claimed on their node if OSDs keep enough.
fn shards(machine: &Machine, claims: &mut BTreeMap<i64, Claims>) -> Option<ShardPart> {
    let (shards, node) = machine.shards?;
    let known = node.filter(|node| machine.nodes.contains_key(node));
    let free = |node: &i64| machine.nodes[node].len() * 1000 / (claims[node].homes.len() + 1);
    let node = known.or_else(|| machine.nodes.keys().copied().rev().max_by_key(|node| free(node)))?;
    let mut why = Vec::new();
    if machine.nodes.len() > 1 {
        let words = if known.is_some() {
            "the node of its devices"
        } else {
            "its devices have no node that is known"
        };
        why.push(format!("node {node}: {words}"));
    }
    let (cores, claims) = (machine.nodes[&node].len(), claims.get_mut(&node)?);
    let wanted = usize::try_from(shards).unwrap_or(0);
    let own = wanted > 0 && cores >= wanted + APART * claims.homes.len() && cores > wanted;
    if own {
        claims.shards = wanted;
    } else {
        why.push(format!(
            "{} {} too few for {} and {}: shards share the cores of the node",
            counted(cores, "core"),
            is_or_are(cores),
            counted(wanted, "shard"),
            counted(claims.homes.len(), "OSD")
        ));
    }
    Some(ShardPart { shards, node, own, cpus: all(&machine.nodes[&node]), why })
}

/// Messengers go near the network, if the node has cores for them.
fn visits(machine: &Machine, claims: &mut BTreeMap<i64, Claims>, homes: &mut [(i64, Vec<String>)]) {
    for node in machine.nodes.keys() {
        let goes = |at: &usize| {
            let (home, _) = &homes[*at];
            let at_home = machine.nodes[home].len() - claims[home].shards;
            machine.osds[*at].net == Some(*node)
                && home != node
                && at_home / claims[home].homes.len() >= APART
        };
        let all: Vec<usize> = (0..machine.osds.len()).filter(goes).collect();
        let Some(here) = claims.get_mut(node).filter(|_| !all.is_empty()) else { continue };
        let cores = machine.nodes[node].len() - here.shards;
        let is_room = per_visitor(cores, here.homes.len(), all.len()) > 0;
        for at in &all {
            homes[*at].1.push(match is_room {
                true => format!("messengers on node {node}: that of its network"),
                false => format!("messengers stay: node {node} of its network has too few cores"),
            });
        }
        if is_room {
            here.visitors = all;
        }
    }
}

/// Cores of each visiting group of messengers; 0: there is no room.
fn per_visitor(cores: usize, homes: usize, visitors: usize) -> usize {
    if visitors == 0 {
        return 0;
    }
    let each = (cores * SHARE / (100 * homes + SHARE * visitors)).max(1);
    if each * visitors + APART * homes <= cores { each } else { 0 }
}

/// Cores in `count` parts of the same size, the first ones larger by one where that leaves a rest.
fn shares(cores: &[Cpus], count: usize) -> Vec<&[Cpus]> {
    let (each, more) = (cores.len() / count.max(1), cores.len() % count.max(1));
    let begin = |at: usize| at * each + at.min(more);
    (0..count).map(|at| &cores[begin(at)..begin(at + 1)]).collect()
}

fn all(cores: &[Cpus]) -> Cpus {
    cores.iter().flat_map(Cpus::iter).collect()
}

/// The part of an OSD with these cores, which so many OSDs may be sharing.
fn part(id: i64, node: i64, cores: &[Cpus], sharing: Option<usize>, mut why: Vec<String>) -> OsdPart {
    let cpus = all(cores);
    let other = cpus.clone();
    let Some(osds) = sharing else {
        let (msgr, rest) = cores.split_at(portion(cores.len()));
        let (store, work) = rest.split_at(portion(cores.len()));
        let (msgr_worker, tp_osd_tp, bstore) = (all(msgr), all(work), all(store));
        return OsdPart { id, node, level: Level::Apart, cpus, msgr_worker, tp_osd_tp, bstore, other, why };
    };
    let verb = if osds == 1 { "has" } else { "share" };
    why.push(format!(
        "fewer than {APART} cores for each OSD of the node: {} {verb} {}",
        counted(osds, "OSD"),
        cores.len()
    ));
    let [msgr_worker, tp_osd_tp, bstore] = [cpus.clone(), cpus.clone(), cpus.clone()];
    OsdPart { id, node, level: Level::Shared, cpus, msgr_worker, tp_osd_tp, bstore, other, why }
}

/// The cores of messengers or of the store, of so many.
fn portion(cores: usize) -> usize {
    ((cores * SHARE + 50) / 100).max(1)
}

/// Messengers of an OSD get cores elsewhere: those that they leave are for the others.
fn lend(osd: &mut OsdPart, near: Cpus) {
    let left = std::mem::replace(&mut osd.msgr_worker, near);
    osd.tp_osd_tp = osd.tp_osd_tp.iter().chain(left.iter()).collect();
    osd.cpus = osd.cpus.iter().chain(osd.msgr_worker.iter()).collect();
}

/// Interrupts of an interface, one after the other on the cores of its node.
fn spread(machine: &Machine, nic: &Device) -> InterruptPart {
    let known = nic.node.filter(|node| machine.nodes.contains_key(node));
    let only = machine.nodes.keys().copied().next().filter(|_| machine.nodes.len() == 1);
    let (node, why) = match known.or(only) {
        Some(node) => (Some(node), format!("over the cores of node {node}")),
        None => (None, "its node is not known: over all cores".to_owned()),
    };
    let cores = machine.nodes.iter().filter(|(id, _)| node.is_none_or(|node| node == **id));
    let cpus: Vec<i64> = cores.flat_map(|(_, cores)| cores).filter_map(|core| core.iter().next()).collect();
    let to = nic.irqs.iter().copied().zip(cpus.into_iter().cycle()).collect();
    InterruptPart { device: nic.name.clone(), node, to, why }
}

/// Interrupts of NVMe are placed by the kernel, one queue to each processor, and cannot be moved.
fn left(device: &Device) -> InterruptPart {
    let count = device.irqs.len();
    let (all, are) = (counted(count, "interrupt"), is_or_are(count));
    let why = format!("{all} {are} left: the kernel places those of NVMe by queue");
    InterruptPart { device: device.name.clone(), node: device.node, to: Vec::new(), why }
}

#[cfg(test)]
mod tests {
    use super::super::document::Group;
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// A machine of nodes with so many cores each, of one or two threads, in the order that firmware of Intel has.
    fn machine(nodes: &[usize], threads: i64, osds: Vec<Wish>) -> Machine {
        let sum = nodes.iter().sum::<usize>() as i64;
        let mut next = 0..sum;
        let mut core = |_| {
            let first = next.next().unwrap_or(0);
            (0..threads).map(|thread| first + thread * sum).collect::<Cpus>()
        };
        let nodes =
            nodes.iter().enumerate().map(|(id, cores)| (id as i64, (0..*cores).map(&mut core).collect()));
        Machine { name: "n".into(), nodes: nodes.collect(), osds, ..Machine::default() }
    }

    fn wish(id: i64, data: Option<i64>, net: Option<i64>) -> Wish {
        Wish { id, data, net, ..Wish::default() }
    }

    fn machines() -> impl Strategy<Value = Machine> {
        let node = || prop::option::weighted(0.8, 0i64..5);
        let wish = (node(), node(), node(), prop::option::weighted(0.1, 0i64..5));
        let wishes = prop::collection::vec(wish, 0..14);
        let shards = prop::option::of((1i64..9, node()));
        (prop::collection::vec(1usize..33, 1..5), 1i64..3, wishes, shards).prop_map(
            |(nodes, threads, wishes, shards)| {
                let osds = wishes.into_iter().enumerate().map(|(id, (data, db, net, bound))| Wish {
                    id: id as i64,
                    bound,
                    data,
                    db,
                    net,
                });
                let mut machine = machine(&nodes, threads, osds.collect());
                machine.shards = shards;
                machine.nics = vec![Device { name: "e".into(), node: Some(0), irqs: vec![7, 8, 9] }];
                machine
            },
        )
    }

    /// The core of each processor.
    fn cores(machine: &Machine) -> Vec<Cpus> {
        machine.nodes.values().flatten().cloned().collect()
    }

    proptest! {
        #[test]
        fn each_thread_has_a_cpu_and_cores_stay_whole(machine in machines()) {
            let partition = divide(&machine);
            let (cores, usable) = (cores(&machine), all(&cores(&machine)));
            prop_assert_eq!(partition.osds.len(), machine.osds.len());
            let shards = partition.loligod.iter().map(|it| it.cpus.clone());
            let sets = partition.osds.iter().flat_map(|osd| {
                Group::ALL.into_iter().map(|group| osd.group(group).clone()).chain([osd.cpus.clone()])
            });
            for set in sets.chain(shards) {
                prop_assert!(!set.is_empty() && set.is_within(&usable), "{}", set);
                for core in &cores {
                    prop_assert!(core.is_apart(&set) || core.is_within(&set), "{} cuts {}", set, core);
                }
            }
            for (irq, cpu) in partition.nics.iter().flat_map(|nic| &nic.to) {
                prop_assert!(*irq > 0 && usable.has(*cpu));
            }
            for osd in &partition.osds {
                prop_assert!(Group::ALL.into_iter().all(|group| osd.group(group).is_within(&osd.cpus)));
            }
        }

        #[test]
        fn osds_are_apart_where_cores_suffice(machine in machines()) {
            let partition = divide(&machine);
            for (node, cores) in &machine.nodes {
                let here: Vec<&OsdPart> = partition.osds.iter().filter(|osd| osd.node == *node).collect();
                let of_shards = partition.loligod.as_ref().filter(|it| it.own && it.node == *node);
                let free = cores.len() - of_shards.map_or(0, |it| it.shards as usize);
                let is_enough = here.len() * APART <= free;
                for osd in &here {
                    prop_assert_eq!(osd.level == Level::Apart, is_enough);
                }
            }
            let own: Vec<&OsdPart> = partition.osds.iter().filter(|osd| osd.level == Level::Apart).collect();
            for (at, one) in own.iter().enumerate() {
                for two in &own[at + 1..] {
                    prop_assert!(one.cpus.is_apart(&two.cpus), "{} and {}", one.cpus, two.cpus);
                }
                if let Some(shards) = partition.loligod.as_ref().filter(|it| it.own) {
                    prop_assert!(one.cpus.is_apart(&shards.cpus));
                }
            }
            for osd in &own {
                let [a, b, c] = [&osd.msgr_worker, &osd.tp_osd_tp, &osd.bstore];
                prop_assert!(a.is_apart(b) && b.is_apart(c) && a.is_apart(c));
                prop_assert_eq!(a.len() + b.len() + c.len(), osd.cpus.len());
            }
        }

        #[test]
        fn the_same_facts_make_the_same_partition(machine in machines()) {
            prop_assert_eq!(divide(&machine), divide(&machine.clone()));
        }

        #[test]
        fn an_osd_is_on_the_first_node_that_is_known(machine in machines()) {
            let partition = divide(&machine);
            for (osd, part) in machine.osds.iter().zip(&partition.osds) {
                let known = [osd.bound, osd.data, osd.db, osd.net];
                let known = known.into_iter().flatten().find(|node| machine.nodes.contains_key(node));
                prop_assert_eq!(known.unwrap_or(part.node), part.node);
                prop_assert!(machine.nodes.len() == 1 || !part.why.is_empty());
            }
        }
    }

    #[test]
    fn osds_without_a_node_are_spread() {
        let osds = (0..4).map(|id| wish(id, None, None)).collect();
        let nodes: Vec<i64> = divide(&machine(&[8, 8], 2, osds)).osds.iter().map(|osd| osd.node).collect();
        assert_eq!(nodes, [0, 1, 0, 1]);
    }

    #[test]
    fn too_few_cores_are_shared_and_it_is_said() {
        let osds = || vec![wish(0, Some(0), None), wish(1, Some(0), None), wish(2, Some(1), None)];
        let partition = divide(&machine(&[1, 3], 1, osds()));
        let lines: Vec<(Level, String)> =
            partition.osds.iter().map(|it| (it.level, it.cpus.to_string())).collect();
        let shared = |cpus: &str| (Level::Shared, cpus.to_owned());
        assert_eq!(lines, [shared("0"), shared("0"), shared("1-3")]);
        assert!(
            partition.osds[0]
                .why
                .concat()
                .contains("fewer than 4 cores for each OSD of the node: 2 OSDs share 1")
        );
    }

    #[test]
    fn shards_have_cores_that_osds_leave() {
        let mut of = machine(&[16, 16], 1, vec![wish(0, Some(0), None), wish(1, Some(1), None)]);
        of.shards = Some((4, Some(1)));
        let partition = divide(&of);
        let shards = partition.loligod.expect("shards");
        assert_eq!((shards.own, shards.node, shards.cpus.to_string().as_str()), (true, 1, "28-31"));
        assert_eq!(partition.osds[1].cpus.to_string(), "16-27");
        of.shards = Some((14, Some(1)));
        let shared = divide(&of).loligod.expect("shards");
        assert!(!shared.own && shared.cpus.len() == 16 && shared.why.concat().contains("too few"));
    }

    #[test]
    fn messengers_go_to_their_network_where_it_has_room() {
        let osds = |net| (0..2).map(|id| wish(id, Some(1), net)).collect();
        let far = divide(&machine(&[16, 16], 1, osds(Some(0))));
        let at: BTreeSet<String> = far.osds.iter().map(|osd| osd.msgr_worker.to_string()).collect();
        assert!(
            at.iter().all(|cpus| Cpus::parse(cpus).is_some_and(|it| it.iter().all(|cpu| cpu < 16))),
            "{at:?}"
        );
        assert!(far.osds.iter().all(|osd| osd.other.iter().all(|cpu| cpu >= 16)));
        let near = divide(&machine(&[16, 16], 1, osds(Some(1))));
        assert!(near.osds.iter().all(|osd| osd.msgr_worker.iter().all(|cpu| cpu >= 16)));
    }
}
