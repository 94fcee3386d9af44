//! Claims about what a pair is not made of: each is refused with the mend, and nothing is changed by that.
//!
//! Real are the agent's program and the calls to the array, which 'loligo lab array' models. Ceph's tools are scripts that answer
//! as a cluster would, and write down what they are told to change.

use loligo_pair::fence::{BlockFence, Fence};
use loligo_pair::reservation::Key;
use loligo_tests::server::program;
use loligo_tests::skip::{fuse, skip};
use rustix::fs::getxattr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const LUNS: [&str; 3] = ["quorum", "osd0", "osd1"];
const SECRET: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
/// The place of the sector of side b.
const SECTOR_B: u64 = (1 << 20) + 4096;

const CEPH: &str = r#"#!/bin/sh
case "$*" in
*"osd tree"*) echo '{"nodes":[{"id":-1,"name":"default","type":"root","children":[]}]}' ;;
*"rule ls"*) echo '["dual"]' ;;
*"config dump"*) echo '[]' ;;
*) echo "$*" >>"$(dirname "$0")/changes" ;;
esac
"#;
const BLUESTORE_TOOL: &str = r#"#!/bin/sh
exec cat "$(dirname "$0")/$(basename "$3").label"
"#;

/// A pair without a cluster: an array, two folders, and tools that are scripts.
struct Pair {
    array: Option<Child>,
    dir: tempfile::TempDir,
}

impl Pair {
    /// One over an array with this defect; nothing where nothing can be mounted.
    fn new(test: &str, defect: Option<&str>) -> Option<Pair> {
        if let Err(why) = fuse() {
            skip(test, &why);
            return None;
        }
        let mut pair = Pair { array: None, dir: tempfile::tempdir().expect("a folder") };
        for folder in ["a", "b", "bin", "run-a", "run-b", "a-0", "a-1", "b-0", "b-1"] {
            fs::create_dir(pair.at(folder)).expect("a folder");
        }
        for (name, text) in [("ceph", CEPH), ("ceph-bluestore-tool", BLUESTORE_TOOL)] {
            let path = pair.at("bin").join(name);
            fs::write(&path, text).expect("a script");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a script");
        }
        for osd in [0, 1] {
            pair.label(osd, &format!("uuid-{osd}"), "cluster-1");
            for side in ["a", "b"] {
                fs::write(pair.at(&format!("{side}-{osd}/ceph_fsid")), "cluster-1\n").expect("a file");
            }
        }
        pair.write(&pair.file());
        let mut command = Command::new(program());
        command.args(["lab", "array"]);
        for lun in LUNS {
            command.args(["--lun", &format!("{lun}={}:16m", pair.at(&format!("{lun}.bytes")).display())]);
        }
        for side in ["a", "b"] {
            command.args(["--path", &format!("{side}={}", pair.at(side).display())]);
        }
        command.args(defect.into_iter().flat_map(|defect| ["--defect", defect]));
        let mut array = command.stdout(Stdio::piped()).spawn().expect("the program runs");
        let mut line = String::new();
        BufReader::new(array.stdout.as_mut().expect("piped")).read_line(&mut line).expect("a line");
        assert_eq!(line, "ready\n");
        pair.array = Some(array);
        Some(pair)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// What is found on the LUN of an OSD.
    fn label(&self, osd: u32, uuid: &str, cluster: &str) {
        let text = format!(r#"{{"x":{{"whoami":"{osd}","osd_uuid":"{uuid}","ceph_fsid":"{cluster}"}}}}"#);
        fs::write(self.at(&format!("bin/osd{osd}.label")), text).expect("a file");
    }

    fn file(&self) -> String {
        let dir = self.dir.path().display();
        let mut text = format!(
            "pair = \"n0\"\nsecret = \"{SECRET}\"\n[ceph]\nconf = \"{dir}/ceph.conf\"\nname = \"client.admin\"\n"
        );
        for (side, key, ports) in [("a", "0xa", [17101, 17102]), ("b", "0xb", [17103, 17104])] {
            text += &format!(
                "[controller.{side}]\nhost = \"n0{side}\"\nkey = \"{key}\"\nlinks = [\"127.0.0.1:{}\", \"127.0.0.1:{}\"]\n\
                 quorum = \"{dir}/{side}/quorum\"\nrun = \"{dir}/run-{side}\"\n",
                ports[0], ports[1]
            );
        }
        for (osd, home) in [(0, "a"), (1, "b")] {
            text += &format!(
                "[[osd]]\nid = {osd}\nhome = \"{home}\"\nuuid = \"uuid-{osd}\"\n\
                 device = {{ a = \"{dir}/a/osd{osd}\", b = \"{dir}/b/osd{osd}\" }}\n\
                 dir = {{ a = \"{dir}/a-{osd}\", b = \"{dir}/b-{osd}\" }}\n"
            );
        }
        text
    }

    fn write(&self, text: &str) {
        let path = self.at("pair.toml");
        fs::write(&path, text).expect("a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("a file");
    }

    fn command(&self, what: &str, side: &str) -> Command {
        let mut command = Command::new(program());
        command.args(["pair", what, "--config"]).arg(self.at("pair.toml")).args(["--as", side]);
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", self.at("bin").display())).stdin(Stdio::null());
        command
    }

    fn run(&self, what: &str, side: &str) -> Output {
        self.command(what, side).output().expect("the program runs")
    }

    fn set_up(&self, side: &str) {
        let out = self.run("setup", side);
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let _ = fs::remove_file(self.at("bin/changes"));
    }

    fn fence(&self, side: &str, lun: &str) -> BlockFence {
        BlockFence::open(&self.at(side).join(lun)).expect("it opens")
    }

    /// All that a refusal must leave alone: keys and holders, bytes, what the cluster was told, and what this side remembers.
    fn all(&self) -> (Vec<String>, Vec<Vec<u8>>, bool, usize) {
        let shown = |lun: &&str| {
            let mut raw = vec![0; 4096];
            let path = self.at("b").join(lun);
            let len = getxattr(&path, "user.loligo.reservation", &mut raw[..]).unwrap_or_default();
            String::from_utf8_lossy(&raw[..len]).into_owned()
        };
        let bytes = |lun: &&str| fs::read(self.at(&format!("{lun}.bytes"))).unwrap_or_default();
        let told = self.at("bin/changes").exists();
        let notes = fs::read_dir(self.at("run-a")).expect("a folder").count();
        (LUNS.iter().map(shown).collect(), LUNS.iter().map(bytes).collect(), told, notes)
    }

    /// The setup of a side is refused with these words, and nothing is changed.
    fn refuses(&self, side: &str, words: &[&str]) {
        let before = self.all();
        let out = self.run("setup", side);
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(!out.status.success(), "it is not refused: {}", String::from_utf8_lossy(&out.stdout));
        for word in words {
            assert!(said.contains(word), "no '{word}' in: {said}");
        }
        assert!(self.all() == before, "something was changed: {said}");
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        if let Some(array) = &mut self.array {
            // SAFETY: the child is ours and not yet waited for.
            unsafe { libc::kill(array.id() as libc::pid_t, libc::SIGTERM) };
            let _ = array.wait();
        }
    }
}

#[test]
fn luns_without_reservations_are_refused() {
    let Some(pair) = Pair::new("a pair of plain files", None) else { return };
    let plain = pair.at("plain");
    fs::File::create(&plain).and_then(|file| file.set_len(16 << 20)).expect("a file");
    let text = pair.file().replace(&pair.at("a/osd1").display().to_string(), &plain.display().to_string());
    pair.write(&text);
    pair.refuses("a", &["plain", "cannot be used by a pair", "SCSI-3 or NVMe reservations"]);
}

#[test]
fn reservations_that_refuse_no_write_are_refused() {
    let Some(pair) = Pair::new("a pair over an array that claims much", Some("refuses-no-write")) else {
        return;
    };
    pair.set_up("a");
    pair.refuses(
        "b",
        &["osd0", "takes a write of a controller that is not registered", "no takeover would be safe"],
    );
}

#[test]
fn a_lun_that_a_stranger_holds_is_refused() {
    let Some(pair) = Pair::new("a pair with a stranger", None) else { return };
    let mut stranger = pair.fence("b", "osd1");
    stranger.register(Key::NONE, Key(0x77)).expect("it registers");
    stranger.reserve(Key(0x77)).expect("it holds");
    pair.refuses("a", &["osd1", "0x77", "none of this pair's keys", "find out who uses it"]);
}

#[test]
fn one_key_for_both_controllers_is_refused() {
    let Some(pair) = Pair::new("a pair with one key", None) else { return };
    pair.write(&pair.file().replace("\"0xb\"", "\"0xa\""));
    pair.refuses("a", &["both controllers have the key 0xa", "give each its own"]);
}

#[test]
fn luns_of_others_are_refused_by_the_label_of_their_store() {
    let Some(pair) = Pair::new("a pair with the LUN of another cluster", None) else { return };
    pair.label(1, "uuid-1", "cluster-2");
    pair.refuses("a", &["osd1 is of the cluster cluster-2", "another LUN is mapped there"]);
    pair.label(1, "uuid-0", "cluster-1");
    pair.refuses("a", &["not osd.1 with uuid-1", "another LUN is mapped there"]);
    pair.label(1, "uuid-1", "cluster-1");
    pair.set_up("a");
    pair.set_up("b");
}

#[test]
fn a_setup_beside_a_partner_that_holds_all_is_refused() {
    let Some(pair) = Pair::new("a pair that was taken over", None) else { return };
    let mut b = pair.fence("b", "osd0");
    b.register(Key::NONE, Key(0xb)).expect("b registers");
    b.reserve(Key(0xb)).expect("b holds");
    pair.refuses("a", &["osd0 is held by the partner", "'loligo pair giveback'"]);
}

/// The partner's agent, which writes this heartbeat with another number each time.
fn living(pair: &Pair, beat: [u8; 64], work: impl FnOnce()) {
    let (ends, path) = (AtomicBool::new(false), pair.at("b/quorum"));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let file = fs::File::options().write(true).open(&path).expect("the LUN");
            // Not for ever, should the work panic.
            for number in 0u64..600 {
                let mut bytes = beat;
                bytes[24..32].copy_from_slice(&number.to_le_bytes());
                file.write_all_at(&bytes, SECTOR_B).and_then(|()| file.sync_all()).expect("a write");
                if ends.load(Ordering::Relaxed) {
                    return;
                }
                std::thread::sleep(Duration::from_millis(100));
            }
        });
        work();
        ends.store(true, Ordering::Relaxed);
    });
}

/// A run of the agent ends by itself, with these words, and the keys are as they were.
fn does_not_run(pair: &Pair, words: &[&str]) {
    let before = pair.all().0;
    let mut child =
        pair.command("run", "a").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    let begun = Instant::now();
    while child.try_wait().expect("it is ours").is_none() && begun.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(50));
    }
    let ran = child.try_wait().expect("it is ours").is_none();
    // One that runs is no part of the outcome any more.
    let _ = child.kill();
    let said = child.wait_with_output().expect("it ended").stderr;
    let said = String::from_utf8_lossy(&said);
    assert!(!ran, "it runs: {said}");
    for word in words {
        assert!(said.contains(word), "no '{word}' in: {said}");
    }
    assert_eq!(pair.all().0, before);
    assert!(!Path::new(&pair.at("bin/changes")).exists(), "the cluster was told something");
}

#[test]
fn a_living_partner_that_is_not_understood_is_no_dead_one() {
    let Some(pair) = Pair::new("a pair of two versions", None) else { return };
    pair.set_up("a");
    pair.set_up("b");
    let mut beat = [0; 64];
    beat[..8].copy_from_slice(b"LoliBeat");
    beat[8] = 9;
    living(&pair, beat, || does_not_run(&pair, &["version 9", "the same version on both controllers"]));
    beat[8] = 1;
    living(&pair, beat, || does_not_run(&pair, &["signed with another secret", "the same file"]));
}
