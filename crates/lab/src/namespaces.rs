//! Hosts as network namespaces: a bridge in the system's own namespace, where monitor and manager live, and a namespace for
//! each OSD and one for a client, so that cutting a link is cutting a host's network.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::interrupt::Interrupt;
use crate::layout::Layout;
use crate::process::{run, through};
use crate::state::State;

const LIMIT: Duration = Duration::from_secs(20);

/// Second byte of the private networks that labs take, as 10.219.N.0/24.
const SECOND: u8 = 219;

/// The name of the namespace of `host` (`osd3`, `client`).
pub(crate) fn name(fsid: &str, host: &str) -> String {
    format!("loligo-{}-{host}", &fsid[..8.min(fsid.len())])
}

/// Makes a command run in a namespace.
pub(crate) fn within(namespace: &str, command: &Command) -> Command {
    let mut outer = Command::new("ip");
    outer.args(["netns", "exec", namespace]);
    through(outer, command)
}

fn ip(args: &str, stop: &Interrupt) -> Result<String> {
    run(Command::new("ip").args(args.split(' ')), LIMIT, stop).with_context(|| format!("ip {args}"))
}

/// A network that nobody here uses; the monitor gets its first address.
///
/// # Errors
/// If namespaces cannot be made at all: not root, or no `ip`.
pub(crate) fn free_network(stop: &Interrupt) -> Result<String> {
    if !rustix::process::geteuid().is_root() {
        bail!("network namespaces need root: run as root, or leave --hosts out");
    }
    let used = run(Command::new("ip").args(["-o", "-4", "addr"]), LIMIT, stop)
        .context("network namespaces need the ip program: apt-get install iproute2")?;
    let routes = ip("-4 route", stop)?;
    (1..=254u8)
        .map(|n| format!("10.{SECOND}.{n}"))
        .find(|net| !used.contains(&format!("{net}.")) && !routes.contains(&format!("{net}.")))
        .with_context(|| format!("every network of 10.{SECOND}.0.0/16 is in use"))
}

/// The address of a lab's host: the monitor has 1, OSD n has 10 + n, the client has 2.
fn address(state: &State, number: u32) -> String {
    let net = state.address.rsplit_once('.').map_or("", |(net, _)| net);
    format!("{net}.{number}")
}

/// Makes the bridge and the namespaces, each written down before it is made.
pub(crate) fn make(at: &Layout, state: &mut State, osds: &[u32], stop: &Interrupt) -> Result<()> {
    let short: String = state.fsid.chars().take(8).collect();
    let bridge = format!("ll{short}");
    state.bridge = Some(bridge.clone());
    state.write(at)?;
    ip(&format!("link add {bridge} type bridge"), stop)?;
    ip(&format!("addr add {}/24 dev {bridge}", state.address), stop)?;
    ip(&format!("link set {bridge} up"), stop)?;
    let hosts = osds.iter().map(|id| (format!("osd{id}"), 10 + id, format!("ll{short}{id}")));
    let client = ("client".to_owned(), 2, format!("ll{short}c"));
    for (host, number, link) in hosts.chain([client]) {
        if number > 254 {
            bail!("a lab of namespaces has at most 245 OSDs");
        }
        let namespace = name(&state.fsid, &host);
        state.namespaces.push(namespace.clone());
        state.write(at)?;
        ip(&format!("netns add {namespace}"), stop)?;
        ip(&format!("link add {link} type veth peer name eth0 netns {namespace}"), stop)?;
        ip(&format!("link set {link} master {bridge} up"), stop)?;
        ip(&format!("-n {namespace} addr add {}/24 dev eth0", address(state, number)), stop)?;
        ip(&format!("-n {namespace} link set eth0 up"), stop)?;
        ip(&format!("-n {namespace} link set lo up"), stop)?;
    }
    Ok(())
}

/// Removes what [`make`] made; what is gone already is no error.
pub(crate) fn remove(state: &mut State) {
    let stop = Interrupt::default();
    let short: String = state.fsid.chars().take(8).collect();
    for namespace in state.namespaces.drain(..) {
        // The link first: with the namespace alone the kernel takes it away at its leisure.
        let host = namespace.rsplit('-').next().unwrap_or_default();
        let end = if host == "client" { "c" } else { host.trim_start_matches("osd") };
        let _ = ip(&format!("link del ll{short}{end}"), &stop);
        let _ = ip(&format!("netns del {namespace}"), &stop);
    }
    if let Some(bridge) = state.bridge.take() {
        let _ = ip(&format!("link del {bridge}"), &stop);
    }
}
