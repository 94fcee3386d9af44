//! `loligo tune apply` and `rollback` on a real cluster: effects are seen, and a run that is cut anywhere is taken back whole.

mod by_name;
mod copy;
mod faults;
mod gone;
mod proof;
mod remote;
mod site;

use loligo_tests::lab::{good, refused};
use loligo_tests::server::program;
use loligo_tests::skip::is_long;
use serde_json::Value;
use site::{Site, cut_after};
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

/// Advice of old articles, in sections with and without masks. Some of it acts at once, some once OSDs start anew.
const ADVICE: &str = "ceph config set osd osd_max_backfills 8; ceph config set osd osd_recovery_op_priority 63; \
                      ceph config set osd osd_recovery_max_active_hdd 20; ceph config set osd osd_recovery_sleep_hdd 0; \
                      ceph config set osd/class:ssd filestore_max_sync_interval 10; \
                      ceph config set osd osd_recovery_sleep_hybrid 0; ceph config set osd osd_recovery_max_active_ssd 40; \
                      ceph config set osd filestore_queue_max_ops 100; ceph config set osd osd_journal_size 1024; \
                      ceph config set global journal_max_write_bytes 1048576";

#[test]
fn what_is_applied_acts_and_is_taken_back_to_the_byte() {
    let Some(site) = Site::new("tune-apply") else { return };
    good(site.lab.sh(ADVICE));
    let before = site.dump();

    // Without --yes nothing is changed.
    let dry = site.json(&["apply"]);
    assert_eq!((&dry["done"], site.dump()), (&Value::Bool(false), before.clone()));
    let places = |it: &Value| {
        let all = it["steps"].as_array().expect("steps").iter();
        all.map(|it| (it["change"]["key"].to_string(), it["before"]["now"].to_string())).collect::<Vec<_>>()
    };
    assert!(places(&dry).contains(&("\"osd_max_backfills\"".into(), "\"8\"".into())), "{dry}");
    assert!(places(&dry).iter().any(|(key, _)| key.contains("filestore_max_sync_interval")), "{dry}");

    let done = site.json(&["apply", "--yes"]);
    assert_eq!(places(&done), places(&dry));
    assert_eq!(site.backfills(), 1, "the reservers have the new limit");
    let after = site.dump();
    assert!(!after.contains("filestore") && after != before, "{after}");
    let swappiness = || std::fs::read_to_string(site.root().join("proc/sys/vm/swappiness")).expect("text");
    assert_eq!(swappiness().trim(), "10");
    let sight = done["seen"].to_string();
    assert!(sight.contains("the reservers of osd.2 admit 1"), "{sight}");
    assert!(site.json(&["apply"])["steps"].as_array().expect("steps").is_empty(), "nothing is left to do");

    // A value that somebody changed since is theirs.
    let calm = site.tune(&["watch", "--once"]);
    assert!(calm.status.success(), "{}", String::from_utf8_lossy(&calm.stdout));
    good(site.lab.sh("ceph config set osd osd_recovery_op_priority 7"));
    let drift = site.tune(&["watch", "--once"]);
    let words = String::from_utf8_lossy(&drift.stdout).into_owned();
    assert!(drift.status.code() == Some(1) && words.contains("osd_recovery_op_priority of osd"), "{words}");
    a_daemon_tells_of_the_drift(&site);
    let back = site.json(&["rollback"]);
    assert!(back["back"]["left"].to_string().contains("osd_recovery_op_priority"), "{back}");
    assert!(site.dump().contains("\"osd_recovery_op_priority\"=\"7\""), "{}", site.dump());
    good(site.lab.sh("ceph config set osd osd_recovery_op_priority 63"));
    assert_eq!(site.dump(), before);
    assert_eq!((site.backfills(), swappiness().trim()), (8, "60"));
    assert!(!site.root().join("etc/sysctl.d/99-zz-loligo-tune.conf").exists());
    assert_eq!(site.last_run()["state"], "rolled-back");

    copy::a_copy_counts_with_its_witness(&site, &before);
    assert_eq!((site.backfills(), swappiness().trim()), (8, "60"));

    // A place that is gone keeps the others from nothing, and the run open until it is forced.
    good(site.tune(&["apply", "--yes"]));
    let run = site.last_run()["run"].as_str().expect("a name").to_owned();
    let gone = site.root().join("proc/sys/vm/swappiness");
    let aside = site.root().join("proc/sys/vm/aside");
    std::fs::rename(&gone, &aside).expect("it goes");
    std::fs::create_dir(&gone).expect("nothing that can be read");
    let out = site.tune(&["rollback"]);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(!out.status.success() && said.contains("vm.swappiness on") && said.contains("--force"), "{said}");
    assert_eq!(site.dump(), before, "the others are taken back");
    assert!(refused(&site.tune(&["apply", "--yes"])).contains("--force closes it"));
    let forced = site.json(&["rollback", &run, "--force"]);
    assert!(forced["back"]["failed"].to_string().contains("vm.swappiness"), "{forced}");
    assert_eq!(site.last_run()["state"], "rolled-back");
    std::fs::remove_dir(&gone).expect("it goes");
    std::fs::rename(&aside, &gone).expect("it comes back");
    good(site.tune(&["rollback", &run, "--force"]));
    assert_eq!(swappiness().trim(), "60");

    copy::a_planted_copy_opens_no_door(&site, &before);
    is_refused_where_it_is_not_fit(&site);
}

/// A daemon with a section [tune] has it in its log and its metrics.
fn a_daemon_tells_of_the_drift(site: &Site) {
    let (dir, state) = (site.dir.path(), site.dir.path().join("daemon"));
    let port = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    std::fs::create_dir_all(&state).expect("a folder");
    std::os::unix::fs::symlink(dir.join("state"), state.join("tune")).expect("its journals");
    let conf = site.lab.dir.join("ceph.conf");
    let text = format!(
        "[daemon]\nstate-dir = \"{}\"\nmetrics = \"{port}\"\n[tune]\nevery = 1\nconf = \"{}\"\n",
        state.display(),
        conf.display()
    );
    std::fs::write(dir.join("loligod.toml"), text).expect("a file");
    // It ends by itself if it never says the line.
    let mut daemon = Command::new("timeout");
    daemon.args(["--signal=KILL", "60"]).arg(program()).args(["daemon", "--config"]);
    daemon.arg(dir.join("loligod.toml")).env("LOLIGO_RUNTIME_DIR", dir.join("run"));
    let mut daemon = daemon.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().expect("a daemon");
    let mut said = BufReader::new(daemon.stderr.take().expect("a pipe")).lines().map_while(Result::ok);
    let is_told =
        |line: &String| line.contains("tune: drift") && line.contains("osd_recovery_op_priority of osd");
    assert!(said.any(|line| is_told(&line)), "the daemon says nothing of the drift");
    let metrics = good(site.lab.sh(&format!("curl -s http://{port}/metrics")));
    let metrics = String::from_utf8_lossy(&metrics.stdout).into_owned();
    assert!(metrics.contains("loligo_tune_up 1") && metrics.contains("loligo_tune_drifted{"), "{metrics}");
    good(Command::new("kill").arg(daemon.id().to_string()).output().expect("it is told to end"));
    assert!(daemon.wait().expect("it ends").success());
}

/// Bad states: each has its words, and nothing is changed.
fn is_refused_where_it_is_not_fit(site: &Site) {
    let before = site.dump();
    let no = |args: &[&str], words: &str| {
        let said = refused(&site.tune(args));
        assert!(said.contains(words), "{args:?}: {said}");
        assert_eq!(site.dump(), before, "{args:?} changed something");
    };
    no(&["rollback"], "there is no run");
    no(&["rollback", "20000101-000000-1"], "knows no run");
    no(&["rollback", "../x"], "knows no run");
    no(&["apply", "--rule", "OSD-07"], "proposes nothing here");
    no(&["apply", "--rule", "NOPE"], "there is no rule NOPE");
    good(site.lab.sh("ceph osd set noout"));
    loligo_tests::lab::until("the flag is a complaint", std::time::Duration::from_secs(30), || {
        let said = site.tune(&["apply", "--yes"]);
        !said.status.success() && String::from_utf8_lossy(&said.stderr).contains("OSDMAP_FLAGS")
    });
    good(site.lab.sh("ceph osd unset noout"));
    no(&["apply", "--no-cluster", "--yes"], "--no-cluster");
    // An OSD that is down is a complaint that nobody accepted.
    good(site.lab.run("fail osd 2", &[]));
    good(site.lab.sh("ceph osd down 2 --definitely-dead"));
    no(&["apply", "--yes"], "the cluster complains");
    good(site.lab.run("mend", &[]));
    good(site.lab.run("fail mon a", &[]));
    let said = refused(&site.tune(&["apply", "--yes"]));
    assert!(said.contains("cannot be asked"), "{said}");
    good(site.lab.run("mend", &[]));
    assert_eq!(site.dump(), before);
}

#[test]
fn a_run_that_is_killed_anywhere_is_taken_back_whole() {
    let Some(site) = Site::new("tune-kill") else { return };
    good(site.lab.sh(ADVICE));
    let before = site.dump();
    let every = if is_long() { 1 } else { 7 };
    let mut cut = 0;
    for lines in (0..).step_by(every) {
        let is_cut = cut_after(&site, &["apply", "--yes"], lines);
        if !is_cut {
            break;
        }
        cut += 1;
        assert_ne!(site.last_run()["state"], "applied", "after {lines} lines");
        if lines == 0 {
            let said = refused(&site.tune(&["apply", "--yes"]));
            assert!(said.contains("was cut in the middle") && said.contains(" --state "), "{said}");
        }
        // Taking back is cut as well, once in a while.
        if lines % 3 == 0 {
            cut_after(&site, &["rollback"], lines % 5);
        }
        let state = site.last_run()["state"].clone();
        if state != "rolled-back" {
            good(site.tune(&["rollback"]));
        }
        assert_eq!(site.dump(), before, "cut after {lines} lines");
        assert_eq!(site.backfills(), 8, "cut after {lines} lines");
    }
    println!("killed at {cut} places, and taken back at each");
    assert!(cut >= if is_long() { 20 } else { 3 }, "{cut} places");
    if is_long() {
        return;
    }
    assert!(!Path::new("/etc/sysctl.d/99-zz-loligo-tune.conf").exists(), "the host itself is not touched");
}

#[test]
fn osds_restart_one_by_one_and_two_tuners_keep_apart() {
    let Some(site) = Site::new("tune-restart") else { return };
    // Read as an OSD starts.
    good(site.lab.sh("ceph config set osd osd_op_num_shards 3"));
    let before = site.dump();
    let shards = || {
        let out = good(site.lab.sh("ceph tell osd.1 dump_op_pq_state"));
        String::from_utf8_lossy(&out.stdout).matches("ShardedOpWQ").count()
    };
    let of_default = shards();
    assert_ne!(of_default, 3);
    let dir = site.lab.dir.display();
    let program = program().display();
    let restart = format!(
        "{program} lab fail osd {{id}} --dir {dir} >&2 && sleep 1 && {program} lab mend --dir {dir} >&2"
    );
    let no_risk = refused(&site.tune(&["apply", "--rule", "OSD-28"]));
    assert!(no_risk.contains("--risk"), "{no_risk}");
    let args = [
        "apply",
        "--rule",
        "OSD-28",
        "--risk",
        "restart",
        "--restart-with",
        &restart,
        "--yes",
        "--patience",
        "120",
    ];
    let mut first =
        site.command(&args).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().expect("it runs");
    let said = BufReader::new(first.stderr.take().expect("a pipe"));
    let mut lines = said.lines().map_while(Result::ok);
    let restarting = lines.find(|line| line.contains("restart 1 of 3")).expect("it restarts");
    println!("{restarting}");
    let busy = refused(&site.tune(&["rollback"]));
    assert!(busy.contains("another tuner has this cluster: process"), "{busy}");
    let rest: Vec<String> = lines.collect();
    assert!(first.wait().expect("it ends").success(), "{rest:?}");
    assert!(rest.iter().any(|line| line.contains("osd.2 is up, and all is clean")), "{rest:?}");
    assert!(!site.dump().contains("shards"), "{}", site.dump());
    assert_eq!(shards(), of_default);
    let flags = good(site.lab.sh("ceph osd dump --format json"));
    assert!(!String::from_utf8_lossy(&flags.stdout).contains("noout"), "noout is left");

    good(site.tune(&["rollback", "--restart-with", &restart, "--patience", "120"]));
    assert_eq!((site.dump(), shards()), (before.clone(), 3));

    if !is_long() {
        return;
    }
    // One that is killed while an OSD restarts leaves a flag and half of the OSDs: both are put right.
    assert!(cut_after(&site, &args, 2), "it was over too soon");
    good(site.tune(&["rollback", "--restart-with", &restart, "--patience", "120"]));
    assert_eq!((site.dump(), shards()), (before, 3));
    let flags = good(site.lab.sh("ceph osd dump --format json"));
    assert!(!String::from_utf8_lossy(&flags.stdout).contains("noout"), "noout is left");
}

#[test]
fn an_osd_left_down_keeps_noout_until_another_host_mends_it() {
    let Some(site) = Site::new("tune-noout") else { return };
    good(site.lab.sh("ceph config set osd osd_op_num_shards 3"));
    let before = site.dump();
    let dir = site.lab.dir.display();
    let program = program().display();
    let fails = format!(
        "{program} lab fail osd {{id}} --dir {dir} >&2; until ceph -c {dir}/ceph.conf osd dump | grep -q '^osd.{{id}} down'; \
         do sleep 0.2; done; false"
    );
    let apply = ["apply", "--rule", "OSD-28", "--risk", "restart", "--yes", "--restart-with", &fails];
    let said = refused(&site.tune(&apply));
    assert!(said.contains("osd.0 is down") && said.contains("ceph osd unset-group noout osd.0"), "{said}");
    let states = || String::from_utf8_lossy(&good(site.lab.sh("ceph osd dump")).stdout).into_owned();
    let is_kept = |line: &str| line.starts_with("osd.0 down") && line.contains("noout");
    assert!(states().lines().any(is_kept), "{}", states());

    let restart =
        format!("{program} lab fail osd {{id}} --dir {dir} >&2; sleep 1; {program} lab mend --dir {dir} >&2");
    // Another host has no journal, and wants the name of the run.
    let run = site.last_run()["run"].as_str().expect("its name").to_owned();
    std::fs::remove_dir_all(site.dir.path().join("state")).expect("journals");
    let out = good(site.tune(&["rollback", &run, "--restart-with", &restart, "--patience", "120"]));
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(said.contains("by the cluster's copy") && said.contains("restart 3 of 3"), "{said}");
    assert_eq!(site.dump(), before);
    assert!(!states().contains("noout"), "{}", states());
}
