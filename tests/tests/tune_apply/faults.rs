//! Others that are at work on the cluster beside the tuner, and restarts that are none.

use super::site::Site;
use loligo_tests::lab::{good, refused};
use loligo_tests::server::program;
use loligo_tests::skip::{installed, is_long, skip};
use serde_json::Value;
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

/// Lines of standard error, and all of them once it has ended.
fn run(site: &Site, args: &[&str], on: &str, mut then: impl FnMut(u32)) -> (bool, String) {
    let mut child = site.command(args).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().expect("it runs");
    let mut all = Vec::new();
    for line in BufReader::new(child.stderr.take().expect("a pipe")).lines().map_while(Result::ok) {
        let is_first = line.contains(on) && !all.iter().any(|it: &String| it.contains(on));
        all.push(line);
        if is_first {
            then(child.id());
        }
    }
    let all = all.join("\n");
    assert!(all.contains(on), "{on}: {all}");
    (child.wait().expect("it ends").success(), all)
}

fn apply(restart: &str) -> [&str; 10] {
    [
        "apply",
        "--rule",
        "OSD-28",
        "--risk",
        "restart",
        "--yes",
        "--patience",
        "120",
        "--restart-with",
        restart,
    ]
}

#[test]
fn a_tuner_whose_lock_was_taken_does_nothing_more() {
    if !is_long() {
        return skip("a lock that is taken away", "it takes two minutes: LOLIGO_LONG=1");
    }
    let Some(site) = Site::new("tune-lock") else { return };
    good(site.lab.sh("ceph config set osd osd_op_num_shards 3"));
    let before = site.dump();
    let (dir, program) = (site.lab.dir.display(), program().display());
    let restart =
        format!("{program} lab fail osd {{id}} --dir {dir} >&2; sleep 1; {program} lab mend --dir {dir} >&2");
    let slow = format!("sleep 25; {restart}");
    let take = |_| {
        let out = good(site.lab.sh("rados -p rbd -N loligo-tune lock info tuner tuner --format json"));
        let info: Value = serde_json::from_slice(&out.stdout).expect("JSON");
        let holder = &info["lockers"][0];
        let (name, cookie) =
            (holder["name"].as_str().expect("a name"), holder["cookie"].as_str().expect("a cookie"));
        good(site.lab.sh(&format!(
            "rados -p rbd -N loligo-tune lock break tuner tuner {name} --lock-cookie '{cookie}' && \
             rados -p rbd -N loligo-tune lock get tuner tuner --lock-cookie another --lock-duration 90"
        )));
    };
    let (is_done, said) = run(&site, &apply(&slow), "restart 1 of 3", take);
    assert!(!is_done && said.contains("the lock in the cluster was lost"), "{said}");
    assert!(!said.contains("restart 2 of 3"), "{said}");
    assert!(refused(&site.tune(&["rollback"])).contains("another tuner has this cluster"));
    let dump = site.dump();
    loligo_tests::lab::until("the other's lock has ended", std::time::Duration::from_secs(120), || {
        site.tune(&["rollback", "--restart-with", &restart, "--patience", "120"]).status.success()
    });
    assert_ne!(dump, before, "what was set before is left until somebody takes it back");
    assert_eq!(site.dump(), before);

    // A command that restarts nothing is known by the OSD that answers all the while.
    let begun = std::time::Instant::now();
    let said = refused(&site.tune(&apply("true")));
    assert!(said.contains("osd.0 runs on") && said.contains("--restart-with"), "{said}");
    assert!(begun.elapsed().as_secs() < 110, "before the patience ends");
    good(site.tune(&["rollback", "--restart-with", &restart, "--patience", "120"]));
    assert_eq!(site.dump(), before);
    an_end_is_told_with_its_reason(&site);
}

/// An OSD that ends of its value ends the run, long before the patience does, with what its log says.
fn an_end_is_told_with_its_reason(site: &Site) {
    let before = site.dump();
    let begun = std::time::Instant::now();
    // The host itself is looked at, and not the site's tree.
    let (program, dir) = (program().display(), site.lab.dir.display());
    let tune = |what: &str| {
        site.lab.sh(&format!("{program} tune {what} --conf {dir}/ceph.conf --state {dir}/state"))
    };
    let set = "--set osd.0:bluestore_cache_meta_ratio=2 --risk restart --patience 300";
    let said = refused(&tune(&format!("apply --yes {set}")));
    assert!(said.contains("bluestore_cache_meta_ratio (2) must be in range"), "{said}");
    assert!(said.contains("It has ended"), "{said}");
    assert!(begun.elapsed().as_secs() < 120, "{:?}", begun.elapsed());
    good(tune("rollback --patience 120"));
    assert_eq!(site.dump(), before);
}

#[test]
fn runs_beside_a_new_complaint_do_not_count() {
    if !is_long() {
        return skip("verify beside a complaint", "it takes two minutes: LOLIGO_LONG=1");
    }
    if !installed("fio") {
        return skip("verify beside a complaint", "fio is missing: apt-get install fio");
    }
    let Some(site) = Site::new("tune-complaint") else { return };
    let load =
        ["--pool", "rbd", "--size", "32m", "--seconds", "1", "--ramp", "0", "--depth", "4", "--detect", "90"];
    let verify = [&["verify", "--same", "--yes"], &load[..]].concat();
    // The flag goes by itself once the comparison has waited a while.
    let (is_done, said) = run(&site, &verify, "warm-up 1", |_| {
        good(site.lab.sh("ceph osd set noout"));
        good(site.lab.sh("(sleep 20; ceph osd unset noout) >/dev/null 2>&1 &"));
    });
    assert!(is_done, "{said}");
    assert!(said.contains("waiting: the cluster complains: OSDMAP_FLAGS"), "{said}");

    // Ctrl-C shows what was measured until then, and no verdict.
    let before = site.dump();
    let report = site.dir.path().join("cut.html");
    let limit = ["--set", "client:rbd_qos_write_iops_limit=50", "--report", report.to_str().expect("a path")];
    let verify = [&["verify", "--yes"], &load[..], &limit].concat();
    let (is_done, said) = run(&site, &verify, "so far", |process| {
        good(site.lab.sh(&format!("kill -INT {process}")));
    });
    assert!(!is_done && said.contains("no verdict: it was interrupted") && said.contains("0.0"), "{said}");
    let all = std::fs::read_to_string(report.with_extension("json")).expect("its runs");
    assert!(report.exists() && all.contains("\"is_cut\": true"), "{all}");
    assert_eq!(site.dump(), before);
    assert_eq!(site.last_run()["state"], "rolled-back");
    others_values_are_seen(&site, &load);
}

/// A value that no client of the load has is no change, and one that somebody sets meanwhile is theirs.
fn others_values_are_seen(site: &Site, load: &[&str]) {
    good(site.lab.sh("ceph config set client.admin rbd_qos_write_iops_limit 0"));
    let verify = |set: &'static str| [&["verify", "--yes"], load, &["--set", set]].concat();
    for set in ["client:rbd_qos_write_iops_limit=50", "client.vm:rbd_qos_write_iops_limit=50"] {
        let said = refused(&site.tune(&verify(set)));
        assert!(said.contains("does not reach the load: client.admin has 0, and not 50"), "{said}");
    }
    good(
        site.lab
            .sh("ceph config rm client.admin rbd_qos_write_iops_limit; ceph config set osd osd_max_scrubs 1"),
    );
    let (is_done, said) = run(site, &verify("osd:osd_max_scrubs=2"), "warm-up 1", |_| {
        good(site.lab.sh("ceph config set osd osd_max_scrubs 7"));
    });
    assert!(!is_done && said.contains("osd_max_scrubs of osd is 7 now"), "{said}");
    assert!(said.contains("left to whoever changed it") && site.dump().contains("\"7\""), "{said}");
    assert_eq!(site.last_run()["state"], "rolled-back");
}
