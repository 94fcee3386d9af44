//! The file of a pair, the same on both controllers.

mod unit;

use anyhow::{Context, Result, bail, ensure};
use loligo_pair::machine::Omitted;
use loligo_pair::plan::{LunId, Plan, QUORUM, Side, Timings, Unit, UnitId, UnitKind};
use loligo_pair::reservation::Key;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
pub use unit::{OsdCache, OsdConfig, Paths, VOLUMES, VolumeUnit};

/// Bytes of the secret that heartbeats are signed with.
const SECRET: usize = 32;
/// Units that a heartbeat can name.
const UNITS: usize = 64;

/// A pair.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PairConfig {
    /// Its name, which is also that of its CRUSH chassis.
    pub pair: String,
    /// 64 hexadecimal digits that both controllers know, and nobody else.
    pub secret: String,
    /// The cluster.
    pub ceph: CephConfig,
    /// The controllers, `a` and `b`.
    pub controller: BTreeMap<Side, ControllerConfig>,
    /// The OSDs.
    #[serde(default)]
    pub osd: Vec<OsdConfig>,
    /// The volumes.
    #[serde(default)]
    pub volume: Vec<VolumeUnit>,
    /// The times of decisions.
    #[serde(default)]
    pub timings: Timings,
}

/// The cluster of a pair.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CephConfig {
    /// Its configuration file.
    pub conf: PathBuf,
    /// The client that tells the monitors, as `client.admin`.
    pub name: String,
    /// The client's keyring, if the configuration does not name it.
    #[serde(default)]
    pub keyring: Option<PathBuf>,
}

/// One controller.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ControllerConfig {
    /// Its CRUSH host.
    pub host: String,
    /// The key that it registers with, as `0x4c6f...`.
    pub key: String,
    /// Its addresses for heartbeats, one for each link, in the same order on both.
    pub links: Vec<SocketAddr>,
    /// Its path to the quorum LUN.
    pub quorum: PathBuf,
    /// The folder of its socket and of what it must remember.
    pub run: PathBuf,
    /// The folder of the sockets of its daemon, which serves the volumes.
    #[serde(default = "daemon")]
    pub daemon: PathBuf,
    /// The command that cuts its power.
    #[serde(default)]
    pub power_off: Vec<String>,
    /// The command that says `on` or `off`.
    #[serde(default)]
    pub power_status: Vec<String>,
}

fn daemon() -> PathBuf {
    "/run/loligo".into()
}

/// A unit of the file.
#[derive(Debug, Clone, Copy)]
pub enum UnitConfig<'a> {
    /// An OSD.
    Osd(&'a OsdConfig),
    /// A volume.
    Volume(&'a VolumeUnit),
}

impl<'a> UnitConfig<'a> {
    fn name(self) -> String {
        match self {
            UnitConfig::Osd(osd) => osd.name(),
            UnitConfig::Volume(volume) => format!("volume {}", volume.name),
        }
    }

    fn home(self) -> Side {
        match self {
            UnitConfig::Osd(osd) => osd.home,
            UnitConfig::Volume(volume) => volume.home,
        }
    }

    fn luns(self) -> Vec<(&'static str, &'a Paths)> {
        match self {
            UnitConfig::Osd(osd) => osd.luns(),
            UnitConfig::Volume(volume) => volume.luns(),
        }
    }

    fn kind(self) -> UnitKind {
        match self {
            UnitConfig::Osd(osd) => UnitKind::Osd(osd.id),
            UnitConfig::Volume(_) => UnitKind::Volume,
        }
    }
}

impl PairConfig {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// If it cannot be read, others may read its secret, or it makes no sense.
    pub fn read(path: &Path) -> Result<PairConfig> {
        let name = path.display();
        let text = std::fs::read_to_string(path).with_context(|| format!("{name} cannot be read"))?;
        let meta = std::fs::metadata(path).with_context(|| format!("{name} cannot be read"))?;
        let mode = std::os::unix::fs::PermissionsExt::mode(&meta.permissions());
        ensure!(mode & 0o077 == 0, "{name} holds a secret and others may read it: run 'chmod 600 {name}'");
        let config: PairConfig =
            toml::from_str(&text).with_context(|| format!("{name} is not a pair's file"))?;
        config.check().with_context(|| name.to_string())?;
        Ok(config)
    }

    fn check(&self) -> Result<()> {
        self.secret()?;
        for side in Side::BOTH {
            ensure!(
                self.controller.contains_key(&side),
                "there is no [controller.{side}]: a pair has a and b"
            );
        }
        let [a, b] = Side::BOTH.map(|side| &self.controller[&side]);
        ensure!(
            self.key(Side::A)? != self.key(Side::B)?,
            "both controllers have the key {}: give each its own",
            a.key
        );
        ensure!(
            a.links.len() == b.links.len() && !a.links.is_empty(),
            "controller a has {} links and b {}: give both the same number, two at best",
            a.links.len(),
            b.links.len()
        );
        ensure!(a.host != b.host, "both controllers are host {}: CRUSH needs one for each", a.host);
        let ids: BTreeSet<u32> = self.osd.iter().map(|osd| osd.id).collect();
        ensure!(ids.len() == self.osd.len(), "an OSD is named twice");
        self.osd.iter().try_for_each(OsdConfig::check)?;
        let volumes = self.volumes();
        let ids: BTreeSet<u32> = volumes.iter().map(|(_, volume)| volume.id).collect();
        let names: BTreeSet<&String> = volumes.iter().map(|(_, volume)| &volume.name).collect();
        ensure!(
            ids.len() == volumes.len() && names.len() == volumes.len(),
            "two volumes have the same id or name: the caches of OSDs count too"
        );
        ensure!(self.units().count() <= UNITS, "a pair has at most {UNITS} units");
        for side in Side::BOTH {
            let of = |unit: UnitConfig<'_>| unit.name();
            let luns: Vec<_> = self
                .units()
                .flat_map(|unit| unit.luns().into_iter().map(move |(_, paths)| (of(unit), paths)))
                .collect();
            unit::check_paths(side, &luns, &self.controller[&side].quorum)?;
        }
        let keys = Side::BOTH.map(|side| (side, self.controller[&side].key.clone())).into();
        volumes.iter().try_for_each(|(_, volume)| volume.check(&keys))
    }

    /// The volumes that daemons serve, also those that OSDs stand on, each with the name of its unit.
    pub fn volumes(&self) -> Vec<(String, VolumeUnit)> {
        let of_osds = self.osd.iter().filter_map(|osd| Some((osd.name(), osd.volume()?)));
        let own = self.volume.iter().map(|volume| (UnitConfig::Volume(volume).name(), volume.clone()));
        of_osds.chain(own).collect()
    }

    /// The units, by [`UnitId`]: OSDs, then volumes.
    pub fn units(&self) -> impl Iterator<Item = UnitConfig<'_>> {
        self.osd.iter().map(UnitConfig::Osd).chain(self.volume.iter().map(UnitConfig::Volume))
    }

    /// A unit; nothing: there is no such number.
    pub fn unit(&self, id: UnitId) -> Option<UnitConfig<'_>> {
        self.units().nth(id.0 as usize)
    }

    /// The LUNs of all units, by [`LunId`] without the quorum LUN.
    fn luns(&self) -> Vec<&Paths> {
        self.units().flat_map(UnitConfig::luns).map(|(_, paths)| paths).collect()
    }

    /// The secret's bytes.
    ///
    /// # Errors
    /// If it is not 64 hexadecimal digits.
    pub fn secret(&self) -> Result<[u8; SECRET]> {
        let mut secret = [0; SECRET];
        let text = self.secret.as_bytes();
        if text.len() != 2 * SECRET || !text.is_ascii() {
            bail!("'secret' is not 64 hexadecimal digits: take those of 'openssl rand -hex 32'");
        }
        for (byte, digits) in secret.iter_mut().zip(text.chunks(2)) {
            let digits = std::str::from_utf8(digits).context("'secret' is not ASCII")?;
            *byte = u8::from_str_radix(digits, 16).context("'secret' is not hexadecimal")?;
        }
        Ok(secret)
    }

    /// The key of a side.
    ///
    /// # Errors
    /// If it is not a number of 64 bits, or 0.
    pub fn key(&self, side: Side) -> Result<Key> {
        let text = &self.controller[&side].key;
        let number = text.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
        match number {
            Some(number) if number != 0 => Ok(Key(number)),
            _ => bail!(
                "the key '{text}' of controller {side} is not 0x with up to 16 hexadecimal digits, and not 0"
            ),
        }
    }

    /// The plan as `me` has it.
    ///
    /// # Errors
    /// If a key makes no sense.
    pub fn plan(&self, me: Side) -> Result<Plan> {
        let mut next = QUORUM.0;
        let unit = |unit: UnitConfig<'_>| {
            let number = |(used, _): (&'static str, &Paths)| {
                next += 1;
                (LunId(next), used)
            };
            let (luns, uses) = unit.luns().into_iter().map(number).unzip();
            Unit { name: unit.name(), kind: unit.kind(), home: unit.home(), luns, uses }
        };
        Ok(Plan {
            me,
            keys: [self.key(Side::A)?, self.key(Side::B)?],
            links: self.controller[&me].links.len(),
            units: self.units().map(unit).collect(),
            power: !self.controller[&me.other()].power_off.is_empty(),
            timings: self.timings.clone(),
            omitted: Omitted::default(),
        })
    }

    /// The path of `side` to a LUN.
    pub fn path(&self, side: Side, lun: LunId) -> &Path {
        match lun {
            QUORUM => &self.controller[&side].quorum,
            LunId(number) => &self.luns()[number as usize - 1][&side],
        }
    }

    /// The socket of a side's agent.
    pub fn socket(&self, side: Side) -> PathBuf {
        self.controller[&side].run.join("pair.sock")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
        pair = "n0"
        secret = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
        [ceph]
        conf = "/etc/ceph/ceph.conf"
        name = "client.admin"
        [controller.a]
        host = "n0a"
        key = "0xa"
        links = ["127.0.0.1:1", "127.0.0.2:1"]
        quorum = "/a/quorum"
        run = "/a/run"
        [controller.b]
        host = "n0b"
        key = "0xb"
        links = ["127.0.0.3:1", "127.0.0.4:1"]
        quorum = "/b/quorum"
        run = "/b/run"
        [[osd]]
        id = 4
        home = "b"
        uuid = "6a"
        device = { a = "/a/osd4", b = "/b/osd4" }
        dir = { a = "/a/ceph-4", b = "/b/ceph-4" }
        db = { a = "/a/db4", b = "/b/db4" }
        [osd.cache]
        id = 2
        device = { a = "/a/cache4", b = "/b/cache4" }
        definition = { profile = "osd-hdd" }
        [[volume]]
        id = 1
        name = "vm1"
        home = "a"
        cache = { a = "/a/vm1", b = "/b/vm1" }
        address = "192.0.2.50/24"
        interface = { a = "eth1", b = "eth1" }
        [volume.definition]
        core = "rbd:vms/vm1"
        mode = "wb"
        listen = ["tcp:192.0.2.50:10809?when-told"]
    "#;

    fn read(text: &str, mode: u32) -> Result<PairConfig> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pair.toml");
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        PairConfig::read(&path)
    }

    #[test]
    fn the_plan_is_that_of_the_file() {
        let config = read(FILE, 0o600).unwrap();
        let plan = config.plan(Side::A).unwrap();
        assert_eq!((plan.mine(), plan.theirs(), plan.links, plan.power), (Key(0xa), Key(0xb), 2, false));
        assert_eq!((plan.units[0].name.as_str(), plan.units[0].home), ("osd.4", Side::B));
        assert_eq!(config.path(Side::B, plan.units[0].luns[0]), Path::new("/b/osd4"));
        assert_eq!(config.path(Side::A, QUORUM), Path::new("/a/quorum"));
        let of_osd = plan.units[0].luns.iter().map(|lun| config.path(Side::A, *lun).display().to_string());
        assert_eq!(of_osd.collect::<Vec<_>>(), ["/a/osd4", "/a/db4", "/a/cache4"]);
        assert_eq!(config.path(Side::B, plan.units[1].luns[0]), Path::new("/b/vm1"));
        assert_eq!(plan.units[1].kind, UnitKind::Volume);
        assert_eq!(config.secret().unwrap()[..3], [0, 1, 2]);
        let definition = config.volume[0].of_side(Side::B, "0xb").unwrap();
        assert_eq!(definition.cache.as_deref(), Some(Path::new("/b/vm1")));
        assert_eq!(definition.reservation.as_deref(), Some("0xb"));
    }

    #[test]
    fn the_volume_below_an_osd_is_mounted_in_its_folder() {
        let config = read(FILE, 0o600).unwrap();
        let volumes = config.volumes();
        let (unit, volume) = &volumes[0];
        assert_eq!((unit.as_str(), volume.name.as_str(), volume.id), ("osd.4", "osd4", 2));
        let definition = volume.of_side(Side::B, "0xb").unwrap();
        assert_eq!(definition.core, "/b/osd4");
        assert_eq!(definition.cache.as_deref(), Some(Path::new("/b/cache4")));
        assert_eq!(definition.listen, ["fuse:/b/ceph-4/volume"]);
        assert_eq!(
            (definition.mode.as_deref(), definition.profile.as_deref()),
            (Some("wb"), Some("osd-hdd"))
        );
    }

    #[test]
    fn a_file_that_makes_no_sense_is_refused_with_the_mend() {
        let refused = [
            ("key = \"0xb\"", "key = \"0xa\"", "give each its own"),
            ("key = \"0xb\"", "key = \"0x0\"", "not 0"),
            ("key = \"0xb\"", "key = \"11\"", "0x with up to"),
            ("n0b", "n0a", "CRUSH needs one for each"),
            (", \"127.0.0.4:1\"]", "]", "the same number"),
            ("0001020304", "00010203", "openssl rand -hex 32"),
            ("0001020304", "zz01020304", "not hexadecimal"),
            ("/b/osd4", "/b/quorum", "quorum LUN of b"),
            ("/b/osd4", "/b/vm1", "the device of two"),
            ("id = 1\n", "id = 64\n", "must be below 64"),
            ("name = \"vm1\"", "name = \"vm/1\"", "cannot name a volume"),
            ("?when-told", "", "before its address is there"),
            ("tcp:192.0.2.50", "tcp:192.0.2.51", "listens nowhere at its address"),
            ("192.0.2.50/24", "192.0.2.50", "with its prefix"),
            (", b = \"eth1\"", "", "no interface for b"),
            ("core = \"rbd:vms/vm1\"", "core = \"/dev/sdb\"", "is no image"),
            ("mode = \"wb\"", "mode = \"wb\"\ncache = \"/a/vm1\"", "differs from side to side"),
            ("mode = \"wb\"", "mood = \"wb\"", "makes no sense"),
            (", b = \"/b/osd4\"", "", "has no device"),
            (", b = \"/b/ceph-4\"", "", "needs a folder"),
            (", b = \"/b/cache4\"", "", "has no device"),
            ("/b/db4", "/b/cache4", "the device of two"),
            ("id = 2\n", "id = 1\n", "the caches of OSDs count too"),
            ("name = \"vm1\"", "name = \"osd4\"", "the same id or name"),
            ("profile = \"osd-hdd\"", "listen = [\"unix:/x\"]", "by its OSD alone"),
            ("[controller.b]", "[controller.c]", "not a pair's file"),
            ("home = \"b\"", "home = \"b\"\nhome2 = 1", "not a pair's file"),
        ];
        for (what, by, why) in refused {
            let said = format!("{:#}", read(&FILE.replacen(what, by, 1), 0o600).unwrap_err());
            assert!(said.contains(why), "{what} -> {by}: {said}");
        }
    }

    #[test]
    fn a_secret_that_others_may_read_is_refused() {
        let said = format!("{:#}", read(FILE, 0o644).unwrap_err());
        assert!(said.contains("chmod 600"), "{said}");
    }
}
