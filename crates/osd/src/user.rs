//! As whom an OSD runs where nobody says it.

use crate::cluster::{Cluster, DEFAULT_CONF};
use crate::daemon::systemd;
use loligo_export::blockdev::Owner;
use loligo_lab::process;
use loligo_log::say;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The user whom Ceph's packages make, and as whom their units start OSDs.
pub(crate) const USER: &str = "ceph:ceph";

/// The time that the configuration may take to be read.
const LIMIT: Duration = Duration::from_secs(10);

/// As whom the OSD `id` runs, whose folder is `dir`: who says nothing means whom the cluster's OSDs run as.
/// If systemd starts them, or the configuration is the packages', that is the packages' user. An OSD that is
/// there already keeps its user. The OSDs of any other cluster run as the owner of the folder in which they
/// lie: those of a lab, as the user who brought it up.
pub(crate) fn of(id: u32, dir: &Path, cluster: &Cluster) -> String {
    if systemd() {
        return USER.to_owned();
    }
    let there = owner(&dir.join("fsid"));
    let like_others = || match cluster.access().conf == Path::new(DEFAULT_CONF) {
        true => None,
        false => owner(data_of(id, cluster)?.parent()?),
    };
    let user = there.or_else(like_others).unwrap_or_else(|| USER.to_owned());
    if user != USER {
        say!("osd.{id}: it runs as {user}, as the OSDs of this cluster do (--user says otherwise)");
    }
    user
}

/// The folder that the configuration has for an OSD.
fn data_of(id: u32, cluster: &Cluster) -> Option<PathBuf> {
    let mut command = cluster.command("ceph-conf");
    command.args(["--name", &format!("osd.{id}"), "--show-config-value", "osd_data"]);
    let path = process::run(&mut command, LIMIT, cluster.interrupt()).ok()?;
    Some(PathBuf::from(path.trim())).filter(|p| p.is_absolute())
}

/// To whom `path` belongs, as `--user` is written.
fn owner(path: &Path) -> Option<String> {
    let s = rustix::fs::stat(path).ok()?;
    let own = Owner { uid: s.st_uid, gid: s.st_gid };
    let known = ["root:root", USER].into_iter().find(|name| name.parse() == Ok(own));
    Some(known.map_or_else(|| format!("{}:{}", own.uid, own.gid), str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Access;
    use loligo_lab::interrupt::Interrupt;

    #[test]
    fn an_osd_runs_on_as_who_it_was_and_the_packages_as_theirs() {
        let dir = tempfile::tempdir().expect("a folder");
        let mine = owner(dir.path()).expect("it is there");
        let parsed: Owner = mine.parse().expect("as --user is written");
        assert_eq!(parsed.uid, rustix::process::geteuid().as_raw());
        assert_eq!(owner(&dir.path().join("fsid")), None);
        let access = Access { conf: DEFAULT_CONF.into(), name: "client.admin".to_owned(), keyring: None };
        let cluster = Cluster::new(&access, &Interrupt::default());
        assert_eq!(of(3, dir.path(), &cluster), USER);
        std::fs::write(dir.path().join("fsid"), "x").expect("a file");
        let runs_as = if systemd() { USER } else { &mine };
        assert_eq!(of(3, dir.path(), &cluster), runs_as);
    }
}
