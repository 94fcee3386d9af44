//! A cache that goes while the image has everything: clients and snapshots go on, and nobody believes that
//! cache afterwards. One that goes while it has what the image lacks: a stop fails, and the next start has
//! everything.

use crate::cluster::{shared, wait_until};
use crate::shadow::{BLOCK, Shadow};
use crate::site::{Image, SIZE, Site};
use crate::writer::{End, Writer, fresh, look, read_all};
use loligo_tests::cli::Cli;
use loligo_tests::lossy::{Mounted, Part};
use loligo_tests::server::{Volume, program};
use loligo_tests::skip;
use std::process::Command;
use std::time::{Duration, Instant};

/// Seconds that a stop may take which meets a device that answers nothing: it looks twice for ten seconds
/// each.
const SOON: &str = "50";

/// A host whose cache is on a file system of our own.
fn breakable(image: &Image) -> (Site<'_>, Mounted) {
    let mut site = image.site("a");
    let at = site.dir.join("fs");
    std::fs::create_dir(&at).expect("a folder");
    let fs = Mounted::new(&at, 5).expect("a file system");
    site.cache = fs.dir().join("cache");
    (site, fs)
}

#[test]
fn an_image_whose_cache_is_gone_is_served_on_with_right_snapshots_and_that_cache_is_void_afterwards() {
    let Some((cluster, _shared)) = shared("a cache that is gone") else { return };
    if let Err(why) = skip::fuse() {
        return skip::skip("a cache that is gone", &why);
    }
    let image = Image::new(cluster, "cache-gone");
    let (site, fs) = breakable(&image);
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

#[test]
fn a_stop_that_its_cache_fails_is_no_loss_of_the_image() {
    const WHAT: &str = "a stop that fails";
    let Some((cluster, _shared)) = shared(WHAT) else { return };
    if let Err(why) = skip::fuse() {
        return skip::skip(WHAT, &why);
    }
    let image = Image::new(cluster, "stop-fails");
    let (site, fs) = breakable(&image);
    let shadow = fresh();
    let mut server = site.serve(&[]);
    assert!(site.loligo(&["param", "set", Volume::NAME, "destage-rate", "1"]).status.success());
    let writer = Writer::start(&site.socket(), &shadow, 12, SIZE as usize / BLOCK);
    writer.goes_on(2000);
    assert_eq!(writer.stop(), End::Done, "{}", server.words());
    assert!(site.stats()["dirty_bytes"].as_u64() > Some(0));
    fs.power().fail("cache", Part::Flushes);
    let begun = Instant::now();
    server.terminate();
    let status = server.ended().expect("it ends");
    let took = begun.elapsed();
    let said = server.words();
    assert!(!status.success() && said.contains("could not be stopped cleanly"), "{said}");
    assert!(!said.contains("another client's"), "nobody took it: {said}");
    assert!(took < Duration::from_secs(10), "it took {took:?}");
    fs.power().mend();
    let server = site.serve(&[]);
    let versions = look(&shadow).holds(&read_all(&site.socket())).expect("what was acknowledged");
    look(&shadow).settle(versions);
    site.flush();
    server.stop().expect("a clean stop");
    image.is_whole_and_free(&look(&shadow));
}

#[test]
fn a_silent_cache_whose_image_changes_holds_up_no_stop() {
    const WHAT: &str = "a silent cache of an image that changes";
    let Some((cluster, _shared)) = shared(WHAT) else { return };
    if let Err(why) = skip::fuse() {
        return skip::skip(WHAT, &why);
    }
    let image = Image::new(cluster, "silent");
    let (site, fs) = breakable(&image);
    let (dir, file) = (site.dir.display(), site.dir.join("loligod.toml"));
    let text = format!(
        "[daemon]\nstate-dir = \"{dir}/state\"\n[volume.{}]\ncore = \"{}\"\n\
         cache = \"{}\"\ncache-size = \"24m\"\nmode = \"wb\"\nlisten = [\"unix:{}\"]\n",
        Volume::NAME,
        site.core(),
        site.cache.display(),
        site.socket().display()
    );
    std::fs::write(&file, text).expect("a configuration");
    let cli = Cli::new(&site.dir);
    let daemon = cli.daemon(&file);
    let shadow = fresh();
    let writer = Writer::start(&site.socket(), &shadow, 13, SIZE as usize / BLOCK);
    writer.goes_on(1000);
    assert_eq!(writer.stop(), End::Done, "{}", daemon.words());
    site.flush();
    // What a flush leaves to be written is.
    std::thread::sleep(Duration::from_secs(2));
    fs.power().hang("cache", Part::All);
    let larger = SIZE + (8 << 20);
    cluster.rbd(&["resize", "--no-progress", "--size", &format!("{larger}B"), &image.spec]);
    // Whoever keeps the image writes that down by then.
    std::thread::sleep(Duration::from_secs(3));
    let mut stop = Command::new("timeout");
    stop.arg(SOON).arg(program()).args(["volume", "stop", Volume::NAME]);
    let out = stop.env("LOLIGO_RUNTIME_DIR", &site.dir).output().expect("it runs");
    fs.power().mend();
    let said = format!("{}{}", String::from_utf8_lossy(&out.stderr), daemon.words());
    assert_ne!(out.status.code(), Some(124), "the stop hangs: {said}");
    assert!(!out.status.success() && said.contains("has answered nothing"), "{said}");
    assert!(!said.contains("another client's"), "nobody took it: {said}");
    std::thread::sleep(Duration::from_millis(500));
    cli.ok(&["volume", "start", Volume::NAME]);
    look(&shadow).resize(larger);
    look(&shadow).holds(&read_all(&site.socket())).expect("what was acknowledged");
    daemon.stop().expect("a clean stop");
}
