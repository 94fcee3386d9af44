//! Stores that `ceph-volume` makes: on the volume as it is, or on a logical volume over it. And its units, where an OSD is adopted.
//!
//! It goes its own way: the cluster hears of the OSD before there is a store, the folder is one in memory,
//! and `raw` chooses the OSD's id itself. The result is an OSD like any other, and is started like any other.

use crate::behind::Via;
use crate::cluster::{Cluster, default_dir};
use crate::daemon::{self, systemctl};
use crate::lvm;
use crate::place::Place;
use crate::prepare::Prepare;
// It always runs OSDs as the packages' user.
use crate::user::USER;
use anyhow::{Context, Result, ensure};
use loligo_lab::ceph::find;
use loligo_lab::interrupt::Interrupt;
use loligo_lab::process;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::Duration;

/// The time that it may take: it makes a store, and looks at every device of the host before.
const LIMIT: Duration = Duration::from_secs(900);
/// The key with which it tells the cluster of a new OSD.
const KEYRING: &str = "/var/lib/ceph/bootstrap-osd/ceph.keyring";

/// The program that makes a store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum By {
    /// The OSD's own program.
    #[default]
    #[serde(rename = "ceph-osd")]
    CephOsd,
    /// `ceph-volume raw`, on the volume as it is.
    #[serde(rename = "ceph-volume-raw")]
    Raw,
    /// `ceph-volume lvm`, on a logical volume over the volume.
    #[serde(rename = "ceph-volume-lvm")]
    Lvm,
}

impl By {
    /// All of them.
    const ALL: [By; 3] = [By::CephOsd, By::Raw, By::Lvm];

    /// Its name.
    pub fn word(self) -> &'static str {
        match self {
            By::CephOsd => "ceph-osd",
            By::Raw => "ceph-volume-raw",
            By::Lvm => "ceph-volume-lvm",
        }
    }

    /// True if the OSD's own program does.
    pub(crate) fn is_ceph_osd(&self) -> bool {
        *self == By::CephOsd
    }
}

impl std::str::FromStr for By {
    type Err = String;

    fn from_str(text: &str) -> Result<By, String> {
        let found = By::ALL.into_iter().find(|by| by.word() == text);
        found.ok_or_else(|| format!("use {}", By::ALL.map(By::word).join(", ")))
    }
}

/// `ceph-volume` can make what is wanted, as far as that can be told before anything is.
///
/// # Errors
/// If it cannot be; the error gives the mend.
pub(crate) fn possible(wanted: &Prepare, place: &Place) -> Result<()> {
    if place.by.is_ceph_osd() {
        return Ok(());
    }
    let by = place.by.word();
    ensure!(
        wanted.behind.via != Via::Fuse,
        "--by {by} needs a block device, but --via fuse makes a file: leave one of them out"
    );
    ensure!(
        find("ceph-volume").is_some(),
        "--by {by}: ceph-volume is missing: apt-get install ceph-volume (Debian 12 has it in ceph-osd), or leave --by out"
    );
    let dir = default_dir(place.id);
    ensure!(
        place.dir == dir && place.user == USER,
        "--by {by}: ceph-volume knows no other folder than {} and no other user than {USER}: leave --osd-dir and --user out, or --by",
        dir.display()
    );
    ensure!(
        Path::new(KEYRING).is_file(),
        "--by {by}: ceph-volume needs the key in {KEYRING}, which is not there. Run: ceph auth get \
        client.bootstrap-osd -o {KEYRING}"
    );
    if place.by == By::Lvm {
        ensure!(find("vgcreate").is_some(), "--by {by}: LVM is missing: apt-get install lvm2");
        ensure!(
            place.db.is_none() && place.wal.is_none(),
            "--by {by} makes one logical volume, for the data: leave --db and --wal out, or give --by ceph-volume-raw"
        );
        // A group on a device that died with the daemon would have to be let go by everybody before it can be had again.
        loligo_export::ublk::available().with_context(|| {
            format!("--by {by} needs a device that outlives loligod; --by ceph-volume-raw does without")
        })?;
    }
    Ok(())
}

/// Has it make the store of an OSD on `device`, and tell the cluster. The OSD's id.
///
/// # Errors
/// If it fails; the error holds its words.
pub(crate) fn prepare(place: &Place, class: &str, device: &Path, cluster: &Cluster) -> Result<String> {
    let (id, by) = (place.id.to_string(), place.by.word());
    let mut command = place.cluster.tool("ceph-volume");
    if device.display().to_string().starts_with("/dev/loop") {
        // Else it takes them for nobody's.
        command.env("CEPH_VOLUME_ALLOW_LOOP_DEVICES", "1");
    }
    let kind = if place.by == By::Lvm { "lvm" } else { "raw" };
    command.args([kind, "prepare", "--bluestore", "--osd-id", &id, "--crush-device-class", class, "--data"]);
    if place.by == By::Lvm {
        command.arg(lvm::name(place.id)).args(["--osd-fsid", &place.uuid]);
    } else {
        command.arg(device);
    }
    for (option, path) in [("--block.db", &place.db), ("--block.wal", &place.wal)] {
        if let Some(path) = path {
            command.arg(option).arg(path);
        }
    }
    process::run(&mut command, LIMIT, cluster.interrupt())
        .with_context(|| format!("--by {by} (its log: /var/log/ceph/ceph-volume.log)"))?;
    // It calls it a success, too, to have found a reason for doing nothing.
    let fsid = place.dir.join("fsid");
    let uuid = std::fs::read_to_string(&fsid).with_context(|| {
        format!(
            "ceph-volume made no store; the cause is in /var/log/ceph/ceph-volume.log: {}",
            fsid.display()
        )
    })?;
    Ok(uuid.trim().to_owned())
}

/// The unit by which `ceph-volume` starts an OSD at boot, if it does.
pub(crate) fn unit_that_starts(id: u32, uuid: &str, stop: &Interrupt) -> Option<String> {
    let unit = format!("ceph-volume@lvm-{id}-{uuid}");
    is_enabled(&unit, stop).then_some(unit)
}

fn is_enabled(unit: &str, stop: &Interrupt) -> bool {
    daemon::systemd() && systemctl(&["is-enabled", "--quiet", unit], stop).is_ok()
}

/// Has `ceph-volume` leave the OSD alone at boot: it would look for the store on the raw device, and put its folder aside meanwhile.
///
/// # Errors
/// If systemd refuses; the error holds its words.
pub(crate) fn stands_aside(place: &Place, stop: &Interrupt) -> Result<()> {
    match &place.unit {
        Some(unit) if is_enabled(unit, stop) => systemctl(&["disable", unit], stop).map(drop),
        _ => Ok(()),
    }
}

/// Has it start the OSD at boot again, as before.
///
/// # Errors
/// If systemd refuses; the error holds its words.
pub(crate) fn starts_again(place: &Place, stop: &Interrupt) -> Result<()> {
    match &place.unit {
        Some(unit) if daemon::systemd() => systemctl(&["enable", unit], stop).map(drop),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::behind::Behind;
    use crate::cluster::Access;
    use loligo_block::DeviceSpec;

    fn wanted(by: By, via: Via) -> Prepare {
        Prepare {
            behind: Behind {
                cache: "/dev/y".into(),
                cache_size: None,
                mode: "wb".to_owned(),
                profile: None,
                params: Default::default(),
                cluster: Access { conf: "/x".into(), name: "client.admin".to_owned(), keyring: None },
                dir: None,
                user: None,
                via,
                force: false,
                program: "/x".into(),
            },
            data: DeviceSpec::File("/dev/x".into()),
            text: String::new(),
            db: None,
            wal: None,
            id: None,
            class: None,
            by,
            start: true,
        }
    }

    fn place(by: By) -> Place {
        Place {
            id: 3,
            uuid: "the-id".to_owned(),
            dir: default_dir(3),
            cluster: wanted(by, Via::Block).behind.cluster,
            user: USER.to_owned(),
            by,
            db: None,
            wal: None,
            adopted: None,
            unit: None,
            fsid: None,
        }
    }

    #[test]
    fn who_makes_a_store_is_told_by_the_same_words_everywhere() {
        for by in By::ALL {
            assert_eq!(by.word().parse(), Ok(by));
            assert_eq!(serde_json::to_value(by).expect("a word"), by.word());
        }
        assert!("lvm".parse::<By>().expect_err("no such").contains("ceph-volume-lvm"));
    }

    #[test]
    fn ceph_volume_is_not_asked_for_what_it_cannot_do() {
        let refused = |place: &Place, via| {
            format!("{:#}", possible(&wanted(place.by, via), place).expect_err("it cannot"))
        };
        let elsewhere = Place { dir: "/elsewhere".into(), ..place(By::CephOsd) };
        possible(&wanted(By::CephOsd, Via::Fuse), &elsewhere).expect("it is not asked at all");
        assert!(refused(&place(By::Raw), Via::Fuse).contains("--via fuse makes a file"));
        if find("ceph-volume").is_none() {
            return println!("SKIP: the rest of what ceph-volume cannot do: it is missing");
        }
        let elsewhere = Place { by: By::Raw, ..elsewhere };
        assert!(refused(&elsewhere, Via::Block).contains("leave --osd-dir and --user out"));
        let root = Place { user: "root:root".to_owned(), ..place(By::Lvm) };
        assert!(refused(&root, Via::Block).contains("leave --osd-dir and --user out"));
    }
}
