//! Stops that fail: the attach ends by itself then, and nobody else had the image.

use crate::cluster::{shared, wait_until};
use crate::shadow::BLOCK;
use crate::site::{Image, SIZE, Site};
use crate::writer::{End, Writer, fresh, look, read_all};
use loligo_tests::lossy::{Mounted, Part};
use loligo_tests::skip;
use std::time::{Duration, Instant};

/// Longer than a stop may take beside a device that answers nothing.
const SOON: Duration = Duration::from_secs(60);

/// A file system of its own for the cache of `site`, or nothing where there cannot be one.
fn breakable(site: &mut Site) -> Option<Mounted> {
    if let Err(why) = skip::fuse() {
        skip::skip("a stop that fails", &why);
        return None;
    }
    let at = site.dir.join("fs");
    std::fs::create_dir(&at).expect("a folder");
    let fs = Mounted::new(&at, 5).expect("a file system");
    site.cache = fs.dir().join("cache");
    Some(fs)
}

#[test]
fn dirty_data_of_a_stop_that_failed_needs_no_force() {
    let Some((cluster, _shared)) = shared("a stop that fails") else { return };
    let image = Image::new(cluster, "failed-stop");
    let mut site = image.site("a");
    let Some(fs) = breakable(&mut site) else { return };
    let shadow = fresh();
    let mut server = site.serve(&["--mode", "wb"]);
    let writer = Writer::start(&site.socket(), &shadow, 12, SIZE as usize / BLOCK);
    writer.goes_on(500);
    assert_eq!(writer.stop(), End::Done, "{}", server.words());
    fs.power().fail("cache", Part::Flushes);
    let begun = Instant::now();
    server.terminate();
    server.ended().expect("it ends");
    let said = server.words();
    assert!(said.contains("could not be stopped cleanly"), "{said}");
    assert!(!said.contains("is another client's"), "{said}");
    assert!(begun.elapsed() < Duration::from_secs(12), "it took {:?}", begun.elapsed());
    fs.power().mend();
    let server = site.serve(&[]);
    look(&shadow).holds(&read_all(&site.socket())).expect("what was acknowledged");
    site.flush();
    server.stop().expect("a clean stop");
    image.is_whole_and_free(&look(&shadow));
}

#[test]
fn a_stop_ends_beside_a_silent_cache_and_an_image_that_grew() {
    let Some((cluster, _shared)) = shared("a silent cache") else { return };
    let image = Image::new(cluster, "silent-cache");
    let mut site = image.site("a");
    let Some(fs) = breakable(&mut site) else { return };
    let shadow = fresh();
    let mut server = site.serve(&["--mode", "wb"]);
    let writer = Writer::start(&site.socket(), &shadow, 13, SIZE as usize / BLOCK);
    writer.goes_on(200);
    assert_eq!(writer.stop(), End::Done, "{}", server.words());
    site.flush();
    fs.power().hang("cache", Part::All);
    // The quiescer writes the new size into the superblock.
    cluster.rbd(&["resize", "--no-progress", "--size", &format!("{}B", SIZE + (64 << 20)), &image.spec]);
    std::thread::sleep(Duration::from_secs(3));
    let begun = Instant::now();
    server.terminate();
    // The kernel keeps the process until the device has answered what is under way to it.
    wait_until("the stop to be over", || server.words().contains("has answered nothing"));
    assert!(begun.elapsed() < SOON, "it took {:?}", begun.elapsed());
    fs.power().mend();
    server.ended().expect("it ends");
    let server = site.serve(&[]);
    look(&shadow).holds(&read_all(&site.socket())[..SIZE as usize]).expect("what was acknowledged");
    server.stop().expect("a clean stop");
}
