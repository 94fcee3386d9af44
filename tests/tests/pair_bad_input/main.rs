//! Claims about what a pair is not made of: each is refused with the mend, and nothing is changed by that.
//!
//! The cluster is real, and so are the stores on the LUNs of the array, which 'loligo lab array' models.

#![allow(clippy::print_stdout)]

mod array;
mod cluster;
mod pair;
mod running;

use loligo_pair::fence::Fence;
use loligo_pair::reservation::Key;
use pair::{B, Pair};

#[test]
fn luns_without_reservations_are_refused() {
    let Some(pair) = Pair::new("a pair of plain files", None) else { return };
    // The store itself, by a path that passes no reservations on.
    let [lun, plain] = ["a/osd2", "osd2.bytes"].map(|name| pair.at(name).display().to_string());
    pair.write(&pair.file().replace(&lun, &plain));
    pair.refuses("a", &["osd2.bytes cannot be used by a pair", "SCSI-3 or NVMe reservations"]);
}

#[test]
fn reservations_that_refuse_no_write_are_refused() {
    let Some(pair) = Pair::new("a pair over an array that claims much", Some("refuses-no-write")) else {
        return;
    };
    pair.register(&["a"]);
    pair.refuses(
        "b",
        &["osd1", "takes a write of a controller that is not registered", "no takeover would be safe"],
    );
}

#[test]
fn a_lun_that_a_stranger_holds_is_refused() {
    let Some(pair) = Pair::new("a pair with a stranger", None) else { return };
    let mut stranger = pair.fence("b", "osd2");
    stranger.register(Key::NONE, Key(0x77)).expect("it registers");
    stranger.reserve(Key(0x77)).expect("it holds");
    pair.refuses("a", &["osd2", "0x77", "none of this pair's keys", "find out who uses it"]);
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
    let label = |cluster: &str| {
        let lun = pair.at("a/osd2");
        pair.sh(&format!(
            "ceph-bluestore-tool set-label-key --dev {} -k ceph_fsid -v {cluster}",
            lun.display()
        ))
    };
    let own = pair.sh("ceph fsid");
    let another = "00000000-1111-2222-3333-444444444444";
    label(another);
    pair.refuses("a", &[&format!("osd2 is of the cluster {another}"), "another LUN is mapped there"]);
    label(&own);

    let swapped = pair.file().replace("/osd1\"", "/osdX\"").replace("/osd2\"", "/osd1\"");
    pair.write(&swapped.replace("/osdX\"", "/osd2\""));
    pair.refuses("a", &["osd2 holds osd.2 with the id", "not osd.1 with", "another LUN is mapped there"]);

    // With the right ones the same cluster is changed, and changed back.
    pair.write(&pair.file());
    let before = pair.everything();
    for (what, side, more) in [
        ("setup", "a", &[][..]),
        ("setup", "b", &[]),
        ("setup", "b", &["--undo"]),
        ("setup", "a", &["--undo"]),
    ] {
        let out = pair.run(what, side, more);
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        if more.is_empty() {
            assert!(pair.everything() != before, "a setup of {side} that nobody could see");
        }
    }
    let after = pair.everything();
    assert_eq!(after.config, before.config);
    assert!(after.registrations.iter().all(|shown| shown["keys"] == serde_json::json!([])), "{after:?}");
}

#[test]
fn a_setup_beside_a_partner_that_holds_all_is_refused() {
    let Some(pair) = Pair::new("a pair that was taken over", None) else { return };
    let mut b = pair.fence("b", "osd1");
    b.register(Key::NONE, B).expect("b registers");
    b.reserve(B).expect("b holds");
    pair.refuses("a", &["osd1 is held by the partner", "'loligo pair giveback'"]);
}
