//! The description of a pair, `pair.toml`, which the agents of both controllers read.

use super::daemons;
use super::place::{Controller, Node, QUORUM, cache_lun, osd_lun};
use crate::layout::Layout;
use crate::namespaces;
use crate::state::State;
use anyhow::{Context, Result};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The port of heartbeats.
const PORT: u16 = 7700;

#[derive(Debug, Serialize)]
struct Description {
    pair: String,
    /// Authenticates heartbeats.
    secret: String,
    ceph: Cluster,
    controller: BTreeMap<&'static str, Member>,
    osd: Vec<Osd>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    volume: Vec<Volume>,
}

#[derive(Debug, Serialize)]
struct Cluster {
    conf: PathBuf,
    name: &'static str,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Member {
    host: String,
    key: String,
    links: [String; 2],
    quorum: PathBuf,
    run: PathBuf,
    daemon: PathBuf,
    power_off: Vec<String>,
    power_status: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Osd {
    id: u32,
    home: &'static str,
    uuid: String,
    device: BTreeMap<&'static str, PathBuf>,
    dir: BTreeMap<&'static str, PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache: Option<OsdCache>,
}

#[derive(Debug, Serialize)]
struct OsdCache {
    id: u32,
    device: BTreeMap<&'static str, PathBuf>,
    definition: CacheDefinition,
}

#[derive(Debug, Serialize)]
struct CacheDefinition {
    mode: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    profile: Option<String>,
    params: BTreeMap<String, String>,
}

#[derive(Debug, Serialize)]
struct Volume {
    id: u32,
    name: String,
    home: &'static str,
    cache: BTreeMap<&'static str, PathBuf>,
    #[serde(rename = "journal-mirror", skip_serializing_if = "Option::is_none")]
    journal_mirror: Option<BTreeMap<&'static str, PathBuf>>,
    address: String,
    interface: BTreeMap<&'static str, &'static str>,
    definition: Definition,
}

#[derive(Debug, Serialize)]
struct Definition {
    core: String,
    mode: &'static str,
    listen: [String; 1],
}

/// Writes the description of a node's pair: `program` is this program. It holds a secret, and is for its owner alone.
///
/// # Errors
/// If the kernel gives no random bytes, or the file cannot be written.
pub(crate) fn write(at: &Layout, state: &State, program: &Path, node: Node) -> Result<()> {
    let mut random = [0; 40];
    File::open("/dev/urandom")
        .and_then(|mut f| f.read_exact(&mut random))
        .context("the kernel's random bytes")?;
    let (secret, upper) = random.split_at(32);
    let upper = upper.iter().fold(0u64, |all, byte| all << 8 | u64::from(*byte));
    let members = node.controllers().map(|c| (c.side.name(), member(at, state, program, c, upper)));
    let osds = node.osds().map(|id| osd(at, state, node, id));
    let homes = node.controllers().into_iter().filter(|_| state.config.volumes.is_some());
    let volumes = homes.map(|home| volume(at, state, home)).collect();
    let all = Description {
        pair: node.to_string(),
        secret: secret.iter().map(|byte| format!("{byte:02x}")).collect(),
        ceph: Cluster { conf: at.conf(), name: "client.admin" },
        controller: members.into(),
        osd: osds.into(),
        volume: volumes,
    };
    let text = toml::to_string(&all).context("the description of a pair")?;
    let path = node.pair_file(at);
    let write = || -> std::io::Result<()> {
        fs::create_dir_all(node.dir(at))?;
        let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    write().with_context(|| format!("writing {}", path.display()))
}

fn member(at: &Layout, state: &State, program: &Path, controller: Controller, upper: u64) -> Member {
    let public = namespaces::address(&state.address, namespaces::controller_number(controller));
    let private = namespaces::private_address(controller);
    let power = |what: &str| {
        let words = ["lab", "power", what, &controller.to_string(), "--dir"].map(str::to_owned);
        let ends = [program, at.dir()].map(|path| path.display().to_string());
        let [program, dir] = ends;
        std::iter::once(program).chain(words).chain([dir]).collect()
    };
    Member {
        host: controller.to_string(),
        key: key(controller, upper),
        links: [public, private].map(|address| format!("{address}:{PORT}")),
        quorum: controller.lun(at, QUORUM),
        run: controller.run(at),
        daemon: controller.run(at),
        power_off: power("off"),
        power_status: power("status"),
    }
}

/// The reservation key of a controller: a random upper part, and never 0. The lower part names the controller for people.
fn key(controller: Controller, upper: u64) -> String {
    let low = (u64::from(controller.node.0) << 8) | (0xa + controller.side as u64);
    format!("{:#018x}", upper << 32 | low)
}

fn osd(at: &Layout, state: &State, node: Node, id: u32) -> Osd {
    let home = Controller::home(id);
    let uuid = state.osds.iter().find(|(osd, _)| *osd == id).map(|(_, uuid)| uuid.clone());
    let of =
        |path: &dyn Fn(Controller) -> PathBuf| node.controllers().map(|c| (c.side.name(), path(c))).into();
    Osd {
        id,
        home: home.side.name(),
        uuid: uuid.unwrap_or_default(),
        device: of(&|c| c.lun(at, &osd_lun(id))),
        dir: of(&|c| c.osd_dir(at, id)),
        cache: state.config.cache.as_ref().map(|_| OsdCache {
            // Beside the volumes, which have 0 and 1.
            id: 2 + home.side as u32,
            device: of(&|c| c.lun(at, &cache_lun(id))),
            definition: CacheDefinition {
                mode: state.config.cache_mode.clone(),
                profile: state.config.profile().map(str::to_owned),
                params: state.config.cache_set.clone(),
            },
        }),
    }
}

fn volume(at: &Layout, state: &State, home: Controller) -> Volume {
    let name = home.volume();
    let sides = home.node.controllers();
    Volume {
        id: home.side as u32,
        home: home.side.name(),
        cache: sides.map(|c| (c.side.name(), c.lun(at, &name))).into(),
        journal_mirror: home
            .is_mirrored(&state.config)
            .then(|| sides.map(|c| (c.side.name(), c.lun(at, &home.mirror()))).into()),
        address: format!("{}/24", daemons::address(state, home)),
        interface: sides.map(|c| (c.side.name(), namespaces::PUBLIC)).into(),
        definition: Definition {
            core: format!("rbd:{}/{name}?conf={}&id=admin", state.config.volume_pool(), at.conf().display()),
            mode: "wb",
            listen: [format!("tcp:{}?when-told&cleartext", daemons::socket(state, home))],
        },
        name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::LabConfig;
    use crate::pairs::place::Side;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn both_controllers_are_described_and_the_secret_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let at = Layout::at(dir.path()).unwrap();
        let config = LabConfig { pairs: 2, volumes: Some("1g".into()), ..LabConfig::default() };
        let mut state = State::new(config, "f".into(), "10.219.7.1".into());
        state.osds = (0..4).map(|id| (id, format!("uuid-{id}"))).collect();
        write(&at, &state, Path::new("/bin/loligo"), Node(1)).unwrap();
        let path = Node(1).pair_file(&at);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let all: toml::Value = toml::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        let [a, b] = ["a", "b"].map(|side| &all["controller"][side]);
        assert_eq!((a["host"].as_str(), b["host"].as_str()), (Some("n1a"), Some("n1b")));
        let links = |of: &toml::Value| {
            of["links"].as_array().unwrap().iter().map(|l| l.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(links(a), ["\"10.219.7.12:7700\"", "\"10.218.1.1:7700\""]);
        assert_eq!(links(b), ["\"10.219.7.13:7700\"", "\"10.218.1.2:7700\""]);
        assert_ne!(a["key"], b["key"]);
        assert_eq!(all["secret"].as_str().map(str::len), Some(64));
        assert_eq!(all["osd"][0]["home"].as_str(), Some("a"));
        assert_eq!(all["osd"][1]["uuid"].as_str(), Some("uuid-3"));
        let volume = &all["volume"][1];
        assert_eq!((volume["name"].as_str(), volume["home"].as_str()), (Some("vol-n1b"), Some("b")));
        assert_eq!(volume["address"].as_str(), Some("10.219.7.133/24"));
        let listen = volume["definition"]["listen"][0].as_str();
        assert_eq!(listen, Some("tcp:10.219.7.133:10809?when-told&cleartext"));
        assert!(volume.get("journal-mirror").is_none());
        let off = &a["power-off"];
        assert_eq!(off[0].as_str(), Some("/bin/loligo"));
        assert_eq!(off[4].as_str(), Some("n1a"));
    }

    #[test]
    fn a_mirror_is_reached_from_both_controllers() {
        let dir = tempfile::tempdir().unwrap();
        let at = Layout::at(dir.path()).unwrap();
        let (volumes, mirror_only) = (Some("1g".into()), Some(Side::B));
        let config = LabConfig { pairs: 1, volumes, mirror: true, mirror_only, ..LabConfig::default() };
        let state = State::new(config, "f".into(), "10.219.7.1".into());
        let [plain, mirrored] = Node(0).controllers().map(|home| volume(&at, &state, home).journal_mirror);
        assert_eq!(plain, None);
        let paths = mirrored.unwrap();
        assert_eq!(paths["a"], at.dir().join("n0/mirror/a/vol-n0b-mirror"));
        assert_eq!(paths["b"], at.dir().join("n0/mirror/b/vol-n0b-mirror"));
    }

    #[test]
    fn a_key_is_never_zero_and_tells_the_two_apart() {
        let [a, b] = Node(0).controllers().map(|c| key(c, 0));
        assert_eq!((a.as_str(), b.as_str()), ("0x000000000000000a", "0x000000000000000b"));
    }
}
