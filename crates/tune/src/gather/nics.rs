//! Facts of the network interfaces of a host, from `/sys/class/net` and `/proc/interrupts`.

use super::devices::{interrupts, node};
use super::lists::numbers;
use super::subnets::Subnet;
use super::{ethtool, mtu, subnets};
use crate::facts::{Irq, Nic, Rings, Unseen};
use loligo_block::host_files::HostFiles;
use std::collections::BTreeSet;
use std::net::IpAddr;

pub(super) fn look(files: &HostFiles, host: &str) -> Vec<Nic> {
    let names = files.names("/sys/class/net").into_iter().filter(|name| name != "lo");
    names.filter(|name| is_interface(files, name)).map(|name| nic(files, host, name)).collect()
}

/// Sends echo requests to `addresses` of other hosts, and enters the largest packet that came to all of those behind an interface.
pub(super) fn probe(
    files: &HostFiles,
    nics: &mut [Nic],
    subnets: &[Subnet],
    addresses: &[IpAddr],
    unseen: &mut Vec<Unseen>,
) {
    let own = subnets::own(files);
    let others = addresses.iter().filter(|address| files.are_live() && !own.contains(address));
    let wanted = others.filter_map(|address| {
        let subnet = subnets.iter().find(|subnet| subnet.has(*address))?;
        let at = nics.iter().position(|nic| nic.name == subnet.nic)?;
        Some((*address, at, nics[at].mtu?))
    });
    let wanted: Vec<_> = wanted.collect();
    let ask = |(address, at, mtu): (IpAddr, usize, i64)| {
        let answer = match address {
            IpAddr::V4(address) => mtu::proven(address, mtu),
            IpAddr::V6(_) => Err("MTUs of IPv6 are not probed".to_owned()),
        };
        (address, at, answer)
    };
    let answers = std::thread::scope(|scope| {
        let threads: Vec<_> = wanted.into_iter().map(|it| scope.spawn(move || ask(it))).collect();
        threads.into_iter().filter_map(|it| it.join().ok()).collect::<Vec<_>>()
    });
    let mut silent = Vec::new();
    for (address, at, answer) in answers {
        match answer {
            Ok(size) => nics[at].mtu_proven = Some(nics[at].mtu_proven.map_or(size, |it| it.min(size))),
            Err(why) => {
                silent.push(at);
                unseen.push(Unseen { what: format!("the MTU to {address}"), why });
            }
        }
    }
    // One that is silent may be the one that large packets do not reach.
    silent.into_iter().for_each(|at| nics[at].mtu_proven = None);
}

/// Files such as `bonding_masters` lie there, too.
fn is_interface(files: &HostFiles, name: &str) -> bool {
    files.has(format!("/sys/class/net/{name}/mtu"))
}

fn nic(files: &HostFiles, host: &str, name: String) -> Nic {
    let at = format!("/sys/class/net/{name}");
    let text = |path: &str| files.read(format!("{at}/{path}"));
    let signed = |path: &str| text(path).and_then(|it| it.trim().parse::<i64>().ok());
    let queues = files.names(format!("{at}/queues"));
    let rx: Vec<&String> = queues.iter().filter(|queue| queue.starts_with("rx-")).collect();
    let spreads = |queue: &&String| {
        text(&format!("queues/{queue}/rps_cpus"))
            .is_some_and(|mask| mask.bytes().any(|it| it.is_ascii_hexdigit() && it != b'0'))
    };
    let drops =
        ["rx_missed_errors", "rx_dropped"].iter().filter_map(|it| signed(&format!("statistics/{it}")));
    let irqs = interrupts(files, &format!("{at}/device"));
    let asked = if files.are_live() { ethtool::look(&name).unwrap_or_default() } else { Default::default() };
    Nic {
        host: host.to_owned(),
        max_queues: asked.max_queues,
        rings: asked.rings.map(|(rx, rx_max)| Rings { rx, rx_max }),
        adaptive_rx: asked.adaptive_rx,
        rx_usecs: asked.rx_usecs,
        offloads: files.are_live().then_some(asked.offloads),
        // An interface that is down says -1.
        speed_mbit: signed("speed").filter(|speed| *speed > 0),
        mtu: signed("mtu"),
        queues: (!rx.is_empty()).then_some(rx.len() as i64),
        rps: (!rx.is_empty()).then(|| rx.iter().any(spreads)),
        irqs_on: irqs.as_ref().map(|all| on(all)),
        irqs,
        numa_node: signed("device/numa_node").or_else(|| node(files, &at)),
        drops: Some(drops.sum()),
        driver: files
            .link(format!("{at}/device/driver"))
            .and_then(|it| Some(it.file_name()?.to_string_lossy().into_owned())),
        lower: files
            .names(&at)
            .iter()
            .filter_map(|it| it.strip_prefix("lower_").map(str::to_owned))
            .collect(),
        bond_slaves: Some(
            text("bonding/slaves").map_or(0, |slaves| slaves.split_whitespace().count() as i64),
        ),
        name,
        ..Nic::default()
    }
}

/// The processors that these interrupts are sent to.
fn on(irqs: &[Irq]) -> Vec<i64> {
    let cpus: BTreeSet<i64> = irqs.iter().flat_map(|irq| numbers(&irq.cpus)).collect();
    cpus.into_iter().collect()
}
