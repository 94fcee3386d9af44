//! The definition of a volume, in TOML as in JSON.

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use utoipa::ToSchema;

/// A volume: what `loligo serve` takes as options.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct VolumeConfig {
    /// The slow device: a path, file:PATH, hdd:PATH?.. or rbd:POOL/IMAGE.
    pub core: String,
    /// The cache: a file or block device. Left out: the core is served bare.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub cache: Option<PathBuf>,
    /// Bytes of a new cache; default: the whole device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub cache_size: Option<Bytes>,
    /// A device on the partner's array that holds the same as the cache: a write is acknowledged once both have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub journal_mirror: Option<PathBuf>,
    /// Once that or the cache is gone: preferred (the default) goes on with the other after 2 s, required takes no more writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mirror: Option<String>,
    /// Do not write a new cache file whole.
    #[serde(default, skip_serializing_if = "is_default")]
    pub sparse: bool,
    /// A named set of tunables; values given beside it win.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// wt, wb, wa, wi, wo or pt; needed with a cache, unless a profile says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Cache line of a new cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub line_size: Option<Bytes>,
    /// Shards of a new cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shards: Option<u16>,
    /// Percent of the core that a new cache leaves unexported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core_reserve: Option<u8>,
    /// Bytes of a new core that are kept for a label, so that nobody else finds anything on the raw device; 0: the label takes the
    /// place of the content's first 4 KiB, which are kept behind it.
    #[serde(default, alias = "home-offset", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub data_offset: Option<Bytes>,
    /// The key by which this controller holds the reservation of the arrays that cache and core lie on, as 0xa: they are opened
    /// only while the arrays say so. Left out: they are this host's alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservation: Option<String>,
    /// The exports through which clients come.
    pub listen: Vec<String>,
    /// The word of block devices on heads that they have to move: yes, no or core.
    #[serde(default = "core", skip_serializing_if = "is_core")]
    pub rotational: String,
    /// Further names of the block device under /dev.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dev_names: Vec<String>,
    /// The user that block devices belong to, as ceph:ceph.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dev_owner: Option<String>,
    /// With it, NBD clients must use TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsConfig>,
    /// The way an RBD image is held.
    #[serde(default, skip_serializing_if = "is_default")]
    pub rbd: RbdConfig,
    /// Tunables with values of their own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, String>)]
    pub params: BTreeMap<String, Word>,
    /// Write everything dirty to the core when the volume stops.
    #[serde(default, skip_serializing_if = "is_default")]
    pub flush_on_stop: bool,
    /// Start it with the daemon.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub autostart: bool,
    /// The socket of an agent that keeps mode and tunables on the array: a value set by command holds once it has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub keeper: Option<PathBuf>,
    /// A command to run each time the volume has come to be served, by its words: a restart of an OSD, for
    /// example.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after_start: Vec<String>,
}

/// Files of a TLS server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct TlsConfig {
    /// Certificate chain, PEM.
    #[schema(value_type = Option<String>)]
    pub cert: Option<PathBuf>,
    /// Its private key, PEM.
    #[schema(value_type = Option<String>)]
    pub key: Option<PathBuf>,
    /// The authority that signs clients' certificates, PEM.
    #[schema(value_type = Option<String>)]
    pub ca: Option<PathBuf>,
    /// Pre-shared keys instead: lines user:hexkey.
    #[schema(value_type = Option<String>)]
    pub psk: Option<PathBuf>,
    /// Without ca and psk: unknown clients are served beyond loopback.
    #[serde(skip_serializing_if = "is_default")]
    pub anonymous: bool,
}

/// The way an RBD image is held.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct RbdConfig {
    /// auto, grouped or librbd.
    pub destage: String,
    /// Seconds for which answers may leave without a word from the cluster.
    pub lease: u64,
    /// Seconds that snapshots by others should wait at most; 0: no matter.
    pub snapshot_deadline: u64,
}

impl Default for RbdConfig {
    fn default() -> RbdConfig {
        RbdConfig { destage: "auto".to_owned(), lease: 20, snapshot_deadline: 60 }
    }
}

fn yes() -> bool {
    true
}

fn is_yes(b: &bool) -> bool {
    *b
}

fn core() -> String {
    "core".to_owned()
}

fn is_core(text: &String) -> bool {
    text == "core"
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Bytes, written as a number or as `64g`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Bytes, D::Error> {
        let Word(text) = Word::deserialize(from)?;
        loligo_block::parse_size(&text).map(Bytes).map_err(D::Error::custom)
    }
}

/// A value that may be written with or without quotes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Word(pub String);

impl<'de> Deserialize<'de> for Word {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Word, D::Error> {
        struct Any;
        impl Visitor<'_> for Any {
            type Value = Word;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a word or a number")
            }
            fn visit_str<E>(self, text: &str) -> Result<Word, E> {
                Ok(Word(text.to_owned()))
            }
            fn visit_i64<E>(self, n: i64) -> Result<Word, E> {
                Ok(Word(n.to_string()))
            }
            fn visit_u64<E>(self, n: u64) -> Result<Word, E> {
                Ok(Word(n.to_string()))
            }
        }
        from.deserialize_any(Any)
    }
}

/// Permissions for one start only.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Leave {
    /// Insist on a new cache.
    pub create: bool,
    /// Overwrite, or give up, data that stands in the way.
    pub force: bool,
    /// Take an RBD image away from the client that has it.
    pub steal: bool,
    /// Open an RBD image whose dirty data another cache holds.
    pub without_cache: bool,
    /// Believe one device of a mirrored cache although the other cannot be seen.
    pub mirror_alone: bool,
}

impl VolumeConfig {
    /// Paths of its core and cache that are not whole begin in the folder `dir`.
    pub fn begin_in(&mut self, dir: &Path) {
        self.core = beside(dir, &self.core);
        self.cache = self.cache.take().map(|cache| beside(dir, &cache.display().to_string()).into());
        self.journal_mirror =
            self.journal_mirror.take().map(|path| whole(dir, &path.display().to_string()).into());
    }
}

/// A core or cache as it is written, whole where it names a file of the folder `dir`.
pub fn beside(dir: &Path, text: &str) -> String {
    match text.split_once(':') {
        Some((word @ ("file" | "hdd" | "pool"), path)) => format!("{word}:{}", whole(dir, path)),
        Some((word, _)) if !word.contains('/') => text.to_owned(),
        None if text.is_empty() => String::new(),
        _ => whole(dir, text),
    }
}

/// The same of a way to a volume.
pub fn way_beside(dir: &Path, text: &str) -> String {
    match text.split_once(':') {
        Some((kind @ ("unix" | "fuse"), path)) if !path.is_empty() => format!("{kind}:{}", whole(dir, path)),
        _ => text.to_owned(),
    }
}

fn whole(dir: &Path, path: &str) -> String {
    let joined = dir.join(path);
    std::path::absolute(&joined).unwrap_or(joined).display().to_string()
}
