//! Doing and undoing.

use super::plan::{Deed, dark};
use crate::ceph::Ceph;
use crate::interrupt::Interrupt;
use crate::layout::Layout;
use crate::namespaces::{self, PRIVATE, PUBLIC};
use crate::pairs::place::{Controller, Node, NodeArray};
use crate::pairs::{agents, array, daemons as volume_daemons, osds};
use crate::process::{POLL, Process, wait};
use crate::state::State;
use crate::{mons, osd};
use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;
use std::path::Path;
use std::time::{Duration, Instant};

/// The time that killed processes may take to be gone.
const LIMIT: Duration = Duration::from_secs(20);

fn namespace(state: &State, host: &str) -> String {
    namespaces::name(&state.fsid, host)
}

/// The processes of a host; of an array that is its own.
fn processes(state: &State, host: &str) -> Vec<Process> {
    if NodeArray::all(&state.config).any(|array| array.process() == host) {
        return state.process(host).cloned().into_iter().collect();
    }
    let pids = namespaces::pids(&namespace(state, host));
    pids.into_iter().filter_map(|pid| Process::found(host, pid)).collect()
}

/// True if nothing runs on a host.
pub(crate) fn is_still(state: &State, host: &str) -> bool {
    namespaces::pids(&namespace(state, host)).is_empty()
}

/// Cuts the links that these deeds cut: of all of them before anything else is done, since a machine without power says nothing.
///
/// # Errors
/// If `ip` fails.
pub(crate) fn cut_links(state: &State, deeds: &[Deed]) -> Result<()> {
    for deed in deeds {
        let (host, links) = match deed {
            Deed::Off { host } => (host, vec![PUBLIC, PRIVATE]),
            Deed::Cut { host, link } => (host, vec![link.as_str()]),
            _ => continue,
        };
        links.iter().try_for_each(|link| namespaces::set_link(&namespace(state, host), link, false))?;
    }
    Ok(())
}

/// Does the rest of a deed.
///
/// # Errors
/// If something is not there, or cannot be done.
pub(crate) fn act(at: &Layout, state: &State, deed: &Deed) -> Result<()> {
    match deed {
        Deed::Off { host } => kill_all(state, host),
        Deed::Cut { .. } => Ok(()),
        Deed::Frozen { processes, .. } => {
            processes.iter().for_each(|p| p.signal(Signal::STOP));
            Ok(())
        }
        Deed::Killed { daemon } => {
            let all = daemons(state, daemon);
            ensure!(!all.is_empty(), "{daemon} does not run: 'loligo lab mend {daemon}' starts it");
            all.iter().for_each(|p| p.signal(Signal::KILL));
            ensure!(wait(&all, LIMIT), "{daemon} does not end");
            Ok(())
        }
        Deed::Errors { node, lun } => {
            array::change_fault(at, Node(*node), std::slice::from_ref(lun), |fault| fault.eio = true)
        }
        Deed::Dark { node, mirror } => {
            let array = dark(*node, *mirror);
            array::change_fault(at, array.node, &array.luns(&state.config), |fault| fault.lost = true)
        }
    }
}

/// The processes of a controller or an array that do not stand still yet, for a deed that freezes them.
pub(crate) fn to_freeze(state: &State, host: &str, known: &[Process]) -> Vec<Process> {
    processes(state, host).into_iter().filter(|p| !known.contains(p)).collect()
}

/// Kills every process of a host, and waits until none is left.
///
/// # Errors
/// If one is not gone in time.
fn kill_all(state: &State, host: &str) -> Result<()> {
    let begun = Instant::now();
    loop {
        let all = processes(state, host);
        if all.is_empty() && is_still(state, host) {
            return Ok(());
        }
        all.iter().for_each(|p| p.signal(Signal::KILL));
        if begun.elapsed() > LIMIT {
            let pids: Vec<String> = all.iter().map(|p| p.pid.to_string()).collect();
            bail!("{host} is not off: process {} does not end", pids.join(", "));
        }
        std::thread::sleep(POLL / 10);
    }
}

/// The processes that are a daemon: `osd.0` wherever it runs, `mon.a`.
pub(crate) fn daemons(state: &State, daemon: &str) -> Vec<Process> {
    let own = state.processes.iter().filter(|p| p.name == daemon && p.alive()).cloned();
    let mut all: Vec<Process> = own.collect();
    if let Some(id) = daemon.strip_prefix("osd.").and_then(|id| id.parse().ok()) {
        let others = osds::daemons(state, id).into_iter().filter_map(|(_, pid)| Process::found(daemon, pid));
        all.extend(others.filter(|p| !state.processes.iter().any(|own| own.pid == p.pid)));
    }
    all
}

/// Undoes a deed, with `others` still in force: `program` is this program.
///
/// # Errors
/// If something cannot be started, or is not there.
pub(crate) fn undo(
    at: &Layout,
    state: &mut State,
    deed: &Deed,
    others: &[Deed],
    program: &Path,
) -> Result<()> {
    let connect = |state: &State, host: &str, link: &str| match others.iter().any(|d| d.cuts(host, link)) {
        true => Ok(()),
        false => namespaces::set_link(&namespace(state, host), link, true),
    };
    match deed {
        Deed::Off { host } => {
            connect(state, host, PUBLIC)?;
            connect(state, host, PRIVATE)?;
            switch_on(at, state, host, program)
        }
        Deed::Cut { host, link } => connect(state, host, link),
        Deed::Frozen { processes, .. } => {
            processes.iter().for_each(|p| p.signal(Signal::CONT));
            Ok(())
        }
        Deed::Killed { daemon } => start(at, state, daemon, others, program),
        Deed::Errors { node, lun } => {
            array::change_fault(at, Node(*node), std::slice::from_ref(lun), |fault| fault.eio = false)?;
            revive(at, state, std::slice::from_ref(lun), others, program)
        }
        Deed::Dark { node, mirror } => {
            let (array, luns) = (dark(*node, *mirror), dark(*node, *mirror).luns(&state.config));
            array::power_cycle(at, state, array)?;
            array::change_fault(at, array.node, &luns, |fault| fault.lost = false)?;
            revive(at, state, &luns, others, program)
        }
    }
}

/// Starts the OSDs of these LUNs that ended for their errors. An agent does so by itself.
fn revive(at: &Layout, state: &mut State, luns: &[String], others: &[Deed], program: &Path) -> Result<()> {
    let ids = luns.iter().filter_map(|lun| lun.strip_prefix("osd"));
    ids.map(|id| format!("osd.{id}")).try_for_each(|daemon| start(at, state, &daemon, others, program))
}

/// Starts what belongs on a controller: its monitor, and its agent, or its OSD where there are none.
fn switch_on(at: &Layout, state: &mut State, host: &str, program: &Path) -> Result<()> {
    let controller = Controller::named(host, state.config.pairs);
    let controller = controller.with_context(|| format!("the lab has no controller '{host}'"))?;
    let ceph = Ceph::of(at, &Interrupt::default());
    for mon in state.mons.clone().iter().filter(|mon| mon.host.as_deref() == Some(host)) {
        if daemons(state, &mon.name()).is_empty() {
            state.start(at, mons::start(at, &ceph, state, mon)?)?;
        }
    }
    if state.config.has_daemons() {
        state.start(at, volume_daemons::start(at, state, program, controller)?)?;
    }
    if state.config.agents {
        return state.start(at, agents::start(at, state, program, controller)?);
    }
    let id = controller.osd();
    if daemons(state, &format!("osd.{id}")).is_empty() {
        state.start(at, osds::start(at, &ceph, state, id, controller)?)?;
    }
    Ok(())
}

/// Starts a daemon that was killed, unless it runs again, or its host is off.
fn start(at: &Layout, state: &mut State, daemon: &str, others: &[Deed], program: &Path) -> Result<()> {
    let is_off =
        |host: &str| others.iter().any(|deed| matches!(deed, Deed::Off { host: off } if off == host));
    if !daemons(state, daemon).is_empty() {
        return Ok(());
    }
    if let Some(host) = daemon.strip_prefix("loligod.") {
        let controller = Controller::named(host, state.config.pairs);
        let controller = controller.with_context(|| format!("the lab has no controller '{host}'"))?;
        return match is_off(host) {
            true => Ok(()),
            false => state.start(at, volume_daemons::start(at, state, program, controller)?),
        };
    }
    let ceph = Ceph::of(at, &Interrupt::default());
    if let Some(mon) = state.mons.iter().find(|mon| mon.name() == daemon).cloned() {
        return match mon.host.as_deref().is_some_and(is_off) {
            true => Ok(()),
            false => state.start(at, mons::start(at, &ceph, state, &mon)?),
        };
    }
    let id: u32 =
        daemon.trim_start_matches("osd.").parse().with_context(|| format!("no daemon '{daemon}'"))?;
    if state.config.pairs == 0 {
        let plans = state.config.plan()?;
        let plan = plans.iter().find(|plan| plan.id == id).with_context(|| format!("no OSD {id}"))?;
        return state.start(at, osd::start(at, &ceph, state, plan)?);
    }
    let home = Controller::home(id);
    // Where there are agents, they start it, or have given it up for a reason.
    match state.config.agents || is_off(&home.to_string()) {
        true => Ok(()),
        false => state.start(at, osds::start(at, &ceph, state, id, home)?),
    }
}
