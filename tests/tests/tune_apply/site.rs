//! A lab, and a host's files that the tuner may change.

use loligo_tests::lab::{Lab, good};
use loligo_tests::server::program;
use loligo_tests::skip::cluster;
use serde_json::Value;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Output, Stdio};

/// A lab, with the arguments that lead the tuner to it.
pub(super) struct Site {
    pub(super) lab: Lab,
    pub(super) dir: tempfile::TempDir,
}

impl Site {
    pub(super) fn new(name: &str) -> Option<Site> {
        Site::on(name, "file")
    }

    /// One whose OSDs keep their data as `lab up --data` says.
    pub(super) fn on(name: &str, data: &str) -> Option<Site> {
        if !cluster(name) {
            return None;
        }
        let site = Site { lab: Lab::new(name), dir: tempfile::tempdir().expect("a folder") };
        good(site.lab.up(&["--osds", "3", "--replicas", "3", "--osd-size", "5g", "--data", data]));
        Some(site)
    }

    /// `loligo tune ARGS`, with the cluster, and a tree of a host that can be changed.
    pub(super) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(program());
        command.arg("tune").args(args).arg("--conf").arg(self.lab.dir.join("ceph.conf"));
        command.arg("--root").arg(self.root());
        if args[0] != "facts" {
            command.arg("--state").arg(self.dir.path().join("state"));
        }
        command.stdin(Stdio::null());
        command
    }

    pub(super) fn tune(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("the program runs")
    }

    pub(super) fn json(&self, args: &[&str]) -> Value {
        let out = good(self.tune(&[args, &["--json"]].concat()));
        serde_json::from_slice(&out.stdout).expect("JSON")
    }

    /// A host's files, as far as the tests need them.
    pub(super) fn root(&self) -> std::path::PathBuf {
        let root = self.dir.path().join("root");
        let conf = root.join(self.lab.dir.strip_prefix("/").expect("an absolute path")).join("ceph.conf");
        for (path, text) in [
            (root.join("proc/sys/kernel/hostname"), hostname()),
            (root.join("proc/sys/vm/swappiness"), "60\n".to_owned()),
            (
                root.join("proc/meminfo"),
                "MemTotal: 33554432 kB\nMemAvailable: 16777216 kB\nSwapTotal: 2097152 kB\n".to_owned(),
            ),
            (conf, "[osd]\n".to_owned()),
        ] {
            if !path.exists() {
                std::fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
                std::fs::write(path, text).expect("a file");
            }
        }
        root
    }

    /// The configuration of the cluster, as a text that is the same for the same content.
    pub(super) fn dump(&self) -> String {
        let out = good(self.lab.sh("ceph config dump --format json"));
        let mut all: Vec<String> = serde_json::from_slice::<Vec<Value>>(&out.stdout)
            .expect("a list")
            .iter()
            .map(|it| format!("{} {} {}={}", it["section"], it["mask"], it["name"], it["value"]))
            .collect();
        all.sort();
        all.join("\n")
    }

    pub(super) fn backfills(&self) -> i64 {
        let out = good(self.lab.sh("ceph tell osd.0 dump_recovery_reservations"));
        let said: Value = serde_json::from_slice(&out.stdout).expect("JSON");
        said["local_reservations"]["max_allowed"].as_i64().expect("a number")
    }

    pub(super) fn last_run(&self) -> Value {
        let all = self.json(&["history"]);
        all.as_array().and_then(|all| all.last()).expect("a run").clone()
    }
}

fn hostname() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").expect("a name")
}

/// Kills an apply when it has said `lines` lines; true if it had not ended by itself before.
pub(super) fn cut_after(site: &Site, args: &[&str], lines: usize) -> bool {
    let mut child = site.command(args).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().expect("it runs");
    let said = BufReader::new(child.stderr.take().expect("a pipe"));
    let is_cut = said.lines().map_while(Result::ok).nth(lines).is_some();
    child.kill().expect("it is killed");
    child.wait().expect("it ends");
    is_cut
}
