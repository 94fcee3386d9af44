//! A cluster that goes while it is loaded.

use super::site::Site;
use loligo_tests::lab::good;
use loligo_tests::skip::{installed, is_long, skip};
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// The time in which a comparison notices and ends: its load alone would last longer.
const ENDS: Duration = Duration::from_secs(180);

#[test]
fn a_comparison_whose_cluster_is_gone_ends_with_words() {
    if !is_long() {
        return skip("verify without a cluster", "it takes two minutes: LOLIGO_LONG=1");
    }
    if !installed("fio") {
        return skip("verify without a cluster", "fio is missing: apt-get install fio");
    }
    let Some(site) = Site::new("tune-gone") else { return };
    let before = site.dump();
    let load = ["--pool", "rbd", "--size", "32m", "--seconds", "600", "--ramp", "0", "--depth", "4"];
    let change = ["--set", "client:rbd_qos_write_iops_limit=50", "--yes"];
    let mut verify = site.command(&[&["verify"], &load[..], &change].concat());
    let mut verify = verify.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().expect("it runs");
    let mut said = BufReader::new(verify.stderr.take().expect("a pipe")).lines().map_while(Result::ok);
    assert!(said.any(|line| line.contains("writing an image")), "no load was begun");
    let fio = format!("loligo-verify-{}", verify.id());
    loligo_tests::lab::until("the load runs", Duration::from_secs(60), || {
        // Written whole by writes in order, loaded by random ones.
        !good(site.lab.sh(&format!("pgrep -fc '[r]bdname={fio} --rw=randwrite' || true")))
            .stdout
            .starts_with(b"0")
    });
    for daemon in ["osd 0", "osd 1", "osd 2", "mon a"] {
        good(site.lab.run(&format!("fail {daemon}"), &[]));
    }
    let begun = Instant::now();
    let rest: Vec<String> = said.collect();
    assert!(!verify.wait().expect("it ends").success());
    assert!(begun.elapsed() < ENDS, "it took {:?}", begun.elapsed());
    let rest = rest.join("\n");
    for words in ["no monitor has answered for 30 s", "the cluster is gone", "rbd rm rbd/loligo-verify-"] {
        assert!(rest.contains(words), "{words}: {rest}");
    }
    let left = good(site.lab.sh(&format!("pgrep -fc '[r]bdname={fio}' || true")));
    assert!(left.stdout.starts_with(b"0"), "fio still runs");

    good(site.lab.run("mend", &[]));
    assert_eq!(site.dump(), before);
    // The run is over, and keeps no other out.
    good(site.lab.sh("ceph config set osd osd_max_backfills 8"));
    loligo_tests::lab::until("another run is made", Duration::from_secs(120), || {
        site.tune(&["apply", "--rule", "OSD-09", "--yes"]).status.success()
    });
    assert_eq!(site.backfills(), 1);
    good(site.tune(&["rollback"]));
    assert_eq!((site.backfills(), site.witnesses()), (8, 0));
    let image = format!("rbd rm --no-progress rbd/{fio}");
    good(site.lab.sh(&image));
}
