//! Nodes of two controllers: their names, and the places of what belongs to them.

use crate::config::LabConfig;
use crate::layout::Layout;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;

/// The small LUN on which the two controllers of a node race.
pub const QUORUM: &str = "quorum";

/// One of the two controllers of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// The first.
    A,
    /// The second.
    B,
}

impl Side {
    /// Both.
    pub const BOTH: [Side; 2] = [Side::A, Side::B];

    /// `a` or `b`.
    pub fn name(self) -> &'static str {
        match self {
            Side::A => "a",
            Side::B => "b",
        }
    }
}

/// A node: two controllers that share an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Node(pub u32);

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "n{}", self.0)
    }
}

impl Node {
    /// The nodes of a lab with so many pairs.
    pub fn all(pairs: u32) -> impl Iterator<Item = Node> {
        (0..pairs).map(Node)
    }

    /// Its controllers.
    pub fn controllers(self) -> [Controller; 2] {
        Side::BOTH.map(|side| Controller { node: self, side })
    }

    /// The numbers of its OSDs, the first controller's and the second's.
    pub fn osds(self) -> [u32; 2] {
        [self.0 * 2, self.0 * 2 + 1]
    }

    /// The names of the LUNs of its array, with those of caches and volumes if the lab has any.
    pub fn luns(self, config: &LabConfig) -> Vec<String> {
        let osds = self.osds().map(osd_lun);
        let caches = self.osds().map(cache_lun).into_iter().filter(|_| config.cache.is_some());
        let volumes =
            self.controllers().map(Controller::volume).into_iter().filter(|_| config.volumes.is_some());
        let mirrors = self.controllers().map(Controller::mirror).into_iter().filter(|_| config.mirror);
        let all = std::iter::once(QUORUM.to_owned()).chain(osds).chain(caches);
        all.chain(volumes).chain(mirrors).collect()
    }

    /// The folder of its array.
    pub fn dir(self, at: &Layout) -> PathBuf {
        at.dir().join(self.to_string())
    }

    /// The file with the bytes of a LUN.
    pub fn backing(self, at: &Layout, lun: &str) -> PathBuf {
        self.dir(at).join(format!("{lun}.lun"))
    }

    /// The description that both agents of the node read.
    pub fn pair_file(self, at: &Layout) -> PathBuf {
        self.dir(at).join("pair.toml")
    }

    /// The name of the process that serves its array.
    pub fn array_name(self) -> String {
        format!("array.{self}")
    }
}

/// The LUN of an OSD.
pub fn osd_lun(id: u32) -> String {
    format!("osd{id}")
}

/// The LUN of the cache in front of an OSD.
pub fn cache_lun(id: u32) -> String {
    format!("cache{id}")
}

/// A controller, `n0a`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Controller {
    /// Its node.
    pub node: Node,
    /// The one of the two.
    pub side: Side,
}

impl fmt::Display for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.node, self.side.name())
    }
}

impl Controller {
    /// The controllers of a lab with so many pairs.
    pub fn all(pairs: u32) -> impl Iterator<Item = Controller> {
        Node::all(pairs).flat_map(Node::controllers)
    }

    /// The controller of this name, in a lab with so many pairs.
    pub fn named(name: &str, pairs: u32) -> Option<Controller> {
        Controller::all(pairs).find(|c| c.to_string() == name)
    }

    /// The controller that an OSD is at home on.
    pub fn home(osd: u32) -> Controller {
        let side = if osd.is_multiple_of(2) { Side::A } else { Side::B };
        Controller { node: Node(osd / 2), side }
    }

    /// The OSD that is at home here.
    pub fn osd(self) -> u32 {
        self.node.osds()[self.side as usize]
    }

    /// The volume that is at home here; its LUN and its image are named so too.
    pub fn volume(self) -> String {
        format!("vol-{self}")
    }

    /// The LUN of the mirror of its volume's cache.
    pub fn mirror(self) -> String {
        format!("{}-mirror", self.volume())
    }

    /// Its number in the lab, from 0.
    pub fn number(self) -> u32 {
        self.node.0 * 2 + self.side as u32
    }

    /// Its folder: OSD folders, sockets, state of its agent.
    pub fn dir(self, at: &Layout) -> PathBuf {
        at.dir().join(self.to_string())
    }

    /// Its sockets.
    pub fn run(self, at: &Layout) -> PathBuf {
        self.dir(at).join("run")
    }

    /// The state of its daemons.
    pub fn state(self, at: &Layout) -> PathBuf {
        self.dir(at).join("state")
    }

    /// Its folder for an OSD of the node.
    pub fn osd_dir(self, at: &Layout, osd: u32) -> PathBuf {
        self.dir(at).join(format!("osd.{osd}"))
    }

    /// The mountpoint of the volume that an OSD behind a cache stands on.
    pub fn osd_mount(self, at: &Layout, osd: u32) -> PathBuf {
        self.osd_dir(at, osd).join("volume")
    }

    /// The data of an OSD: its LUN, or the volume with a cache in front of that.
    pub fn osd_data(self, at: &Layout, config: &LabConfig, osd: u32) -> PathBuf {
        match config.cache {
            Some(_) => self.osd_mount(at, osd).join(osd_lun(osd)),
            None => self.lun(at, &osd_lun(osd)),
        }
    }

    /// Its path to the array, a mountpoint.
    pub fn path(self, at: &Layout) -> PathBuf {
        self.node.dir(at).join(self.side.name())
    }

    /// A LUN by its path.
    pub fn lun(self, at: &Layout, lun: &str) -> PathBuf {
        self.path(at).join(lun)
    }

    /// The name of the process of its daemon.
    pub fn daemon_name(self) -> String {
        format!("loligod.{self}")
    }

    /// The name of the process of its agent.
    pub fn agent_name(self) -> String {
        format!("agent.{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_controller_is_found_by_its_name_and_by_its_osd() {
        for controller in Controller::all(12) {
            assert_eq!(Controller::named(&controller.to_string(), 12), Some(controller));
            assert_eq!(Controller::home(controller.osd()), controller);
            assert_eq!(controller.number(), controller.osd());
        }
        assert_eq!(Controller::named("n12a", 12), None);
    }
}
