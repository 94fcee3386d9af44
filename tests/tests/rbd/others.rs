//! Claims about what others do to an image while it is somebody's core: it is gone along with, or refused with the reason, and
//! the volume goes on.

use crate::cluster::{Cluster, is_long, shared, wait_until};
use crate::shadow::{BLOCK, Shadow};
use crate::site::{Image, SIZE, Site};
use crate::writer::{End, Kept, Writer, fresh, look, read_all};
use loligo_tests::server::{Server, Volume};
use std::time::Duration;

const BLOCKS: usize = SIZE as usize / BLOCK;

/// Ends the writer and the service, and compares.
fn is_whole(image: &Image, site: &Site<'_>, server: Server, writer: Writer, shadow: &Kept) {
    writer.goes_on(1000);
    assert_eq!(writer.stop(), End::Done, "{}", server.words());
    site.flush();
    server.stop().expect("a clean stop");
    image.is_whole_and_free(&look(shadow));
}

#[test]
fn a_clone_flattened_under_load_loses_nothing() {
    let Some((cluster, _shared)) = shared("a clone that is flattened") else { return };
    let parent = Image::new(cluster, "flat-parent");
    let (site, shadow) = (parent.site("a"), fresh());
    let server = site.serve(&[]);
    let writer = Writer::start(&site.socket(), &shadow, 1, BLOCKS);
    writer.goes_on(3000);
    is_whole(&parent, &site, server, writer, &shadow);
    cluster.rbd(&["snap", "create", "--no-progress", &parent.at("base")]);
    cluster.rbd(&["snap", "protect", &parent.at("base")]);
    cluster.rbd(&["clone", &parent.at("base"), "rbd/flat-child"]);
    let child = Image::existing(cluster, "rbd/flat-child");
    let site = child.site("a");
    let server = site.serve(&[]);
    let writer = Writer::start(&site.socket(), &shadow, 2, BLOCKS);
    writer.goes_on(300);
    cluster.rbd(&["flatten", "--no-progress", &child.spec]);
    writer.goes_on(1000);
    cluster.rbd(&["snap", "create", "--no-progress", &child.at("flat")]);
    is_whole(&child, &site, server, writer, &shadow);
    assert!(cluster.rbd_json(&["info", &child.spec])["parent"].is_null(), "it has a parent still");
    child.object_maps_are_right(&["flat".to_owned()]);
}

#[test]
fn sparsifying_and_rebuilding_maps_under_load_harm_nothing() {
    let Some((cluster, _shared)) = shared("maps rebuilt under load") else { return };
    let image = Image::new(cluster, "rebuilt");
    let (site, shadow) = (image.site("a"), fresh());
    let server = site.serve(&[]);
    let writer = Writer::start(&site.socket(), &shadow, 1, BLOCKS);
    for what in [
        &["sparsify", "--no-progress"][..],
        &["object-map", "rebuild", "--no-progress"],
        &["feature", "disable"],
        &["feature", "enable"],
        &["object-map", "rebuild", "--no-progress"],
        &["sparsify", "--no-progress"],
    ] {
        writer.goes_on(500);
        let more = if what[0] == "feature" { &["fast-diff"][..] } else { &[] };
        cluster.rbd(&[what, &[image.spec.as_str()], more].concat());
    }
    writer.goes_on(500);
    cluster.rbd(&["snap", "create", "--no-progress", &image.at("s")]);
    is_whole(&image, &site, server, writer, &shadow);
    image.object_maps_are_right(&["s".to_owned()]);
}

#[test]
fn an_image_that_is_renamed_stays_the_same_for_its_cache() {
    let Some((cluster, _shared)) = shared("an image renamed") else { return };
    let image = Image::new(cluster, "called-one");
    let (site, shadow) = (image.site("a"), fresh());
    let server = site.serve(&[]);
    let writer = Writer::start(&site.socket(), &shadow, 1, BLOCKS);
    writer.goes_on(1000);
    cluster.rbd(&["rename", "rbd/called-one", "rbd/called-two"]);
    writer.goes_on(1000);
    cluster.rbd(&["snap", "create", "--no-progress", "rbd/called-two@s"]);
    let at_snapshot = look(&shadow).clone();
    writer.goes_on(1000);
    assert_eq!(writer.stop(), End::Done, "{}", server.words());
    server.stop().expect("a stop with dirty data");
    let image = Image::existing(cluster, "rbd/called-two");
    let core = image.site("core").core();
    let words = site.refused(&site.core(), &[]);
    assert!(words.contains("called-one"), "{words}");
    let mut server = site.launch(&core, &[]);
    server.ready().unwrap_or_else(|e| panic!("{e:?}"));
    look(&shadow).holds(&read_all(&site.socket())).unwrap_or_else(|e| panic!("{e}"));
    site.flush();
    server.stop().expect("a clean stop");
    image.is_whole_and_free(&look(&shadow));
    Shadow::check(&image.export("rbd/called-two@s"), &Shadow::new(SIZE), &at_snapshot)
        .map(drop)
        .expect("the snapshot");
}

#[test]
fn operations_that_need_the_image_alone_are_refused() {
    let Some((cluster, _shared)) = shared("refusals while attached") else { return };
    let image = Image::new(cluster, "coveted");
    let (site, shadow) = (image.site("a"), fresh());
    let server = site.serve(&[]);
    let writer = Writer::start(&site.socket(), &shadow, 1, BLOCKS);
    writer.goes_on(1000);
    cluster.rbd(&["snap", "create", "--no-progress", &image.at("s")]);
    cluster.rbd(&["group", "create", "rbd/all"]);
    cluster.rbd(&["group", "image", "add", "rbd/all", &image.spec]);
    let (busy, read_only) = (libc::EBUSY, libc::EROFS);
    let bench = ["bench", "--io-type", "write", "--io-size", "4K", "--io-total", "4K", &image.spec];
    for (what, errno) in [
        (&["snap", "rollback", "--no-progress", &image.at("s")][..], read_only),
        (&["trash", "mv", &image.spec], busy),
        (&["rm", "--no-progress", &image.spec], busy),
        (&["migration", "prepare", &image.spec, "rbd/moved"], busy),
        (&bench, read_only),
        (&["group", "snap", "create", "rbd/all@s"], read_only),
        (&["object-map", "check", "--no-progress", &image.spec], read_only),
    ] {
        let out = cluster.try_rbd(what);
        let said = String::from_utf8_lossy(&out.stderr);
        println!("{what:?}: {}: {said}", out.status);
        assert!(!out.status.success(), "{what:?} was let through");
        assert_eq!(out.status.code(), Some(errno), "{what:?}: {said}");
        writer.goes_on(300);
    }
    cluster.rbd(&["group", "image", "rm", "rbd/all", &image.spec]);
    // Another is taken as ever.
    cluster.rbd(&["snap", "create", "--no-progress", &image.at("after")]);
    assert!(site.stats()["rbd"]["librbd"].is_null());
    is_whole(&image, &site, server, writer, &shadow);
    image.object_maps_are_right(&["s".to_owned(), "after".to_owned()]);
}

#[test]
fn a_snapshot_is_refused_while_dirty_data_cannot_leave_in_time() {
    let Some((cluster, _shared)) = shared("a snapshot of a slow core") else { return };
    let image = Image::new(cluster, "slow");
    let limit = "rbd_qos_write_iops_limit";
    cluster.rbd(&["config", "image", "set", &image.spec, limit, "20"]);
    let (site, shadow) = (image.site("a"), fresh());
    // Two attempts: whoever asks is refused after 8 s.
    let server = site.serve(&["--snapshot-deadline", "1"]);
    let out = site.loligo(&["param", "set", Volume::NAME, "snapshot-deadline", "30"]);
    let words = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success() && words.contains("--snapshot-deadline 30"), "{words}");
    let writer = Writer::start(&site.socket(), &shadow, 1, BLOCKS);
    writer.goes_on(2000);
    let out = cluster.try_rbd(&["snap", "create", "--no-progress", &image.at("refused")]);
    assert_eq!(out.status.code(), Some(libc::EBUSY), "{}", String::from_utf8_lossy(&out.stderr));
    writer.goes_on(100);
    // One who does not heed the refusal gets a snapshot of some moment or other. It harms nothing else.
    cluster.rbd(&["snap", "create", "--no-progress", "--ignore-quiesce-error", &image.at("unheeded")]);
    writer.goes_on(100);
    assert_eq!(writer.stop(), End::Done, "{}", server.words());
    cluster.rbd(&["config", "image", "remove", &image.spec, limit]);
    site.flush();
    let writer = Writer::start(&site.socket(), &shadow, 2, 500);
    writer.goes_on(100);
    let before = look(&shadow).clone();
    cluster.rbd(&["snap", "create", "--no-progress", &image.at("taken")]);
    let after = look(&shadow).clone();
    let snapshots = site.stats()["rbd"]["snapshots"].clone();
    assert_eq!((&snapshots["refused"], &snapshots["quiesced"]), (&2.into(), &1.into()), "{snapshots}");
    is_whole(&image, &site, server, writer, &shadow);
    Shadow::check(&image.export(&image.at("taken")), &before, &after).unwrap_or_else(|e| panic!("{e}"));
    image.object_maps_are_right(&["unheeded".to_owned(), "taken".to_owned()]);
}

/// A stock client that asks for a snapshot.
fn asks(cluster: &Cluster, at: &str) -> std::process::Child {
    cluster.stock_client("loligo", &["snap", "create", "--no-progress", at]).spawn().expect("rbd runs")
}

#[test]
fn a_requester_that_dies_holds_nobody_up() {
    let Some((cluster, _shared)) = shared("a requester that dies") else { return };
    // While the cache makes ready, or so many milliseconds after it began.
    let deaths = [None, Some(100), Some(5000)];
    for (n, death) in deaths.into_iter().enumerate().take(if is_long() { 3 } else { 1 }) {
        let image = Image::new(cluster, &format!("asker{n}"));
        let (site, shadow) = (image.site("a"), fresh());
        let server = site.serve(&[]);
        let writer = Writer::start(&site.socket(), &shadow, 1, BLOCKS);
        writer.goes_on(2000);
        let mut asker = asks(cluster, &image.at("orphan"));
        match death {
            None => wait_until("the snapshot to be waited for", || {
                site.stats()["rbd"]["snapshots"]["doing"] != "running"
            }),
            Some(millis) => std::thread::sleep(Duration::from_millis(millis)),
        }
        asker.kill().expect("it was ours");
        asker.wait().expect("it ends");
        writer.goes_on(1000);
        let before = look(&shadow).clone();
        cluster.rbd(&["snap", "create", "--no-progress", &image.at("next")]);
        let after = look(&shadow).clone();
        println!("killed after {death:?} ms: {}", site.stats()["rbd"]["snapshots"]);
        wait_until("destage to go on", || site.stats()["rbd"]["snapshots"]["doing"] == "running");
        assert!(site.stats()["rbd"]["librbd"].is_null());
        is_whole(&image, &site, server, writer, &shadow);
        Shadow::check(&image.export(&image.at("next")), &before, &after).unwrap_or_else(|e| panic!("{e}"));
    }
}

/// One that asks for a snapshot, and is met while this is done for it.
fn caught(image: &Image, site: &Site<'_>, doing: &str) -> std::process::Child {
    for n in 0..40 {
        let mut asker = asks(image.cluster, &image.at(&format!("during{n}")));
        while asker.try_wait().expect("it is ours").is_none() {
            if site.stats()["rbd"]["snapshots"]["doing"] == doing {
                return asker;
            }
        }
    }
    panic!("'{doing}' was never met");
}

#[test]
fn a_service_that_dies_in_a_snapshot_comes_back_with_everything() {
    let Some((cluster, _shared)) = shared("a crash during a snapshot") else { return };
    // The dirty data is on its way out, or the image is ready and the snapshot about to be taken.
    for doing in ["freezing", "quiesced"] {
        let image = Image::new(cluster, &format!("crash-{doing}"));
        let (site, shadow) = (image.site("a"), fresh());
        let server = site.serve(&[]);
        let writer = Writer::start(&site.socket(), &shadow, 1, BLOCKS);
        writer.goes_on(3000);
        let mut asker = caught(&image, &site, doing);
        server.kill().expect("it ran");
        asker.kill().expect("it was ours");
        asker.wait().expect("it ends");
        assert!(matches!(writer.ended(), End::Broken), "the service was killed");
        // Whoever asked has the image open for half a minute more.
        let server = site.serve(&["--steal"]);
        let found = look(&shadow).holds(&read_all(&site.socket())).unwrap_or_else(|e| panic!("{doing}: {e}"));
        look(&shadow).settle(found);
        server.stop().expect("a stop with dirty data");
        let server = site.serve(&[]);
        let writer = Writer::start(&site.socket(), &shadow, 2, BLOCKS);
        writer.goes_on(1000);
        let before = look(&shadow).clone();
        cluster.rbd(&["snap", "create", "--no-progress", &image.at("next")]);
        let after = look(&shadow).clone();
        is_whole(&image, &site, server, writer, &shadow);
        Shadow::check(&image.export(&image.at("next")), &before, &after)
            .unwrap_or_else(|e| panic!("{doing}: {e}"));
    }
}

#[test]
fn a_snapshot_asked_for_during_a_stop_is_whole_or_refused() {
    let Some((cluster, _shared)) = shared("a snapshot during a stop") else { return };
    for (n, millis) in [0, 30, 100, 300].into_iter().enumerate() {
        let image = Image::new(cluster, &format!("parting{n}"));
        let (site, shadow) = (image.site("a"), fresh());
        let server = site.serve(&["--flush-on-stop"]);
        let writer = Writer::start(&site.socket(), &shadow, 1, BLOCKS);
        writer.goes_on(2000);
        assert_eq!(writer.stop(), End::Done);
        let name = image.at("s");
        let out = std::thread::scope(|s| {
            let asker = s.spawn(|| cluster.try_rbd(&["snap", "create", "--no-progress", &name]));
            std::thread::sleep(Duration::from_millis(millis));
            server.stop().expect("a clean stop");
            asker.join().expect("rbd ran")
        });
        println!("stopped after {millis} ms: {}", out.status);
        image.is_whole_and_free(&look(&shadow));
        if out.status.success() {
            look(&shadow).holds(&image.export(&name)).unwrap_or_else(|e| panic!("{e}"));
        } else {
            assert_eq!(out.status.code(), Some(libc::EBUSY), "{}", String::from_utf8_lossy(&out.stderr));
        }
    }
}
