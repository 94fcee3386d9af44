//! A cache that goes while the image has everything: clients and snapshots go on, and nobody believes that cache afterwards.

use crate::cluster::{shared, wait_until};
use crate::shadow::{BLOCK, Shadow};
use crate::site::{Image, SIZE};
use crate::writer::{End, Writer, fresh, look, read_all};
use loligo_tests::lossy::{Mounted, Part};
use loligo_tests::skip;

#[test]
fn an_image_whose_cache_is_gone_is_served_on_with_snapshots() {
    let Some((cluster, _shared)) = shared("a cache that is gone") else { return };
    if let Err(why) = skip::fuse() {
        return skip::skip("a cache that is gone", &why);
    }
    let image = Image::new(cluster, "cache-gone");
    let mut site = image.site("a");
    let at = site.dir.join("fs");
    std::fs::create_dir(&at).expect("a folder");
    let fs = Mounted::new(&at, 5).expect("a file system");
    site.cache = fs.dir().join("cache");
    let shadow = fresh();
    let server = site.serve(&["--mode", "wt"]);
    let writer = Writer::start(&site.socket(), &shadow, 11, SIZE as usize / BLOCK);
    writer.goes_on(500);
    fs.power().fail("cache", Part::All);
    wait_until("the image to be served alone", || site.stats()["cache_gone"].is_string());
    writer.goes_on(1000);
    let before = look(&shadow).clone();
    cluster.rbd(&["snap", "create", "--no-progress", &image.at("s")]);
    let after = look(&shadow).clone();
    writer.goes_on(1000);
    assert_eq!(writer.stop(), End::Done, "{}", server.words());
    assert_eq!(site.stats()["rbd"]["snapshots"]["quiesced"], 1);
    Shadow::check(&image.export(&image.at("s")), &before, &after).expect("the snapshot");
    assert!(server.words().contains("the image's metadata says so"), "{}", server.words());
    server.kill().expect("it lived");
    fs.power().mend();
    let why = site.refused(&site.core(), &[]);
    assert!(why.contains("is void") && why.contains("--create --force"), "{why}");
    let server = site.serve(&["--create", "--force"]);
    look(&shadow).holds(&read_all(&site.socket())).expect("what was acknowledged");
    site.flush();
    server.stop().expect("a clean stop");
    image.is_whole_and_free(&look(&shadow));
}
