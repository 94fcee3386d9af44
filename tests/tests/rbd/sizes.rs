//! Claims about images that others make larger and smaller, while they are served and while they are not.

use crate::cluster::{Cluster, shared, wait_until};
use crate::driven::{LeftOut, taken};
use crate::shadow::{BLOCK, content};
use crate::site::{Image, SIZE, Site};
use crate::writer::{End, Kept, Writer, fresh, look, read_all, request, size};
use loligo_ceph::attach::Attachment;
use loligo_ceph::quiesce::{Clients, Quiescer};
use loligo_tests::nbd::Command;
use loligo_tests::server::Server;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// NBD's error numbers of a request behind the end.
const BEHIND: [u32; 2] = [libc::EINVAL as u32, libc::ENOSPC as u32];

fn resize(cluster: &Cluster, image: &Image, bytes: u64) {
    cluster.rbd(&["resize", "--no-progress", "--allow-shrink", "--size", &format!("{bytes}B"), &image.spec]);
}

/// Waits until clients of the volume are told this size.
fn follows(site: &Site<'_>, server: &Server, bytes: u64) {
    let socket = site.socket();
    wait_until("the volume to have the image's size", || size(&socket) == bytes);
    // Clients hear of it a moment before the log does, and each that asks has a line there.
    wait_until("it to be told", || server.log().contains(&format!("{bytes} bytes now")));
}

/// Writes for a while to blocks before `end`.
fn write(site: &Site<'_>, shadow: &Kept, seed: u64, end: u64) {
    let writer = Writer::start(&site.socket(), shadow, seed, end as usize / BLOCK);
    writer.goes_on(3000);
    assert_eq!(writer.stop(), End::Done);
}

/// The end of an image lies within the block `at / BLOCK`: takes what is left of it out of `data`, and forgets it.
fn half_a_block(shadow: &Kept, data: &mut Vec<u8>, at: u64) {
    let (block, start) = (at as usize / BLOCK, at as usize / BLOCK * BLOCK);
    let left = data[start..at as usize].to_vec();
    let mut s = look(shadow);
    let right = (s.acked[block]..=s.sent[block]).any(|v| content(block, v)[..left.len()] == left[..]);
    assert!(right, "the block across the new end is none of those that were written");
    s.resize(start as u64);
    data.truncate(start);
}

#[test]
fn a_volume_grows_with_its_image_while_clients_write() {
    let Some((cluster, _shared)) = shared("an image that grows") else { return };
    let image = Image::new(cluster, "growing");
    let (site, shadow) = (image.site("a"), fresh());
    let server = site.serve(&[]);
    let writer = Writer::start(&site.socket(), &shadow, 1, SIZE as usize / BLOCK);
    writer.goes_on(1000);
    let first = SIZE + (10 << 20) + 4096 * 5 + 512;
    resize(cluster, &image, first);
    follows(&site, &server, first);
    let larger = 2 * SIZE;
    resize(cluster, &image, larger);
    follows(&site, &server, larger);
    // Who was there before goes on as before.
    writer.goes_on(1000);
    assert_eq!(writer.stop(), End::Done, "{}", server.words());
    look(&shadow).resize(larger);
    write(&site, &shadow, 2, larger);
    cluster.rbd(&["snap", "create", "--no-progress", &image.at("s")]);
    let at_snapshot = look(&shadow).clone();
    write(&site, &shadow, 3, larger);
    server.kill().expect("it ran");
    let server = site.serve(&[]);
    let versions = look(&shadow).holds(&read_all(&site.socket())).unwrap_or_else(|e| panic!("{e}"));
    look(&shadow).settle(versions);
    site.flush();
    let stats = site.stats();
    assert!(stats["rbd"]["librbd"].is_null(), "{}", stats["rbd"]);
    server.stop().expect("a clean stop");
    image.is_whole_and_free(&look(&shadow));
    at_snapshot.holds(&image.export(&image.at("s"))).unwrap_or_else(|e| panic!("{e}"));
    image.object_maps_are_right(&["s".to_owned()]);
}

#[test]
fn a_volume_shrinks_with_its_image_and_the_end_never_comes_back() {
    let Some((cluster, _shared)) = shared("an image that shrinks") else { return };
    let image = Image::new(cluster, "shrinking");
    let (site, shadow) = (image.site("a"), fresh());
    let server = site.serve(&[]);
    let writer = Writer::start(&site.socket(), &shadow, 1, SIZE as usize / BLOCK);
    writer.goes_on(3000);
    // Into the middle of an object, and of a block.
    let smaller = (33 << 20) + 4096 * 7 + 1536;
    resize(cluster, &image, smaller);
    follows(&site, &server, smaller);
    let End::Refused(why) = writer.ended() else { panic!("writes behind the end were not refused") };
    assert!(BEHIND.contains(&why), "{why}");
    // The image grows again, the volume does not before it is started again: what it holds of there is void.
    resize(cluster, &image, SIZE);
    write(&site, &shadow, 2, smaller);
    let behind = Command::Write { data: content(0, 1), fua: false };
    let refused = request(&site.socket(), 40 << 20, &behind).expect_err("a write behind the end");
    assert!(BEHIND.contains(&refused), "{refused}");
    let mut found = read_all(&site.socket());
    assert_eq!(found.len() as u64, smaller);
    let block = smaller as usize / BLOCK;
    let known = look(&shadow).clone();
    half_a_block(&shadow, &mut found, smaller);
    let versions = look(&shadow).holds(&found).unwrap_or_else(|e| panic!("{e}"));
    look(&shadow).settle(versions);
    server.stop().expect("a stop with dirty data");

    let server = site.serve(&[]);
    assert!(server.words().contains("behind that were dropped"), "{}", server.words());
    let mut found = read_all(&site.socket());
    let half = found[block * BLOCK..smaller as usize].to_vec();
    let mut versions = known.acked[block]..=known.sent[block];
    assert!(versions.any(|v| content(block, v)[..1536] == half[..]), "the block across the old end");
    assert!(found[smaller as usize..].iter().all(|b| *b == 0), "what was cut off is there again");
    found.truncate(block * BLOCK);
    look(&shadow).holds(&found).unwrap_or_else(|e| panic!("{e}"));
    let zeroes = Command::Zeroes { len: 4096, fua: false };
    request(&site.socket(), (block * BLOCK) as u64, &zeroes).expect("zeroes");
    look(&shadow).resize(SIZE);
    write(&site, &shadow, 3, SIZE);
    site.flush();
    server.stop().expect("a clean stop");
    image.is_whole_and_free(&look(&shadow));
    image.object_maps_are_right(&[]);
}

/// Clients that are told where an image was cut.
struct Cuts(Sender<u64>);

impl Clients for Cuts {
    fn freeze(&self) -> Receiver<Result<(), String>> {
        channel().1
    }

    fn thaw(&self) {}

    fn lose(&self, why: &str) {
        panic!("lost: {why}");
    }

    fn lock_record_changed(&self) {}

    fn cut(&self, bytes: u64) -> Result<(), String> {
        // A test that has seen enough does not listen any more.
        let _ = self.0.send(bytes);
        Ok(())
    }

    fn resized(&self, _bytes: u64) {}
}

#[test]
fn an_image_shrunk_and_grown_between_two_looks_was_cut() {
    let Some((cluster, _shared)) = shared("an image that shrinks for a moment") else { return };
    let image = Image::new(cluster, "wavering");
    let _whole = LeftOut::nothing();
    let Attachment { image: attached, notices, .. } = taken(&image, false, Duration::from_secs(60));
    resize(cluster, &image, SIZE / 2);
    // Longer than the look takes, which nothing but a thread that is not run keeps from it.
    std::thread::sleep(Duration::from_secs(1));
    resize(cluster, &image, SIZE);
    let (cut, cuts) = channel();
    let quiescer = Quiescer::start(attached.clone(), notices, Box::new(Cuts(cut)), 4).expect("a thread");
    assert_eq!(cuts.recv_timeout(Duration::from_secs(20)), Ok(SIZE / 2));
    quiescer.stop();
    attached.detach(false).expect("an end");
    image.is_free();
}

#[test]
fn a_cache_takes_the_size_of_an_image_that_shrank_unserved() {
    let Some((cluster, _shared)) = shared("an image that shrank meanwhile") else { return };
    let image = Image::new(cluster, "shrank");
    let (site, shadow) = (image.site("a"), fresh());
    let server = site.serve(&["--flush-on-stop"]);
    write(&site, &shadow, 1, SIZE);
    server.stop().expect("a clean stop");
    let smaller = SIZE / 2 + (1 << 20);
    resize(cluster, &image, smaller);
    look(&shadow).resize(smaller);
    let server = site.serve(&[]);
    assert_eq!(size(&site.socket()), smaller);
    look(&shadow).holds(&read_all(&site.socket())).unwrap_or_else(|e| panic!("{e}"));
    write(&site, &shadow, 2, smaller);
    server.kill().expect("it ran");

    // Whoever shrinks it now has its lock first: what is dirty is refused, and force says what it drops.
    let held = image.lock().expect("the dead service's lock");
    cluster.ceph(&["osd", "blocklist", "add", &held]);
    let all = cluster.rbd_json(&["lock", "ls", &image.spec]);
    let text = |key: &str| all[0][key].as_str().expect("text").to_owned();
    cluster.admin_rbd(&["lock", "rm", &image.spec, &text("id"), &text("locker")]);
    let least = smaller / 2;
    resize(cluster, &image, least);
    let words = site.refused(&site.core(), &[]);
    assert!(words.contains("somebody else had image"), "{words}");
    let server = site.serve(&["--force"]);
    assert!(server.words().contains("dirty blocks behind that were dropped"), "{}", server.words());
    look(&shadow).resize(least);
    let versions = look(&shadow).holds(&read_all(&site.socket())).unwrap_or_else(|e| panic!("{e}"));
    look(&shadow).settle(versions);
    site.flush();
    server.stop().expect("a clean stop");
    image.is_whole_and_free(&look(&shadow));
}
