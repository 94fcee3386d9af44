//! Kinds of faults, and the deeds that each consists of.

use crate::namespaces::{PRIVATE, PUBLIC};
use crate::pairs::place::{Controller, Node, NodeArray, QUORUM, osd_lun};
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
    /// The processes of a controller stand still, or an array does.
    Freeze,
    /// A daemon of an OSD is killed.
    Osd,
    /// A monitor is killed.
    Mon,
    /// The daemon of a controller's volumes is killed.
    Daemon,
    /// A LUN, or all of an array, answer with errors on both paths.
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
    /// Processes of a controller stand still, or that of an array.
    Frozen {
        /// Its name; of an array, that of its process.
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
    /// An array of a node is without power.
    Dark {
        /// The node's number.
        node: u32,
        /// It is the one with the mirrors.
        #[serde(default)]
        mirror: bool,
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
            Deed::Dark { node, mirror } => dark(*node, *mirror).to_string(),
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
            let host = match NodeArray::named(target, &state.config) {
                Some(array) => array.process(),
                None => controller(target, pairs)?.to_string(),
            };
            (target.to_owned(), vec![Deed::Frozen { host, processes: Vec::new() }])
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
            let array = array(target, state)?;
            (array.to_string(), vec![Deed::Dark { node: array.node.0, mirror: array.has_mirrors }])
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

fn array(target: &str, state: &State) -> Result<NodeArray> {
    match NodeArray::named(target, &state.config) {
        Some(array) => Ok(array),
        None => {
            bail!("the lab has no array '{target}' (it has: {})", list(NodeArray::all(&state.config)))
        }
    }
}

/// The array that is without power.
pub(crate) fn dark(node: u32, has_mirrors: bool) -> NodeArray {
    NodeArray { node: Node(node), has_mirrors }
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
    let errors = |node: Node, lun: String| Deed::Errors { node: node.0, lun };
    let arrays = || NodeArray::all(&state.config);
    let luns = |array: NodeArray| array.luns(&state.config).into_iter();
    if let Some(array) = NodeArray::named(target, &state.config) {
        return Ok((target.to_owned(), luns(array).map(|lun| errors(array.node, lun)).collect()));
    }
    if let Some(array) = arrays().find(|array| luns(*array).any(|lun| lun == target && lun != QUORUM)) {
        return Ok((target.to_owned(), vec![errors(array.node, target.to_owned())]));
    }
    match osd(target, state) {
        Ok(id) => Ok((osd_lun(id), vec![errors(Controller::home(id).node, osd_lun(id))])),
        Err(_) => bail!(
            "the lab has no disk '{target}' (it has: {}; an array stands for all of its disks: {})",
            list(arrays().flat_map(luns).filter(|lun| lun != QUORUM)),
            list(arrays())
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
            (Kind::Freeze, "n2", "n0a, n0b"),
            (Kind::ArrayCycle, "n0-mirror", "(it has: n0, n1)"),
            (Kind::Power, "n0a", "n0, n1"),
            (Kind::Link, "n9", "n0, n1"),
            (Kind::Osd, "4", "0, 1, 2, 3"),
            (Kind::Disk, "osd7", "osd0, osd1, osd2, osd3; an array"),
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

    #[test]
    fn an_array_of_mirrors_fails_alone() {
        let mut state = lab(1);
        (state.config.volumes, state.config.mirror) = (Some("1g".into()), true);
        let of = |kind, target| {
            let (named, deeds) = deeds(&state, kind, target).unwrap();
            (named, deeds.iter().map(Deed::object).collect::<Vec<_>>().join(" "))
        };
        let all = |named: &str, objects: &str| (named.to_owned(), objects.to_owned());
        assert_eq!(of(Kind::Disk, "n0"), all("n0", "quorum osd0 osd1 vol-n0a vol-n0b"));
        assert_eq!(of(Kind::Disk, "n0-mirror"), all("n0-mirror", "vol-n0a-mirror vol-n0b-mirror"));
        assert_eq!(of(Kind::Disk, "vol-n0b-mirror"), all("vol-n0b-mirror", "vol-n0b-mirror"));
        assert_eq!(of(Kind::ArrayCycle, "n0-mirror"), all("n0-mirror", "n0-mirror"));
        assert_eq!(of(Kind::Freeze, "n0-mirror"), all("n0-mirror", "array.n0-mirror"));
    }
}
