//! Claims about writes that a host still had under way when others took its image over, and about hosts that were cut off while
//! nobody did. The cluster forgets here within seconds that a client was fenced; by default it takes an hour.

use crate::cluster::{Frozen, alone, is_long, wait_until};
use crate::driven::taken;
use crate::shadow::BLOCK;
use crate::site::{Image, SIZE, Site};
use crate::writer::{End, Writer, fresh, look, read_all};
use loligo_ceph::attach::Attachment;
use loligo_ceph::lease::Poller;
use loligo_tests::cli::Cli;
use loligo_tests::nbd::{Client, Command};
use loligo_tests::server::{Server, Volume};
use loligo_tests::skip::{at_length, skip};
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Bytes of a write.
const PIECE: u64 = 1 << 20;
/// Clients that write at a time.
const CLIENTS: u64 = 4;
/// Seconds that a word is good for: the client is silent 2 s later.
const LEASE: &str = "4";
/// By then it is, with time to spare for a busy machine.
const SILENT: Duration = Duration::from_secs(10);
/// By then all late writes have landed.
const SETTLED: Duration = Duration::from_secs(8);

/// Writes `byte` to all of the volume, with as much under way as the service takes. Nobody waits for answers before the end.
fn fill(socket: &Path, byte: u8) -> Vec<JoinHandle<usize>> {
    let client = |n: u64| {
        let (send, answers) = channel();
        let mut client = Client::connect(socket, Volume::NAME, send).expect("a connection");
        std::thread::spawn(move || {
            let pieces: Vec<u64> = (n..SIZE / PIECE).step_by(CLIENTS as usize).collect();
            let data = vec![byte; PIECE as usize];
            for piece in &pieces {
                let write = Command::Write { data: data.clone(), fua: false };
                if client.send(piece + 1, piece * PIECE, &write).is_err() {
                    return 0;
                }
            }
            pieces.iter().filter(|_| answers.recv().is_ok_and(|a| a.result.is_ok())).count()
        })
    };
    (0..CLIENTS).map(client).collect()
}

/// Has a second host take the image from the first, which is silent since `SILENT`, write all of it, and the cluster forget that
/// the first one was fenced.
fn take_over<'a>(image: &'a Image, name: &str, begun: Instant) -> (Site<'a>, Server) {
    let fenced = image.lock().expect("the first host's lock");
    let client = image.locker().expect("the first host's lock");
    let second = image.site(name);
    let taker = second.serve(&["--mode", "wt", "--steal", "--force-without-cache"]);
    let written: usize = fill(&second.socket(), 0xbb).into_iter().map(|c| c.join().expect("a writer")).sum();
    assert_eq!(written as u64, SIZE / PIECE, "{}", taker.words());
    std::thread::sleep(SILENT.saturating_sub(begun.elapsed()));
    // An operation is held against the list when its turn comes, not when it arrives: one that waits in an OSD's queue for longer than
    // the entry lasts is carried out.
    wait_until("the OSDs to be done with the first host", || !is_under_way(image, &client));
    image.cluster.ceph(&["osd", "blocklist", "rm", &fenced]);
    (second, taker)
}

/// True if an OSD has an operation of `client` that it has not answered.
fn is_under_way(image: &Image, client: &str) -> bool {
    let of_client = format!("osd_op({client}.");
    let tell = |n: u32| image.cluster.ceph(&["tell", &format!("osd.{n}"), "dump_ops_in_flight"]);
    (0..3).any(|n| tell(n).contains(&of_client))
}

/// Checks that all of the image is the second host's.
fn is_all_of_the_second(image: &Image) {
    let found = image.export(&image.spec);
    let other = |b: &[u8]| b.iter().copied().find(|x| *x != 0xbb);
    let changed: Vec<(usize, u8)> =
        found.chunks(BLOCK).enumerate().filter_map(|(n, b)| Some((n, other(b)?))).collect();
    let ends = (changed.first(), changed.last());
    assert!(changed.is_empty(), "{} blocks of the new owner are written over: {ends:x?}", changed.len());
}

/// The first host goes on: it finds its image lost, nothing of it lands, and its cache is refused afterwards.
fn goes_on(image: &Image, first: &Site<'_>, server: Server, taker: Server) {
    wait_until("the loss to be told", || server.log().contains("another client's now"));
    std::thread::sleep(SETTLED);
    is_all_of_the_second(image);
    taker.stop().expect("a clean stop");
    // Not even an orderly stop: what it knows is written down.
    server.kill().expect("it ran");
    let words = first.refused(&first.core(), &["--mode", "wt"]);
    assert!(words.contains("the cache lost it") && words.contains("--force"), "{words}");
    assert!(words.contains("dirty data"), "{words}");
    is_all_of_the_second(image);
}

#[test]
fn a_host_that_was_cut_off_writes_nothing_late() {
    let what = "late writes of a host that was cut off";
    let Some((cluster, _alone)) = alone(what) else { return };
    for round in 0..if is_long() { 5 } else { 1 } {
        let image = Image::new(cluster, &format!("late-cut{round}"));
        let first = image.site("first");
        let Some(server) = first.serve_on_client(&["--mode", "wt", "--lease", LEASE]) else {
            return skip(what, "needs root and iproute2");
        };
        let cut = cluster.cut_client_off();
        let begun = Instant::now();
        let late = fill(&first.socket(), 0xaa);
        let (_second, taker) = take_over(&image, "second", begun);
        drop(cut);
        goes_on(&image, &first, server, taker);
        late.into_iter().for_each(|c| drop(c.join()));
    }
}

#[test]
fn a_service_that_stood_still_writes_nothing_late() {
    let Some((cluster, _alone)) = alone("late writes of a service that stood still") else { return };
    for round in 0..if is_long() { 5 } else { 1 } {
        let image = Image::new(cluster, &format!("late-still{round}"));
        let first = image.site("first");
        let server = first.serve(&["--mode", "wt", "--lease", LEASE]);
        // More than the kernel holds is under way when it stops.
        let osds = cluster.freeze(&["osd.0", "osd.1", "osd.2"]);
        let late = fill(&first.socket(), 0xaa);
        std::thread::sleep(Duration::from_secs(1));
        let still = Frozen::service(&server);
        let begun = Instant::now();
        drop(osds);
        let (_second, taker) = take_over(&image, "second", begun);
        drop(still);
        goes_on(&image, &first, server, taker);
        late.into_iter().for_each(|c| drop(c.join()));
    }
}

#[test]
fn a_client_that_was_never_heard_is_silent_after_its_lease() {
    let Some((cluster, _alone)) = alone("the silence of a client that was never heard") else { return };
    let image = Image::new(cluster, "late-unheard");
    let lease = Duration::from_secs(LEASE.parse().expect("seconds"));
    let Attachment { image: attached, .. } = taken(&image, false, lease);
    let osds = cluster.freeze(&["osd.0", "osd.1", "osd.2"]);
    let poller = Poller::start(attached.clone()).expect("a thread");
    assert!(attached.may_send(), "its lock vouches for it");
    wait_until("the client to be silent", || !attached.may_send());
    drop(osds);
    wait_until("the client to be heard", || attached.may_send());
    drop(poller);
    attached.detach(false).expect("the lock given back");
}

#[test]
fn a_cut_that_nobody_used_ends_nothing() {
    let what = "a cut that nobody used";
    if !at_length(what) {
        return;
    }
    let Some((cluster, _alone)) = alone(what) else { return };
    let image = Image::new(cluster, "unused-cut");
    let (site, shadow) = (image.site("a"), fresh());
    let Some(server) = site.serve_on_client(&["--lease", LEASE]) else {
        return skip(what, "needs root and iproute2");
    };
    let writer = Writer::start(&site.socket(), &shadow, 3, SIZE as usize / BLOCK);
    writer.goes_on(3000);
    let held = image.lock();
    let watchers = || cluster.rbd_json(&["status", &image.spec])["watchers"].as_array().map_or(0, Vec::len);
    for _ in 0..if is_long() { 5 } else { 1 } {
        let cut = cluster.cut_client_off();
        let begun = Instant::now();
        wait_until("the watch to end", || watchers() == 0);
        std::thread::sleep(SILENT.saturating_sub(begun.elapsed()));
        let rbd = site.stats()["rbd"].clone();
        assert!(rbd["lease"] == "expired" && rbd["lacks"] == "network", "{rbd}");
        drop(cut);
        wait_until("answers to leave again", || site.stats()["rbd"]["lease"] == "valid");
        assert!(watchers() > 0, "answers leave although anybody would take the image at once");
        writer.goes_on(3000);
        assert_eq!(image.lock(), held, "{}", server.words());
    }
    assert_eq!(writer.stop(), End::Done, "{}", server.words());
    assert!(!server.log().contains("another client's now"), "{}", server.words());
    // It was written down as what it holds the image by now.
    server.kill().expect("it ran");
    let server = site.serve(&[]);
    let versions = look(&shadow).holds(&read_all(&site.socket())).unwrap_or_else(|e| panic!("{e}"));
    look(&shadow).settle(versions);
    site.flush();
    server.stop().expect("a clean stop");
    image.is_whole_and_free(&look(&shadow));
}

fn threads(server: &Server) -> usize {
    std::fs::read_dir(PathBuf::from(format!("/proc/{}/task", server.id()))).expect("it runs").count()
}

#[test]
fn a_stop_with_dirty_data_leaves_no_client_alive() {
    let Some((cluster, _alone)) = alone("a volume of the daemon stopped with dirty data") else { return };
    let image = Image::new(cluster, "no-zombie");
    let site = image.site("a");
    let (dir, cli) = (site.dir.display(), Cli::new(&site.dir));
    let file = site.dir.join("loligod.toml");
    let text = format!(
        "[daemon]\nstate-dir = \"{dir}/state\"\n[volume.vol]\ncore = \"{}\"\ncache = \"{}\"\ncache-size = \"64m\"\nsparse = true\n\
         mode = \"wb\"\nlisten = [\"unix:{}\"]\nparams = {{ destage-rate = \"16\" }}\n",
        site.core(),
        site.cache.display(),
        site.socket().display()
    );
    std::fs::write(&file, text).expect("a configuration");
    let daemon = cli.daemon(&file);
    let shadow = fresh();
    let mut before = None;
    for round in 0..4 {
        if round > 0 {
            cli.ok(&["volume", "start", "vol"]);
        }
        wait_until("the volume to be served", || site.socket().exists());
        let writer = Writer::start(&site.socket(), &shadow, round, SIZE as usize / BLOCK);
        writer.goes_on(500);
        assert_eq!(writer.stop(), End::Done, "{}", daemon.words());
        let held = image.lock();
        cli.ok(&["volume", "stop", "vol"]);
        assert_eq!(image.lock(), held, "the lock is the record");
        let now = threads(&daemon);
        assert!(now <= *before.get_or_insert(now) + 2, "threads: {before:?} before, {now} now");
    }
    cli.ok(&["volume", "start", "vol"]);
    wait_until("the volume to be served", || site.socket().exists());
    look(&shadow).holds(&read_all(&site.socket())).unwrap_or_else(|e| panic!("{e}"));
    cli.ok(&["volume", "stop", "vol"]);
    // The tool is killed where it takes longer; a live client of nobody's let it wait for ever.
    cluster.rbd(&["snap", "create", "--no-progress", &image.at("meanwhile")]);
    daemon.stop().expect("a clean stop");
}
