//! The units of a pair's file: OSDs and volumes, with the LUNs that move with them.

use anyhow::{Context, Result, ensure};
use loligo_client::api::definition::VolumeConfig;
use loligo_client::names;
use loligo_pair::plan::Side;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

/// Volumes that the quorum LUN has places for.
pub const VOLUMES: u32 = 64;

/// A path on each controller.
pub type Paths = BTreeMap<Side, PathBuf>;

/// One OSD.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct OsdConfig {
    /// Its number.
    pub id: u32,
    /// The controller that runs it in normal times.
    pub home: Side,
    /// The id of its store.
    pub uuid: String,
    /// The path to its LUN, from each controller.
    pub device: Paths,
    /// Its folder, on each controller.
    pub dir: Paths,
    /// The path to the LUN of its database, from each controller, if that is not with the data.
    #[serde(default)]
    pub db: Option<Paths>,
    /// The cache in front of `device`, if there is one.
    #[serde(default)]
    pub cache: Option<OsdCache>,
}

/// A cache of Loligo's in front of an OSD's data.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct OsdCache {
    /// The volume's place on the quorum LUN, below [`VOLUMES`]: no other volume of the pair has it.
    pub id: u32,
    /// The path to its LUN, from each controller. Acknowledged writes lie there.
    pub device: Paths,
    /// The rest of the volume's definition, with the keys of `loligod.toml`.
    #[serde(default)]
    pub definition: toml::Table,
}

impl OsdConfig {
    /// Its LUNs, each with its use and the path from each controller.
    pub(super) fn luns(&self) -> Vec<(&'static str, &Paths)> {
        let db = self.db.iter().map(|db| ("database", db));
        let cache = self.cache.iter().map(|cache| ("cache", &cache.device));
        std::iter::once(("data", &self.device)).chain(db).chain(cache).collect()
    }

    /// Its name, as that of the unit.
    pub fn name(&self) -> String {
        format!("osd.{}", self.id)
    }

    /// The folder that its volume is mounted on, on `side`.
    pub fn mount(&self, side: Side) -> PathBuf {
        self.dir[&side].join("volume")
    }

    /// The volume that it stands on, as `osd prepare` names it; nothing: it has no cache.
    pub fn volume(&self) -> Option<VolumeUnit> {
        let cache = self.cache.as_ref()?;
        let mut definition = cache.definition.clone();
        definition.entry("mode").or_insert_with(|| toml::Value::String("wb".to_owned()));
        Some(VolumeUnit {
            id: cache.id,
            name: format!("osd{}", self.id),
            home: self.home,
            cache: cache.device.clone(),
            core: Some(self.device.clone()),
            journal_mirror: None,
            address: None,
            interface: BTreeMap::new(),
            definition,
            mount: Some(Side::BOTH.map(|side| (side, self.mount(side))).into()),
        })
    }

    pub(super) fn check(&self) -> Result<()> {
        let has_dirs = Side::BOTH.iter().all(|side| self.dir.contains_key(side));
        ensure!(has_dirs, "osd.{} needs a folder on a and on b: add it to [osd.dir]", self.id);
        Ok(())
    }
}

/// One volume of the controllers' daemons.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct VolumeUnit {
    /// Its place on the quorum LUN, below [`VOLUMES`].
    pub id: u32,
    /// Its name.
    pub name: String,
    /// The controller that serves it in normal times.
    pub home: Side,
    /// The path to the LUN of its cache, from each controller. Acknowledged writes lie there.
    pub cache: Paths,
    /// The path to the LUN of its cache's mirror, on the other array.
    #[serde(default)]
    pub journal_mirror: Option<Paths>,
    /// The path to the LUN of its core, if that is no image.
    #[serde(default)]
    pub core: Option<Paths>,
    /// The address that clients know, with the length of its network's prefix, as `192.0.2.50/24`. It moves with the volume.
    #[serde(default)]
    pub address: Option<String>,
    /// The network interface that has the address, on each controller.
    #[serde(default)]
    pub interface: BTreeMap<Side, String>,
    /// The rest of the volume's definition, with the keys of `loligod.toml`.
    pub definition: toml::Table,
    /// The folder that it is mounted on, on each controller: an OSD stands on it, and nobody else comes.
    #[serde(skip)]
    pub mount: Option<Paths>,
}

impl VolumeUnit {
    /// Its LUNs, each with its use and the path from each controller.
    pub(super) fn luns(&self) -> Vec<(&'static str, &Paths)> {
        let mirror = self.journal_mirror.iter().map(|mirror| ("mirror", mirror));
        let core = self.core.iter().map(|core| ("core", core));
        std::iter::once(("cache", &self.cache)).chain(mirror).chain(core).collect()
    }

    /// The definition that the daemon of `side` is given; its controller has this key.
    ///
    /// # Errors
    /// If the keys make no sense together.
    pub fn of_side(&self, side: Side, key: &str) -> Result<VolumeConfig> {
        let mut table = self.definition.clone();
        for own in ["cache", "journal-mirror", "reservation"] {
            ensure!(
                !table.contains_key(own),
                "the definition of volume {} has '{own}', which differs from side to side: leave it out there",
                self.name
            );
        }
        let text = |path: &Path| toml::Value::String(path.display().to_string());
        table.insert("cache".to_owned(), text(path_of(&self.cache, side, &self.name)?));
        if let Some(mirror) = &self.journal_mirror {
            table.insert("journal-mirror".to_owned(), text(path_of(mirror, side, &self.name)?));
        }
        if let Some(core) = &self.core {
            ensure!(!table.contains_key("core"), "volume {} has a core twice: leave one out", self.name);
            table.insert("core".to_owned(), text(path_of(core, side, &self.name)?));
        }
        if let Some(mount) = &self.mount {
            ensure!(
                !table.contains_key("listen"),
                "{} is reached by its OSD alone: leave 'listen' out",
                self.name
            );
            let way = format!("fuse:{}", path_of(mount, side, &self.name)?.display());
            table.insert("listen".to_owned(), toml::Value::Array(vec![toml::Value::String(way)]));
        }
        table.insert("reservation".to_owned(), toml::Value::String(key.to_owned()));
        table.try_into().with_context(|| format!("the definition of volume {} makes no sense", self.name))
    }

    /// The floating address and the length of its network's prefix, if it has one.
    ///
    /// # Errors
    /// If it is none.
    pub fn floating(&self) -> Result<Option<(Ipv4Addr, u8)>> {
        let Some(text) = &self.address else { return Ok(None) };
        let parse = || {
            let (address, prefix) = text.split_once('/')?;
            Some((address.parse().ok()?, prefix.parse().ok().filter(|bits| *bits <= 32)?))
        };
        let of = &self.name;
        parse()
            .with_context(|| {
                format!("'{text}' is no address for volume {of}: write an IPv4 address with its prefix, as 192.0.2.50/24")
            })
            .map(Some)
    }

    /// The TCP sockets at which it greets clients.
    pub fn sockets(&self) -> Vec<SocketAddr> {
        let all = self.definition.get("listen").and_then(toml::Value::as_array).into_iter().flatten();
        let socket = |listen: &toml::Value| {
            let rest = listen.as_str()?.strip_prefix("tcp:")?;
            rest.split('?').next()?.parse().ok()
        };
        all.filter_map(socket).collect()
    }

    pub(super) fn check(&self, sides: &BTreeMap<Side, String>) -> Result<()> {
        names::check_name(&self.name)?;
        ensure!(self.id < VOLUMES, "volume {} has the id {}: it must be below {VOLUMES}", self.name, self.id);
        for (side, key) in sides {
            let definition = self.of_side(*side, key)?;
            ensure!(
                self.core.is_some() || definition.core.starts_with("rbd:"),
                "the core of volume {} is no image, and its partner cannot know its path: give it in [volume.core] for a and b",
                self.name
            );
            if self.floating()?.is_some() {
                ensure!(
                    self.interface.contains_key(side),
                    "volume {} has an address and no interface for {side}: add it to [volume.interface]",
                    self.name
                );
                self.check_listeners(&definition)?;
            }
        }
        Ok(())
    }

    /// A socket at an address that comes later must wait until it is told.
    fn check_listeners(&self, definition: &VolumeConfig) -> Result<()> {
        let Some((address, _)) = self.floating()? else { return Ok(()) };
        let at = format!("tcp:{address}:");
        let mut those = definition.listen.iter().filter(|listen| listen.starts_with(&at)).peekable();
        ensure!(
            those.peek().is_some(),
            "volume {} listens nowhere at its address {address}: add \"{at}10809?when-told\" to 'listen'",
            self.name
        );
        match those.find(|listen| !listen.contains("when-told")) {
            Some(listen) => anyhow::bail!(
                "volume {} listens at '{listen}' before its address is there: give it the option when-told, as in \
                 {at}10809?when-told",
                self.name
            ),
            None => Ok(()),
        }
    }
}

fn path_of<'a>(paths: &'a Paths, side: Side, name: &str) -> Result<&'a Path> {
    let path = paths.get(&side).with_context(|| format!("{name} has no path on controller {side}"))?;
    Ok(path)
}

/// Refuses paths that are missing, or stand for two LUNs.
pub(super) fn check_paths(side: Side, luns: &[(String, &Paths)], quorum: &Path) -> Result<()> {
    let mut seen = BTreeSet::new();
    for (name, paths) in luns {
        let Some(path) = paths.get(&side) else {
            anyhow::bail!("on controller {side} {name} has no device: give each LUN a path for a and b");
        };
        ensure!(path != quorum, "the quorum LUN of {side} is a device of {name}");
        ensure!(seen.insert(path), "on controller {side} {} is the device of two", path.display());
    }
    Ok(())
}
