//! Claims about images of more than 16 TiB, beyond what one shard of a cache can number.

use crate::cluster::{shared, wait_until};
use crate::shadow::{BLOCK, Shadow, content};
use crate::site::{Image, Site};
use crate::writer::{End, Kept, Writer, look, request, size};
use loligo_tests::nbd::Command;
use loligo_tests::server::Server;
use parking_lot::Mutex;
use std::sync::Arc;

const TIB: u64 = 1 << 40;
/// The end of a single shard.
const BORDER: u64 = 16 * TIB;
/// The end of the image.
const END: u64 = 17 * TIB;
/// Bytes of each of the places that are written to.
const PLACE: u64 = 16 << 20;
/// Blocks of such a place.
const BLOCKS: usize = PLACE as usize / BLOCK;
/// They are at the start, across the border and at the end.
const PLACES: [u64; 3] = [0, BORDER - PLACE / 2, END - PLACE];
const WRITTEN: usize = PLACES.len() * BLOCKS;

fn place(block: usize) -> u64 {
    PLACES[block / BLOCKS] + (block % BLOCKS * BLOCK) as u64
}

fn shadow() -> Kept {
    Arc::new(Mutex::new(Shadow::new((WRITTEN * BLOCK) as u64)))
}

/// An image of so many TiB. A stock client looks at every object of one, so they are large.
fn image(cluster: &'static crate::cluster::Cluster, name: &str, tib: u64) -> Image {
    let spec = format!("rbd/{name}");
    cluster.rbd(&["create", "--size", &format!("{tib}T"), "--object-size", "32M", &spec]);
    Image::existing(cluster, &spec)
}

/// The bytes that a stock client reads at the places, of the image or a snapshot.
fn stock(image: &Image, what: &str) -> Vec<u8> {
    let file = image.site("a").dir.join("diff");
    let _ = std::fs::remove_file(&file);
    let path = file.display().to_string();
    image.cluster.rbd(&["export-diff", "--no-progress", "--whole-object", what, &path]);
    let raw = std::fs::read(&file).expect("the difference");
    let mut all = vec![0; WRITTEN * BLOCK];
    let number = |at: usize| u64::from_le_bytes(raw[at..at + 8].try_into().expect("8 bytes"));
    let mut at = b"rbd diff v1\n".len();
    assert_eq!(&raw[..at], b"rbd diff v1\n");
    loop {
        let kind = raw[at];
        at += 1;
        match kind {
            b'f' | b't' => {
                at += 4 + u32::from_le_bytes(raw[at..at + 4].try_into().expect("4 bytes")) as usize
            }
            b's' => at += 8,
            b'w' => {
                let (from, len) = (number(at), number(at + 8));
                at += 16;
                put(&mut all, from, &raw[at..at + len as usize]);
                at += len as usize;
            }
            b'z' => at += 16,
            b'e' => return all,
            other => panic!("a record of kind {other}"),
        }
    }
}

/// Takes what lies in the places out of `data`, which is at the byte `from` of the image.
fn put(all: &mut [u8], from: u64, data: &[u8]) {
    for (n, start) in PLACES.into_iter().enumerate() {
        let (low, high) = (from.max(start), (from + data.len() as u64).min(start + PLACE));
        if low < high {
            let to = n * PLACE as usize + (low - start) as usize;
            let part = &data[(low - from) as usize..(high - from) as usize];
            all[to..to + part.len()].copy_from_slice(part);
        }
    }
}

/// The volume's content at the places.
fn read_all(site: &Site<'_>) -> Vec<u8> {
    let step = 1 << 20;
    let chunk = |at| request(&site.socket(), at, &Command::Read(step as u32)).expect("a read");
    PLACES.into_iter().flat_map(|p| (p..p + PLACE).step_by(step).flat_map(chunk)).collect()
}

fn holds(shadow: &Kept, data: &[u8]) {
    look(shadow).holds(data).unwrap_or_else(|e| panic!("{e}"));
}

fn write(site: &Site<'_>, at: u64, data: Vec<u8>) {
    request(&site.socket(), at, &Command::Write { data, fua: true }).expect("a write");
}

fn read(site: &Site<'_>, at: u64) -> Vec<u8> {
    request(&site.socket(), at, &Command::Read(4096)).expect("a read")
}

fn resize(image: &Image, tib: u64) {
    image.cluster.rbd(&["resize", "--no-progress", "--size", &format!("{tib}T"), &image.spec]);
}

#[test]
fn a_cache_serves_both_sides_of_16_tib() {
    let Some((cluster, _shared)) = shared("a large image") else { return };
    let image = image(cluster, "large", 17);
    let site = image.site("a");
    let server = site.serve(&[]);
    assert!(server.words().contains("3 shard(s)"), "{}", server.words());
    assert_eq!(size(&site.socket()), END);
    // One request over the border: its halves are two objects', and two shards'.
    let blocks = [BLOCKS / 2 - 1, BLOCKS / 2].map(|n| content(BLOCKS + n, 1));
    write(&site, BORDER - 4096, blocks.concat());
    write(&site, 0, content(0, 1));
    write(&site, END - 4096, content(WRITTEN - 1, 1));
    site.flush();
    let expected = shadow();
    for block in [0, BLOCKS + BLOCKS / 2 - 1, BLOCKS + BLOCKS / 2, WRITTEN - 1] {
        let mut s = look(&expected);
        s.acked[block] = 1;
        s.sent[block] = 1;
    }
    holds(&expected, &read_all(&site));
    holds(&expected, &stock(&image, &image.spec));
    server.stop().expect("a clean stop");
    image.is_free();
}

#[test]
fn a_large_images_snapshot_is_one_moment_and_survives_a_kill() {
    let Some((cluster, _shared)) = shared("snapshots of a large image") else { return };
    let image = image(cluster, "large-snapshots", 17);
    let (site, shadow) = (image.site("a"), shadow());
    let server = site.serve(&[]);
    let writer = Writer::at(&site.socket(), &shadow, 1, WRITTEN, place);
    let mut taken = Vec::new();
    for name in ["s1", "s2", "s3"] {
        writer.goes_on(3000);
        let before = look(&shadow).clone();
        cluster.rbd(&["snap", "create", "--no-progress", &image.at(name)]);
        taken.push((name, before, look(&shadow).clone()));
    }
    writer.goes_on(3000);
    let stats = site.stats();
    assert_eq!(stats["rbd"]["snapshots"]["quiesced"], 3, "{}", stats["rbd"]);
    assert!(stats["rbd"]["librbd"].is_null(), "{}", stats["rbd"]);
    server.kill().expect("it ran until then");
    assert_eq!(writer.ended(), End::Broken);
    let server = site.serve(&[]);
    let words = server.words();
    assert!(words.contains("recovered in") && !words.contains(" 0 bytes dirty"), "{words}");
    let found = read_all(&site);
    let versions = look(&shadow).holds(&found).unwrap_or_else(|e| panic!("{e}"));
    look(&shadow).settle(versions);
    site.flush();
    server.stop().expect("a clean stop");
    holds(&shadow, &stock(&image, &image.spec));
    image.is_free();
    for (name, before, after) in taken {
        let content = stock(&image, &image.at(name));
        Shadow::check(&content, &before, &after).unwrap_or_else(|e| panic!("{name}: {e}"));
    }
}

/// Waits until clients of the volume are told this size, in TiB.
fn follows(site: &Site<'_>, server: &Server, tib: u64) {
    wait_until("the volume to have the image's size", || size(&site.socket()) == tib * TIB);
    // Clients may hear of it a moment before the log does.
    wait_until("the log to say so", || server.words().contains("bytes now"));
}

#[test]
fn an_image_that_grows_beyond_16_tib_keeps_its_cache() {
    let Some((cluster, _shared)) = shared("an image that grows beyond 16 TiB") else { return };
    let image = image(cluster, "large-growing", 15);
    let site = image.site("a");
    let server = site.serve(&["--shards", "2"]);
    assert!(server.words().contains("2 shard(s)"), "{}", server.words());
    write(&site, 0, content(0, 1));
    resize(&image, 17);
    follows(&site, &server, 17);
    write(&site, END - 4096, content(1, 1));
    server.kill().expect("it ran until then");
    let server = site.serve(&[]);
    assert_eq!((read(&site, 0), read(&site, END - 4096)), (content(0, 1), content(1, 1)));
    site.flush();
    server.stop().expect("a clean stop");
    resize(&image, 18);
    let server = site.serve(&[]);
    assert_eq!(size(&site.socket()), 18 * TIB);
    assert_eq!((read(&site, 0), read(&site, END - 4096)), (content(0, 1), content(1, 1)));
    write(&site, 18 * TIB - 4096, content(2, 1));
    site.flush();
    server.stop().expect("a clean stop");
    image.is_free();
    assert_eq!(&stock(&image, &image.spec)[..BLOCK], content(0, 1));
}

#[test]
fn one_shard_serves_what_an_image_had_before_it_outgrew_it() {
    let Some((cluster, _shared)) = shared("an image that outgrows its cache") else { return };
    let image = image(cluster, "large-outgrown", 15);
    let site = image.site("a");
    let server = site.serve(&[]);
    assert!(server.words().contains("1 shard(s)"), "{}", server.words());
    write(&site, 0, content(0, 1));
    resize(&image, 17);
    wait_until("the growth to be told of", || server.words().contains("does not follow"));
    write(&site, 4096, content(1, 1));
    server.kill().expect("it ran until then");
    let server = site.serve(&[]);
    let words = server.words();
    assert!(words.contains("16 TiB a shard") && words.contains("--shards"), "{words}");
    assert_eq!((size(&site.socket()), read(&site, 0)), (15 * TIB, content(0, 1)));
    assert_eq!(read(&site, 4096), content(1, 1));
    site.flush();
    server.stop().expect("a clean stop");
    let server = site.serve(&["--create", "--force"]);
    assert!(server.words().contains("3 shard(s)"), "{}", server.words());
    assert_eq!((size(&site.socket()), read(&site, 0)), (END, content(0, 1)));
    write(&site, END - 4096, content(1, 1));
    assert_eq!(read(&site, END - 4096), content(1, 1));
    site.flush();
    server.stop().expect("a clean stop");
    image.is_free();
}
