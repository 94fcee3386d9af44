//! The pair that is refused: its file, its controllers' programs, and all that a refusal must leave alone.

use crate::array::{Array, LUNS};
use crate::cluster::{Cluster, OSDS, alone};
use loligo_ceph::monitors::Monitors;
use loligo_pair::fence::{BlockFence, Fence};
use loligo_pair::reservation::Key;
use loligo_tests::server::program;
use parking_lot::MutexGuard;
use rustix::fs::{SeekFrom, getxattr, seek};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hasher};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

pub(crate) const A: Key = Key(0xa);
pub(crate) const B: Key = Key(0xb);
const SECRET: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
/// The time that a step of a real OSD or volume may take on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// A pair of two controllers on this host, with an OSD each.
pub(crate) struct Pair {
    cluster: &'static Cluster,
    monitors: Monitors,
    children: Vec<Child>,
    /// Ended once nothing uses it any more.
    array: Option<Array>,
    _alone: MutexGuard<'static, ()>,
}

/// All that a refusal must leave alone.
#[derive(Debug, PartialEq)]
pub(crate) struct Everything {
    /// Keys and holders.
    pub(crate) registrations: Vec<Value>,
    /// A digest of the bytes of each LUN, by its name.
    bytes: BTreeMap<&'static str, u64>,
    tree: Value,
    pub(crate) config: Value,
    rules: Value,
    epoch: Value,
    /// Notes of what was there before a setup.
    noted: Vec<PathBuf>,
}

impl Everything {
    /// The same without the bytes of these LUNs, which somebody writes to.
    pub(crate) fn but(mut self, luns: &[&str]) -> Everything {
        self.bytes.retain(|lun, _| !luns.contains(lun));
        self
    }
}

impl Pair {
    /// One that was never set up, over an array with this defect; nothing where it cannot be.
    pub(crate) fn new(what: &str, defect: Option<&str>) -> Option<Pair> {
        let (cluster, alone) = alone(what)?;
        for side in ["a", "b"] {
            let run = cluster.of_pair(&format!("run-{side}"));
            // Of the test before.
            let _ = fs::remove_dir_all(&run);
            fs::create_dir(&run).expect("a folder");
        }
        for lun in ["quorum", "cache"] {
            let _ = fs::remove_file(cluster.of_pair(&format!("{lun}.bytes")));
        }
        let array = Array::start(&cluster.of_pair(""), defect);
        let monitors = Monitors::connect(&cluster.at("ceph.conf"), "client.admin", None).expect("a monitor");
        let array = Some(array);
        let pair = Pair { cluster, monitors, children: Vec::new(), array, _alone: alone };
        pair.write(&pair.file());
        Some(pair)
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.cluster.of_pair(name)
    }

    /// The cluster's configuration.
    pub(crate) fn conf(&self) -> PathBuf {
        self.cluster.at("ceph.conf")
    }

    /// Runs a script of Ceph's own tools.
    pub(crate) fn sh(&self, script: &str) -> String {
        self.cluster.sh(script)
    }

    /// The file as it should be.
    pub(crate) fn file(&self) -> String {
        let (conf, dir) = (self.cluster.at("ceph.conf"), self.at(""));
        let (conf, dir) = (conf.display(), dir.display().to_string());
        let dir = dir.trim_end_matches('/');
        let mut text = format!(
            "pair = \"n0\"\nsecret = \"{SECRET}\"\n[ceph]\nconf = \"{conf}\"\nname = \"client.admin\"\n"
        );
        for (side, key, ports) in [("a", "0xa", [17101, 17102]), ("b", "0xb", [17103, 17104])] {
            text += &format!(
                "[controller.{side}]\nhost = \"n0{side}\"\nkey = \"{key}\"\nlinks = [\"127.0.0.1:{}\", \"127.0.0.1:{}\"]\n\
                 quorum = \"{dir}/{side}/quorum\"\nrun = \"{dir}/run-{side}\"\ndaemon = \"{dir}/run-{side}\"\n",
                ports[0], ports[1]
            );
        }
        for ((osd, uuid), home) in OSDS.iter().zip(&self.cluster.uuids).zip(["a", "b"]) {
            text += &format!(
                "[[osd]]\nid = {osd}\nhome = \"{home}\"\nuuid = \"{uuid}\"\n\
                 device = {{ a = \"{dir}/a/osd{osd}\", b = \"{dir}/b/osd{osd}\" }}\n\
                 dir = {{ a = \"{dir}/a.{osd}\", b = \"{dir}/b.{osd}\" }}\n"
            );
        }
        text
    }

    pub(crate) fn write(&self, text: &str) {
        let path = self.at("pair.toml");
        fs::write(&path, text).expect("a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("a file");
    }

    /// These sides are registered on all LUNs, and hold their own, as setups leave them.
    pub(crate) fn register(&self, sides: &[&str]) {
        for side in sides {
            let key = if *side == "a" { A } else { B };
            for (lun, _) in LUNS {
                let mut fence = self.fence(side, lun);
                fence.register(Key::NONE, key).expect("it registers");
                if matches!((*side, lun), ("a", "osd1" | "cache") | ("b", "osd2")) {
                    fence.reserve(key).expect("it holds");
                }
            }
        }
    }

    pub(crate) fn fence(&self, side: &str, lun: &str) -> BlockFence {
        BlockFence::open(&self.at(side).join(lun)).expect("it opens")
    }

    /// `loligo pair WHAT` for a side.
    pub(crate) fn command(&self, what: &str, side: &str) -> Command {
        let mut command = Command::new(program());
        command.args(["pair", what, "--config"]).arg(self.at("pair.toml")).args(["--as", side]);
        command.stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, what: &str, side: &str, more: &[&str]) -> Output {
        self.command(what, side).args(more).output().expect("the program runs")
    }

    /// The answer of a monitor.
    pub(crate) fn ask(&self, prefix: &str) -> Value {
        let text = self.monitors.ask(&json!({ "prefix": prefix, "format": "json" }).to_string());
        serde_json::from_str(&text.expect("an answer")).expect("JSON")
    }

    /// Keys and holder of each LUN, as the array shows them.
    pub(crate) fn registrations(&self) -> Vec<Value> {
        let shown = |lun: &str| {
            let mut raw = vec![0; 4096];
            let read = getxattr(self.at("b").join(lun), "user.loligo.reservation", &mut raw[..]);
            serde_json::from_slice(&raw[..read.expect("keys")]).expect("JSON")
        };
        LUNS.iter().map(|(lun, _)| shown(lun)).collect()
    }

    /// All that a refusal must leave alone.
    pub(crate) fn everything(&self) -> Everything {
        let notes = fs::read_dir(self.at("run-a")).expect("a folder").flatten().map(|entry| entry.path());
        Everything {
            registrations: self.registrations(),
            bytes: LUNS.iter().map(|(lun, _)| (*lun, digest(&self.at(&format!("{lun}.bytes"))))).collect(),
            tree: self.ask("osd tree"),
            config: self.ask("config dump"),
            rules: self.ask("osd crush rule ls"),
            epoch: self.ask("osd stat")["epoch"].clone(),
            noted: notes.filter(|path| path.ends_with("pair.setup.json")).collect(),
        }
    }

    /// The setup of a side is refused with these words, and nothing is changed.
    pub(crate) fn refuses(&self, side: &str, words: &[&str]) {
        let before = self.everything();
        let out = self.run("setup", side, &[]);
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(!out.status.success(), "it is not refused: {}", String::from_utf8_lossy(&out.stdout));
        for word in words {
            assert!(said.contains(word), "no '{word}' in: {said}");
        }
        assert_eq!(self.everything(), before, "something was changed: {said}");
    }

    /// Starts a program that is ended with the pair; its number among them.
    pub(crate) fn spawn(&mut self, command: &mut Command) -> usize {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        self.children.push(child.expect("it runs"));
        self.children.len() - 1
    }

    /// Ends one of them in peace.
    pub(crate) fn end(&mut self, number: usize) {
        let child = &mut self.children[number];
        kill_process(Pid::from_child(child), Signal::TERM).expect("it is ours");
        child.wait().expect("it ends");
    }

    /// The agent's word on side a.
    pub(crate) fn status(&self) -> Value {
        let out = self.run("status", "a", &["--json"]);
        serde_json::from_slice(&out.stdout).unwrap_or_default()
    }

    /// The state of a unit on side a.
    pub(crate) fn unit(&self, name: &str) -> String {
        let status = self.status();
        let unit = status["units"].as_array().into_iter().flatten().find(|unit| unit["name"] == name);
        unit.and_then(|unit| unit["state"].as_str()).unwrap_or_default().to_owned()
    }

    /// What the agent of side a has told so far.
    pub(crate) fn history(&self) -> String {
        fs::read_to_string(self.at("run-a/pair.history")).unwrap_or_default()
    }

    /// Waits until `done` says so.
    pub(crate) fn until(&self, what: &str, done: impl Fn(&Pair) -> bool) {
        let begun = Instant::now();
        while !done(self) {
            assert!(begun.elapsed() < LIMIT, "{what}: {}\n{}", self.status(), self.history());
            std::thread::sleep(Duration::from_millis(100));
        }
        println!("{:.1} s: {what}", begun.elapsed().as_secs_f64());
    }

    /// The process of an OSD that an agent has started on a side.
    pub(crate) fn process(&self, side: &str, osd: u32) -> Option<Pid> {
        let note = fs::read(self.at(&format!("{side}.{osd}/agent.process"))).ok()?;
        let note: Value = serde_json::from_slice(&note).expect("JSON");
        let pid = Pid::from_raw(note["pid"].as_i64().expect("a number") as i32).expect("a process");
        test_kill_process(pid).ok().map(|()| pid)
    }

    /// Ends the OSDs that agents have started, until the monitors say so too.
    fn end_osds(&self) {
        let mut ended = Vec::new();
        for (osd, side) in OSDS.iter().flat_map(|osd| ["a", "b"].map(|side| (*osd, side))) {
            while let Some(pid) = self.process(side, osd) {
                // It may end at this moment.
                let _ = kill_process(pid, Signal::KILL);
                std::thread::sleep(Duration::from_millis(20));
                ended.push(osd.to_string());
            }
            let _ = fs::remove_file(self.at(&format!("{side}.{osd}/agent.process")));
        }
        if !ended.is_empty() {
            // Without an answer the next test finds the map as it is.
            let _ = self.monitors.ask(&json!({ "prefix": "osd down", "ids": ended }).to_string());
        }
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
        self.end_osds();
        self.array.take();
    }
}

/// A digest of the bytes of a file that has holes.
fn digest(path: &Path) -> u64 {
    let (file, mut hasher, mut from) = (File::open(path).expect("it opens"), DefaultHasher::new(), 0);
    while let Ok(data) = seek(&file, SeekFrom::Data(from)) {
        from = seek(&file, SeekFrom::Hole(data)).expect("a hole");
        let mut bytes = vec![0; (from - data) as usize];
        file.read_exact_at(&mut bytes, data).expect("its bytes");
        hasher.write_u64(data);
        hasher.write(&bytes);
    }
    hasher.finish()
}
