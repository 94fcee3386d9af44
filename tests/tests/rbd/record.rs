//! Claims about what shows that nobody changed an image while its cache was stopped with dirty data.

use crate::cluster::shared;
use crate::shadow::BLOCK;
use crate::site::{Image, SIZE, Site};
use crate::writer::{End, Kept, Writer, fresh, look, read_all};
use std::process::Stdio;

/// Serves the image, writes, and stops with dirty data.
fn leaves_dirty_data(site: &Site<'_>, more: &[&str], shadow: &Kept, round: u64) {
    let server = site.serve(more);
    look(shadow).holds(&read_all(&site.socket())).unwrap_or_else(|e| panic!("round {round}: {e}"));
    let writer = Writer::start(&site.socket(), shadow, round, SIZE as usize / BLOCK);
    writer.goes_on(500);
    assert_eq!(writer.stop(), End::Done, "{}", server.words());
    server.stop().expect("a stop with dirty data");
}

/// RADOS's name for the image's header.
fn header_of(image: &Image) -> String {
    let info = image.cluster.rbd_json(&["info", &image.spec]);
    format!("rbd_header.{}", info["id"].as_str().expect("an id"))
}

#[test]
fn a_header_that_was_changed_after_a_stop_is_seen() {
    let Some((cluster, _shared)) = shared("a header changed after a stop") else { return };
    let image = Image::new(cluster, "header-changed");
    let (site, shadow) = (image.site("a"), fresh());
    for round in 0..3 {
        // Stops and starts, and whoever only looks, change nothing that is seen.
        leaves_dirty_data(&site, &[], &shadow, round);
        cluster.rbd(&["status", &image.spec]);
        drop(image.export(&image.spec));
    }
    let header = header_of(&image);
    let change =
        cluster.tool("rados", "admin", &["-p", "rbd", "setxattr", &header, "whose", "theirs"]).status();
    assert!(change.expect("rados runs").success());
    let words = site.refused(&site.core(), &[]);
    assert!(words.contains("was changed since") && words.contains("--force"), "{words}");
    leaves_dirty_data(&site, &["--force"], &shadow, 3);
    leaves_dirty_data(&site, &[], &shadow, 4);
}

#[test]
fn a_lock_that_was_broken_and_put_back_does_not_witness() {
    let Some((cluster, _shared)) = shared("a lock put back") else { return };
    let image = Image::new(cluster, "lock-put-back");
    let (site, shadow) = (image.site("a"), fresh());
    leaves_dirty_data(&site, &[], &shadow, 0);
    let held = image.lock();
    let (header, lock) = (header_of(&image), "lock.rbd_lock");
    let saved = cluster.tool("rados", "admin", &["-p", "rbd", "getxattr", &header, lock]).output();
    let file = site.dir.join("lock");
    std::fs::write(&file, saved.expect("rados runs").stdout).expect("a file");
    // Somebody takes it, writes, and goes.
    cluster.rbd(&["bench", "--io-type", "write", "--io-size", "4K", "--io-total", "64K", &image.spec]);
    assert_eq!(image.lock(), None, "the writer is gone");
    let mut put = cluster.tool("rados", "admin", &["-p", "rbd", "setxattr", &header, lock]);
    put.stdin(Stdio::from(std::fs::File::open(&file).expect("a file")));
    assert!(put.status().expect("rados runs").success());
    assert_eq!(image.lock(), held, "the lock names the dead client again");
    let words = site.refused(&site.core(), &[]);
    assert!(words.contains("was changed since"), "{words}");
}
