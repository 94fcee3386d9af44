//! A cache that was served, and the core that it is of.

use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// A cache that was served.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastCache {
    /// The path at which it was.
    pub path: PathBuf,
    /// The UUID of the cache.
    pub uuid: String,
    /// Of which core, as its volume called it.
    pub core: String,
    /// The names of that core, by which it is known when another path leads to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub core_names: Vec<String>,
    /// Bytes that its core lacked when it was stopped; nothing while it is served, or after a crash.
    pub dirty_bytes: Option<u64>,
    /// It failed while its core had everything, and the core was changed without it: what it holds is not to be believed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub void: bool,
    /// It was made for an attach to a core with a label, and nobody knows whether that came to its end: where the label
    /// does not name it, nobody was served through it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub attaching: bool,
}

/// A core as it is known again: by the words of a definition, and by the names of what these lead to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoreNames {
    /// The definition's words.
    pub text: String,
    /// As [`loligo_block::names_of`] gives them.
    pub names: Vec<String>,
}

impl CoreNames {
    /// A cache of this core.
    pub fn cache(&self, path: &Path, uuid: String, dirty_bytes: Option<u64>, void: bool) -> LastCache {
        let (core, core_names) = (self.text.clone(), self.names.clone());
        let path = path.to_owned();
        LastCache { path, uuid, core, core_names, dirty_bytes, void, attaching: false }
    }
}

impl LastCache {
    /// True if it is a cache of `core`, by whatever path. A core that only seems to be the same is asked about once too often;
    /// one that is not seen to be the same would be changed without its cache. Paths count where lasting names say nothing:
    /// after a boot they may lead to other disks.
    pub fn is_of(&self, core: &CoreNames) -> bool {
        are_one(&self.core_names, &core.names).unwrap_or_else(|| {
            self.core == core.text || self.core_names.iter().any(|name| core.names.contains(name))
        })
    }

    /// True if that is so by more than a path: a device's lasting name, or the number of a file, which may lie under a
    /// loop device.
    pub fn is_surely_of(&self, core: &CoreNames) -> bool {
        let is_image = self.core.starts_with("rbd:") && self.core == core.text;
        let lasts = |name: &&String| name.starts_with(DEVICE) || name.starts_with("file:");
        is_image || self.core_names.iter().filter(lasts).any(|name| core.names.contains(name))
    }

    /// Its core.
    pub fn core(&self) -> CoreNames {
        CoreNames { text: self.core.clone(), names: self.core_names.clone() }
    }

    /// The loss without it, in words; nothing if its core has everything.
    pub fn lost(&self) -> Option<String> {
        match self.dirty_bytes {
            Some(0) => None,
            Some(n) => Some(format!("{n} bytes that core {} does not have", self.core)),
            None => Some(format!(
                "whatever core {} did not have when it was served last (it was not stopped cleanly)",
                self.core
            )),
        }
    }
}

/// Begins the name that a device keeps, whatever path leads to it.
const DEVICE: &str = "device:";

/// True if two devices of these names are one, by the names that last; nothing where these do not say. A partition's
/// name has its place on the disk. A loop device has none. A disk has another one behind multipath, and neither says
/// anything of the other.
fn are_one(a: &[String], b: &[String]) -> Option<bool> {
    let lasting = |names: &[String]| names.iter().find(|name| name.starts_with(DEVICE)).cloned();
    let (a, b) = (lasting(a)?, lasting(b)?);
    let is_multipath = |name: &str| name.contains("mpath-");
    if a != b && is_multipath(&a) != is_multipath(&b) { None } else { Some(a == b) }
}
