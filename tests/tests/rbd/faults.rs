//! Claims about a cluster that fails under a volume: what was acknowledged stays, and it goes on by itself.

use crate::cluster::{Cluster, alone, is_long, wait_until};
use crate::fio;
use crate::site::{Image, Site};
use crate::writer::{End, Writer, fresh, look, read_all};
use loligo_tests::fio::Passes;
use loligo_tests::skip::at_length;
use std::time::{Duration, Instant};

/// So few blocks that the cache holds all of them dirty.
const BLOCKS: usize = 6000;

fn fault(short: u64, in_life: u64) -> Duration {
    Duration::from_secs(if is_long() { in_life } else { short })
}

/// A volume that is written to through `fault`, by a writer and by fio, flushed afterwards, and compared.
fn survives(cluster: &'static Cluster, name: &str, more: &[&str], fault: impl FnOnce(&Site<'_>, &Writer)) {
    let image = Image::new(cluster, name);
    let site = image.site("a");
    let shadow = fresh();
    let server = site.serve(more);
    let writer = Writer::start(&site.socket(), &shadow, 31, BLOCKS);
    let passes = fio::can_run().then(|| fio::of(&site).passes());
    writer.goes_on(2000);
    fault(&site, &writer);
    writer.goes_on(2000);
    assert_eq!(writer.stop(), End::Done, "{}", server.words());
    let by_fio = passes.map(Passes::stop);
    let before = site.stats();
    site.flush();
    let stats = site.stats();
    assert_eq!(stats["dirty_bytes"], 0, "{stats}");
    assert_eq!(stats["rbd"]["librbd"], before["rbd"]["librbd"]);
    let mut cached = read_all(&site.socket());
    server.stop().expect("a clean stop");
    let file = site.dir.join("whole");
    cluster.rbd(&["export", "--no-progress", &image.spec, &file.display().to_string()]);
    assert!(
        std::fs::read(&file).expect("the export") == cached,
        "{name}: the image is not what the volume was"
    );
    if let Some(written) = by_fio {
        written.is_in(&fio::in_file(&site, &file)).unwrap_or_else(|e| panic!("{name}: {e}"));
    }
    cached[fio::FROM..][..fio::LEN].fill(0);
    look(&shadow).holds(&cached).unwrap_or_else(|e| panic!("{name}: {e}"));
    image.is_free();
}

#[test]
fn osds_that_die_or_stand_still_stop_no_writer() {
    let Some((cluster, _alone)) = alone("OSDs that fail") else { return };
    survives(cluster, "frozen", &[], |_, writer| {
        for osd in ["osd.0", "osd.1", "osd.2"].iter().take(if is_long() { 3 } else { 1 }) {
            let frozen = cluster.freeze(&[osd]);
            std::thread::sleep(Duration::from_secs(1));
            writer.goes_on(500);
            std::thread::sleep(fault(5, 20));
            drop(frozen);
        }
    });
    cluster.wait_clean();
    survives(cluster, "osd-killed", &[], |_, writer| {
        for id in 0..if is_long() { 3 } else { 1 } {
            cluster.kill(&format!("osd.{id}"));
            writer.goes_on(2000);
            cluster.start("osd", &id.to_string());
            cluster.wait_clean();
        }
    });
}

#[test]
fn a_monitor_that_dies_is_not_noticed_by_writers() {
    let Some((cluster, _alone)) = alone("a monitor that fails") else { return };
    survives(cluster, "mon", &[], |_, writer| {
        let frozen = cluster.freeze(&["mon.a"]);
        std::thread::sleep(fault(3, 20));
        writer.goes_on(2000);
        drop(frozen);
        cluster.kill("mon.a");
        std::thread::sleep(fault(2, 20));
        writer.goes_on(2000);
        cluster.start("mon", "a");
    });
    cluster.wait_clean();
}

#[test]
fn a_full_pool_holds_destage_back_until_there_is_room_again() {
    let Some((cluster, _alone)) = alone("a full pool") else { return };
    let full = || cluster.ceph(&["osd", "dump"]).contains("full_quota");
    survives(cluster, "quota", &[], |site, writer| {
        let quota = cluster.quota(1_000_000);
        wait_until("the pool to be full", full);
        let written = || site.stats()["rbd"]["group_bytes"].as_u64().expect("a number");
        // What OSDs have taken already still lands, for some time where their disk is busy.
        wait_until("destaging to stand still while writers go on", || {
            let before = written();
            writer.goes_on(1000);
            std::thread::sleep(Duration::from_secs(3));
            before == written()
        });
        assert!(
            site.stats()["dirty_bytes"].as_u64().is_some_and(|n| n > 0),
            "nothing is left to be destaged"
        );
        drop(quota);
        wait_until("the pool to have room", || !full());
    });
}

#[test]
fn a_start_that_meets_a_full_pool_says_so_and_ends() {
    let what = "a start on a full pool";
    if !at_length(what) {
        return;
    }
    let Some((cluster, _alone)) = alone(what) else { return };
    let image = Image::new(cluster, "start-full");
    let site = image.site("a");
    cluster.rbd(&["bench", "--io-type", "write", "--io-size", "1M", "--io-total", "8M", &image.spec]);
    let full = || cluster.ceph(&["osd", "dump"]).contains("full_quota");
    let quota = cluster.quota(1_000_000);
    wait_until("the pool to be full", full);
    let words = site.refused(&site.core(), &[]);
    assert!(words.contains("to take a write") && words.contains("ceph health detail"), "{words}");
    drop(quota);
    wait_until("the pool to have room", || !full());
    site.serve(&[]).stop().expect("a clean stop");
    image.is_free();
}

#[test]
fn without_word_from_the_cluster_writes_pause_with_the_lease() {
    let Some((cluster, _alone)) = alone("a lease that runs out") else { return };
    let lease = Duration::from_secs(5);
    survives(cluster, "lease", &["--lease", "5"], |_, writer| {
        let frozen = cluster.freeze(&["osd.0", "osd.1", "osd.2"]);
        std::thread::sleep(Duration::from_secs(1));
        writer.goes_on(500);
        let begun = Instant::now();
        std::thread::sleep(lease + Duration::from_secs(1));
        let paused = writer.acked();
        std::thread::sleep(fault(3, 40));
        assert_eq!(writer.acked(), paused, "acknowledged {:?} after the last word", begun.elapsed());
        drop(frozen);
    });
    cluster.wait_clean();
}

#[test]
fn a_stop_held_up_by_the_cluster_says_so_and_can_be_ended() {
    let Some((cluster, _alone)) = alone("a stop without a cluster") else { return };
    let image = Image::new(cluster, "held-up");
    let (site, shadow) = (image.site("a"), fresh());
    let mut server = site.serve(&[]);
    let writer = Writer::start(&site.socket(), &shadow, 1, BLOCKS);
    writer.goes_on(3000);
    let frozen = cluster.freeze(&["osd.0", "osd.1", "osd.2"]);
    // Nothing that is under way now will land.
    writer.goes_on(500);
    server.terminate();
    wait_until("the stop to say what it waits for", || server.words().contains("still stopping"));
    server.terminate();
    let status = server.ended().unwrap_or_else(|e| panic!("{e:?}"));
    assert!(!status.success(), "it was ended, not stopped");
    drop(frozen);
    // It is told of the stop, or finds nobody.
    assert_ne!(writer.ended(), End::Done);
    let server = site.serve(&["--flush-on-stop"]);
    let found = look(&shadow).holds(&read_all(&site.socket())).unwrap_or_else(|e| panic!("{e}"));
    look(&shadow).settle(found);
    server.stop().expect("a clean stop");
    image.is_whole_and_free(&look(&shadow));
}
