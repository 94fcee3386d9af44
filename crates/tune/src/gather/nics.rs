//! Facts of the network interfaces of a host, from `/sys/class/net` and `/proc/interrupts`.

use super::lists::numbers;
use crate::facts::Nic;
use loligo_block::host_files::HostFiles;

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
    Nic {
        host: host.to_owned(),
        // An interface that is down says -1.
        speed_mbit: signed("speed").filter(|speed| *speed > 0),
        mtu: signed("mtu"),
        queues: (!rx.is_empty()).then_some(rx.len() as i64),
        rps: (!rx.is_empty()).then(|| rx.iter().any(spreads)),
        irqs_on: interrupts(files, &name),
        numa_node: signed("device/numa_node"),
        drops: Some(drops.sum()),
        driver: files
            .link(format!("{at}/device/driver"))
            .and_then(|it| Some(it.file_name()?.to_string_lossy().into_owned())),
        bond_slaves: Some(
            text("bonding/slaves").map_or(0, |slaves| slaves.split_whitespace().count() as i64),
        ),
        name,
        ..Nic::default()
    }
}

/// The processors that interrupts of this interface are sent to; nothing where it has none of its own.
fn interrupts(files: &HostFiles, name: &str) -> Option<Vec<i64>> {
    let msi = files.names(format!("/sys/class/net/{name}/device/msi_irqs"));
    let mut cpus: Vec<i64> = msi
        .iter()
        .filter_map(|irq| files.read(format!("/proc/irq/{irq}/smp_affinity_list")))
        .flat_map(|list| numbers(&list))
        .collect();
    cpus.sort_unstable();
    cpus.dedup();
    (!cpus.is_empty()).then_some(cpus)
}
