//! Claims about snapshots that stock clients take of an image whose newest data is in a cache.

use crate::cluster::{Cluster, is_long, shared};
use crate::shadow::{BLOCK, Shadow};
use crate::site::{Image, SIZE};
use crate::writer::{End, Kept, Writer, fresh, look};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

/// Bytes of an object.
const OBJECT: usize = 4 << 20;
/// Blocks that are written: all objects are touched between two snapshots, and some blocks twice.
const WRITTEN: usize = SIZE as usize / BLOCK;

/// A snapshot, and what the writer knew right before and right after it was taken.
struct Attachment {
    name: String,
    before: Shadow,
    after: Shadow,
}

fn take(image: &Image, shadow: &Kept, name: &str) -> Attachment {
    let before = look(shadow).clone();
    image.cluster.rbd(&["snap", "create", "--no-progress", &image.at(name)]);
    Attachment { name: name.to_owned(), before, after: look(shadow).clone() }
}

/// An address at which nobody listens.
fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port").to_string()
}

/// A volume's metrics for Prometheus.
fn scrape(address: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").expect("a connection");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("text");
    text
}

/// Takes `count` snapshots of a volume that is written to, and leaves the image flushed and free.
fn run(image: &Image, more: &[&str], count: usize) -> Vec<Attachment> {
    let site = image.site("a");
    let shadow = fresh();
    let metrics = free_address();
    let server = site.serve(&[more, &["--metrics", &metrics]].concat());
    let writer = Writer::start(&site.socket(), &shadow, 1, WRITTEN);
    let mut taken = Vec::new();
    for n in 1..=count {
        writer.goes_on(3000);
        taken.push(take(image, &shadow, &format!("s{n}")));
    }
    writer.goes_on(3000);
    assert_eq!(writer.stop(), End::Done, "{}", server.words());
    let stats = site.stats();
    let snapshots = &stats["rbd"]["snapshots"];
    assert_eq!(snapshots["quiesced"], count, "{snapshots}");
    println!("{}: {}", image.spec, stats["rbd"]);
    let told = scrape(&metrics);
    for line in [
        format!("rbd_snapshots_quiesced_total{{volume=\"vol\"}} {count}"),
        r#"rbd_lost{volume="vol"} 0"#.to_owned(),
    ] {
        assert!(told.contains(&format!("\nloligo_{line}\n")), "no '{line}' in {told}");
    }
    site.flush();
    server.stop().expect("a clean stop");
    image.is_whole_and_free(&look(&shadow));
    taken
}

#[test]
fn a_write_through_caches_snapshot_is_right_and_writes_go_on() {
    let Some((cluster, _shared)) = shared("snapshots in wt") else { return };
    let image = Image::new(cluster, "through");
    let taken = run(&image, &["--mode", "wt"], 2);
    judge(&image, &taken);
}

/// Objects in which two images differ.
fn differing(a: &[u8], b: &[u8]) -> BTreeSet<u64> {
    let objects = a.chunks(OBJECT).zip(b.chunks(OBJECT)).enumerate();
    objects.filter(|(_, (a, b))| a != b).map(|(n, _)| n as u64).collect()
}

/// Objects that `rbd diff` lists between a snapshot and a later one, or HEAD.
fn listed(cluster: &Cluster, from: &str, to: &str, more: &[&str]) -> BTreeSet<u64> {
    let all = cluster.rbd_json(&[&["diff", "--from-snap", from, to], more].concat());
    let extents = all.as_array().expect("a list").iter();
    extents.map(|e| e["offset"].as_u64().expect("a number") / OBJECT as u64).collect()
}

/// Everything a stock client can find out about the snapshots.
fn judge(image: &Image, taken: &[Attachment]) {
    let cluster = image.cluster;
    let mut contents = Vec::new();
    for t in taken {
        let content = image.export(&image.at(&t.name));
        Shadow::check(&content, &t.before, &t.after).unwrap_or_else(|e| panic!("{}: {e}", image.at(&t.name)));
        contents.push((t.name.as_str(), image.at(&t.name), content));
    }
    image.object_maps_are_right(&taken.iter().map(|t| t.name.clone()).collect::<Vec<_>>());
    contents.push(("", image.spec.clone(), image.export(&image.spec)));
    for pair in contents.windows(2) {
        let [(from, _, old), (_, to, new)] = pair else { unreachable!("windows of 2") };
        let changed = differing(old, new);
        assert!(!changed.is_empty(), "{from} to {to}: nothing was written between");
        let (fast, full) = (listed(cluster, from, to, &["--whole-object"]), listed(cluster, from, to, &[]));
        assert!(fast.is_superset(&changed), "{from} to {to}: fast-diff {fast:?} misses some of {changed:?}");
        assert!(
            full.is_superset(&changed),
            "{from} to {to}: the full diff {full:?} misses some of {changed:?}"
        );
        assert!(fast.is_superset(&full), "{from} to {to}: fast-diff {fast:?}, full {full:?}");
    }
    exported_differences_add_up(image, &contents);
    let (_, at, content) = &contents[0];
    let clone = format!("{}-clone", image.spec);
    cluster.rbd(&["snap", "protect", at]);
    cluster.rbd(&["clone", at, &clone]);
    assert!(image.export(&clone) == *content, "{clone} differs from {at}");
}

/// `export-diff` from each to the next, put together again, gives each of them.
fn exported_differences_add_up(image: &Image, contents: &[(&str, String, Vec<u8>)]) {
    let cluster = image.cluster;
    let copy = format!("{}-copy", image.spec);
    let file = image.site("a").dir.join("diff").display().to_string();
    cluster.rbd(&["create", "--size", &format!("{SIZE}B"), &copy]);
    let mut from: Option<&str> = None;
    for (name, at, content) in contents {
        let mut args = vec!["export-diff", "--no-progress", "--whole-object"];
        if let Some(from) = from {
            args.extend(["--from-snap", from]);
        }
        args.extend([at.as_str(), file.as_str()]);
        cluster.rbd(&args);
        cluster.rbd(&["import-diff", "--no-progress", &file, &copy]);
        std::fs::remove_file(&file).expect("the difference");
        assert!(image.export(&copy) == *content, "the differences up to {at} do not add up to it");
        from = Some(name);
    }
}

#[test]
fn a_snapshot_by_a_stock_client_holds_what_was_acknowledged() {
    let Some((cluster, _shared)) = shared("snapshots under load") else { return };
    for round in 0..if is_long() { 20 } else { 1 } {
        let image = Image::new(cluster, &format!("snap{round}"));
        cluster.rbd(&["snap", "create", "--no-progress", &image.at("empty")]);
        let taken = run(&image, &[], 3);
        judge(&image, &taken);
    }
}

#[test]
fn snapshots_of_a_clone_keep_the_parents_data() {
    let Some((cluster, _shared)) = shared("snapshots of a clone") else { return };
    let parent = Image::new(cluster, "parent");
    let site = parent.site("a");
    let shadow = fresh();
    let server = site.serve(&["--flush-on-stop"]);
    let writer = Writer::start(&site.socket(), &shadow, 2, WRITTEN);
    writer.goes_on(4000);
    assert_eq!(writer.stop(), End::Done);
    server.stop().expect("a clean stop");
    cluster.rbd(&["snap", "create", "--no-progress", &parent.at("base")]);
    cluster.rbd(&["snap", "protect", &parent.at("base")]);
    cluster.rbd(&["clone", &parent.at("base"), "rbd/child"]);
    let child = Image::existing(cluster, "rbd/child");
    let site = child.site("a");
    let server = site.serve(&[]);
    // A quarter of each object's blocks at most: the rest is the parent's.
    let writer = Writer::start(&site.socket(), &shadow, 3, WRITTEN);
    let mut taken = Vec::new();
    for n in 1..=2 {
        writer.goes_on(1500);
        taken.push(take(&child, &shadow, &format!("s{n}")));
    }
    assert_eq!(writer.stop(), End::Done);
    site.flush();
    server.stop().expect("a clean stop");
    child.is_whole_and_free(&look(&shadow));
    judge(&child, &taken);
}

#[test]
fn librbd_and_by_object_destages_write_the_same() {
    let Some((cluster, _shared)) = shared("destage through librbd") else { return };
    let image = Image::new(cluster, "librbd");
    let taken = run(&image, &["--destage", "librbd"], 2);
    judge(&image, &taken);
}

#[test]
fn two_snapshots_at_once_are_both_right_and_the_cache_goes_on() {
    let Some((cluster, _shared)) = shared("two snapshots at once") else { return };
    let image = Image::new(cluster, "twice");
    let site = image.site("a");
    let shadow = fresh();
    let server = site.serve(&[]);
    let writer = Writer::start(&site.socket(), &shadow, 4, WRITTEN);
    writer.goes_on(3000);
    let taken: Vec<Attachment> = std::thread::scope(|s| {
        let one = s.spawn(|| take(&image, &shadow, "x"));
        let two = s.spawn(|| take(&image, &shadow, "y"));
        [one, two].map(|t| t.join().expect("a snapshot")).into()
    });
    let conf = cluster.conf().display().to_string();
    let status = site.loligo(&["rbd", "status", &image.spec, "--conf", &conf, "--id", "loligo"]);
    let said = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(said.contains("2 made ready, 0 refused; the last requester waited"), "{said}");
    assert!(said.contains("has marked it") && !status.status.success(), "{said}");
    writer.goes_on(3000);
    assert_eq!(writer.stop(), End::Done);
    site.flush();
    server.stop().expect("a clean stop");
    image.is_whole_and_free(&look(&shadow));
    for t in taken {
        let content = image.export(&image.at(&t.name));
        Shadow::check(&content, &t.before, &t.after).unwrap_or_else(|e| panic!("{}: {e}", t.name));
    }
    image.object_maps_are_right(&["x".to_owned(), "y".to_owned()]);
}

#[test]
fn a_snapshot_that_asks_nobody_lacks_the_cached_and_no_more() {
    let Some((cluster, _shared)) = shared("a snapshot without quiesce") else { return };
    let image = Image::new(cluster, "unasked");
    let site = image.site("a");
    let shadow = fresh();
    let server = site.serve(&[]);
    let writer = Writer::start(&site.socket(), &shadow, 5, WRITTEN);
    writer.goes_on(5000);
    let before = look(&shadow).clone();
    cluster.rbd(&["snap", "create", "--no-progress", "--skip-quiesce", &image.at("unasked")]);
    let after = look(&shadow).clone();
    writer.goes_on(2000);
    let asked = take(&image, &shadow, "asked");
    writer.goes_on(2000);
    assert_eq!(writer.stop(), End::Done, "{}", server.words());
    site.flush();
    server.stop().expect("a clean stop");
    image.is_whole_and_free(&look(&shadow));
    let lacking = image.export(&image.at("unasked"));
    assert!(Shadow::check(&lacking, &before, &after).is_err(), "nothing was cached: this test shows nothing");
    after.holds_at_most(&lacking);
    judge(&image, &[asked]);
}

#[test]
fn removed_snapshots_leave_destaging_by_object_as_it_was() {
    let Some((cluster, _shared)) = shared("snapshots removed again") else { return };
    let image = Image::new(cluster, "removed");
    let site = image.site("a");
    let shadow = fresh();
    let server = site.serve(&[]);
    let writer = Writer::start(&site.socket(), &shadow, 1, WRITTEN);
    for n in 1..=3 {
        writer.goes_on(2000);
        cluster.rbd(&["snap", "create", "--no-progress", &image.at(&format!("s{n}"))]);
        writer.goes_on(2000);
        cluster.rbd(&["snap", "rm", "--no-progress", &image.at(&format!("s{n}"))]);
    }
    writer.goes_on(2000);
    assert_eq!(writer.stop(), End::Done, "{}", server.words());
    site.flush();
    let stats = site.stats();
    assert!(stats["rbd"]["librbd"].is_null(), "{}", stats["rbd"]);
    let depth = stats["rbd"]["depth"].as_u64().expect("a number");
    assert!((8..=64).contains(&depth), "{depth} objects at a time");
    assert_eq!(stats["rbd"]["turned_back"], 0, "no OSD refused what went to it: {}", stats["rbd"]);
    server.stop().expect("a clean stop");
    image.is_whole_and_free(&look(&shadow));
}
