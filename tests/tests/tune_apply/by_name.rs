//! Options by name: values that change nothing, stop work, or are of somebody else are refused, and mends can be pasted.

use super::site::Site;
use loligo_tests::lab::{good, refused};
use loligo_tests::server::program;

/// A value that is refused here is not written.
pub(super) fn values_that_serve_nobody_are_refused(site: &Site) {
    good(site.lab.sh("ceph config set osd osd_scrub_load_threshold 0.3"));
    let before = site.dump();
    assert!(before.contains("\"0.300000\""), "the cluster keeps six decimals: {before}");
    let apply = ["apply", "--risk", "restart", "--yes", "--set"];
    let verify = ["verify", "--pool", "rbd", "--risk", "restart", "--yes", "--set"];
    let no = |head: &[&str], set: &str, words: &[&str]| {
        let said = refused(&site.tune(&[head, &[set]].concat()));
        for words in words {
            assert!(said.contains(words), "{set}: {said}");
        }
        assert_eq!(site.dump(), before, "{set} changed something");
    };
    let same = ["nothing would change: osd.0 and 2 more run with", "Name another value"];
    no(&verify, "osd:osd_max_backfills=1", &same);
    no(&verify, "osd:osd_scrub_load_threshold=0.3", &same);
    no(&verify, "osd:osd_scrub_during_recovery=false", &same);
    no(&verify, "osd.1:osd_max_backfills=1", &["nothing would change: osd.1 runs with 1 already"]);
    // A value that only runs is made to stay, and one that stays is no fault.
    for steps in [1, 0] {
        let set = ["apply", "--yes", "--set", "osd.1:osd_max_backfills=1"];
        let done = site.json(&set);
        assert_eq!(done["steps"].as_array().map(Vec::len), Some(steps), "{done}");
    }
    good(site.tune(&["rollback"]));
    assert_eq!(site.dump(), before);
    no(&verify, "client:rbd_cache=true", &["nothing would change: client has true already"]);
    no(&apply, "osd:rbd_cache=false", &["no OSD uses rbd_cache", "client.NAME"]);
    no(&verify, "osd:osd_max_backfills=0", &["no placement group is recovered", "--weaken"]);
    no(&apply, "osd:osd_op_num_shards_ssd=0", &["has no shard", "1 is the least that serves"]);
    // The lab's file has it.
    no(&verify, "osd:bluestore_cache_size=1073741824", &["nothing was changed: osd.", "by its file"]);
    no(&apply, "osd:osd_max_backfill=2", &["no option osd_max_backfill (did you mean osd_max_backfills?)"]);
    no(&apply, "osd/class:sdd:osd_max_backfills=2", &["no OSD of osd/class:sdd (did you mean osd/class:"]);
    no(&apply, "osd:osd_max_backfills=+2", &["write 2:"]);
    no(&verify, "osd:osd_scrub_load_threshold=.5", &["write 0.5:"]);
    let weak = site.json(&["apply", "--weaken", "--set", "osd:osd_max_backfills=0"]);
    assert_eq!(weak["steps"].as_array().map(Vec::len), Some(1), "{weak}");
    // Values of the kind of disk, or without a limit, are none of these.
    let set = ["osd:osd_recovery_max_active=3", "osd:osd_client_message_cap=0"];
    let fine = site.json(&["apply", "--set", set[0], "--set", set[1]]);
    assert_eq!(fine["steps"].as_array().map(Vec::len), Some(2), "{fine}");
    good(site.lab.sh("ceph config rm osd osd_scrub_load_threshold"));
    the_mend_of_a_run_can_be_pasted(site);
}

/// The command that `apply` names leads to the same cluster and journals.
fn the_mend_of_a_run_can_be_pasted(site: &Site) {
    let before = site.dump();
    let done = good(site.tune(&["apply", "--yes", "--set", "osd:osd_max_scrubs=2"]));
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(said.contains("1 step is made"), "{said}");
    assert_eq!(site.last_run()["kind"], "apply");
    let (_, mend) = said.split_once("'loligo ").expect("a command");
    let mend = mend.split('\'').next().expect("its end");
    assert!(mend.contains(" --conf ") && mend.contains(" --state "), "{mend}");
    good(site.lab.sh(&format!("env -u CEPH_CONF {} {mend}", program().display())));
    assert_eq!((site.dump(), site.last_run()["state"].as_str()), (before, Some("rolled-back")));
}
