//! The daemon's one file, in TOML.

use crate::device_ids::DeviceIds;
use crate::exclusive::Exclusive;
use anyhow::{Context, Result, anyhow, ensure};
use loligo_client::api::definition::VolumeConfig;
use loligo_client::toml_error::not_toml;
use loligo_pair::plan::Side;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// The path at which the file is looked for.
pub const DEFAULT_PATH: &str = "/etc/loligo/loligod.toml";

/// The whole file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Config {
    /// Settings that concern all volumes.
    pub daemon: DaemonConfig,
    /// The pair that this host is a controller of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pair: Option<PairSection>,
    /// The watch over values that `loligo tune apply` set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tune: Option<TuneSection>,
    /// The volumes by name.
    #[serde(rename = "volume")]
    pub volumes: BTreeMap<String, VolumeConfig>,
}

/// Settings that concern all volumes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct DaemonConfig {
    /// The folder in which the daemon keeps what it must remember; default /var/lib/loligo.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_dir: Option<PathBuf>,
    /// The name of this controller, by which others see who has an RBD image; default: `$LOLIGO_IDENTITY`, or the host's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// The address at which Prometheus text is served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<SocketAddr>,
}

/// The pair that a host is a controller of: its agent runs in the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PairSection {
    /// The pair's file, the same on both controllers.
    #[serde(default = "pair_file")]
    pub file: PathBuf,
    /// The controller that this host is.
    pub side: Side,
}

/// A watch over the values that `loligo tune apply` set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TuneSection {
    /// Seconds between two looks.
    #[serde(default = "five_minutes")]
    pub every: u64,
    /// The cluster's configuration; default: `$CEPH_CONF`, or /etc/ceph/ceph.conf.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conf: Option<PathBuf>,
    /// The client to ask as; default: client.admin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The file of that client's key, if not the one that the configuration names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keyring: Option<PathBuf>,
    /// Other hosts to look at, over ssh.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub hosts: Vec<String>,
}

fn five_minutes() -> u64 {
    300
}

impl TuneSection {
    /// Paths that are not whole begin at the folder of the daemon's file.
    pub(super) fn begin_in(&mut self, dir: &Path) {
        for path in self.conf.iter_mut().chain(&mut self.keyring) {
            *path = dir.join(&*path);
        }
    }

    /// # Errors
    /// If it looks without a pause.
    pub(super) fn check(&self) -> Result<()> {
        ensure!(self.every > 0, "[tune]: every = 0 is none: give seconds, 1 or more");
        Ok(())
    }
}

fn pair_file() -> PathBuf {
    "/etc/loligo/pair.toml".into()
}

impl PairSection {
    /// A path that is not whole begins at the folder of the daemon's file.
    pub(super) fn begin_in(&mut self, dir: &Path) {
        self.file = dir.join(&self.file);
    }
}

impl Config {
    /// Reads `path`.
    ///
    /// # Errors
    /// If it cannot be read or is wrong. The error says what is wrong with it, with the line.
    pub fn load(path: &Path) -> Result<Config> {
        let (text, dir) = read(path)?;
        Config::parse_in(&text, &dir).with_context(|| format!("{} is not right", path.display()))
    }

    /// Reads `text`.
    ///
    /// # Errors
    /// An error says what is wrong with it.
    pub fn parse(text: &str) -> Result<Config> {
        Config::parse_in(text, Path::new("/"))
    }

    /// The same of a file in the folder `dir`, where the paths of cores and caches begin that are not whole.
    fn parse_in(text: &str, dir: &Path) -> Result<Config> {
        let mut config: Config = toml::from_str(text).map_err(|why| anyhow!(not_toml(&why)))?;
        config.volumes.values_mut().for_each(|volume| volume.begin_in(dir));
        config.pair.iter_mut().for_each(|pair| pair.begin_in(dir));
        config.tune.iter_mut().for_each(|tune| tune.begin_in(dir));
        config.tune.iter().try_for_each(TuneSection::check)?;
        let mut taken = Exclusive::default();
        for (name, volume) in &config.volumes {
            taken.add(name, volume).with_context(|| format!("[volume.{name}]"))?;
        }
        Ok(config)
    }
}

impl Config {
    /// No device is given twice, by whatever name. This asks the file systems that they lie on.
    ///
    /// # Errors
    /// If one is wrong; the error says which.
    pub fn distinct(&self) -> Result<()> {
        let (mut taken, looked) = (Exclusive::default(), DeviceIds::at(self.volumes.values()));
        for (name, volume) in &self.volumes {
            taken.add_devices(name, volume, &looked).with_context(|| format!("[volume.{name}]"))?;
        }
        Ok(())
    }
}

/// The text of a file, and the folder that it lies in.
///
/// # Errors
/// If it cannot be read.
pub(super) fn read(path: &Path) -> Result<(String, PathBuf)> {
    let text = std::fs::read_to_string(path).with_context(|| {
        format!(
            "{} cannot be read: give --config FILE, or make it ('loligo config --help' shows one)",
            path.display()
        )
    })?;
    let whole = std::path::absolute(path)?;
    Ok((text, whole.parent().unwrap_or(Path::new("/")).to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use loligo_client::api::definition::Leave;
    use loligo_format::mode::Mode;
    use loligo_volume::definition::mode_at_start;
    use loligo_volume::options::ServeOptions;

    const ONE: &str = "
        [daemon]
        metrics = \"127.0.0.1:9283\"
        [volume.osd0]
        core = \"/dev/sdb\"
        cache = \"/dev/nvme0n1p3\"
        cache-size = \"64g\"
        mode = \"wb\"
        listen = [\"fuse:/run/osd0\"]
        params = { seq-cutoff = \"always\", seq-promotion = 4 }
    ";

    #[test]
    fn a_file_becomes_the_options_of_a_start() {
        let config = Config::parse(ONE).unwrap();
        let o = ServeOptions::of(&config.volumes["osd0"], "osd0", Leave::default()).unwrap();
        let cache = o.cache.expect("it has one");
        assert_eq!((cache.size, cache.mode), (Some(64 << 30), Mode::Wb));
        assert_eq!(o.params[1], ("seq-promotion".to_owned(), "4".to_owned()));
        let shown = toml::to_string(&config).unwrap();
        assert_eq!(Config::parse(&shown).unwrap(), config, "what is shown can be used:\n{shown}");
        assert_eq!(Config::parse("").unwrap(), Config::default());
    }

    #[test]
    fn own_mode_wins_over_profiles_and_a_bare_volume_has_none() {
        let mode = |text: &str| {
            let text = format!("core = \"/dev/sdb\"\nlisten = [\"block:x\"]\n{text}");
            mode_at_start(&toml::from_str::<VolumeConfig>(&text).unwrap())
        };
        assert_eq!(mode("cache = \"/c\"\nmode = \"wa\"").as_deref(), Some("wa"));
        assert_eq!(mode("cache = \"/c\"\nprofile = \"osd-hdd\"").as_deref(), Some("wb"));
        assert_eq!(mode("cache = \"/c\"\nprofile = \"osd-hdd\"\nmode = \"wt\"").as_deref(), Some("wt"));
        assert_eq!(mode(""), None);
    }

    #[test]
    fn what_is_wrong_with_a_file_is_said_with_its_place() {
        let wrong = |change: (&str, &str), said: &str| {
            let text = ONE.replace(change.0, change.1);
            assert_ne!(text, ONE, "{change:?} changes nothing");
            let why = format!("{:#}", Config::parse(&text).unwrap_err());
            assert!(why.contains(said), "{change:?}: {why}");
        };
        wrong(("mode = \"wb\"", "mode = \"wr\""), "[volume.osd0]: mode = \"wr\"");
        wrong(("mode = \"wb\"", ""), "mode is missing");
        wrong(("cache-size", "cache_size"), "unknown field `cache_size`");
        wrong(("64g", "64q"), "64q");
        wrong(("fuse:", "fuze:"), "listen");
        wrong(("fuse:/run", "unix:run"), "listen = \"unix:run/osd0\": the path is not whole");
        wrong(("fuse:/run", "fuse:run"), "give it whole, as fuse:/run/osd0");
        wrong(("seq-cutoff", "seq-cut"), "unknown parameter 'seq-cut'");
        wrong(("volume.osd0", "volume.'../x'"), "cannot name a volume");
        wrong(("[\"fuse:/run/osd0\"]", "[]"), "nobody could reach the volume: give listen unix:PATH");
        wrong(("mode =", "line-size = 3000\nmode ="), "line-size = 3000 is none");
        wrong(("mode =", "shards = 99\nmode ="), "shards = 99: 1 to 64");
        wrong(("listen =", "after-start = [\"systemctl\"]\nlisten ="), "whole path");
        let twice =
            format!("{ONE}{}", ONE.replace("osd0", "osd1").replace("[daemon]", "").replace("metrics", "#"));
        let why = format!("{:#}", Config::parse(&twice).unwrap_err());
        assert!(why.contains("core /dev/sdb is volume 'osd0' already"), "{why}");
    }

    #[test]
    fn a_watch_has_a_pause_and_paths_of_its_file() {
        let tune =
            |text: &str| Config::parse_in(&format!("[tune]\n{text}"), Path::new("/d")).map(|it| it.tune);
        let section = tune("conf = \"c\"\nkeyring = \"/k\"").unwrap().expect("a section");
        assert_eq!((section.every, section.conf.as_deref()), (300, Some(Path::new("/d/c"))));
        assert_eq!(section.keyring.as_deref(), Some(Path::new("/k")));
        assert!(tune("every = 0").unwrap_err().to_string().contains("every = 0"));
        assert!(format!("{:#}", tune("evry = 9").unwrap_err()).contains("evry"));
    }

    #[test]
    fn a_device_is_one_by_any_name_and_paths_begin_at_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let [file, disk, other] = ["loligod.toml", "disk", "other"].map(|n| dir.path().join(n));
        std::fs::write(&disk, "").unwrap();
        std::os::unix::fs::symlink(&disk, &other).unwrap();
        let load = |text: &str| {
            std::fs::write(&file, text).unwrap();
            Config::load(&file).and_then(|config| config.distinct().map(|()| config))
        };
        let one = "[volume.a]\ncore = \"hdd:disk?rpm=7200\"\nlisten = [\"unix:/a\"]\n";
        let config = load(one).unwrap();
        assert_eq!(config.volumes["a"].core, format!("hdd:{}?rpm=7200", disk.display()));
        let why = |text: &str| format!("{:#}", load(text).unwrap_err());
        let two = why(&format!("{one}[volume.b]\ncore = \"other\"\nlisten = [\"unix:/b\"]\n"));
        assert!(two.contains("is volume 'a' already"), "{two}");
        let itself = why(&format!("{one}cache = \"other\"\nmode = \"wb\"\n"));
        assert!(itself.contains("are the same device"), "{itself}");
        let shares = |second: u32| {
            format!(
                "{one}cache = \"pool:p#1\"\nmode = \"wb\"\n[volume.b]\ncore = \"./x\"\ncache = \"pool:q#{second}\"\nmode = \"wb\"\nlisten = [\"unix:/b\"]\n"
            )
        };
        std::fs::write(dir.path().join("p"), "").unwrap();
        std::fs::hard_link(dir.path().join("p"), dir.path().join("q")).unwrap();
        assert_eq!(load(&shares(2)).unwrap().volumes["b"].core, dir.path().join("x").display().to_string());
        assert!(why(&shares(1)).contains("is volume 'a' already"));
    }
}
