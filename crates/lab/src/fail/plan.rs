//! Kinds of faults, and the deeds that each consists of.

use crate::namespaces::{PRIVATE, PUBLIC};
use crate::pairs::place::{Controller, Node, cache_lun, osd_lun};
use crate::process::Process;
use crate::state::State;
use anyhow::{Result, bail, ensure};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A controller loses its power: both links, and every process.
    Controller,
    /// Both controllers of a node do.
    Power,
    /// Both links of a controller are cut; its processes live on.
    Nic,
    /// The link between the two controllers of a node is cut.
    Link,
    /// The processes of a controller stand still.
    Freeze,
    /// A daemon of an OSD is killed.
    Osd,
    /// A monitor is killed.
    Mon,
    /// The daemon of a controller's volumes is killed.
    Daemon,
    /// A LUN, or all of a node, answer with errors on both paths.
    Disk,
    /// An array loses its power, and has it again.
    ArrayCycle,
    /// A controller was switched off by `lab power`.
    PowerOff,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Controller => "controller",
            Kind::Power => "power",
            Kind::Nic => "nic",
            Kind::Link => "link",
            Kind::Freeze => "freeze",
            Kind::Osd => "osd",
            Kind::Mon => "mon",
            Kind::Daemon => "daemon",
            Kind::Disk => "disk",
            Kind::ArrayCycle => "array-cycle",
            Kind::PowerOff => "power-off",
        })
    }
}

/// A part of a fault, which is done and undone by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "deed", rename_all = "kebab-case")]
pub enum Deed {
    /// A controller is off.
    Off {
        /// Its name.
        host: String,
    },
    /// A link of a controller is cut.
    Cut {
        /// Its name.
        host: String,
        /// The link.
        link: String,
    },
    /// Processes of a controller stand still.
    Frozen {
        /// Its name.
        host: String,
        /// The processes.
        processes: Vec<Process>,
    },
    /// A daemon was killed.
    Killed {
        /// Its name, `osd.0`.
        daemon: String,
    },
    /// A LUN of a node answers with errors.
    Errors {
        /// The node's number.
        node: u32,
        /// The name of the LUN.
        lun: String,
    },
    /// The array of a node is without power.
    Dark {
        /// The node's number.
        node: u32,
    },
}

impl Deed {
    /// The host that it is done to.
    pub(crate) fn host(&self) -> Option<&str> {
        match self {
            Deed::Off { host } | Deed::Cut { host, .. } | Deed::Frozen { host, .. } => Some(host),
            Deed::Killed { .. } | Deed::Errors { .. } | Deed::Dark { .. } => None,
        }
    }

    /// True if it keeps a link of a host down.
    pub(crate) fn cuts(&self, of: &str, which: &str) -> bool {
        match self {
            Deed::Off { host } => host == of,
            Deed::Cut { host, link } => host == of && link == which,
            _ => false,
        }
    }

    /// The object of it alone, as it is named to be mended.
    pub(crate) fn object(&self) -> String {
        match self {
            Deed::Off { host } | Deed::Cut { host, .. } | Deed::Frozen { host, .. } => host.clone(),
            Deed::Killed { daemon } => daemon.clone(),
            Deed::Errors { lun, .. } => lun.clone(),
            Deed::Dark { node } => Node(*node).to_string(),
        }
    }
}

/// The deeds of a fault of `kind` on `target`, and the target as it is called.
///
/// # Errors
/// If the lab has no such target; the error names those that it has.
pub(crate) fn deeds(state: &State, kind: Kind, target: &str) -> Result<(String, Vec<Deed>)> {
    let pairs = state.config.pairs;
    let cut = |host: &str, link: &str| Deed::Cut { host: host.to_owned(), link: link.to_owned() };
    if !matches!(kind, Kind::Osd | Kind::Mon) {
        ensure!(pairs > 0, "the lab has no controllers and arrays: bring one up with --pairs");
    }
    let (named, deeds) = match kind {
        Kind::Controller | Kind::PowerOff => {
            let host = controller(target, pairs)?.to_string();
            (host.clone(), vec![Deed::Off { host }])
        }
        Kind::Power => {
            let node = node(target, pairs)?;
            (node.to_string(), node.controllers().map(|c| Deed::Off { host: c.to_string() }).to_vec())
        }
        Kind::Nic => {
            let host = controller(target, pairs)?.to_string();
            (host.clone(), [PUBLIC, PRIVATE].map(|link| cut(&host, link)).to_vec())
        }
        Kind::Link => {
            let node = node(target, pairs)?;
            (node.to_string(), vec![cut(&node.controllers()[0].to_string(), PRIVATE)])
        }
        Kind::Freeze => {
            let host = controller(target, pairs)?.to_string();
            (host.clone(), vec![Deed::Frozen { host, processes: Vec::new() }])
        }
        Kind::Osd => {
            let id = osd(target, state)?;
            let daemon = format!("osd.{id}");
            (daemon.clone(), vec![Deed::Killed { daemon }])
        }
        Kind::Mon => {
            let daemon = mon(target, state)?;
            (daemon.clone(), vec![Deed::Killed { daemon }])
        }
        Kind::Daemon => {
            ensure!(
                state.config.has_daemons(),
                "the lab has no volumes: bring one up with --volumes, or with --cache"
            );
            let daemon = controller(target.trim_start_matches("loligod."), pairs)?.daemon_name();
            (daemon.clone(), vec![Deed::Killed { daemon }])
        }
        Kind::Disk => disk(target, state)?,
        Kind::ArrayCycle => {
            let node = node(target, pairs)?;
            (node.to_string(), vec![Deed::Dark { node: node.0 }])
        }
    };
    Ok((named, deeds))
}

/// # Errors
/// If there is no such controller.
pub(crate) fn controller(target: &str, pairs: u32) -> Result<Controller> {
    ensure!(pairs > 0, "the lab has no controllers: bring one up with --pairs");
    match Controller::named(target, pairs) {
        Some(controller) => Ok(controller),
        None => bail!("the lab has no controller '{target}' (it has: {})", list(Controller::all(pairs))),
    }
}

fn node(target: &str, pairs: u32) -> Result<Node> {
    match Node::all(pairs).find(|node| node.to_string() == target) {
        Some(node) => Ok(node),
        None => bail!("the lab has no node '{target}' (it has: {})", list(Node::all(pairs))),
    }
}

fn osd(target: &str, state: &State) -> Result<u32> {
    let ids = || state.osds.iter().map(|(id, _)| *id);
    let is_it = |id: &u32| [id.to_string(), osd_lun(*id), format!("osd.{id}")].contains(&target.to_owned());
    match ids().find(is_it) {
        Some(id) => Ok(id),
        None => bail!("the lab has no OSD '{target}' (it has: {})", list(ids())),
    }
}

fn mon(target: &str, state: &State) -> Result<String> {
    let is_it = |name: &String| name == target || name.trim_start_matches("mon.") == target;
    match state.mons.iter().map(crate::monitor::Monitor::name).find(is_it) {
        Some(name) => Ok(name),
        None => bail!(
            "the lab has no monitor '{target}' (it has: {})",
            list(state.mons.iter().map(|mon| &mon.id))
        ),
    }
}

fn disk(target: &str, state: &State) -> Result<(String, Vec<Deed>)> {
    let pairs = state.config.pairs;
    let errors = |node: Node, lun: String| Deed::Errors { node: node.0, lun };
    if let Some(node) = Node::all(pairs).find(|node| node.to_string() == target) {
        return Ok((
            target.to_owned(),
            node.luns(&state.config).into_iter().map(|lun| errors(node, lun)).collect(),
        ));
    }
    if let Some(home) =
        Controller::all(pairs).find(|c| state.config.volumes.is_some() && c.volume() == target)
    {
        return Ok((target.to_owned(), vec![errors(home.node, home.volume())]));
    }
    let caches = || state.osds.iter().filter(|_| state.config.cache.is_some()).map(|(id, _)| *id);
    if let Some(id) = caches().find(|id| cache_lun(*id) == target) {
        return Ok((target.to_owned(), vec![errors(Controller::home(id).node, cache_lun(id))]));
    }
    match osd(target, state) {
        Ok(id) => Ok((osd_lun(id), vec![errors(Controller::home(id).node, osd_lun(id))])),
        Err(_) => bail!(
            "the lab has no disk '{target}' (it has: {}; a node stands for all of its disks: {})",
            list(state.osds.iter().map(|(id, _)| osd_lun(*id))),
            list(Node::all(pairs))
        ),
    }
}

fn list(all: impl Iterator<Item = impl fmt::Display>) -> String {
    all.map(|one| one.to_string()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::LabConfig;
    use crate::monitor::Monitor;

    fn lab(pairs: u32) -> State {
        let mut state = State::new(LabConfig { pairs, ..LabConfig::default() }, "f".into(), "a".into());
        state.osds = (0..pairs * 2).map(|id| (id, String::new())).collect();
        state.mons = ["a", "b"]
            .map(|id| Monitor { id: id.into(), address: String::new(), ports: [0, 0], host: None })
            .into();
        state
    }

    #[test]
    fn a_target_that_is_not_there_is_refused_with_those_that_are() {
        for (kind, target, has) in [
            (Kind::Controller, "n2a", "n0a, n0b, n1a, n1b"),
            (Kind::Freeze, "n0", "n0a, n0b"),
            (Kind::Power, "n0a", "n0, n1"),
            (Kind::Link, "n9", "n0, n1"),
            (Kind::Osd, "4", "0, 1, 2, 3"),
            (Kind::Disk, "osd7", "osd0, osd1, osd2, osd3; a node"),
            (Kind::Mon, "c", "a, b"),
        ] {
            let why = deeds(&lab(2), kind, target).unwrap_err().to_string();
            assert!(why.contains(has), "{kind} {target}: {why}");
        }
        let why = deeds(&lab(0), Kind::Nic, "n0a").unwrap_err().to_string();
        assert!(why.contains("--pairs"), "{why}");
    }

    #[test]
    fn a_fault_is_made_of_deeds_to_the_named_alone() {
        let of = |kind, target| {
            let (named, deeds) = deeds(&lab(2), kind, target).unwrap();
            (named, deeds.iter().map(Deed::object).collect::<Vec<_>>())
        };
        let all = |named: &str, objects: &[&str]| {
            (named.to_owned(), objects.iter().map(|o| (*o).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(of(Kind::Power, "n1"), all("n1", &["n1a", "n1b"]));
        assert_eq!(of(Kind::Nic, "n1b"), all("n1b", &["n1b", "n1b"]));
        assert_eq!(of(Kind::Disk, "n1"), all("n1", &["quorum", "osd2", "osd3"]));
        assert_eq!(of(Kind::Disk, "osd3"), all("osd3", &["osd3"]));
        assert_eq!(of(Kind::Osd, "3"), all("osd.3", &["osd.3"]));
        assert_eq!(of(Kind::Mon, "b"), all("mon.b", &["mon.b"]));
    }
}
