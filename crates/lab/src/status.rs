//! The state of a lab.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde::Serialize;

use crate::ceph::{Ceph, own_environment};
use crate::conf::OSD_CACHE;
use crate::config::LabConfig;
use crate::fail::{self, Fault};
use crate::interrupt::Interrupt;
use crate::layout::Layout;
use crate::namespaces;
use crate::osd::volume;
use crate::pairs::array::{self, LunStatus};
use crate::pairs::place::{Controller, NodeArray, osd_lun};
use crate::pairs::{agents, daemons, osds};
use crate::process::Process;
use crate::state::State;

/// A daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Daemon {
    /// As `osd.0`.
    pub name: String,
    /// Its process id.
    pub pid: i32,
    /// True if it runs.
    pub running: bool,
    /// Memory it holds, bytes.
    pub rss_bytes: Option<u64>,
}

/// A lab as it is now.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Status {
    /// Its folder.
    pub dir: PathBuf,
    /// The cluster's id.
    pub fsid: String,
    /// `up`, `down`, or `partly up` where a daemon is gone.
    pub state: &'static str,
    /// The cluster's own status; nothing where it does not answer.
    pub health: Option<String>,
    /// OSDs that are up.
    pub osds_up: Option<u64>,
    /// Placement groups: active and clean, all.
    pub pgs: Option<[u64; 2]>,
    /// Bytes stored, and of all OSDs.
    pub bytes: Option<[u64; 2]>,
    /// BlueStore's cache of each OSD, bytes.
    pub osd_cache_bytes: u64,
    /// The lab's configuration.
    pub config: LabConfig,
    /// Its daemons.
    pub daemons: Vec<Daemon>,
    /// Controllers of pairs.
    pub controllers: Vec<ControllerStatus>,
    /// Volumes of pairs.
    pub volumes: Vec<VolumeStatus>,
    /// Arrays of pairs.
    pub arrays: Vec<ArrayStatus>,
    /// Faults in force, that 'loligo lab fail' made.
    pub faults: Vec<Fault>,
}

/// A controller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ControllerStatus {
    /// As `n0a`.
    pub name: String,
    /// `on` or `off`.
    pub power: &'static str,
    /// True if the link to clients is up.
    pub public_link: bool,
    /// True if the link to its partner is up.
    pub private_link: bool,
    /// OSDs that run there.
    pub osds: Vec<u32>,
    /// Processes that run there.
    pub processes: usize,
}

/// A volume of a pair.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VolumeStatus {
    /// Its name.
    pub name: String,
    /// Its home, as `n0a`.
    pub home: String,
    /// The address that clients know.
    pub address: String,
    /// Its image.
    pub image: String,
}

/// An array of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ArrayStatus {
    /// Its name: `n0` as the node, or `n0-mirror`.
    pub array: String,
    /// The node, as `n0`.
    pub node: String,
    /// Its LUNs; nothing where it does not answer.
    pub luns: Option<Vec<LunStatus>>,
}

fn controllers(state: &State, faults: &[Fault]) -> Vec<ControllerStatus> {
    let of = |controller: Controller| {
        let host = controller.to_string();
        let namespace = namespaces::name(&state.fsid, &host);
        let pids = namespaces::pids(&namespace);
        let is_up = |link| namespaces::link_is_up(&namespace, link).unwrap_or(false);
        let osds: BTreeSet<u32> = pids.iter().filter_map(|pid| osds::osd_of(*pid)).collect();
        let is_off = fail::is_off(faults, &host) && pids.is_empty();
        ControllerStatus {
            name: host,
            power: if is_off { "off" } else { "on" },
            public_link: is_up(namespaces::PUBLIC),
            private_link: is_up(namespaces::PRIVATE),
            osds: osds.into_iter().collect(),
            processes: pids.len(),
        }
    };
    if state.namespaces.is_empty() {
        Vec::new()
    } else {
        Controller::all(state.config.pairs).map(of).collect()
    }
}

fn volumes(state: &State) -> Vec<VolumeStatus> {
    let of = |controller: Controller| VolumeStatus {
        name: controller.volume(),
        home: controller.to_string(),
        address: daemons::socket(state, controller),
        image: format!("{}/{}", state.config.volume_pool(), controller.volume()),
    };
    let pairs = if state.config.volumes.is_some() { state.config.pairs } else { 0 };
    Controller::all(pairs).map(of).collect()
}

fn arrays(at: &Layout, state: &State) -> Vec<ArrayStatus> {
    let of = |array: NodeArray| ArrayStatus {
        array: array.to_string(),
        node: array.node.to_string(),
        luns: array::luns(at, state, array),
    };
    NodeArray::all(&state.config).map(of).collect()
}

/// Daemons of OSDs that agents started.
fn by_agents(state: &State) -> Vec<Daemon> {
    if !state.config.agents || state.namespaces.is_empty() {
        return Vec::new();
    }
    let all = state.osds.iter().flat_map(|(id, _)| {
        let name = format!("osd.{id}");
        osds::daemons(state, *id).into_iter().filter_map(move |(_, pid)| Process::found(&name, pid))
    });
    all.map(|p| daemon(&p)).collect()
}

/// Looks at a lab.
///
/// # Errors
/// If there is none.
pub fn status(dir: &Path) -> Result<Status> {
    let at = Layout::at(dir)?;
    let state = State::of(&at)?;
    let faults = fail::in_force(&at, &state)?;
    let daemons: Vec<Daemon> = state.processes.iter().map(daemon).chain(by_agents(&state)).collect();
    let running = daemons.iter().filter(|d| d.running).count();
    let word = match running {
        0 => "down",
        n if n == daemons.len() && state.complete => "up",
        _ => "partly up",
    };
    let monitor = state.processes.iter().any(|p| p.name.starts_with("mon.") && p.alive());
    let said = monitor.then(|| Ceph::of(&at, &Interrupt::default()).json(&["status"]).ok()).flatten();
    let number = |path: &[&str]| path.iter().fold(said.as_ref(), |v, key| v?.get(key))?.as_u64();
    let clean = said.as_ref().map(|s| {
        (s["pgmap"]["pgs_by_state"].as_array().into_iter().flatten())
            .filter(|p| p["state_name"] == "active+clean")
            .filter_map(|p| p["count"].as_u64())
            .sum()
    });
    Ok(Status {
        dir: at.dir().to_owned(),
        fsid: state.fsid.clone(),
        state: word,
        health: said.as_ref().and_then(|s| Some(s["health"]["status"].as_str()?.to_owned())),
        osds_up: number(&["osdmap", "num_up_osds"]),
        pgs: clean.zip(number(&["pgmap", "num_pgs"])).map(<[u64; 2]>::from),
        bytes: number(&["pgmap", "bytes_used"]).zip(number(&["pgmap", "bytes_total"])).map(<[u64; 2]>::from),
        osd_cache_bytes: state
            .config
            .set
            .get("osd.bluestore_cache_size")
            .and_then(|v| v.parse().ok())
            .unwrap_or(OSD_CACHE),
        controllers: controllers(&state, &faults),
        volumes: volumes(&state),
        arrays: arrays(&at, &state),
        faults,
        config: state.config,
        daemons,
    })
}

fn daemon(p: &Process) -> Daemon {
    let running = p.alive();
    let rss = || {
        let text = std::fs::read_to_string(format!("/proc/{}/status", p.pid)).ok()?;
        let line = text.lines().find_map(|l| l.strip_prefix("VmRSS:"))?;
        Some(line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()? * 1024)
    };
    Daemon { name: p.name.clone(), pid: p.pid, running, rss_bytes: if running { rss() } else { None } }
}

/// The cache that an OSD stands on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cache {
    /// The folder of its control socket.
    pub runtime_dir: PathBuf,
    /// The name of its volume.
    pub volume: String,
}

/// The caches of a lab by OSD.
///
/// # Errors
/// If there is no lab, or it has none.
pub fn caches(dir: &Path) -> Result<Vec<(String, Cache)>> {
    let at = Layout::at(dir)?;
    let state = State::of(&at)?;
    anyhow::ensure!(state.config.cache.is_some(), "the lab has no caches: bring one up with --cache SIZE");
    let cache = |id: u32| match state.config.pairs {
        0 => Some(Cache { runtime_dir: at.run(), volume: volume(id) }),
        // With the controller that runs the OSD.
        pairs => {
            let (host, _) = osds::daemons(&state, id).into_iter().next()?;
            let on = Controller::named(&host, pairs)?;
            Some(Cache { runtime_dir: on.run(&at), volume: osd_lun(id) })
        }
    };
    let all = state.osds.iter().filter_map(|(id, _)| Some((format!("osd.{id}"), cache(*id)?)));
    Ok(all.collect())
}

/// Environment in which stock tools speak to a lab's cluster: names and values.
///
/// # Errors
/// If there is no lab.
pub fn environment(dir: &Path) -> Result<Vec<(&'static str, String)>> {
    let at = Layout::at(dir)?;
    let state = State::of(&at)?;
    Ok(vec![
        ("CEPH_CONF", at.conf().display().to_string()),
        ("LOLIGO_LAB_DIR", at.dir().display().to_string()),
        ("LOLIGO_LAB_POOL", state.config.pool),
    ])
}

/// A command that runs with a lab's environment, on one of its hosts (`osd0`, `n0a`, `client`) if named.
///
/// # Errors
/// If there is no lab, or no such host, or that is off.
pub fn command(
    dir: &Path,
    host: Option<&str>,
    program: &str,
    args: &[String],
) -> Result<std::process::Command> {
    let at = Layout::at(dir)?;
    let state = State::of(&at)?;
    let mut command = std::process::Command::new(program);
    command.args(args);
    own_environment(&mut command, &at.conf());
    command.env("LOLIGO_LAB_DIR", at.dir()).env("LOLIGO_LAB_POOL", &state.config.pool);
    let Some(host) = host else { return Ok(command) };
    let namespace = namespace_of(&state, host)?;
    if let Some(controller) = Controller::named(host, state.config.pairs) {
        anyhow::ensure!(
            !fail::is_off(&fail::read(&at)?, host),
            "{host} is off: 'loligo lab mend {host}' switches it on"
        );
        agents::environment(&at, controller, &mut command);
    }
    Ok(namespaces::within(&namespace, &command))
}

/// The network namespace that one of a lab's hosts is.
///
/// # Errors
/// If there is no lab, or no such host.
pub fn namespace(dir: &Path, host: &str) -> Result<String> {
    namespace_of(&State::of(&Layout::at(dir)?)?, host)
}

fn namespace_of(state: &State, host: &str) -> Result<String> {
    let namespace = namespaces::name(&state.fsid, host);
    let known =
        || state.namespaces.iter().filter_map(|n| n.rsplit('-').next()).collect::<Vec<_>>().join(", ");
    anyhow::ensure!(
        !state.namespaces.is_empty(),
        "the lab has no hosts: bring it up with --hosts namespaces, or --pairs, to run something on '{host}'"
    );
    anyhow::ensure!(
        state.namespaces.contains(&namespace),
        "the lab has no host '{host}' (it has: {})",
        known()
    );
    Ok(namespace)
}
