//! Claims about images that cannot be cores, and about unusual ones that can.

use crate::cluster::{Cluster, shared};
use crate::shadow::content;
use crate::site::{Image, SIZE};
use crate::writer::request;
use loligo_format::layout::SHARD_BASE;
use loligo_tests::nbd::Command;
use loligo_tests::server::{Server, program};
use serde_json::Value;
use std::os::unix::fs::FileExt;

/// Writes here and there, flushes, stops, and compares what a stock client reads with what was written. Gives the numbers of
/// the image while it was served.
fn works(image: &Image, more: &[&str]) -> Value {
    let site = image.site("a");
    let before = image.export(&image.spec);
    let mut expected = before.clone();
    let server = site.serve(more);
    let last = expected.len() - 512;
    // Unaligned ones, one across two objects, the very end; and twenty in one object, so that they make a group.
    let mut places: Vec<(usize, usize)> =
        vec![(512, 1024), ((1 << 20) - 2048, 8192), (5 << 20, 4096), (last, 512)];
    places.extend((0..20).map(|n| ((8 << 20) + n * 8192, 4096)));
    for round in 1..=2 {
        for (n, (at, len)) in places.iter().enumerate() {
            let data = content(n, round).repeat(2)[..*len].to_vec();
            expected[*at..*at + *len].copy_from_slice(&data);
            request(&site.socket(), *at as u64, &Command::Write { data, fua: false }).expect("a write");
        }
        site.flush();
    }
    let (at, len) = (6 << 20, 1 << 20);
    expected[at..at + len].fill(0);
    let zeroes = Command::Zeroes { len: len as u32, fua: true };
    request(&site.socket(), at as u64, &zeroes).expect("zeroes");
    for (at, len) in [(0, 64 << 10), (5 << 20, 2 << 20), (last, 512)] {
        let read = request(&site.socket(), at as u64, &Command::Read(len as u32)).expect("a read");
        assert!(read == expected[at..at + len], "{}: what was written at {at} reads otherwise", image.spec);
    }
    let numbers = site.stats()["rbd"].clone();
    site.flush();
    stop(server);
    assert!(image.export(&image.spec) == expected, "{}: not what was written", image.spec);
    assert_eq!((image.mark(), image.lock()), (None, None));
    numbers
}

fn stop(server: Server) {
    server.stop().expect("a clean stop");
}

fn create(cluster: &'static Cluster, args: &[&str]) -> Image {
    cluster.rbd(&[&["create"], args].concat());
    Image::existing(cluster, args.last().expect("a name"))
}

#[test]
fn an_unfit_image_is_refused_with_the_mend_and_makes_no_cache() {
    let Some((cluster, _shared)) = shared("refused images") else { return };
    let image = Image::new(cluster, "plain");
    let site = image.site("a");
    let conf = cluster.conf().display().to_string();
    let keyring = site.dir.join("keyring");
    let wrong = "[client.loligo]\n\tkey = AQAAAAAAAAAAABAAAAAAAAAAAAAAAAAAAAAAAA==\n";
    std::fs::write(&keyring, wrong).expect("a keyring");
    let size = format!("{SIZE}B");
    create(cluster, &["--size", &size, "--image-feature", "layering", "rbd/unlocked"]);
    create(cluster, &["--size", &size, "rbd/journaled"]);
    cluster.rbd(&["feature", "enable", "rbd/journaled", "journaling"]);
    create(cluster, &["--size", &size, "rbd/cached"]);
    cluster.rbd(&["config", "image", "set", "rbd/cached", "rbd_cache", "true"]);
    create(cluster, &["--size", &size, "rbd/quiesceless"]);
    cluster.rbd(&["config", "image", "set", "rbd/quiesceless", "rbd_default_snapshot_quiesce_mode", "skip"]);
    create(cluster, &["--size", &size, "rbd/garbled"]);
    cluster.rbd(&["image-meta", "set", "rbd/garbled", "loligo.cache", "{\"version\":2}"]);
    create(cluster, &["--size", &size, "--stripe-unit", "65536", "--stripe-count", "4", "rbd/striped"]);
    cluster.rbd(&["snap", "create", "--no-progress", &image.at("s")]);
    let id = format!("conf={conf}&id=loligo");
    for (core, more, says) in [
        (
            format!("rbd:rbd/plain?conf={conf}&id=loligo&keyring={}", keyring.display()),
            &[][..],
            &["client.loligo"][..],
        ),
        (format!("rbd:rbd/plain?conf={conf}&id=nobody"), &[], &["client.nobody"]),
        ("rbd:rbd/plain?conf=/nonexistent&id=loligo".to_owned(), &[], &["/nonexistent"]),
        (format!("rbd:rbd/none?{id}"), &[], &["none", "rbd ls"]),
        (format!("rbd:nopool/plain?{id}"), &[], &["pool nopool"]),
        (format!("rbd:rbd/nospace/plain?{id}"), &[], &["plain"]),
        (format!("rbd:rbd/unlocked?{id}"), &[], &["exclusive lock", "rbd feature enable"]),
        (format!("rbd:rbd/journaled?{id}"), &[], &["journaling", "rbd feature disable"]),
        (format!("rbd:rbd/cached?{id}"), &[], &["rbd_cache", "rbd config image remove rbd/cached"]),
        (
            format!("rbd:rbd/quiesceless?{id}"),
            &[],
            &["quiesce_mode", "rbd config image remove rbd/quiesceless rbd_default_snapshot_quiesce_mode"],
        ),
        (format!("rbd:rbd/garbled?{id}"), &[], &["does not understand", "--force-without-cache"]),
        (format!("rbd:rbd/striped?{id}"), &["--destage", "grouped"], &["striped over 4"]),
        (format!("rbd:rbd/plain@s?{id}"), &[], &["snapshots are read-only"]),
    ] {
        let words = site.refused(&core, more);
        assert!(says.iter().all(|s| words.contains(s)), "{core}: {words}");
        assert!(!site.dir.join("cache").exists(), "{core}: a refused start made a cache");
    }
    assert_eq!((image.mark(), image.lock()), (None, None), "a refusal left something on the image");
    works(&image, &[]);
}

#[test]
fn a_start_refused_for_its_cache_leaves_image_free_cache_warm() {
    let Some((cluster, _shared)) = shared("caches that are refused") else { return };
    let image = Image::new(cluster, "free");
    let site = image.site("a");
    let open_at = || cluster.rbd_json(&["status", &image.spec])["watchers"].as_array().expect("a list").len();
    let free = |words: &str| assert_eq!((image.lock(), image.mark(), open_at()), (None, None, 0), "{words}");
    let cache = site.dir.join("cache");
    for bytes in [vec![7; 16 << 20], vec![0; 1 << 20]] {
        std::fs::write(&cache, &bytes).expect("a file");
        let words = site.refused(&site.core(), &[]);
        free(&words);
        assert!(std::fs::read(&cache).expect("a file") == bytes, "{words}: it was written to");
        std::fs::remove_file(&cache).expect("it goes");
    }
    let server = site.serve(&[]);
    request(&site.socket(), 0, &Command::Write { data: content(0, 1), fua: true }).expect("a write");
    site.flush();
    stop(server);
    let words = site.refused(&site.core(), &["--line-size", "64k"]);
    assert!(words.contains("--line-size"), "{words}");
    let server = site.serve(&[]);
    assert!(!server.words().contains("others had the core"), "{}", server.words());
    assert_ne!(site.stats()["occupied_bytes"], 0);
    stop(server);
    // What shows only once the image is open.
    let file = std::fs::OpenOptions::new().write(true).open(&cache).expect("the cache");
    file.write_all_at(&vec![7; 1 << 20], SHARD_BASE).expect("garbage");
    let words = site.refused(&site.core(), &[]);
    assert!(words.contains("cannot be recovered"), "{words}");
    free(&words);
}

#[test]
fn the_cache_of_another_image_is_refused_and_keeps_what_it_has() {
    let Some((cluster, _shared)) = shared("the cache of another image") else { return };
    let (one, two) = (Image::new(cluster, "one"), Image::new(cluster, "two"));
    let site = one.site("a");
    let server = site.serve(&[]);
    let data = content(0, 1);
    request(&site.socket(), 0, &Command::Write { data: data.clone(), fua: true }).expect("a write");
    stop(server);
    let core = format!("rbd:rbd/two?conf={}&id=loligo", cluster.conf().display());
    for more in [&[][..], &["--force"]] {
        let words = site.refused(&core, more);
        assert!(words.contains("belongs to another core"), "{more:?}: {words}");
        assert_eq!((two.mark(), two.lock()), (None, None), "{more:?}: left on the other image");
    }
    let server = site.serve(&[]);
    site.flush();
    stop(server);
    assert!(one.export("rbd/one")[..4096] == data, "what the cache held is lost");
}

#[test]
fn unusual_images_work_and_say_what_does_not_go_by_object() {
    let Some((cluster, _shared)) = shared("unusual images") else { return };
    let size = format!("{SIZE}B");
    cluster.ceph(&["osd", "erasure-code-profile", "set", "two", "k=2", "m=1", "crush-failure-domain=osd"]);
    cluster.ceph(&["osd", "pool", "create", "coded", "8", "8", "erasure", "two"]);
    cluster.ceph(&["osd", "pool", "set", "coded", "allow_ec_overwrites", "true"]);
    cluster.ceph(&["osd", "pool", "application", "enable", "coded", "rbd"]);
    cluster.ceph(&["osd", "pool", "create", "apart", "8"]);
    cluster.ceph(&["osd", "pool", "application", "enable", "apart", "rbd"]);
    cluster.wait_clean();
    cluster.rbd(&["namespace", "create", "--pool", "rbd", "--namespace", "space"]);
    let odd = format!("{}B", SIZE - 4096 * 3 - 512 * 5);
    for (args, librbd) in [
        (&["--size", &size, "--data-pool", "coded", "rbd/coded"][..], Some("erasure")),
        (&["--size", &size, "--data-pool", "apart", "rbd/apart"], None),
        (&["--size", &size, "rbd/space/inside"], None),
        (&["--size", &size, "--object-size", "1M", "rbd/small-objects"], None),
        (&["--size", &size, "--object-size", "32M", "rbd/large-objects"], None),
        (
            &[
                "--size",
                &size,
                "--object-size",
                "8M",
                "--stripe-unit",
                "4M",
                "--stripe-count",
                "1",
                "rbd/unit",
            ],
            None,
        ),
        (&["--size", &odd, "rbd/odd"], None),
        (
            &["--size", &size, "--stripe-unit", "65536", "--stripe-count", "4", "rbd/in-stripes"],
            Some("striped"),
        ),
        (&["--size", &size, "--image-feature", "layering,exclusive-lock", "rbd/mapless"], None),
    ] {
        let image = create(cluster, args);
        let numbers = works(&image, &[]);
        let why = numbers["librbd"].as_str();
        assert_eq!(why.is_some(), librbd.is_some(), "{args:?}: {numbers}");
        assert!(librbd.is_none_or(|l| why.is_some_and(|w| w.contains(l))), "{args:?}: {numbers}");
        let groups = numbers["groups"].as_u64();
        assert_eq!(groups.is_some_and(|n| n > 0), librbd.is_none(), "{args:?}: {numbers}");
    }
    // Librbd's own encryption: served as it lies there.
    let encrypted = create(cluster, &["--size", &size, "rbd/encrypted"]);
    let words = encrypted.site("a").dir.join("words");
    std::fs::write(&words, "a pass phrase").expect("a file");
    cluster.rbd(&["encryption", "format", &encrypted.spec, "luks2", &words.display().to_string()]);
    works(&encrypted, &[]);
}

#[test]
fn a_host_without_librbd_is_told_which_package_is_missing() {
    let folder = tempfile::tempdir().expect("a folder");
    for library in ["librados.so.2", "librbd.so.1"] {
        std::fs::write(folder.path().join(library), "").expect("a file");
    }
    let mut command = std::process::Command::new(program());
    command.args(["rbd", "status", "rbd/any"]).env("LD_LIBRARY_PATH", folder.path());
    let out = command.output().expect("the program runs");
    let words = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success() && words.contains("apt-get install librbd1"), "{words}");
}
