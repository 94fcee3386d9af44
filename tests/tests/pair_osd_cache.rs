//! Claims about OSDs of pairs that stand behind a cache: a takeover takes the dirty data along.

#![allow(clippy::print_stdout)]

use loligo_tests::lab::{self, Lab, good};
use loligo_tests::server::program;
use loligo_tests::skip::{self, at_length};
use serde_json::Value;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

fn until(what: &str, done: impl FnMut() -> bool) {
    lab::until(what, Duration::from_secs(90), done);
}

/// `loligo pair WHAT` of node `n0`, for the controller `side`.
fn pair(lab: &Lab, what: &str, side: &str) -> Output {
    let mut command = Command::new(program());
    command.args(["pair", what, "--config"]).arg(lab.dir.join("n0/pair.toml")).args(["--as", side]);
    command.args((what == "status").then_some("--json")).stdin(Stdio::null());
    command.output().expect("the program runs")
}

/// The role of a controller and the state of its unit `osd.0`.
fn shown(lab: &Lab, side: &str) -> (String, String) {
    let out = pair(lab, "status", side);
    let all: Value = serde_json::from_slice(&out.stdout).unwrap_or_default();
    let unit = all["units"].as_array().into_iter().flatten().find(|unit| unit["name"] == "osd.0");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (text(&all["role"]), unit.map(|unit| text(&unit["state"])).unwrap_or_default())
}

/// A number of the cache below `osd.0`.
fn of_cache(lab: &Lab, key: &str) -> u64 {
    let out = lab.run("cache status", &["--json"]);
    let all: Value = serde_json::from_slice(&out.stdout).unwrap_or_default();
    all["osd.0"][key].as_u64().unwrap_or_default()
}

fn client(lab: &Lab, script: &str) -> Vec<u8> {
    good(lab.run("exec", &["--host", "client", "--", "sh", "-ec", script])).stdout
}

/// Objects are written, a controller dies, its partner has them, and gives them back.
#[test]
fn dirty_data_move_with_an_osd_behind_a_cache() {
    if !skip::pairs("OSDs of pairs behind caches", &[]) {
        return;
    }
    let lab = Lab::new("pcache");
    // One pair: its two OSDs have all copies, and one of them serves alone while the other is away.
    let keeps = ["--cache", "128m", "--cache-set", "destage-rate=1"];
    good(lab.up(&[&["--pairs", "1", "--set", "global.osd_pool_default_min_size=1"], &keeps[..]].concat()));
    client(
        &lab,
        "for i in $(seq 40); do head -c 50000 /dev/urandom >/tmp/ltl-o; rados --id loligo -p r2 put o$i /tmp/ltl-o; done; rm /tmp/ltl-o",
    );
    let all = "for i in $(seq 40); do timeout 60 rados --id loligo -p r2 get o$i - | sha256sum; done";
    let before = client(&lab, all);
    assert!(of_cache(&lab, "dirty_bytes") > 1 << 20, "nothing is dirty: {}", of_cache(&lab, "dirty_bytes"));
    nobody_finds_the_store_on_the_raw_lun(&lab);

    good(lab.run("fail", &["controller", "n0a"]));
    until("b has osd.0", || shown(&lab, "b") == ("DUAL".into(), "running".into()));
    until("osd.0 is up", || lab.status()["osds_up"] == 2);
    assert!(of_cache(&lab, "dirty_bytes") > 1 << 20, "the dirty data did not come along");
    // What osd.1 has of them is not asked: osd.0 is the primary of about half.
    assert_eq!(client(&lab, all), before, "objects have changed by the takeover");

    a_daemon_that_dies_takes_its_osd_along_and_both_come_back(&lab);
    assert_eq!(client(&lab, all), before, "objects have changed by the daemon's death");

    good(lab.run("mend", &[]));
    until("a is fenced and ready", || shown(&lab, "a").0 == "FENCED");
    until("b gives back", || pair(&lab, "giveback", "b").status.success());
    until("a has osd.0 again", || shown(&lab, "a") == ("NORMAL".into(), "running".into()));
    until("osd.0 is up", || lab.status()["osds_up"] == 2);
    assert_eq!(client(&lab, all), before, "objects have changed by the giveback");
    good(lab.run("down", &[]));
    lab.leaves_nothing();
}

/// The content begins behind a label: whoever reads the LUN without its cache would read old data.
fn nobody_finds_the_store_on_the_raw_lun(lab: &Lab) {
    let lun = lab.dir.join("n0/a/osd0");
    let out = Command::new("ceph-bluestore-tool").args(["show-label", "--dev"]).arg(lun).output();
    assert!(!out.expect("it runs").status.success(), "the raw LUN shows a store");
}

/// The mount of a dead daemon is no device any more: the OSD is ended, and started on a new one.
fn a_daemon_that_dies_takes_its_osd_along_and_both_come_back(lab: &Lab) {
    let number = || {
        let all = lab.status()["daemons"].as_array().cloned().unwrap_or_default();
        all.iter().find(|daemon| daemon["name"] == "osd.0").and_then(|daemon| daemon["pid"].as_u64())
    };
    let before = number().expect("osd.0 runs");
    good(lab.run("fail", &["daemon", "n0b"]));
    until("osd.0 is gone", || number() != Some(before));
    good(lab.run("mend", &["loligod.n0b"]));
    until("osd.0 is started again", || number().is_some_and(|now| now != before));
    until("osd.0 is up again", || shown(lab, "b").1 == "running" && lab.status()["osds_up"] == 2);
}

/// A client that checks what it reads, while controllers with dirty caches die.
#[test]
fn a_dead_controller_with_dirty_caches_loses_nothing() {
    if !skip::pairs("failures of pairs with caches", &[]) {
        return;
    }
    if !at_length("failures of pairs with caches") {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(program());
    command.args(["bench", "pair", "--failures", "--json", "--pairs", "2", "--runs", "1"]);
    command.args(["--osd-cache", "256m", "--rows", "controller,nic,giveback", "--dir"]).arg(dir.path());
    let out = command.stdin(Stdio::null()).output().expect("the program runs");
    let said = String::from_utf8_lossy(&out.stderr);
    println!("{said}");
    assert!(out.status.success(), "a run did harm, or failed: {said}");
    let outcome: Value = serde_json::from_slice(&out.stdout).expect("JSON");
    let list = |key: &str| outcome[key].as_array().cloned().expect(key);
    assert_eq!(list("runs").len(), 3);
    for run in list("runs") {
        assert_eq!((&run["failed"], &run["landed"]), (&Value::Null, &0.into()), "{run:#}");
        for counts in run["counts"].as_array().expect("counts") {
            for what in ["errors", "stuck", "stale", "wrong", "lost"] {
                assert_eq!(counts[what], 0, "{what}: {run:#}");
            }
        }
    }
    assert!(!list("fsck").is_empty());
    assert!(list("fsck").iter().all(|fsck| fsck["said"] == "fsck success"), "{}", outcome["fsck"]);
}
