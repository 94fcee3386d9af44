//! Claims about `loligo lab`: real clusters of the system's own Ceph packages.

#![allow(clippy::print_stdout)]

use loligo_tests::lab::{Lab, good, refused};
use loligo_tests::server::program;
use loligo_tests::skip::{at_length, fuse, installed, root, skip};
use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// One small machine brings up one cluster at a time in reasonable time.
static ALONE: Mutex<()> = Mutex::new(());

/// A process that does not outlive the test, whatever became of that.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Nothing where there is no Ceph here.
fn alone(what: &str) -> Option<MutexGuard<'static, ()>> {
    if ["ceph-mon", "ceph-mgr", "ceph-osd", "rbd"].iter().all(|p| installed(p)) {
        return Some(ALONE.lock());
    }
    skip(what, "Ceph is missing: apt-get install ceph-mon ceph-mgr ceph-osd ceph-common");
    None
}

#[test]
fn three_osds_come_up_beside_another_lab_and_leave_nothing() {
    let Some(_alone) = alone("lab of three OSDs") else { return };
    let (lab, other) = (Lab::new("three"), Lab::new("beside"));
    let begun = Instant::now();
    good(lab.up(&[]));
    println!("up in {:.1} s", begun.elapsed().as_secs_f64());
    let status = lab.status();
    assert_eq!(
        (&status["state"], &status["health"], &status["osds_up"]),
        (&"up".into(), &"HEALTH_OK".into(), &3.into())
    );

    let env = String::from_utf8(good(lab.run("env", &[])).stdout).expect("text");
    assert!(env.lines().all(|l| l.starts_with("export ") && l.ends_with('\'')), "{env}");
    let script = "eval \"$1\"; unset CEPH_ARGS; rbd create --size 64M rbd/a && rbd info rbd/a && ceph health";
    let stock = Command::new("sh").args(["-ec", script, "sh", &env]).output().expect("sh");
    assert!(String::from_utf8_lossy(&good(stock).stdout).contains("HEALTH_OK"));
    // The client that volumes use may do what images need and nothing else.
    good(lab.sh("rbd --id loligo create --size 64M rbd/b && rbd --id loligo rm --no-progress rbd/b"));
    assert!(!lab.sh("ceph --id loligo osd pool ls detail && ceph --id loligo osd out 0").status.success());
    assert_eq!(lab.sh("exit 7").status.code(), Some(7), "the command's own exit status");

    good(other.up(&["--osds", "1", "--replicas", "1", "--pool", "p1"]));
    assert_eq!(other.status()["health"], "HEALTH_OK");
    assert_ne!(other.status()["fsid"], status["fsid"]);
    good(lab.run("down", &[]));
    lab.leaves_nothing();
    assert_eq!(other.status()["state"], "up", "taking one lab down touched another");
    good(other.sh("rbd create --size 64M p1/c"));
    assert!(refused(&other.up(&[])).contains("runs in"));
    good(other.run("down", &[]));
    other.leaves_nothing();
}

#[test]
fn modelled_osds_are_as_slow_as_disks_and_their_fsyncs_arrive() {
    let what = "lab on modelled disks";
    if !at_length(what) {
        return;
    }
    let Some(_alone) = alone(what) else { return };
    if let Err(why) = fuse() {
        return skip(what, &why);
    }
    let lab = Lab::new("hdd");
    good(lab.up(&["--data", "hdd", "--osds", "2", "--replicas", "2", "--osd-size", "2g"]));
    let metadata: Value =
        serde_json::from_slice(&good(lab.sh("ceph osd metadata 1 --format json")).stdout).expect("JSON");
    assert_eq!(
        (&metadata["bluestore_bdev_rotational"], &metadata["bluestore_bdev_size"]),
        (&"1".into(), &(2u64 << 30).to_string().into())
    );
    let write = "rbd create --size 1G rbd/d; rbd bench --io-type write --io-size 4K --io-threads 1 --io-pattern rand \
                 --io-total 400K --rbd-cache=false rbd/d";
    let begun = Instant::now();
    good(lab.sh(write));
    let each = begun.elapsed().as_secs_f64() / 100.0;
    assert!(each > 0.004, "{:.1} ms a write: no disk turns so fast", each * 1e3);
    let stats = Command::new(program())
        .args(["stats", "disk0", "--json"])
        .env("LOLIGO_RUNTIME_DIR", lab.dir.join("run"))
        .output();
    let stats: Value = serde_json::from_slice(&good(stats.expect("the program runs")).stdout).expect("JSON");
    assert!(
        stats["fuse_fsyncs"].as_u64().is_some_and(|n| n >= 100),
        "{} fsyncs for 100 writes",
        stats["fuse_fsyncs"]
    );
    // What a power cut of the whole machine leaves: no daemon says goodbye, and the mounts are dead.
    for d in lab.status()["daemons"].as_array().expect("daemons") {
        let pid =
            d["pid"].as_i64().and_then(|p| rustix::process::Pid::from_raw(p as i32)).expect("a process");
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it runs");
    }
    good(lab.run("down", &["--keep"]));
    good(lab.up(&[]));
    assert!(String::from_utf8_lossy(&good(lab.sh("rbd ls rbd")).stdout).contains('d'), "the image is lost");
    good(lab.run("down", &[]));
    lab.leaves_nothing();
}

#[test]
fn modelled_osds_behind_caches_come_up_and_the_lab_shows_them() {
    let Some(_alone) = alone("lab on cached disks") else { return };
    if let Err(why) = fuse() {
        return skip("lab on cached disks", &why);
    }
    let lab = Lab::new("cached");
    let size = ["--osds", "1", "--replicas", "1", "--osd-size", "2g"];
    good(lab.up(&[&["--data", "hdd", "--cache", "64m"], &size[..]].concat()));
    assert_eq!(lab.status()["health"], "HEALTH_OK");
    good(lab.sh("printf kept | rados -p rbd put thing -"));

    let run = |words: &[&str]| {
        let mut command = Command::new(program());
        command.args(words).env("LOLIGO_RUNTIME_DIR", lab.dir.join("run")).stdin(Stdio::null());
        good(command.output().expect("the program runs")).stdout
    };
    let dir = lab.dir.to_str().expect("text");
    let status = ["lab", "cache", "status", "--dir", dir];
    let all: Value = serde_json::from_slice(&run(&[&status[..], &["--json"]].concat())).expect("JSON");
    let number = |key: &str| all["osd.0"][key].as_u64().unwrap_or_default();
    assert_eq!((&all["osd.0"]["mode"], &all["osd.0"]["poisoned"]), (&"wb".into(), &Value::Null));
    assert!(number("cache_bytes") > 32 << 20 && number("cache_bytes") <= 64 << 20, "{all}");
    assert!(number("write_hits") + number("write_misses") > 0 && number("occupied_bytes") > 0, "{all}");
    let table = String::from_utf8(run(&status)).expect("text");
    assert!(table.contains("dirty_bytes") && table.lines().any(|l| l.contains("osd.0")), "{table}");
    // Over a disk it is tuned for OSDs without being told.
    let profile = [
        ("seq-cutoff", "always"),
        ("seq-threshold", "16777216"),
        ("promote-run", "131072"),
        ("destage-low", "10"),
    ];
    for (key, value) in profile {
        let now = String::from_utf8(run(&["param", "get", "disk0", key])).expect("text");
        assert_eq!(now.trim(), value, "{key}");
    }

    good(lab.run("down", &["--keep"]));
    good(lab.up(&[]));
    assert_eq!(String::from_utf8_lossy(&good(lab.sh("rados -p rbd get thing -")).stdout), "kept");
    good(lab.run("down", &[]));
    lab.leaves_nothing();
}

#[test]
fn hosts_are_network_namespaces_and_go_with_the_lab() {
    let Some(_alone) = alone("lab of namespaces") else { return };
    if !root() || !installed("ip") {
        return skip("lab of namespaces", "needs root and iproute2");
    }
    let lab = Lab::new("ns");
    good(lab.up(&["--hosts", "namespaces", "--osds", "2", "--replicas", "2"]));
    let fsid = lab.status()["fsid"].as_str().expect("text")[..8].to_owned();
    let on_client = |script: &str| lab.run("exec", &["--host", "client", "--", "sh", "-ec", script]);
    good(on_client("rbd --id loligo create --size 64M rbd/c"));
    let tree = String::from_utf8(good(lab.sh("ceph osd tree")).stdout).expect("text");
    assert!(tree.contains("host osd0") && tree.contains("host osd1"), "{tree}");
    good(on_client("ip link set eth0 down"));
    assert!(
        !on_client("timeout 5 rbd --id loligo ls rbd").status.success(),
        "a host that is cut off still speaks"
    );
    good(lab.sh("timeout 20 rbd ls rbd"));
    assert!(refused(&lab.run("exec", &["--host", "moon", "--", "true"])).contains("osd0, osd1, client"));
    good(lab.run("down", &[]));
    lab.leaves_nothing();
    let left = Command::new("ip").args(["-br", "link"]).output().expect("ip");
    let names = Command::new("ip").arg("netns").output().expect("ip");
    let all = [left.stdout, names.stdout].concat();
    assert!(!String::from_utf8_lossy(&all).contains(&fsid), "a namespace or a link is left");
}

#[test]
fn a_cluster_comes_up_as_written_with_databases_apart() {
    let what = "labs with databases apart";
    if !at_length(what) {
        return;
    }
    let Some(_alone) = alone(what) else { return };
    let apart = |lab: &Lab| {
        let told = good(lab.sh("ceph osd metadata 0 --format json")).stdout;
        let osd: Value = serde_json::from_slice(&told).expect("JSON");
        ["bluefs_dedicated_db", "bluefs_dedicated_wal"].map(|key| osd[key] == "1")
    };
    let folder = tempfile::tempdir().expect("a folder");
    let [data, db, file] = ["data", "db", "lab.toml"].map(|name| folder.path().join(name));
    for (device, size) in [(&data, 8u64 << 30), (&db, 3 << 30)] {
        std::fs::File::create(device).and_then(|f| f.set_len(size)).expect("a file");
    }
    let lines = format!(
        "replicas = 1\npublic-network = '127.0.0.0/8'\ncluster-network = '127.0.0.0/8'\n[layout]\nnode7 = ['osd.0:{}:{}']\n",
        data.display(),
        db.display()
    );
    std::fs::write(&file, lines).expect("a file");
    let lab = Lab::new("layout");
    good(lab.up(&[file.to_str().expect("text")]));
    let tree = String::from_utf8(good(lab.sh("ceph osd tree")).stdout).expect("text");
    assert!(tree.contains("host node7") && tree.contains("osd.0"), "{tree}");
    assert_eq!(apart(&lab), [true, false]);
    good(lab.run("down", &[]));
    lab.leaves_nothing();

    let lab = Lab::new("apart");
    good(lab.up(&["--osds", "1", "--replicas", "1", "--db", "file", "--wal", "file"]));
    assert_eq!(apart(&lab), [true, true]);
    good(lab.run("down", &[]));
    lab.leaves_nothing();
}

#[test]
fn a_lab_that_was_kept_comes_back_with_its_data() {
    let Some(_alone) = alone("lab kept and started again") else { return };
    let lab = Lab::new("kept");
    let one = ["--osds", "1", "--replicas", "1"];
    good(lab.up(&one));
    good(lab.sh("printf kept | rados -p rbd put thing -"));
    good(lab.run("down", &["--keep"]));
    assert_eq!(lab.processes(), Vec::<String>::new());
    assert_eq!(lab.status()["state"], "down");
    assert!(refused(&lab.up(&["--osds", "2", "--replicas", "1"])).contains("other settings"));
    good(lab.up(&[]));
    assert_eq!(String::from_utf8_lossy(&good(lab.sh("rados -p rbd get thing -")).stdout), "kept");
    good(lab.run("down", &[]));
    lab.leaves_nothing();
}

#[test]
fn an_interrupted_start_leaves_nothing_and_a_killed_goes_down() {
    let Some(_alone) = alone("lab interrupted") else { return };
    for (signal, cleans) in [(rustix::process::Signal::INT, true), (rustix::process::Signal::KILL, false)] {
        let lab = Lab::new("cut");
        let mut child =
            lab.command("up", &["--osds", "1", "--replicas", "1"]).stderr(Stdio::null()).spawn().expect("up");
        wait_for(&lab.dir.join("log/osd.0.out"));
        rustix::process::kill_process(rustix::process::Pid::from_child(&child), signal).expect("it runs");
        let status = child.wait().expect("it ends");
        if cleans {
            assert_eq!(status.code(), Some(130));
        } else {
            assert!(
                refused(&lab.up(&[])).contains("only in part"),
                "a second start beside what the killed one left"
            );
            good(lab.run("down", &[]));
        }
        lab.leaves_nothing();
    }
}

#[test]
fn a_cluster_with_three_monitors_outlives_one_of_them() {
    let Some(_alone) = alone("lab of three monitors") else { return };
    let lab = Lab::new("mons");
    good(lab.up(&["--mons", "3", "--osds", "1", "--replicas", "1"]));
    let quorum = || {
        let said = good(lab.sh("ceph quorum_status --format json")).stdout;
        let said: Value = serde_json::from_slice(&said).expect("JSON");
        said["quorum_names"].as_array().map_or(0, Vec::len)
    };
    assert_eq!(quorum(), 3);
    let killed: Value =
        serde_json::from_slice(&good(lab.run("fail", &["mon", "a", "--json"])).stdout).expect("JSON");
    assert_eq!((&killed["kind"], &killed["target"]), (&"mon".into(), &"mon.a".into()));
    let now =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a clock").as_millis();
    let ago = now as u64 - killed["at_ms"].as_u64().expect("a moment");
    assert!(ago < 10_000, "{ago} ms ago");
    assert!(refused(&lab.run("fail", &["mon", "d"])).contains("it has: a, b, c"));
    good(lab.sh("printf kept | rados -p rbd put thing -"));
    assert_eq!(lab.status()["faults"][0]["target"], "mon.a");
    assert_eq!(String::from_utf8_lossy(&good(lab.run("mend", &[])).stdout), "mon mon.a\n");
    let begun = Instant::now();
    while quorum() < 3 {
        assert!(begun.elapsed() < Duration::from_secs(60), "mon.a never came back");
    }
    assert_eq!((&lab.status()["state"], &lab.status()["faults"]), (&"up".into(), &serde_json::json!([])));

    // An OSD that ended without a fault of the lab is started as well.
    good(lab.sh("ceph osd stop osd.0"));
    loligo_tests::lab::until("osd.0 has ended", Duration::from_secs(60), || {
        String::from_utf8_lossy(&good(lab.run("mend", &["0"])).stdout) == "osd osd.0\n"
    });
    loligo_tests::lab::until("osd.0 is back", Duration::from_secs(60), || {
        String::from_utf8_lossy(&good(lab.sh("ceph osd stat")).stdout).contains("1 up")
    });
    good(lab.run("down", &[]));
    lab.leaves_nothing();
}

fn wait_for(path: &Path) {
    let begun = Instant::now();
    while !path.exists() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{} never came", path.display());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn what_cannot_be_is_refused_with_the_mend_and_leaves_no_folder() {
    let lab = Lab::new("refused");
    for (args, says) in [
        (&["--set", "osd_op_num_shards=5"][..], "section.option"),
        (&["--replicas", "4"], "as many OSDs"),
        (&["--data", "floppy"], "neither 'file'"),
        (&["--osd-size", "1m"], "too small"),
        (&["--pairs", "2", "--mons", "3"], "need as many nodes"),
        (&["/nonexistent.toml"], "reading /nonexistent.toml"),
    ] {
        assert!(refused(&lab.up(args)).contains(says), "{args:?}: {}", refused(&lab.up(args)));
        assert!(!lab.dir.exists(), "{args:?} made a folder");
    }
    assert!(refused(&lab.run("down", &[])).contains("no lab in"));
    let bare = lab.command("up", &[]).env("PATH", "/nonexistent").output().expect("the program runs");
    assert!(refused(&bare).contains("apt-get install ceph-mon ceph-mgr ceph-osd ceph-common"));
}

#[test]
fn a_filled_folder_and_a_device_with_data_are_refused() {
    let Some(_alone) = alone("lab refusals") else { return };
    let lab = Lab::new("foreign");
    std::fs::create_dir_all(&lab.dir).expect("a folder");
    std::fs::write(lab.dir.join("letter"), "dear").expect("a file");
    assert!(refused(&lab.up(&[])).contains("holds no lab"));
    assert!(lab.dir.join("letter").exists());
    let device = lab.dir.with_extension("dev");
    let empty = Lab::new("empty");
    let data = ["--osds", "1", "--replicas", "1", "--data", device.to_str().expect("text")];
    std::fs::write(&device, b"XFSB and so on").expect("a file");
    assert!(refused(&empty.up(&data)).contains("holds XFS"));
    assert!(!empty.dir.exists());
    std::fs::remove_file(&device).expect("the file");
    std::fs::remove_dir_all(&lab.dir).expect("the folder");
}

#[test]
fn an_images_status_names_its_user_and_why_it_is_no_core() {
    let Some(_alone) = alone("rbd status") else { return };
    let lab = Lab::new("rbd");
    good(lab.up(&["--osds", "1", "--replicas", "1"]));
    let conf = lab.dir.join("ceph.conf");
    let status = |image: &str, more: &[&str]| {
        let mut command = Command::new(program());
        command.args(["rbd", "status", image, "--json", "--id", "loligo", "--conf"]).arg(&conf).args(more);
        command.output().expect("the program runs")
    };
    let json = |out: &Output| serde_json::from_slice::<Value>(&out.stdout).expect("status is JSON");
    good(lab.sh(
        "rbd create --size 64M rbd/good; rbd create --size 64M --image-feature layering rbd/unlocked; \
                 rbd create --size 64M rbd/cached; rbd config image set rbd/cached rbd_cache true; \
                 rbd create --size 64M rbd/limited; rbd config image set rbd/limited rbd_qos_iops_limit 9; \
                 rbd create --size 64M --stripe-unit 65536 --stripe-count 4 rbd/striped",
    ));
    let free = json(&good(status("rbd/good", &[])));
    assert_eq!((&free["size"], &free["lock"]), (&(64 << 20).into(), &Value::Null));
    assert_eq!((&free["refused"], &free["ungrouped"]), (&serde_json::json!([]), &serde_json::json!([])));
    for (image, key, says) in [
        ("rbd/unlocked", "refused", "exclusive-lock"),
        ("rbd/cached", "refused", "rbd_cache"),
        ("rbd/limited", "ungrouped", "rbd_qos_iops_limit"),
        ("rbd/striped", "ungrouped", "striped over 4"),
    ] {
        let out = status(image, &[]);
        assert_eq!(out.status.success(), key == "ungrouped", "{image}");
        assert!(json(&out)[key][0].as_str().is_some_and(|why| why.contains(says)), "{image}: {}", json(&out));
    }
    // A writer that holds the image: its lock and its address are named.
    let bench =
        "rbd bench --io-type write --io-size 4K --io-threads 1 --io-total 10G rbd/good >/dev/null 2>&1";
    let mut command = lab.command("exec", &["--", "sh", "-c", &format!("exec {bench}")]);
    let writer = Ended(command.spawn().expect("a writer"));
    let begun = Instant::now();
    let held = loop {
        let held = json(&status("rbd/good", &[]));
        if !held["lock"].is_null() {
            break held;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "nobody took the lock: {held}");
        std::thread::sleep(Duration::from_millis(100));
    };
    assert!(
        held["refused"][0].as_str().is_some_and(|why| why.contains("holds its exclusive lock")),
        "{held}"
    );
    assert_eq!(held["watchers"].as_array().map(Vec::len), Some(1));
    drop(writer);
    for (image, more, says) in [
        ("rbd/none", &[][..], "opening image none"),
        ("nopool/x", &[], "opening pool nopool"),
        ("rbd/good", &["--keyring", "/nonexistent"], "connecting to the cluster as client.loligo"),
    ] {
        assert!(refused(&status(image, more)).contains(says), "{}", refused(&status(image, more)));
    }
    good(lab.run("down", &[]));
    lab.leaves_nothing();
}
