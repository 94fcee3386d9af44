//! All that has to be known of an OSD on a volume, kept in the volume's own definition: the last word of the command that the daemon
//! runs when the volume has come. Who deletes the volume deletes it, and there is no second record that could differ.

use crate::ceph_volume::By;
use crate::cluster::Access;
use crate::lvm;
use anyhow::{Context, Result, bail, ensure};
use loligo_client::api::listed::Listed;
use loligo_client::client::DaemonClient;
use loligo_client::outcome::Ended;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// An OSD's place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    /// Its number.
    pub id: u32,
    /// Its id.
    pub uuid: String,
    /// Its folder.
    pub dir: PathBuf,
    /// Its cluster.
    pub cluster: Access,
    /// As whom it runs, as `ceph:ceph`.
    pub user: String,
    /// The program that made its store.
    #[serde(default, skip_serializing_if = "By::is_ceph_osd")]
    pub by: By,
    /// The device of its database, if not with the data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub db: Option<PathBuf>,
    /// The device of its log, if not with the database.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wal: Option<PathBuf>,
    /// For an OSD that was there before its volume: what its `block` led to then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adopted: Option<PathBuf>,
    /// For such an OSD: the unit of ceph-volume's that started it at boot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// The id of its cluster. OSDs made before this was noted have none here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fsid: Option<String>,
}

/// The words before the place.
const ACTIVATE: [&str; 3] = ["osd", "activate", "--place"];

impl Place {
    /// The name of its volume.
    pub fn volume(&self) -> String {
        volume_of(self.id)
    }

    /// The target of its `block` where its volume is `device`.
    pub(crate) fn block(&self, device: PathBuf) -> PathBuf {
        if self.by == By::Lvm { lvm::path(self.id) } else { device }
    }

    /// The command that starts it, for the daemon.
    pub fn words(&self, program: &Path) -> Vec<String> {
        let json = serde_json::to_string(self).expect("paths and numbers");
        let program = program.display().to_string();
        std::iter::once(program).chain(ACTIVATE.map(str::to_owned)).chain([json]).collect()
    }

    /// The place in such a command; nothing if it is another command.
    pub fn in_words(words: &[String]) -> Option<Result<Place>> {
        let (program, rest) = words.split_first()?;
        let (json, before) = rest.split_last()?;
        if program.is_empty() || before != ACTIVATE {
            return None;
        }
        Some(json.parse())
    }
}

impl std::str::FromStr for Place {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Place> {
        serde_json::from_str(text).context(
            "the place of the OSD in its volume's after-start cannot be \
            read",
        )
    }
}

/// The name of the volume of an OSD.
pub fn volume_of(id: u32) -> String {
    format!("osd{id}")
}

/// An OSD and its volume.
#[derive(Debug, Clone)]
pub struct Known {
    /// Its path.
    pub place: Place,
    /// The volume it stands on.
    pub volume: Listed,
}

impl Known {
    /// The target of the OSD's `block`.
    ///
    /// # Errors
    /// If the volume is served in another way.
    pub fn target(&self) -> Result<PathBuf> {
        self.device().map(|device| self.place.block(device))
    }

    /// The path under which the volume itself is found.
    ///
    /// # Errors
    /// If it is served in another way.
    pub(crate) fn device(&self) -> Result<PathBuf> {
        target(&self.volume.name, &self.volume.definition.listen)
    }
}

/// The path under which a volume with these ways is found.
pub(crate) fn target(volume: &str, listen: &[String]) -> Result<PathBuf> {
    for way in listen {
        if let Some(name) = ["block:", "ublk:", "loop:"].iter().find_map(|kind| way.strip_prefix(kind)) {
            return Ok(Path::new("/dev/loligo").join(name));
        }
        if let Some(mount) = way.strip_prefix("fuse:") {
            return Ok(Path::new(mount).join(volume));
        }
    }
    bail!(
        "volume '{volume}' is neither a block device nor a file: an OSD needs block:NAME, ublk:NAME or \
         fuse:MOUNTPOINT"
    )
}

/// Every OSD on a volume of the daemon.
///
/// # Errors
/// If no daemon runs, or a place is not understood.
pub fn all(daemon: &DaemonClient) -> Result<Vec<Known>> {
    let mut found = Vec::new();
    for volume in daemon.volumes()? {
        let Some(place) = Place::in_words(&volume.definition.after_start) else { continue };
        let place = place.with_context(|| format!("volume '{}'", volume.name))?;
        found.push(Known { place, volume });
    }
    found.sort_by_key(|k| k.place.id);
    Ok(found)
}

/// The OSD `id`.
///
/// # Errors
/// If there is none on a volume of this host.
pub fn one(daemon: &DaemonClient, id: u32) -> Result<Known> {
    let all = all(daemon)?;
    let mut those = all.into_iter().filter(|k| k.place.id == id);
    let Some(known) = those.next() else {
        bail!(Ended::refused(format!(
            "osd.{id} stands on no volume of this host: 'loligo osd list' shows those that do"
        )));
    };
    ensure!(
        those.next().is_none(),
        Ended::refused(format!(
            "two volumes claim to be osd.{id}: find them with 'loligo osd list' and delete the wrong \
            one with 'loligo volume delete'"
        ))
    );
    Ok(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> Place {
        Place {
            id: 3,
            uuid: "6a".to_owned(),
            dir: "/var/lib/ceph/osd/ceph-3".into(),
            cluster: Access {
                conf: "/etc/ceph/ceph.conf".into(),
                name: "client.admin".to_owned(),
                keyring: None,
            },
            user: "ceph:ceph".to_owned(),
            by: By::Lvm,
            db: Some("/dev/vg/db \"3\"".into()),
            wal: None,
            adopted: Some("/dev/vg/block".into()),
            unit: Some("ceph-volume@lvm-3-6a".to_owned()),
            fsid: None,
        }
    }

    #[test]
    fn a_place_comes_back_out_of_the_command_that_holds_it() {
        let words = place().words(Path::new("/usr/bin/loligo"));
        assert_eq!(Place::in_words(&words).expect("it is one").expect("whole"), place());
        let other = ["/bin/systemctl", "restart", "ceph-osd@3"].map(str::to_owned);
        assert!(Place::in_words(&other).is_none() && Place::in_words(&[]).is_none());
        let mut torn = words;
        torn[4].truncate(20);
        assert!(Place::in_words(&torn).expect("it was one").is_err());
    }

    #[test]
    fn a_place_written_down_before_makers_were_is_of_ceph_osd() {
        let text = r#"{"id":3,"uuid":"6a","dir":"/x","cluster":{"conf":"/y","name":"client.admin"},"user":"ceph:ceph"}"#;
        let place: Place = text.parse().expect("a place");
        assert_eq!((place.by, &place.unit), (By::CephOsd, &None));
        assert_eq!(serde_json::to_string(&place).expect("JSON"), text, "and is written down as before");
        assert_eq!(place.block("/dev/loligo/osd3".into()), Path::new("/dev/loligo/osd3"));
        let lvm = Place { by: By::Lvm, ..place };
        assert_eq!(lvm.block("/dev/loligo/osd3".into()), Path::new("/dev/ceph-loligo-osd3/osd-block"));
    }

    #[test]
    fn an_osd_stands_on_a_device_or_a_file() {
        let ways = |w: &str| target("osd3", &[w.to_owned()]);
        assert_eq!(ways("block:osd3").unwrap(), Path::new("/dev/loligo/osd3"));
        assert_eq!(ways("ublk:osd3").unwrap(), Path::new("/dev/loligo/osd3"));
        assert_eq!(ways("fuse:/run/x").unwrap(), Path::new("/run/x/osd3"));
        assert!(ways("unix:/run/x").is_err());
    }
}
