//! Monitors as they are planned, made and started.

use crate::ceph::Ceph;
use crate::config::LabConfig;
use crate::layout::Layout;
use crate::monitor::Monitor;
use crate::namespaces;
use crate::pairs::place::Node;
use crate::process::{Held, Process};
use crate::state::State;
use anyhow::{Context, Result};
use std::fs;
use std::net::TcpListener;

/// The ports of a monitor that has a network namespace for itself, as Ceph registered them: protocol 2, protocol 1.
const OWN_PORTS: [u16; 2] = [3300, 6789];

/// Plans the monitors of a new lab, whose network has the first address `address`. Several of pairs lie on the first controllers of
/// different nodes; all others on the machine itself.
///
/// # Errors
/// If no ports are free.
pub(crate) fn plan(config: &LabConfig, address: &str) -> Result<Vec<Monitor>> {
    let count = config.mon_count();
    let ids = ('a'..='z').map(String::from).take(count as usize);
    if config.pairs > 0 && count > 1 {
        let place = |(id, node): (String, Node)| {
            let controller = node.controllers()[0];
            let address = namespaces::address(address, namespaces::controller_number(controller));
            Monitor { id, address, ports: OWN_PORTS, host: Some(controller.to_string()) }
        };
        return Ok(ids.zip(Node::all(config.pairs)).map(place).collect());
    }
    let ports = free_ports(address, 2 * count as usize)?;
    let pairs = ports.chunks(2).map(|two| [two[0], two[1]]);
    let mon = |(id, ports)| Monitor { id, address: address.to_owned(), ports, host: None };
    Ok(ids.zip(pairs).map(mon).collect())
}

/// Makes their stores, with the keys of everybody.
///
/// # Errors
/// If one of Ceph's programs fails.
pub(crate) fn make_stores(at: &Layout, ceph: &Ceph, state: &State) -> Result<()> {
    let map = at.dir().join("monmap").display().to_string();
    let keyring = at.dir().join("mon.keyring").display().to_string();
    let addresses: Vec<(&str, String)> =
        state.mons.iter().map(|mon| (mon.id.as_str(), mon.addresses())).collect();
    let mut args = vec!["--create", "--fsid", &state.fsid];
    args.extend(addresses.iter().flat_map(|(id, all)| ["--addv", id, all]));
    args.push(&map);
    ceph.tool("monmaptool", &args)?;
    for mon in &state.mons {
        ceph.tool("ceph-mon", &["--mkfs", "-i", &mon.id, "--monmap", &map, "--keyring", &keyring])?;
    }
    fs::remove_file(&map)?;
    Ok(())
}

/// Starts one.
pub(crate) fn start(at: &Layout, ceph: &Ceph, state: &State, mon: &Monitor) -> Result<Held> {
    let name = mon.name();
    let mut command = ceph.command("ceph-mon");
    command.args(["-f", "-i", &mon.id]);
    if let Some(host) = &mon.host {
        command = namespaces::within(&namespaces::name(&state.fsid, host), &command);
    }
    Process::hold(&name, &command, &at.output(&name))
}

/// So many ports that are free now.
fn free_ports(address: &str, count: usize) -> Result<Vec<u16>> {
    let bind = |_| TcpListener::bind((address, 0)).with_context(|| format!("a port of {address}"));
    // All at once, so that they differ.
    let bound = (0..count).map(bind).collect::<Result<Vec<_>>>()?;
    bound.iter().map(|socket| Ok(socket.local_addr()?.port())).collect()
}
