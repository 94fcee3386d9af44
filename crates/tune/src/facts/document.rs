//! The document of all facts.

use super::cluster::{Cluster, Image, Pool};
use super::host::{Disk, Host, Nic};
use super::osd::Osd;
use super::service::{Cache, Client};
use serde::{Deserialize, Serialize};

/// The version of the document.
pub const VERSION: u32 = 1;

/// All facts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Facts {
    /// [`VERSION`] of the program that wrote it.
    pub version: u32,
    /// Seconds since 1970 at which they were gathered.
    pub taken: u64,
    /// The cluster as a whole.
    pub cluster: Cluster,
    /// Its OSDs, by number.
    #[serde(default)]
    pub osds: Vec<Osd>,
    /// Hosts that could be asked.
    #[serde(default)]
    pub hosts: Vec<Host>,
    /// Disks of those hosts.
    #[serde(default)]
    pub disks: Vec<Disk>,
    /// Network interfaces of those hosts.
    #[serde(default)]
    pub nics: Vec<Nic>,
    /// Pools of the cluster.
    #[serde(default)]
    pub pools: Vec<Pool>,
    /// RBD images that were looked at.
    #[serde(default)]
    pub images: Vec<Image>,
    /// Clients of the cluster on those hosts.
    #[serde(default)]
    pub clients: Vec<Client>,
    /// Caches in front of disks and images on those hosts.
    #[serde(default)]
    pub caches: Vec<Cache>,
    /// The rest: objects that could not be looked at, with the reason.
    #[serde(default)]
    pub unseen: Vec<Unseen>,
}

/// An object that could not be looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unseen {
    /// The object: `host n1`, `osd.3`, `disks of n2`.
    pub what: String,
    /// The cause, and the mend where there is one.
    pub why: String,
}

/// The document was written by another version of the program, or is none.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// Not JSON, or not of this shape.
    #[error("these are no facts: {0}. 'loligo tune facts --json' writes them")]
    Shape(#[from] serde_json::Error),
    /// Of another version.
    #[error("these facts have version {0}, and this program reads version {VERSION}: gather them anew")]
    Version(u32),
}

impl Facts {
    /// Reads a document that `loligo tune facts --json` wrote.
    ///
    /// # Errors
    /// If it is none, or one of another version.
    pub fn read(text: &[u8]) -> Result<Facts, Unreadable> {
        #[derive(Deserialize)]
        struct Head {
            version: u32,
        }
        let head: Head = serde_json::from_slice(text)?;
        if head.version != VERSION {
            return Err(Unreadable::Version(head.version));
        }
        Ok(serde_json::from_slice(text)?)
    }

    /// The host of this name.
    pub fn host(&self, name: &str) -> Option<&Host> {
        self.hosts.iter().find(|host| host.name == name)
    }
}
