//! Hosts as network namespaces: a bridge in the system's own namespace, where monitor and manager live, and a namespace for
//! each OSD, or each controller of a pair, and one for a client. Cutting a link is cutting a host's network.
//!
//! A controller has a second link, to its partner alone.

use std::os::linux::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use loligo_block::processes;

use crate::interrupt::Interrupt;
use crate::layout::Layout;
use crate::lock::Lock;
use crate::pairs::place::{Controller, Node, Side};
use crate::process::{run, through};
use crate::state::State;

const LIMIT: Duration = Duration::from_secs(20);
/// The folder of named namespaces.
const NAMES: &str = "/run/netns";

/// Second byte of the private networks that labs take, as 10.219.N.0/24.
const SECOND: u8 = 219;
/// Second byte of the networks between two controllers, as 10.218.NODE.0/24. They are in namespaces alone, and may repeat.
const SECOND_PRIVATE: u8 = 218;
/// The number of the first OSD's, or controller's, address.
const FIRST: u32 = 10;

/// The numbers of controllers' addresses, before those of volumes.
const VOLUMES_AFTER: u32 = 120;

/// The link of each host to the bridge.
pub const PUBLIC: &str = "eth0";
/// The link of a controller to its partner.
pub const PRIVATE: &str = "eth1";

/// The name of the namespace of `host` (`osd3`, `n0a`, `client`).
pub(crate) fn name(fsid: &str, host: &str) -> String {
    format!("loligo-{}-{host}", short(fsid))
}

fn short(fsid: &str) -> &str {
    &fsid[..8.min(fsid.len())]
}

/// The host that a namespace is.
fn host_of(namespace: &str) -> &str {
    namespace.rsplit('-').next().unwrap_or_default()
}

/// The name of a host's link on the bridge, of at most 15 characters.
fn link(fsid: &str, host: &str) -> String {
    let end = if host == "client" { "c" } else { host.trim_start_matches("osd") };
    format!("ll{}{end}", short(fsid))
}

/// Makes a command run in a namespace. `ip netns exec` would give it mounts of its own too: nobody else would see what it mounts.
pub(crate) fn within(namespace: &str, command: &Command) -> Command {
    let mut outer = Command::new("nsenter");
    outer.arg(format!("--net={NAMES}/{namespace}")).arg("--");
    through(outer, command)
}

fn ip(args: &str, stop: &Interrupt) -> Result<String> {
    run(Command::new("ip").args(args.split(' ')), LIMIT, stop).with_context(|| format!("ip {args}"))
}

/// Takes the networks of this machine: of two labs that come up at once the second sees the first one's.
///
/// # Errors
/// If namespaces cannot be made at all, not being root, or another lab keeps them for long.
pub(crate) fn take_networks() -> Result<Lock> {
    if !rustix::process::geteuid().is_root() {
        bail!("network namespaces need root: run as root, or leave --hosts and --pairs out");
    }
    Lock::take(Path::new("/run/loligo-lab-networks.lock"), Duration::from_secs(60))
}

/// Addresses and routes of this machine, as text.
fn used(stop: &Interrupt) -> Result<String> {
    let addresses = run(Command::new("ip").args(["-o", "-4", "addr"]), LIMIT, stop)
        .context("network namespaces need the ip program: apt-get install iproute2")?;
    Ok(addresses + &ip("-4 route", stop)?)
}

/// A network that nobody here uses; the monitor gets its first address.
///
/// # Errors
/// If all are in use, or there is no `ip`.
pub(crate) fn free_network(stop: &Interrupt) -> Result<String> {
    let used = used(stop)?;
    (1..=254u8)
        .map(|n| format!("10.{SECOND}.{n}"))
        .find(|net| !used.contains(&format!("{net}.")))
        .with_context(|| format!("every network of 10.{SECOND}.0.0/16 is in use"))
}

/// The address of a lab's host, where `first` is the bridge's: that has 1, the client 2, OSD or controller n has 10 + n.
pub(crate) fn address(first: &str, number: u32) -> String {
    format!("{}.{number}", net_of(first))
}

/// The first three numbers of an address.
fn net_of(address: &str) -> &str {
    address.rsplit_once('.').map_or("", |(net, _)| net)
}

/// The network of all hosts.
pub(crate) fn network(first: &str) -> String {
    format!("{}/24", address(first, 0))
}

/// The number of a controller's address.
pub(crate) fn controller_number(controller: Controller) -> u32 {
    FIRST + controller.number()
}

/// The number of the address of the volume that is at home on a controller.
pub(crate) fn volume_number(controller: Controller) -> u32 {
    FIRST + VOLUMES_AFTER + controller.number()
}

/// A controller's address on the link to its partner.
pub(crate) fn private_address(controller: Controller) -> String {
    let end = match controller.side {
        Side::A => 1,
        Side::B => 2,
    };
    format!("10.{SECOND_PRIVATE}.{}.{end}", controller.node.0)
}

/// Makes the bridge and the namespaces, each written down before it is made.
pub(crate) fn make(at: &Layout, state: &mut State, osds: &[u32], stop: &Interrupt) -> Result<()> {
    // Those of a lab that was kept may be another's by now.
    if used(stop)?.contains(&format!("{}.", net_of(&state.address))) {
        bail!("{} is in use here, by another lab perhaps: take that down first", network(&state.address));
    }
    let bridge = format!("ll{}", short(&state.fsid));
    state.bridge = Some(bridge.clone());
    state.write(at)?;
    ip(&format!("link add {bridge} type bridge"), stop)?;
    ip(&format!("addr add {}/24 dev {bridge}", state.address), stop)?;
    ip(&format!("link set {bridge} up"), stop)?;
    let pairs = state.config.pairs;
    let mut hosts: Vec<(String, u32)> = match pairs {
        0 => osds.iter().map(|id| (format!("osd{id}"), FIRST + id)).collect(),
        _ => Controller::all(pairs).map(|c| (c.to_string(), controller_number(c))).collect(),
    };
    hosts.push(("client".to_owned(), 2));
    for (host, number) in hosts {
        if number > 254 {
            bail!("a lab of namespaces has at most 245 OSDs");
        }
        let (namespace, link) = (name(&state.fsid, &host), link(&state.fsid, &host));
        state.namespaces.push(namespace.clone());
        state.write(at)?;
        ip(&format!("netns add {namespace}"), stop)?;
        ip(&format!("link add {link} type veth peer name {PUBLIC} netns {namespace}"), stop)?;
        ip(&format!("link set {link} master {bridge} up"), stop)?;
        ip(&format!("-n {namespace} addr add {}/24 dev {PUBLIC}", address(&state.address, number)), stop)?;
        ip(&format!("-n {namespace} link set {PUBLIC} up"), stop)?;
        ip(&format!("-n {namespace} link set lo up"), stop)?;
    }
    for node in Node::all(pairs) {
        let [a, b] = node.controllers().map(|c| name(&state.fsid, &c.to_string()));
        ip(&format!("link add {PRIVATE} netns {a} type veth peer name {PRIVATE} netns {b}"), stop)?;
        for (namespace, controller) in [a, b].iter().zip(node.controllers()) {
            ip(&format!("-n {namespace} addr add {}/24 dev {PRIVATE}", private_address(controller)), stop)?;
            ip(&format!("-n {namespace} link set {PRIVATE} up"), stop)?;
        }
    }
    Ok(())
}

/// Sets a link of a host up or down.
///
/// # Errors
/// If `ip` fails.
pub(crate) fn set_link(namespace: &str, link: &str, up: bool) -> Result<()> {
    let word = if up { "up" } else { "down" };
    ip(&format!("-n {namespace} link set {link} {word}"), &Interrupt::default()).map(drop)
}

/// True if a link of a host is set up.
///
/// # Errors
/// If `ip` fails.
pub(crate) fn link_is_up(namespace: &str, link: &str) -> Result<bool> {
    let shown = ip(&format!("-n {namespace} -o link show {link}"), &Interrupt::default())?;
    let flags =
        shown.split_once('<').and_then(|(_, rest)| rest.split_once('>')).map_or("", |(flags, _)| flags);
    Ok(flags.split(',').any(|flag| flag == "UP"))
}

/// Limits the public link of each host to so many megabits a second, in both directions; nothing: to nothing.
///
/// # Errors
/// If `tc` is missing, or fails.
pub(crate) fn limit_links(state: &State, megabits: Option<u32>) -> Result<()> {
    for namespace in &state.namespaces {
        let outside = link(&state.fsid, host_of(namespace));
        for (place, link) in [(&["-n", namespace][..], PUBLIC), (&[], &outside)] {
            limit(place, link, megabits).with_context(|| format!("the speed of {link} of {namespace}"))?;
        }
    }
    Ok(())
}

fn limit(place: &[&str], link: &str, megabits: Option<u32>) -> Result<()> {
    let tc = |args: &[&str]| {
        run(Command::new("tc").args(place).arg("qdisc").args(args), LIMIT, &Interrupt::default())
    };
    let Some(megabits) = megabits else {
        let is_limited = tc(&["show", "dev", link])?.contains("tbf");
        return if is_limited { tc(&["del", "dev", link, "root"]).map(drop) } else { Ok(()) };
    };
    let rate = format!("{megabits}mbit");
    // As much as one segment that the kernel has not cut yet, and a queue that senders fill before anything is dropped.
    let bucket = ["burst", "256kb", "latency", "100ms"];
    tc(&[&["replace", "dev", link, "root", "tbf", "rate", &rate], &bucket[..]].concat()).map(drop)
}

/// The process ids of everything that runs in a namespace; nothing where there is none.
pub(crate) fn pids(namespace: &str) -> Vec<i32> {
    let of = |file: &Path| std::fs::metadata(file).ok().map(|m| (m.st_dev(), m.st_ino()));
    let Some(own) = of(&Path::new(NAMES).join(namespace)) else { return Vec::new() };
    let is_inside = |process: &PathBuf| of(&process.join("ns/net")) == Some(own);
    let inside = processes::folders().into_iter().flatten().filter(is_inside);
    inside.filter_map(|p| p.file_name()?.to_str()?.parse().ok()).collect()
}

/// Removes what [`make`] made; what is gone already is no error.
pub(crate) fn remove(state: &mut State) {
    let stop = Interrupt::default();
    for namespace in state.namespaces.drain(..) {
        // The link first: with the namespace alone the kernel takes it away at its leisure.
        let _ = ip(&format!("link del {}", link(&state.fsid, host_of(&namespace))), &stop);
        let _ = ip(&format!("netns del {namespace}"), &stop);
    }
    if let Some(bridge) = state.bridge.take() {
        let _ = ip(&format!("link del {bridge}"), &stop);
    }
}
