//! Claims about services that die or stop with dirty data, and about who had the image meanwhile.

use crate::cluster::{is_long, shared};
use crate::fio;
use crate::shadow::{BLOCK, content};
use crate::site::{Image, SIZE, Site};
use crate::writer::{End, Kept, Writer, fresh, look, read_all, request};
use loligo_tests::fio::Writing;
use loligo_tests::nbd::Command;
use loligo_tests::server::Server;
use std::time::{Duration, Instant};

const BLOCKS: usize = SIZE as usize / BLOCK;
/// Less than what a client waits for the lock of a dead one. Without other load a start takes 2 to 4 s.
const WAIT: Duration = Duration::from_secs(25);

/// Writes until the service dies.
fn killed_under_writes(site: &Site<'_>, server: Server, shadow: &Kept, seed: u64) {
    let writer = Writer::start(&site.socket(), shadow, seed, BLOCKS);
    writer.goes_on(4000);
    server.kill().expect("it ran until then");
    assert_eq!(writer.ended(), End::Broken);
}

/// Reads everything back; from now on exactly that is expected.
fn read_back(site: &Site<'_>, shadow: &Kept) {
    let versions = look(shadow).holds(&read_all(&site.socket())).unwrap_or_else(|e| panic!("{e}"));
    look(shadow).settle(versions);
}

#[test]
fn a_killed_service_comes_back_in_seconds_with_every_write() {
    let Some((cluster, _shared)) = shared("kill -9 under writes") else { return };
    let image = Image::new(cluster, "killed");
    let (site, shadow) = (image.site("a"), fresh());
    for round in 0..if is_long() { 20 } else { 3 } {
        let begun = Instant::now();
        let server = site.serve(&[]);
        println!("ready after {:?}", begun.elapsed());
        assert!(begun.elapsed() < WAIT, "ready after {:?}: {}", begun.elapsed(), server.words());
        read_back(&site, &shadow);
        killed_under_writes(&site, server, &shadow, round);
    }
    let server = site.serve(&[]);
    read_back(&site, &shadow);
    site.flush();
    server.stop().expect("a clean stop");
    image.is_whole_and_free(&look(&shadow));
}

#[test]
fn fio_finds_every_acknowledged_write_in_volume_and_image() {
    let Some((cluster, _shared)) = shared("kill -9 under fio") else { return };
    if !fio::can_run() {
        return;
    }
    for round in 0..if is_long() { 20 } else { 2 } {
        let image = Image::new(cluster, &format!("fio-killed{round}"));
        let site = image.site("a");
        let mut server = site.serve(&[]);
        let writing = fio::of(&site).write(round + 1, Some(server.id()));
        std::thread::sleep(Duration::from_millis(1500));
        let written = Writing::kill(vec![writing], &mut server).remove(0);
        let server = site.serve(&[]);
        written.is_there().unwrap_or_else(|e| panic!("round {round}: {e}"));
        site.flush();
        let cached = read_all(&site.socket());
        server.stop().expect("a clean stop");
        let file = site.dir.join("whole");
        cluster.rbd(&["export", "--no-progress", &image.spec, &file.display().to_string()]);
        assert!(std::fs::read(&file).expect("the export") == cached, "the image is not what the volume was");
        written
            .is_in(&fio::in_file(&site, &file))
            .unwrap_or_else(|e| panic!("round {round}, in the image: {e}"));
        image.is_free();
    }
}

#[test]
fn a_stop_with_dirty_data_leaves_its_lock_and_a_start_takes_it() {
    let Some((cluster, _shared)) = shared("a stop with dirty data") else { return };
    let image = Image::new(cluster, "stopped");
    let (site, shadow) = (image.site("a"), fresh());
    let server = site.serve(&[]);
    let held = image.lock();
    assert!(held.is_some() && image.mark().is_some_and(|m| m["volume"] == "vol"), "{:?}", image.mark());
    let writer = Writer::start(&site.socket(), &shadow, 7, BLOCKS);
    writer.goes_on(3000);
    assert_eq!(writer.stop(), End::Done);
    server.stop().expect("a stop with dirty data");
    assert_eq!(image.lock(), held, "the lock is not what it was");
    assert!(image.mark().is_some());
    let begun = Instant::now();
    let server = site.serve(&[]);
    assert!(begun.elapsed() < WAIT, "{:?}: {}", begun.elapsed(), server.words());
    assert_ne!(image.lock(), held, "the new service has no lock of its own");
    read_back(&site, &shadow);
    site.flush();
    server.stop().expect("a clean stop");
    image.is_whole_and_free(&look(&shadow));
}

#[test]
fn dirty_data_is_refused_where_somebody_else_had_the_image() {
    let Some((cluster, _shared)) = shared("somebody else had the image") else { return };
    let image = Image::new(cluster, "theirs");
    let (site, shadow) = (image.site("a"), fresh());
    let server = site.serve(&[]);
    killed_under_writes(&site, server, &shadow, 11);
    let held = image.lock().expect("the dead service's lock");
    if !is_long() {
        // What a stock client does by itself after half a minute.
        cluster.ceph(&["osd", "blocklist", "add", &held]);
        let all = cluster.rbd_json(&["lock", "ls", &image.spec]);
        let text = |key: &str| all[0][key].as_str().expect("text").to_owned();
        cluster.admin_rbd(&["lock", "rm", &image.spec, &text("id"), &text("locker")]);
    }
    cluster.rbd(&["snap", "create", "--no-progress", &image.at("meanwhile")]);
    // Neither a second nor a third start may forget it.
    for _ in 0..2 {
        let words = site.refused(&site.core(), &[]);
        assert!(words.contains("somebody else had image") && words.contains(&held), "{words}");
        assert!(
            words.contains("without the dirty data of this cache: meanwhile.") && words.contains("--force"),
            "{words}"
        );
    }
    let server = site.serve(&["--force"]);
    assert!(server.words().contains("as --force ordered"), "{}", server.words());
    read_back(&site, &shadow);
    site.flush();
    server.stop().expect("a clean stop");
    image.is_whole_and_free(&look(&shadow));
}

#[test]
fn a_clean_cache_stays_warm_over_a_start_that_is_refused() {
    let Some((cluster, _shared)) = shared("a clean cache and a refused start") else { return };
    let image = Image::new(cluster, "refused");
    let here = image.site("here");
    let shadow = fresh();
    let server = here.serve(&["--flush-on-stop"]);
    let writer = Writer::start(&here.socket(), &shadow, 14, BLOCKS);
    writer.goes_on(2000);
    assert_eq!(writer.stop(), End::Done);
    read_back(&here, &shadow);
    server.stop().expect("a clean stop");
    if std::path::Path::new("/dev/ublk-control").exists() {
        println!("SKIP: this kernel has ublk, whose absence refuses a start late");
        return;
    }
    // The image is taken by then, and its mark is set.
    let words = here.refused(&here.core(), &["--listen", "ublk:none"]);
    assert!(words.contains("ublk"), "{words}");
    let server = here.serve(&["--flush-on-stop"]);
    read_back(&here, &shadow);
    assert!(!server.words().contains("dropped"), "{}", server.words());
    let stats = here.stats();
    assert!(stats["read_hits"].as_u64() > Some(0), "nothing was cached: {stats}");
    server.stop().expect("a clean stop");
}

#[test]
fn clean_blocks_are_not_believed_after_others_wrote_the_image() {
    let Some((cluster, _shared)) = shared("a clean cache and a changed image") else { return };
    let image = Image::new(cluster, "moved");
    let (here, there) = (image.site("here"), image.site("there"));
    let write = |site: &Site<'_>, block: usize, version: u32| {
        let data = content(block, version);
        request(&site.socket(), (block * BLOCK) as u64, &Command::Write { data, fua: false })
            .expect("a write");
    };
    let shadow = fresh();
    let server = here.serve(&["--flush-on-stop"]);
    let writer = Writer::start(&here.socket(), &shadow, 13, BLOCKS);
    writer.goes_on(5000);
    assert_eq!(writer.stop(), End::Done);
    read_back(&here, &shadow);
    server.stop().expect("a clean stop");

    // Nobody was there: what was cached still counts.
    let server = here.serve(&["--flush-on-stop"]);
    read_back(&here, &shadow);
    assert!(!server.words().contains("dropped"), "{}", server.words());
    let stats = here.stats();
    assert!(stats["read_hits"].as_u64() > Some(0), "nothing was cached: this test shows nothing: {stats}");
    server.stop().expect("a clean stop");

    // The volume moves to another host for a while, which writes a single block of those that are cached here.
    let server = there.serve(&["--flush-on-stop"]);
    let block = look(&shadow).acked.iter().position(|v| *v > 0).map_or(0, |n| n + 40);
    let version = look(&shadow).acked[block] + 1;
    write(&there, block, version);
    look(&shadow).sent[block] = version;
    look(&shadow).acked[block] = version;
    server.stop().expect("a clean stop");
    let server = here.serve(&["--flush-on-stop"]);
    read_back(&here, &shadow);
    assert!(server.words().contains("clean blocks were dropped"), "{}", server.words());
    server.stop().expect("a clean stop");

    // A stock client rolls it back.
    cluster.rbd(&["snap", "create", "--no-progress", &image.at("old")]);
    let old = look(&shadow).clone();
    let server = here.serve(&["--flush-on-stop"]);
    let version = look(&shadow).acked[block] + 1;
    write(&here, block, version);
    server.stop().expect("a clean stop");
    cluster.rbd(&["snap", "rollback", "--no-progress", &image.at("old")]);
    let server = here.serve(&[]);
    old.holds(&read_all(&here.socket())).unwrap_or_else(|e| panic!("{e}"));
    server.stop().expect("a clean stop");
}
