//! `loligo tune` on a real cluster: what it sees there, and what it makes of leftovers of older advice.

use loligo_tests::lab::{Lab, good, until};
use loligo_tests::server::program;
use loligo_tests::skip::{cluster, pairs};
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

/// `loligo tune ARGS`.
fn tune(args: &[&str]) -> Output {
    Command::new(program()).arg("tune").args(args).output().expect("the program runs")
}

fn json(out: Output) -> Value {
    serde_json::from_slice(&good(out).stdout).expect("JSON")
}

/// The proposal of a rule.
fn proposal<'a>(plan: &'a Value, rule: &str) -> Option<&'a Value> {
    plan["proposals"].as_array().expect("proposals").iter().find(|it| it["rule"] == rule)
}

/// OSDs of the lab restarted with mClock, the scheduler of releases from 17 on.
fn with_mclock(lab: &Lab) -> Value {
    let set = "ceph config set osd osd_op_queue mclock_scheduler; ceph config set osd.0 osd_max_backfills 8";
    good(lab.sh(set));
    facts(lab)
}

fn facts(lab: &Lab) -> Value {
    let conf = lab.dir.join("ceph.conf");
    json(tune(&["facts", "--conf", conf.to_str().expect("a path"), "--json"]))
}

/// Plans from a file with these facts; nobody is asked.
fn plan(dir: &Path, facts: &Value) -> Value {
    let file = dir.join("facts.json");
    std::fs::write(&file, facts.to_string()).expect("a file");
    json(tune(&["plan", "--facts", file.to_str().expect("a path"), "--json"]))
}

#[test]
fn leftovers_on_a_real_cluster_are_seen_with_their_source() {
    if !cluster("the tuner on a cluster") {
        return;
    }
    let lab = Lab::new("tune");
    let dir = tempfile::tempdir().expect("a folder");
    good(lab.up(&["--osds", "2", "--replicas", "2", "--osd-size", "5g"]));
    good(
        lab.sh(
            "ceph config set osd osd_max_backfills 8; ceph config set osd/class:hdd osd_recovery_sleep 0.5",
        ),
    );
    let backfills = |facts: &Value| facts["osds"][0]["backfills_max"].clone();
    until("the reservers admit eight", Duration::from_secs(30), || backfills(&facts(&lab)) == 8);
    let seen = facts(&lab);
    assert_eq!(
        (&seen["cluster"]["reached"], &seen["cluster"]["health"]),
        (&Value::Bool(true), &Value::from("HEALTH_OK"))
    );
    let osd = &seen["osds"][0];
    let option = |name: &str| (osd["options"][name]["value"].clone(), osd["options"][name]["source"].clone());
    assert_eq!(option("osd_max_backfills"), ("8".into(), "mon".into()));
    assert_eq!(option("osd_objectstore").1, "file");
    assert_eq!(option("osd_memory_target").1, "default");
    assert!(osd["up"] == true && osd["tcmalloc"].is_boolean() && osd["pgs"].as_i64() > Some(0), "{osd}");
    let seen_of_process = osd["rss"].as_i64() > Some(0) && osd["threads"].as_i64() > Some(10);
    assert!(
        seen_of_process && osd["shards"].as_i64() > Some(0) && osd["shard_threads"].as_i64() > Some(0),
        "{osd}"
    );
    assert!(osd["perf"]["kv_sync_busy"].is_number() && osd["perf"]["msgr_busy"].is_number(), "{osd}");
    let masked =
        seen["cluster"]["config"].as_array().expect("entries").iter().any(|it| it["mask"] == "class:hdd");
    assert!(masked, "{}", seen["cluster"]["config"]);
    assert!(seen["hosts"][0]["memory"]["total"].as_i64() > Some(0), "{}", seen["hosts"]);

    let plan = plan(dir.path(), &seen);
    let limits = proposal(&plan, "OSD-09").expect("a limit of recovery that was raised");
    let change = &limits["changes"][0];
    assert_eq!(
        (&change["key"], &change["now"]["set"], &change["value"]),
        (&"osd_max_backfills".into(), &"8".into(), &"1".into())
    );
    assert_eq!(change["now"]["runs"][0]["source"], "mon");
    let refused = plan["findings"].as_array().expect("findings").iter().any(|it| it["rule"] == "OSD-13");
    assert!(refused, "two copies are named: {}", plan["findings"]);

    // Set, and not yet so: daemons say what they run with.
    let pending = with_mclock(&lab);
    assert_eq!(pending["osds"][0]["scheduler"], seen["osds"][0]["scheduler"]);

    let anonymous = good(tune(&[
        "facts",
        "--conf",
        &lab.dir.join("ceph.conf").display().to_string(),
        "--anonymous",
        "--json",
    ]));
    let text = String::from_utf8_lossy(&anonymous.stdout).into_owned();
    let [host, fsid] = [&seen["osds"][0]["host"], &seen["cluster"]["fsid"]]
        .map(|it| it.as_str().expect("a name").to_owned());
    assert!(
        !text.contains(&fsid) && !text.contains(&format!("\"{host}\"")),
        "names are left: {host}, {fsid}"
    );

    // A cluster that does not let this client in is no reason to guess.
    let keyring = dir.path().join("keyring");
    std::fs::write(&keyring, "[client.admin]\n\tkey = AQAAAAAAAAAAABAAAAAAAAAAAAAAAAAAAAAAAA==\n")
        .expect("a file");
    let conf = lab.dir.join("ceph.conf").display().to_string();
    let refused = tune(&["plan", "--conf", &conf, "--keyring", &keyring.display().to_string()]);
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && why.contains("--keyring"), "{why}");
    good(lab.run("down", &[]));
}

/// Rules of a plan whose facts are missing.
fn unknown(plan: &Value) -> Vec<String> {
    let all = plan["unknown"].as_array().expect("unknown").iter();
    all.map(|it| it["rule"].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn caches_under_osds_are_seen_and_rules_can_tell() {
    if !cluster("caches under OSDs") {
        return;
    }
    let lab = Lab::new("caches");
    let dir = tempfile::tempdir().expect("a folder");
    good(lab.up(&["--osds", "2", "--replicas", "2", "--osd-size", "3g", "--cache", "256m"]));
    good(lab.sh("rbd create rbd/a --size 1G --object-size 1M; \
         rbd config image set rbd/a rbd_qos_iops_limit 100; \
         rbd config image set rbd/a rbd_persistent_cache_path /secret"));
    let seen = facts(&lab);
    let (osd, cache) = (&seen["osds"][0], &seen["caches"][0]);
    assert_eq!((&osd["cache"]["kind"], &osd["cache"]["mode"]), (&"loligo".into(), &"wb".into()), "{osd}");
    let size = cache["bytes"].as_i64().expect("a size");
    assert!(cache["on_osd"] == true && cache["shared_by"] == 2 && size > 128 << 20, "{cache}");
    let core = lab.dir.join("disk.0").display().to_string();
    assert!(cache["core"] == core.as_str() && cache["line_size"] == 4096, "{cache}");
    assert!(osd["sharding"].as_str().is_some_and(|it| it.contains("O-0")), "{osd}");
    assert!(osd["plugins"]["compressors"].to_string().contains("snappy"), "{}", osd["plugins"]);
    let host = &seen["hosts"][0];
    assert!(host["mons"] == 1 && host["mgrs"] == 1 && host["other_bytes"].as_i64() > Some(0), "{host}");
    let image = &seen["images"][0];
    assert!(image["order"] == 20 && image["qos"] == true && image["mirrored"] == false, "{image}");
    assert!(image["overrides"].to_string().contains("rbd_qos_iops_limit=100 (image)"), "{image}");

    // Rules can tell more with these facts than without.
    let mut less = seen.clone();
    for key in ["cache", "plugins", "sharding", "log_errors"] {
        for osd in less["osds"].as_array_mut().expect("OSDs") {
            osd.as_object_mut().expect("an OSD").remove(key);
        }
    }
    for disk in less["disks"].as_array_mut().expect("disks") {
        disk.as_object_mut().expect("a disk").remove("plp");
    }
    let (with, without) = (unknown(&plan(dir.path(), &seen)), unknown(&plan(dir.path(), &less)));
    println!(
        "unknown: {} {with:?}, without caches, plugins and protection {} {without:?}",
        with.len(),
        without.len()
    );
    for rule in ["BLK-01", "BLK-11", "KV-08", "KV-28", "KV-04"] {
        assert!(!with.iter().any(|it| it == rule), "{rule}: {with:?}");
    }
    assert!(with.len() + 5 <= without.len(), "{with:?} {without:?}");

    // What is said of a bare disk does not contradict a cache.
    let mut cached = seen.clone();
    cached["disks"][0]["read_ahead_kb"] = 4096.into();
    let mut bare = cached.clone();
    bare["osds"].as_array_mut().expect("OSDs").iter_mut().for_each(|it| it["cache"] = json!({"kind": ""}));
    let says = |facts: &Value| proposal(&plan(dir.path(), facts), "BLK-11").is_some();
    assert_eq!((says(&bare), says(&cached)), (true, false));

    nobody_is_loaded_unasked(&lab);
    let anonymous = good(tune(&[
        "facts",
        "--conf",
        &lab.dir.join("ceph.conf").display().to_string(),
        "--anonymous",
        "--json",
    ]));
    let text = String::from_utf8_lossy(&anonymous.stdout).into_owned();
    assert!(!text.contains(&core) && !text.contains("disk0") && !text.contains("/secret"), "{text}");
    good(lab.run("down", &[]));
}

/// OSDs are not loaded without a word, nor on a cluster that complains.
fn nobody_is_loaded_unasked(lab: &Lab) {
    let conf = lab.dir.join("ceph.conf").display().to_string();
    let refused = |more: &[&str]| {
        let out = tune(&[&["facts", "--measure", "--conf", &conf], more].concat());
        assert_eq!(out.status.code(), Some(3), "{out:?}");
        String::from_utf8_lossy(&out.stderr).into_owned()
    };
    let asked = refused(&[]);
    assert!(asked.contains("2 OSDs write") && asked.contains("--yes"), "{asked}");
    good(lab.sh("ceph osd set noout"));
    let complains = refused(&["--yes"]);
    assert!(complains.contains("OSDMAP_FLAGS") && complains.contains("--accept"), "{complains}");
    good(lab.sh("ceph osd unset noout"));
    assert!(refused(&["--osd", "7", "--yes"]).contains("osd.7"), "an OSD that is none");
}

#[test]
fn a_narrow_link_on_the_way_is_found() {
    if !pairs("MTUs on the way", &[]) {
        return;
    }
    let lab = Lab::new("mtu");
    let dir = tempfile::tempdir().expect("a folder");
    good(lab.up(&["--osds", "1", "--replicas", "1", "--osd-size", "3g", "--hosts", "namespaces"]));
    let seen = || {
        let facts = facts(&lab);
        let nics = facts["nics"].as_array().expect("interfaces").clone();
        let nic = nics.into_iter().find(|nic| nic["role"] == "both").expect("an interface of the cluster");
        let plan = plan(dir.path(), &facts);
        let finds = plan["findings"].as_array().expect("findings").iter().any(|it| it["rule"] == "NET-12");
        (nic["mtu"].as_i64(), nic["mtu_proven"].as_i64(), finds)
    };
    assert_eq!(seen(), (Some(1500), Some(1500), false));
    good(lab.run("exec", &["--host", "osd0", "--", "ip", "link", "set", "eth0", "mtu", "1300"]));
    let (mtu, proven, finds) = seen();
    // A pair of virtual interfaces takes four bytes more, which a VLAN's header would need.
    assert!(mtu == Some(1500) && (Some(1300)..=Some(1304)).contains(&proven) && finds, "{proven:?} {finds}");
    good(lab.run("down", &[]));
}

#[test]
fn a_host_alone_is_looked_at_and_an_unknown_rule_refused() {
    let seen = json(tune(&["facts", "--no-cluster", "--json"]));
    assert_eq!(seen["cluster"]["reached"], false);
    assert!(seen["hosts"][0]["cpus"].as_array().is_some_and(|all| !all.is_empty()), "{}", seen["hosts"]);
    let refused = tune(&["explain", "XX-99"]);
    assert_eq!(refused.status.code(), Some(2));
    for (args, meant) in
        [(["explain", "MEM01"], "MEM-01"), (["presets", "article-bluestor"], "article-bluestore")]
    {
        let said = String::from_utf8_lossy(&tune(&args).stderr).into_owned();
        assert!(said.contains(&format!("(did you mean {meant}?)")), "{said}");
    }
    let one = json(tune(&["explain", "mem-01", "--json"]));
    assert_eq!(one["id"], "MEM-01");
    let all = json(tune(&["explain", "--json"]));
    assert!(all.as_array().is_some_and(|all| all.len() >= 130));
}

#[test]
fn facts_of_another_shape_are_refused_with_the_mend() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("facts.json");
    for text in ["", "[]", "{\"version\": 1}", "{\"version\": 7, \"taken\": 0, \"cluster\": {}}"] {
        std::fs::write(&file, text).expect("a file");
        let refused = tune(&["plan", "--facts", file.to_str().expect("a path")]);
        let why = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && why.contains("facts.json"), "{text}: {why}");
    }
}
