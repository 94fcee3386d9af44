//! The file of a pair, the same on both controllers.

use anyhow::{Context, Result, bail, ensure};
use loligo_pair::machine::Omitted;
use loligo_pair::plan::{LunId, Plan, QUORUM, Side, Timings, Unit, UnitKind};
use loligo_pair::reservation::Key;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

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
    /// The command that cuts its power.
    #[serde(default)]
    pub power_off: Vec<String>,
    /// The command that says `on` or `off`.
    #[serde(default)]
    pub power_status: Vec<String>,
}

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
    pub device: BTreeMap<Side, PathBuf>,
    /// Its folder, on each controller.
    pub dir: BTreeMap<Side, PathBuf>,
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
        ensure!(self.osd.len() <= UNITS, "a pair has at most {UNITS} units");
        for side in Side::BOTH {
            let paths: BTreeSet<&PathBuf> = self.osd.iter().filter_map(|osd| osd.device.get(&side)).collect();
            ensure!(
                paths.len() == self.osd.len(),
                "on controller {side} an OSD has no device, or two have the same"
            );
            ensure!(
                !paths.contains(&self.controller[&side].quorum),
                "the quorum LUN of {side} is an OSD's device"
            );
        }
        for osd in &self.osd {
            let has_dirs = Side::BOTH.iter().all(|side| osd.dir.contains_key(side));
            ensure!(has_dirs, "osd.{} needs a folder on a and on b: add it to [osd.dir]", osd.id);
        }
        Ok(())
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
        let unit = |(number, osd): (usize, &OsdConfig)| Unit {
            name: format!("osd.{}", osd.id),
            kind: UnitKind::Osd(osd.id),
            home: osd.home,
            luns: vec![LunId(number as u32 + 1)],
        };
        Ok(Plan {
            me,
            keys: [self.key(Side::A)?, self.key(Side::B)?],
            links: self.controller[&me].links.len(),
            units: self.osd.iter().enumerate().map(unit).collect(),
            power: !self.controller[&me.other()].power_off.is_empty(),
            timings: self.timings.clone(),
            omitted: Omitted::default(),
        })
    }

    /// The path of `side` to a LUN.
    pub fn path(&self, side: Side, lun: LunId) -> &Path {
        match lun {
            QUORUM => &self.controller[&side].quorum,
            LunId(number) => &self.osd[number as usize - 1].device[&side],
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
        assert_eq!(config.secret().unwrap()[..3], [0, 1, 2]);
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
            (", b = \"/b/osd4\"", "", "has no device"),
            (", b = \"/b/ceph-4\"", "", "needs a folder"),
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
