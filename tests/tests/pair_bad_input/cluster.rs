//! The cluster that all tests here share: brought up by the first, taken down when the process ends.
//!
//! It has an OSD of its own, and stores of two more on LUNs of an array. Their pair is what is refused.

use crate::array::Array;
use loligo_tests::lab::{Lab, good};
use loligo_tests::skip;
use parking_lot::{Mutex, MutexGuard};
use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;

/// The numbers of the pair's OSDs; the first is at home on `a`, the second on `b`.
pub(crate) const OSDS: [u32; 2] = [1, 2];

static CLUSTER: OnceLock<Cluster> = OnceLock::new();
/// Each test has the cluster and the LUNs alone.
static ALONE: Mutex<()> = Mutex::new(());

/// A running lab.
#[derive(Debug)]
pub(crate) struct Cluster {
    lab: Lab,
    /// The ids of the stores.
    pub(crate) uuids: [String; 2],
}

/// The cluster; nothing where a lab of pairs cannot be.
pub(crate) fn alone(what: &str) -> Option<(&'static Cluster, MutexGuard<'static, ()>)> {
    if !skip::pairs(what, &[]) {
        return None;
    }
    let alone = ALONE.lock();
    Some((CLUSTER.get_or_init(up), alone))
}

fn up() -> Cluster {
    let lab = Lab::new("bad");
    good(lab.up(&["--osds", "1", "--osd-size", "3g", "--replicas", "1", "--pg-num", "8"]));
    // SAFETY: the function is one of this program and takes nothing.
    unsafe { libc::atexit(down) };
    let uuid = || fs::read_to_string("/proc/sys/kernel/random/uuid").expect("an id").trim().to_owned();
    let cluster = Cluster { lab, uuids: [uuid(), uuid()] };
    cluster.make_stores();
    cluster
}

/// At the end of the process.
extern "C" fn down() {
    if let Some(cluster) = CLUSTER.get() {
        cluster.lab.run("down", &[]);
    }
}

impl Cluster {
    /// A file of the lab's folder.
    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.lab.dir.join(name)
    }

    /// A file of the pair's folder, which goes with the lab.
    pub(crate) fn of_pair(&self, name: &str) -> PathBuf {
        self.at("pair").join(name)
    }

    /// Runs a script of Ceph's own tools.
    pub(crate) fn sh(&self, script: &str) -> String {
        String::from_utf8(good(self.lab.sh(script)).stdout).expect("text")
    }

    /// Makes the stores by the paths of their home, and primes the folders of their partner.
    fn make_stores(&self) {
        fs::create_dir(self.of_pair("")).expect("a folder");
        let _array = Array::start(&self.of_pair(""), None);
        let mut script = String::new();
        let (lab, pair) = (self.at("").display().to_string(), self.of_pair("").display().to_string());
        for (osd, uuid) in OSDS.iter().zip(&self.uuids) {
            script += &format!(
                "ceph osd new {uuid} {osd}\n\
                 ceph auth get-or-create osd.{osd} mon 'allow profile osd' mgr 'allow profile osd' osd 'allow *' \
                 -o {lab}/ceph.osd.{osd}.keyring\n"
            );
        }
        for ((osd, uuid), [home, partner]) in OSDS.iter().zip(&self.uuids).zip([["a", "b"], ["b", "a"]]) {
            for side in [home, partner] {
                script += &format!(
                    "mkdir -p {pair}/{side}.{osd}; ln -s {pair}/{side}/osd{osd} {pair}/{side}.{osd}/block\n"
                );
            }
            script += &format!(
                "(ceph-osd -i {osd} --mkfs --osd-uuid {uuid} --osd-data {pair}/{home}.{osd}\n\
                 ceph-bluestore-tool prime-osd-dir --dev {pair}/{partner}/osd{osd} --path {pair}/{partner}.{osd}\n\
                 ln -sfn {pair}/{partner}/osd{osd} {pair}/{partner}.{osd}/block) & made{osd}=$!\n"
            );
        }
        script += "wait $made1; wait $made2; rbd create --size 64M rbd/vm\n";
        self.sh(&script);
    }
}
