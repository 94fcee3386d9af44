//! Facts of the network interfaces of a host, from `/sys/class/net` and `/proc/interrupts`.

use super::devices::{interrupts, node};
use super::lists::numbers;
use crate::facts::{Irq, Nic};
use loligo_block::host_files::HostFiles;
use std::collections::BTreeSet;

pub(super) fn look(files: &HostFiles, host: &str) -> Vec<Nic> {
    let names = files.names("/sys/class/net").into_iter().filter(|name| name != "lo");
    names.filter(|name| is_interface(files, name)).map(|name| nic(files, host, name)).collect()
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
    Nic {
        host: host.to_owned(),
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
