//! Claims about the steps of the grouped destage: what each is for shows when it is left out, on an image that is driven here.
//!
//! One step has no row: with `rbd_cache` on nothing was ever seen to break. The refusal of images and pools which turn it on is a
//! claim of `refusals.rs` and of the crate `ceph`.

use crate::cluster::{Cluster, shared};
use crate::driven::{Driven, LeftOut, OBJECT, holding};
use crate::site::Image;
use loligo_ceph::bug::Step;
use std::collections::BTreeSet;

/// Objects that fast-diff lists as changed since a snapshot.
fn listed(image: &Image, snapshot: &str) -> BTreeSet<u64> {
    let changed = image.cluster.rbd_json(&["diff", "--whole-object", "--from-snap", snapshot, &image.spec]);
    let extents = changed.as_array().into_iter().flatten();
    extents.filter_map(|e| Some(e["offset"].as_u64()? / OBJECT)).collect()
}

/// The findings of a stock client.
struct Found {
    /// Everything written before the snapshot is in it, and nothing later.
    snapshot_right: bool,
    /// The newest data is in the image.
    head_right: bool,
    /// The owner of the image reads it too.
    owner_right: bool,
    /// Fast-diff lists every object written since the snapshot.
    diff_right: bool,
    /// Operations that came back to go through librbd.
    turned_back: u64,
}

/// Writes, a snapshot by a stock client, a discard, and writes again, with `steps` left out after the snapshot began.
fn run(cluster: &'static Cluster, name: &str, steps: &[Step]) -> Found {
    let image = Image::new(cluster, name);
    let left_out = LeftOut::nothing();
    let mut driven = Driven::new(&image);
    let (written, dropped) = ([0, 1, 2, 3], 4);
    driven.write(&written, 1);
    driven.write(&[dropped], 1);
    left_out.now(steps);
    assert!(driven.snapshot("s", |_| {}), "nobody was asked");
    driven.discard(dropped);
    driven.write(&written, 2);
    driven.write(&[dropped], 2);
    let turned_back = driven.turned_back();
    let owner_right = driven.reads(&[dropped], 2);
    driven.end();
    let all = [0, 1, 2, 3, 4];
    Found {
        snapshot_right: image.export(&image.at("s")) == holding(&[(&all, 1)]),
        head_right: image.export(&image.spec) == holding(&[(&all, 2)]),
        owner_right,
        diff_right: listed(&image, "s").is_superset(&all.into()),
        turned_back,
    }
}

#[test]
fn each_left_out_step_of_the_grouped_destage_breaks_its_claim() {
    let Some((cluster, _shared)) = shared("steps left out") else { return };
    let all = run(cluster, "all-steps", &[]);
    assert!(all.snapshot_right && all.head_right && all.owner_right && all.diff_right, "with every step");
    assert_eq!(all.turned_back, 0, "with every step nothing comes back");

    // The guard alone finds what was not primed since the snapshot.
    let guarded = run(cluster, "no-primer", &[Step::Primer]);
    assert!(guarded.snapshot_right && guarded.head_right && guarded.diff_right, "the guard did not help");
    assert_eq!(guarded.turned_back, 5, "the guard is not there");

    let unprimed = run(cluster, "no-primer-no-guard", &[Step::Primer, Step::Guard]);
    assert!(unprimed.snapshot_right && unprimed.head_right && unprimed.owner_right, "the context is right");
    assert!(!unprimed.diff_right, "without primers fast-diff finds everything all the same");

    let stale = run(cluster, "no-refresh", &[Step::Primer, Step::Refresh]);
    assert!(!stale.snapshot_right, "with an old context the snapshot is right all the same");
    assert!(stale.head_right);

    let blind = run(cluster, "no-exists", &[Step::Primer, Step::Guard, Step::Exists]);
    assert!(!blind.owner_right, "the owner finds the data of an object that was discarded all the same");
}

/// A primer that is sent before a snapshot and noticed after it, then a group for the same object. True if
/// fast-diff lists that object, and the number of times that something came back.
fn primed_before(cluster: &'static Cluster, name: &str, steps: &[Step]) -> (bool, u64) {
    let image = Image::new(cluster, name);
    let left_out = LeftOut::nothing();
    let mut driven = Driven::new(&image);
    driven.write(&[0], 1);
    left_out.now(steps);
    driven.send(1, 1);
    assert!(driven.snapshot("s", |_| {}), "nobody was asked");
    driven.look();
    driven.write(&[0, 1], 2);
    let turned_back = driven.turned_back();
    driven.end();
    assert!(image.export(&image.spec) == holding(&[(&[0, 1], 2)]), "{name}: not what was written");
    let diff = listed(&image, "s");
    assert!(diff.contains(&0), "{name}: an object that was primed again is not listed: {diff:?}");
    (diff.contains(&1), turned_back)
}

#[test]
fn a_primer_counts_for_its_epoch_or_fast_diff_misses_an_object() {
    let Some((cluster, _shared)) = shared("a primer across a snapshot") else { return };
    assert_eq!(primed_before(cluster, "epoch", &[Step::Guard]), (true, 0));
    assert_eq!(primed_before(cluster, "no-epoch-no-guard", &[Step::Epoch, Step::Guard]), (false, 0));
    // Beside it the guard finds such an object.
    assert_eq!(primed_before(cluster, "no-epoch", &[Step::Epoch]), (true, 1));
}

/// Snapshots are taken, the newest is removed, and what was written before is written again: how often an OSD refused a group, and
/// whether everything goes through librbd in the end.
fn newest_removed(cluster: &'static Cluster, name: &str, steps: &[Step]) -> (u64, bool) {
    let image = Image::new(cluster, name);
    let left_out = LeftOut::nothing();
    left_out.now(steps);
    let mut driven = Driven::new(&image);
    let objects = [0, 1, 2, 3];
    driven.write(&objects, 1);
    for snapshot in ["kept", "gone"] {
        assert!(driven.snapshot(snapshot, |_| {}), "nobody was asked");
        driven.write(&objects, 2);
    }
    cluster.rbd(&["snap", "rm", "--no-progress", &image.at("gone")]);
    driven.hears_of(1);
    for version in 3..=6 {
        driven.write(&objects, version);
    }
    let refused = (driven.turned_back(), driven.why_librbd().is_some());
    driven.end();
    assert!(image.export(&image.spec) == holding(&[(&objects, 6)]), "{name}: not what was written");
    assert!(
        image.export(&image.at("kept")) == holding(&[(&objects, 1)]),
        "{name}: the snapshot is not what it was"
    );
    refused
}

#[test]
fn the_newest_snapshots_number_is_no_sequence_once_removed() {
    let Some((cluster, _shared)) = shared("the newest snapshot removed") else { return };
    assert_eq!(newest_removed(cluster, "sequence", &[]), (0, false));
    let (refused, _) = newest_removed(cluster, "no-sequence", &[Step::Sequence]);
    assert!(refused > 0, "nothing was refused");
}

#[test]
fn an_untold_client_leaves_writes_out_of_a_snapshot() {
    let Some((cluster, _shared)) = shared("nobody is told of a snapshot") else { return };
    for (name, steps, told) in [("told", &[][..], true), ("untold", &[Step::Quiesce], false)] {
        let image = Image::new(cluster, name);
        let left_out = LeftOut::nothing();
        left_out.now(steps);
        let mut driven = Driven::new(&image);
        driven.write(&[0, 1], 1);
        // These are acknowledged, and in the cache alone.
        let (dirty, version) = ([1, 2], 2);
        assert_eq!(driven.snapshot("s", |d| d.write(&dirty, version)), told, "{name}");
        if !told {
            driven.hears_of(1);
            driven.write(&dirty, version);
        }
        driven.end();
        let (all, without) = (holding(&[(&[0], 1), (&dirty, version)]), holding(&[(&[0, 1], 1)]));
        assert!(image.export(&image.spec) == all, "{name}: the image is not what was written");
        let found = image.export(&image.at("s"));
        assert!(
            found == *if told { &all } else { &without },
            "{name}: the snapshot is not what was expected"
        );
    }
}

/// Another client takes the image from one that does not know it yet and writes on. The result is the number
/// of its writes that are refused, and true if what it wrote is there.
fn late_writes(cluster: &'static Cluster, name: &str, steps: &[Step]) -> (usize, bool) {
    let image = Image::new(cluster, name);
    let objects = [0, 1, 2, 3];
    let left_out = LeftOut::nothing();
    left_out.now(steps);
    let mut first = Driven::deaf(&image);
    first.write(&objects, 1);
    let mut second = Driven::taking_over(&image);
    assert!(second.reads(&objects, 1), "{name}: what the first had written is gone");
    let refused = first.refused(&objects, 2);
    let landed = second.reads(&objects, 2);
    assert!(landed || second.reads(&objects, 1), "{name}: some of it landed");
    second.end();
    first.give_up();
    let version = if landed { 2 } else { 1 };
    assert!(
        image.export(&image.spec) == holding(&[(&objects, version)]),
        "{name}: a stock client reads otherwise"
    );
    (refused, landed)
}

#[test]
fn late_writes_land_where_fencing_is_left_out() {
    let Some((cluster, _shared)) = shared("late writes") else { return };
    assert_eq!(late_writes(cluster, "fenced", &[]), (4, false));
    assert_eq!(late_writes(cluster, "no-fence", &[Step::Fence]), (0, true));
    assert_eq!(late_writes(cluster, "two-instances", &[Step::Instance]), (0, true));
}
