//! The parts of a lab: the file's content, and what of it makes no sense.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::pairs::side::Side;

/// Least size of an OSD's data, bytes: BlueStore's own structures and a little data.
const LEAST_OSD: u64 = 1 << 30;

/// Defects of arrays, as 'loligo lab array --defect' names them.
pub const ARRAY_DEFECTS: [&str; 4] =
    ["abort-misses-registrants", "preempts-without-effect", "forgets-at-power-cycle", "refuses-no-write"];

/// Most monitors.
const MOST_MONS: u32 = 9;

/// Most nodes of two controllers: their addresses are in one network of 254.
const MOST_PAIRS: u32 = 100;

/// Least size of a volume, bytes.
const LEAST_VOLUME: u64 = 16 << 20;

/// Least size of a cache, bytes.
const LEAST_CACHE: u64 = 24 << 20;

/// The devices for the OSDs' data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Data {
    /// `file`: a sparse file in the lab's folder. `hdd`: the model of a spinning disk over such a file.
    Kind(Kind),
    /// One device for each OSD.
    Devices(Vec<PathBuf>),
}

/// The kind of file for the OSDs' data where it is not a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A sparse file.
    File,
    /// The model of a spinning disk over a sparse file.
    Hdd,
}

impl std::str::FromStr for Data {
    type Err = String;

    fn from_str(text: &str) -> Result<Data, String> {
        match text {
            "file" => Ok(Data::Kind(Kind::File)),
            "hdd" => Ok(Data::Kind(Kind::Hdd)),
            _ if text.split(',').all(|part| part.starts_with('/')) => {
                Ok(Data::Devices(text.split(',').map(PathBuf::from).collect()))
            }
            _ => Err(format!("'{text}' is neither 'file', 'hdd' nor devices by their absolute paths")),
        }
    }
}

/// An option as it is typed, `KEY=VALUE`.
///
/// # Errors
/// How to write it.
pub fn key_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

/// The hosts of daemons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Hosts {
    /// All on the loopback interface.
    Loopback,
    /// Each OSD in a network namespace of its own, on a bridge.
    Namespaces,
}

/// The place of BlueStore's database or log: made as a file, or a device shared by partitions that the user made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Aside {
    /// `file`: a sparse file for each OSD.
    File(FileWord),
    /// One device for each OSD.
    Devices(Vec<PathBuf>),
}

/// The word `file`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileWord {
    /// A sparse file.
    File,
}

impl std::str::FromStr for Aside {
    type Err = String;

    fn from_str(text: &str) -> Result<Aside, String> {
        match text.parse()? {
            Data::Kind(Kind::File) => Ok(Aside::File(FileWord::File)),
            Data::Kind(Kind::Hdd) => Err("write 'file', or devices by their absolute paths".to_owned()),
            Data::Devices(list) => Ok(Aside::Devices(list)),
        }
    }
}

/// A lab's description; every field has a default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct LabConfig {
    /// The number of OSDs.
    pub osds: u32,
    /// Bytes of each OSD's data where it is a file, as `10g`; nothing: see [`LabConfig::settled`].
    pub osd_size: Option<String>,
    /// Nodes of two controllers that share an array; 0: none, and OSDs as `osds` says. Each controller has an OSD.
    pub pairs: u32,
    /// Monitors; nothing: see [`LabConfig::settled`].
    pub mons: Option<u32>,
    /// With pairs: the agents of 'loligo pair' start the OSDs, not the lab.
    pub agents: bool,
    /// With pairs: bytes of an image that each controller serves as a volume, as `1g`; nothing: none.
    pub volumes: Option<String>,
    /// With volumes: bytes of the cache of each, on the array.
    pub volume_cache: String,
    /// With volumes: a mirror of each cache, on a second array of its node.
    pub mirror: bool,
    /// With mirrors: the volumes at home on this controller of each node have one, and the others none.
    pub mirror_only: Option<Side>,
    /// With pairs: defects of the arrays, as 'loligo lab array --defect' names them.
    pub array_defects: Vec<String>,
    /// The devices for their data.
    pub data: Data,
    /// Revolutions a minute of the disk model: 7200 or 10000.
    pub rpm: u32,
    /// The place of BlueStore's database, if not with the data.
    pub db: Option<Aside>,
    /// The place of BlueStore's write-ahead log, if not with the database.
    pub wal: Option<Aside>,
    /// Bytes of a flash cache in front of each OSD's data, as `2g`; nothing: none.
    pub cache: Option<String>,
    /// The folder that the caches lie in, if not the lab's own.
    pub cache_dir: Option<PathBuf>,
    /// Their mode.
    pub cache_mode: String,
    /// A named set of tunables for them; nothing: see [`LabConfig::profile`].
    pub cache_profile: Option<String>,
    /// Their tunables, as 'loligo param' names them.
    pub cache_set: BTreeMap<String, String>,
    /// Copies of each object; nothing: see [`LabConfig::settled`].
    pub replicas: Option<u32>,
    /// The pool that is made.
    pub pool: String,
    /// Placement groups of the pool; default: 32 for each three OSDs' copies, a power of two.
    pub pg_num: Option<u32>,
    /// The hosts of daemons.
    pub hosts: Hosts,
    /// Network of clients and monitors, as `127.0.0.0/8`.
    pub public_network: Option<String>,
    /// Network between OSDs.
    pub cluster_network: Option<String>,
    /// OSDs by CRUSH host, each as `osd:data:db_wal`: a number or nothing, the data device, the device of database and
    /// log or nothing. Takes the place of `osds`, `data` and `db`.
    pub layout: BTreeMap<String, Vec<String>>,
    /// Options of Ceph, `section.option = "value"`.
    pub set: BTreeMap<String, String>,
}

impl Default for LabConfig {
    fn default() -> LabConfig {
        LabConfig {
            osds: 3,
            osd_size: None,
            pairs: 0,
            mons: None,
            agents: true,
            volumes: None,
            volume_cache: "256m".to_owned(),
            mirror: false,
            mirror_only: None,
            array_defects: Vec::new(),
            data: Data::Kind(Kind::File),
            rpm: 7200,
            db: None,
            wal: None,
            cache: None,
            cache_dir: None,
            cache_mode: "wb".to_owned(),
            cache_profile: None,
            cache_set: BTreeMap::new(),
            replicas: None,
            pool: "rbd".to_owned(),
            pg_num: None,
            hosts: Hosts::Loopback,
            public_network: None,
            cluster_network: None,
            layout: BTreeMap::new(),
            set: BTreeMap::new(),
        }
    }
}

/// One OSD as it will be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OsdPlan {
    /// Its number.
    pub id: u32,
    /// Its CRUSH host, where the layout names one.
    pub host: Option<String>,
    /// The device its data lies on; nothing: a file or the model.
    pub device: Option<PathBuf>,
    /// The device of its database; nothing: see [`LabConfig::db`].
    pub db: Option<PathBuf>,
    /// The device of its log; nothing: see [`LabConfig::wal`].
    pub wal: Option<PathBuf>,
}

impl LabConfig {
    /// Reads a file.
    ///
    /// # Errors
    /// If it cannot be read, is not TOML, or names what is not known.
    pub fn read(path: &Path) -> Result<LabConfig> {
        let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        let parsed = toml::from_str(&text);
        parsed.map_err(|why| {
            anyhow!("in {}: {}", path.display(), why.to_string().trim_end().replace('\n', " "))
        })
    }

    /// The same with a value for everything whose default depends on other settings.
    #[must_use]
    pub fn settled(&self) -> LabConfig {
        LabConfig {
            osd_size: Some(self.osd_size.clone().unwrap_or_else(|| self.default_size().to_owned())),
            replicas: Some(self.copies()),
            mons: Some(self.mon_count()),
            ..self.clone()
        }
    }

    fn default_size(&self) -> &'static str {
        if self.pairs > 0 { "3g" } else { "10g" }
    }

    /// True if each controller of a pair has a daemon that serves volumes.
    pub fn has_daemons(&self) -> bool {
        self.pairs > 0 && (self.volumes.is_some() || self.cache.is_some())
    }

    /// True if hosts are network namespaces.
    pub fn in_namespaces(&self) -> bool {
        self.pairs > 0 || self.hosts == Hosts::Namespaces
    }

    /// Monitors: with three pairs or more there are three, on different nodes.
    pub fn mon_count(&self) -> u32 {
        self.mons.unwrap_or(if self.pairs >= 3 { 3 } else { 1 })
    }

    /// Copies of each object: three, or one on each node of fewer pairs, or one on each controller of a single pair.
    pub fn copies(&self) -> u32 {
        self.replicas.unwrap_or(if self.pairs > 0 { self.domains().min(3) } else { 3 })
    }

    /// With pairs: the places that copies go to, nodes or the controllers of a single one.
    pub fn domains(&self) -> u32 {
        if self.pairs == 1 { 2 } else { self.pairs }
    }

    /// Bytes of each OSD's data.
    ///
    /// # Errors
    /// If the size is not one, or too small for BlueStore.
    pub fn osd_bytes(&self) -> Result<u64> {
        let text = self.osd_size.as_deref().unwrap_or(self.default_size());
        let bytes = loligo_block::parse_size(text)?;
        ensure!(bytes >= LEAST_OSD, "osd-size {text} is too small: BlueStore needs 1g at least");
        Ok(bytes / 4096 * 4096)
    }

    /// Bytes of the image of each volume of a pair; nothing: there are none.
    ///
    /// # Errors
    /// If the size is not one.
    pub fn volume_bytes(&self) -> Result<Option<u64>> {
        let Some(text) = &self.volumes else { return Ok(None) };
        let bytes = loligo_block::parse_size(text)?;
        ensure!(bytes >= LEAST_VOLUME, "volumes of {text} are too small: 16m at least");
        Ok(Some(bytes.next_multiple_of(LEAST_VOLUME)))
    }

    /// Bytes of the cache of each volume of a pair.
    ///
    /// # Errors
    /// If the size is not one, or smaller than a cache can be.
    pub fn volume_cache_bytes(&self) -> Result<u64> {
        let bytes = loligo_block::parse_size(&self.volume_cache)?;
        ensure!(bytes >= LEAST_CACHE, "a volume's cache of {} is too small: 24m at least", self.volume_cache);
        Ok(bytes / 4096 * 4096)
    }

    /// The pool of the volumes' images: the one with most copies.
    pub fn volume_pool(&self) -> String {
        if self.domains() >= 3 { "r3".to_owned() } else { "r2".to_owned() }
    }

    /// Bytes of each OSD's cache; nothing: it has none.
    ///
    /// # Errors
    /// If the size is not one, or smaller than a cache can be.
    pub fn cache_bytes(&self) -> Result<Option<u64>> {
        let Some(text) = &self.cache else { return Ok(None) };
        let bytes = loligo_block::parse_size(text)?;
        ensure!(bytes >= LEAST_CACHE, "cache {text} is too small: 24m at least");
        Ok(Some(bytes / 4096 * 4096))
    }

    /// The named set of tunables of the caches: over modelled disks it is made for OSDs, unless another is named.
    pub fn profile(&self) -> Option<&str> {
        let own = (self.data == Data::Kind(Kind::Hdd)).then_some("osd-hdd");
        self.cache_profile.as_deref().or(own)
    }

    /// Placement groups of the pool. A lab of pairs has several pools.
    pub fn pgs(&self) -> u32 {
        let spread = || (self.osd_count() * 32 / self.copies().max(1)).max(8).next_power_of_two();
        self.pg_num.unwrap_or_else(|| if self.pairs > 0 { 16 } else { spread() })
    }

    fn osd_count(&self) -> u32 {
        if self.pairs > 0 {
            return self.pairs * 2;
        }
        if self.layout.is_empty() { self.osds } else { self.layout.values().map(|l| l.len() as u32).sum() }
    }

    /// Checks everything that can be checked without touching the machine, and says what OSDs there will be.
    ///
    /// # Errors
    /// If something makes no sense; the error gives the mend.
    pub fn plan(&self) -> Result<Vec<OsdPlan>> {
        self.osd_bytes()?;
        let cached = self.cache_bytes()?.is_some();
        ensure!(
            cached || (self.cache_dir.is_none() && self.cache_set.is_empty() && self.cache_profile.is_none()),
            "cache-dir, cache-profile and cache-set need caches: give their size with --cache"
        );
        ensure!((1..=1000).contains(&self.osd_count()), "a lab has 1 to 1000 OSDs, not {}", self.osd_count());
        let copies = self.copies();
        ensure!((1..=10).contains(&copies), "replicas must be 1 to 10, not {copies}");
        ensure!(
            copies <= self.osd_count(),
            "{copies} replicas need as many OSDs, but there are {}: add OSDs or lower --replicas",
            self.osd_count()
        );
        let mons = self.mon_count();
        ensure!((1..=MOST_MONS).contains(&mons), "a lab has 1 to {MOST_MONS} monitors, not {mons}");
        if self.pairs > 0 {
            self.check_pairs()?;
        } else {
            ensure!(self.volumes.is_none(), "volumes need controllers: bring up pairs with --pairs");
            ensure!(
                !self.mirror,
                "mirrors are for volumes of pairs: bring them up with --pairs and --volumes"
            );
            ensure!(self.array_defects.is_empty(), "array-defects need arrays: bring up pairs with --pairs");
        }
        ensure!(
            matches!(self.rpm, 7200 | 10_000),
            "the disk model knows 7200 and 10000 rpm, not {}",
            self.rpm
        );
        ensure!(
            !self.pool.is_empty()
                && self.pool.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)),
            "'{}' cannot name a pool: use letters, digits, '-', '_' and '.'",
            self.pool
        );
        ensure!(
            self.pg_num != Some(0),
            "pg-num must be 1 or more: leave it out for a number that fits the OSDs"
        );
        for (key, value) in &self.set {
            check_option(key, value)?;
        }
        let plan = if self.layout.is_empty() { self.plan_flat()? } else { self.plan_layout()? };
        let mut devices: Vec<&PathBuf> =
            plan.iter().flat_map(|o| [&o.device, &o.db, &o.wal]).flatten().collect();
        devices.sort_unstable();
        if let Some(twice) = devices.windows(2).find(|w| w[0] == w[1]) {
            bail!("{} is named twice: each OSD needs a device of its own", twice[0].display());
        }
        Ok(plan)
    }

    /// With pairs.
    fn check_pairs(&self) -> Result<()> {
        let (pairs, mons, copies, places) = (self.pairs, self.mon_count(), self.copies(), self.domains());
        ensure!(pairs <= MOST_PAIRS, "a lab has at most {MOST_PAIRS} pairs, not {pairs}");
        ensure!(
            self.osds == LabConfig::default().osds || self.osds == pairs * 2,
            "{pairs} pairs have {} OSDs, one for each controller, not {}: leave --osds out",
            pairs * 2,
            self.osds
        );
        let plain = self.data == Data::Kind(Kind::File) && self.db.is_none() && self.wal.is_none();
        ensure!(
            plain && self.cache_dir.is_none() && self.layout.is_empty(),
            "OSDs of pairs keep data and caches on the array: leave data, db, wal, cache-dir and layout out"
        );
        let network = self.public_network.is_some() || self.cluster_network.is_some();
        ensure!(!network, "pairs have networks of their own: leave public-network and cluster-network out");
        ensure!(
            self.agents || !self.has_daemons(),
            "volumes and caches are started by agents: leave --agents off out, or the volumes and caches"
        );
        ensure!(
            self.volumes.is_none() || pairs <= MOST_PAIRS / 2,
            "a lab with volumes has at most {} pairs, not {pairs}: their addresses are in the same network",
            MOST_PAIRS / 2
        );
        ensure!(!self.mirror || self.volumes.is_some(), "mirrors are for volumes: add --volumes");
        ensure!(self.mirror || self.mirror_only.is_none(), "mirror-only is for mirrors: add --mirror");
        self.volume_bytes()?;
        self.volume_cache_bytes()?;
        for defect in &self.array_defects {
            ensure!(
                ARRAY_DEFECTS.contains(&defect.as_str()),
                "array-defects: there is no defect '{defect}' (there are: {})",
                ARRAY_DEFECTS.join(", ")
            );
        }
        ensure!(
            mons == 1 || mons <= pairs,
            "{mons} monitors need as many nodes, but there are {pairs}: add pairs or lower --mons"
        );
        ensure!(
            !["r2", "r3"].contains(&self.pool.as_str()),
            "a lab of pairs has pools r2 and r3 of its own: name another with --pool"
        );
        ensure!(
            copies <= places,
            "{copies} copies need as many {}, but there are {places}: lower --replicas",
            if pairs == 1 { "controllers" } else { "nodes" }
        );
        Ok(())
    }

    fn plan_flat(&self) -> Result<Vec<OsdPlan>> {
        let pick = |what: &str, list: &[PathBuf], id: u32| {
            list.get(id as usize).cloned().with_context(|| {
                format!("{what}: {} devices for {} OSDs: name one for each", list.len(), self.osds)
            })
        };
        let aside = |what: &str, aside: &Option<Aside>, id: u32| match aside {
            Some(Aside::Devices(list)) => pick(what, list, id).map(Some),
            Some(Aside::File(_)) | None => Ok(None),
        };
        (0..self.osd_count())
            .map(|id| {
                Ok(OsdPlan {
                    id,
                    host: None,
                    device: match &self.data {
                        Data::Kind(_) => None,
                        Data::Devices(list) => Some(pick("data", list, id)?),
                    },
                    db: aside("db", &self.db, id)?,
                    wal: aside("wal", &self.wal, id)?,
                })
            })
            .collect()
    }

    fn plan_layout(&self) -> Result<Vec<OsdPlan>> {
        let mut plan: Vec<OsdPlan> = Vec::new();
        for (host, lines) in &self.layout {
            for line in lines {
                let parts: Vec<&str> = line.split(':').collect();
                let [osd, data, db] = parts[..] else {
                    bail!(
                        "layout of {host}: '{line}' is not osd:data:db_wal (a number or nothing, a device, a device or nothing)"
                    );
                };
                ensure!(
                    data.starts_with('/'),
                    "layout of {host}: '{data}' is no absolute path of a data device"
                );
                let id = match osd.trim_start_matches("osd.") {
                    "" => plan.iter().map(|o| o.id + 1).max().unwrap_or(0),
                    number => number
                        .parse()
                        .with_context(|| format!("layout of {host}: '{osd}' is no OSD number"))?,
                };
                ensure!(plan.iter().all(|o| o.id != id), "layout: osd.{id} is named twice");
                let db = (!db.is_empty()).then(|| PathBuf::from(db));
                plan.push(OsdPlan { id, host: Some(host.clone()), device: Some(data.into()), db, wal: None });
            }
        }
        Ok(plan)
    }
}

/// `section.option` and a value on one line.
fn check_option(key: &str, value: &str) -> Result<()> {
    let Some((section, option)) = key.split_once('.') else {
        bail!("--set {key}: write section.option=value, as osd.osd_op_num_shards=5");
    };
    let daemon = |s: &str| matches!(s, "global" | "mon" | "mgr" | "osd" | "client");
    let known = daemon(section) || section.split_once('.').is_some_and(|(s, _)| daemon(s));
    ensure!(known, "--set {key}: the section is global, mon, mgr, osd or client");
    let plain = |text: &str| !text.contains(['\n', '\r', '[', ']', '#', ';']);
    ensure!(
        !option.is_empty() && plain(option) && !option.contains('='),
        "--set {key}: no name of an option"
    );
    ensure!(plain(value), "--set {key}: the value must be on one line and hold none of []#;");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(toml: &str) -> String {
        match toml::from_str::<LabConfig>(toml) {
            Ok(config) => config.plan().expect_err(toml).to_string(),
            Err(e) => e.to_string(),
        }
    }

    #[test]
    fn an_empty_file_is_three_osds_on_files() {
        let config: LabConfig = toml::from_str("").unwrap();
        assert_eq!(config, LabConfig::default());
        let plan = config.plan().unwrap();
        assert_eq!(plan.iter().map(|o| o.id).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!((config.osd_bytes().unwrap(), config.pgs()), (10 << 30, 32));
    }

    #[test]
    fn pairs_have_an_osd_a_controller_and_copies_on_each_node() {
        for (pairs, copies, mons) in [(1, 2, 1), (2, 2, 1), (3, 3, 3), (5, 3, 3)] {
            let config = LabConfig { pairs, ..LabConfig::default() }.settled();
            assert_eq!(config.plan().unwrap().len() as u32, pairs * 2);
            assert_eq!((config.copies(), config.mon_count()), (copies, mons), "{pairs} pairs");
            assert_eq!((config.osd_bytes().unwrap(), config.settled()), (3 << 30, config.clone()));
        }
    }

    #[test]
    fn layout_lines_of_the_articles_name_devices_by_host() {
        let config: LabConfig = toml::from_str(
            "[layout]\nnode1 = ['osd.4:/dev/sdb:/dev/nvme0n1p1', ':/dev/sdc:']\nnode2 = ['0:/dev/sdd:']",
        )
        .unwrap();
        let plan = config.plan().unwrap();
        let short: Vec<_> = plan.iter().map(|o| (o.id, o.host.as_deref().unwrap(), o.db.is_some())).collect();
        assert_eq!(short, [(4, "node1", true), (5, "node1", false), (0, "node2", false)]);
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_the_mend() {
        for (toml, says) in [
            ("osds = 2", "as many OSDs"),
            ("replicas = 4\npairs = 3", "need as many nodes"),
            ("replicas = 2\npairs = 1\npool = 'r2'", "pools r2 and r3"),
            ("replicas = 3\npairs = 2", "need as many nodes"),
            ("pairs = 3\nmons = 5", "need as many nodes"),
            ("pairs = 2\nosds = 5", "leave --osds out"),
            ("pairs = 2\ncache = '1g'\ncache-dir = '/x'", "on the array"),
            ("pairs = 2\ncache = '1g'\nagents = false", "leave --agents off out"),
            ("pairs = 101", "at most 100 pairs"),
            ("pairs = 2\nmirror = true", "add --volumes"),
            ("pairs = 2\nvolumes = '1g'\nmirror-only = 'a'", "add --mirror"),
            ("mons = 0", "1 to 9 monitors"),
            ("pairs = 1\narray-defects = ['x']", "no defect 'x'"),
            ("array-defects = ['forgets-at-power-cycle']", "with --pairs"),
            ("osd-size = '10x'", "is not a size"),
            ("osd-size = '100m'", "too small"),
            ("cache = '1m'", "24m at least"),
            ("cache-dir = '/x'", "give their size with --cache"),
            ("cache-profile = 'osd-hdd'", "give their size with --cache"),
            ("pg-num = 0", "1 or more"),
            ("rpm = 5400", "7200 and 10000"),
            ("osd = 3", "unknown field"),
            ("pool = 'a b'", "cannot name a pool"),
            ("data = ['/dev/a', '/dev/b']", "name one for each"),
            ("data = ['/dev/a', '/dev/b', '/dev/a']", "named twice"),
            ("replicas = 1\n[layout]\na = ['/dev/sdb']", "not osd:data:db_wal"),
            ("[set]\nshards = '5'", "section.option"),
            ("[set]\n'osd.x' = \"1\\n[mon]\"", "on one line"),
            ("[set]\n'host.x' = '1'", "section is"),
        ] {
            let said = refused(toml);
            assert!(said.contains(says), "{toml}: {said}");
        }
    }
}
