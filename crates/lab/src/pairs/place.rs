//! Nodes of two controllers: their names, and the places of what belongs to them.

use crate::config::LabConfig;
use crate::layout::Layout;
pub use crate::pairs::side::Side;
use std::fmt;
use std::path::PathBuf;

/// The small LUN on which the two controllers of a node race.
pub const QUORUM: &str = "quorum";
/// The end of the names of mirrors, and of the arrays that they lie on.
const MIRROR: &str = "-mirror";

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

    /// Its arrays: the one with the quorum LUN, and that of the mirrors if the lab has any.
    pub fn arrays(self, config: &LabConfig) -> impl Iterator<Item = NodeArray> {
        std::iter::once(self.array()).chain(Some(self.mirrors()).filter(|_| config.mirror))
    }

    /// The array of the mirrors, if the lab has any.
    pub fn mirrors(self) -> NodeArray {
        NodeArray { node: self, has_mirrors: true }
    }

    /// The array with the quorum LUN, and everything but mirrors.
    pub fn array(self) -> NodeArray {
        NodeArray { node: self, has_mirrors: false }
    }

    /// The folder of its arrays.
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
}

/// An array of a node. Each is a process, so that one can be lost alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeArray {
    /// The node, whose controllers both reach it.
    pub node: Node,
    /// It has the mirrors of volumes' caches, and nothing else.
    pub has_mirrors: bool,
}

impl fmt::Display for NodeArray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.node, if self.has_mirrors { MIRROR } else { "" })
    }
}

impl NodeArray {
    /// The arrays of a lab.
    pub fn all(config: &LabConfig) -> impl Iterator<Item = NodeArray> {
        Node::all(config.pairs).flat_map(|node| node.arrays(config))
    }

    /// The array of this name.
    pub fn named(name: &str, config: &LabConfig) -> Option<NodeArray> {
        NodeArray::all(config).find(|array| array.to_string() == name)
    }

    /// The array of a node that a LUN is on.
    fn of(node: Node, lun: &str) -> NodeArray {
        NodeArray { node, has_mirrors: lun.ends_with(MIRROR) }
    }

    /// The names of its LUNs.
    pub fn luns(self, config: &LabConfig) -> Vec<String> {
        if self.has_mirrors {
            let homes = self.node.controllers().into_iter().filter(|home| home.is_mirrored(config));
            return homes.map(Controller::mirror).collect();
        }
        let osds = self.node.osds().map(osd_lun);
        let caches = self.node.osds().map(cache_lun).into_iter().filter(|_| config.cache.is_some());
        let volumes = self.node.controllers().map(Controller::volume).into_iter();
        let volumes = volumes.filter(|_| config.volumes.is_some());
        std::iter::once(QUORUM.to_owned()).chain(osds).chain(caches).chain(volumes).collect()
    }

    /// The path of a controller of the node to it, a mountpoint.
    pub fn path(self, at: &Layout, side: Side) -> PathBuf {
        let dir = self.node.dir(at);
        if self.has_mirrors { dir.join("mirror").join(side.name()) } else { dir.join(side.name()) }
    }

    /// The name of its process.
    pub fn process(self) -> String {
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

    /// True if its volume's cache has a mirror.
    pub fn is_mirrored(self, config: &LabConfig) -> bool {
        config.mirror && config.mirror_only.is_none_or(|side| side == self.side)
    }

    /// The LUN of the mirror of its volume's cache.
    pub fn mirror(self) -> String {
        format!("{}{MIRROR}", self.volume())
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

    /// A LUN by its path to the array.
    pub fn lun(self, at: &Layout, lun: &str) -> PathBuf {
        NodeArray::of(self.node, lun).path(at, self.side).join(lun)
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

    #[test]
    fn a_lun_is_found_on_the_array_that_has_it() {
        let config = LabConfig { pairs: 2, volumes: Some("1g".into()), mirror: true, ..LabConfig::default() };
        let names: Vec<String> = NodeArray::all(&config).map(|array| array.to_string()).collect();
        assert_eq!(names, ["n0", "n0-mirror", "n1", "n1-mirror"]);
        let at = Layout::at(std::path::Path::new("/lab")).unwrap();
        for array in NodeArray::all(&config) {
            assert_eq!(NodeArray::named(&array.to_string(), &config), Some(array));
            for lun in array.luns(&config) {
                let controller = array.node.controllers()[1];
                assert_eq!(controller.lun(&at, &lun), array.path(&at, Side::B).join(&lun));
            }
        }
        let plain = LabConfig { mirror: false, ..config };
        assert_eq!(NodeArray::all(&plain).count(), 2);
    }
}
