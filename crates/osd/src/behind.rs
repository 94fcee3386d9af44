//! The wishes for an OSD behind a cache, whether it is made anew or was there before.

use crate::cluster::{Access, default_dir};
use crate::place::Place;
use anyhow::{Context, Result, anyhow};
use loligo_client::api::definition::{Leave, VolumeConfig};
use loligo_export::blockdev::Owner;
use loligo_volume::options::ServeOptions;
use rustix::io::Errno;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The way an OSD reaches its volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Via {
    /// As a block device of the best kind that the kernel has.
    Block,
    /// As a block device of the kernel's ublk driver, which outlives the daemon.
    Ublk,
    /// As a file, in a folder of the OSD's own.
    Fuse,
}

impl Via {
    /// The way of `volume` whose OSD has the folder `dir`.
    fn way(self, volume: &str, dir: &Path) -> String {
        match self {
            Via::Block => format!("block:{volume}"),
            Via::Ublk => format!("ublk:{volume}"),
            Via::Fuse => format!("fuse:{}", dir.join("volume").display()),
        }
    }
}

/// The cache, the cluster, and how the OSD stands between them.
#[derive(Debug, Clone)]
pub struct Behind {
    /// Its cache.
    pub cache: PathBuf,
    /// Bytes of a new cache.
    pub cache_size: Option<u64>,
    /// The cache's mode.
    pub mode: String,
    /// A named set of the cache's tunables.
    pub profile: Option<String>,
    /// Tunables of the cache.
    pub params: BTreeMap<String, String>,
    /// The cluster.
    pub cluster: Access,
    /// Its folder; nothing: where the packages' units look for it.
    pub dir: Option<PathBuf>,
    /// As whom it runs, as `ceph:ceph`; nothing: as whom the cluster's OSDs run.
    pub user: Option<String>,
    /// The way it reaches its volume.
    pub via: Via,
    /// Give up what stands in the way, where nobody counts on it.
    pub force: bool,
    /// This program, by its whole path.
    pub program: PathBuf,
}

impl Behind {
    /// The folder of the OSD `id`.
    pub(crate) fn dir(&self, id: u32) -> Result<PathBuf> {
        Ok(std::path::absolute(self.dir.clone().unwrap_or_else(|| default_dir(id)))?)
    }

    /// The definition of the OSD's volume: its `core`, with its content from `home` on, behind its `cache`.
    pub(crate) fn definition(
        &self,
        place: &Place,
        core: &str,
        cache: &Path,
        home: u64,
    ) -> Result<VolumeConfig> {
        let volume = place.volume();
        let mut all = json!({
            "core": core,
            "cache": cache,
            "mode": self.mode,
            "data-offset": home.to_string(),
            "listen": [self.via.way(&volume, &place.dir)],
            "params": self.params,
            "after-start": place.words(&self.program),
        });
        let mut put = |key: &str, value: Option<String>| {
            if let Some(value) = value {
                all[key] = Value::from(value);
            }
        };
        put("cache-size", self.cache_size.map(|n| n.to_string()));
        put("profile", self.profile.clone());
        put("dev-owner", (self.via != Via::Fuse).then(|| place.user.clone()));
        serde_json::from_value(all).context("the volume's definition")
    }

    /// Refuses a definition that the daemon would, and a user that is none, before anything is written over.
    pub(crate) fn check(&self, place: &Place, definition: &VolumeConfig) -> Result<()> {
        ServeOptions::of(definition, &place.volume(), Leave::default())?;
        let _: Owner = place.user.parse().map_err(|why| anyhow!("--user {}: {why}", place.user))?;
        Ok(())
    }

    /// Makes the place where the volume's file is to be mounted, if it is to be a file.
    pub(crate) fn make_mountpoint(&self, place: &Place) -> Result<()> {
        if self.via == Via::Fuse {
            let mount = place.dir.join("volume");
            let made = std::fs::create_dir_all(&mount);
            // The dead mount of a service that was killed is cleared away by the next one.
            let is_dead = matches!(rustix::fs::stat(&mount), Err(Errno::NOTCONN));
            made.or_else(|why| if is_dead { Ok(()) } else { Err(why) })
                .with_context(|| format!("making {}", mount.display()))?;
        }
        Ok(())
    }
}
