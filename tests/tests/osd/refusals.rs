//! Refusals of `prepare`, and the remains of one that does not come to its end: none.

use crate::site::{BACK, DATA, Site};
use std::io::Read;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

const MIB: u64 = 1 << 20;

/// The first MiB of a device.
fn head(of: &Path) -> Vec<u8> {
    let mut raw = vec![0; MIB as usize];
    std::fs::File::open(of).and_then(|f| f.read_exact_at(&mut raw, 0)).expect("it can be read");
    raw
}

fn mark(device: &Path, at: u64, mark: &[u8]) {
    let mut page = head(device);
    page[at as usize..at as usize + mark.len()].copy_from_slice(mark);
    std::fs::File::options()
        .write(true)
        .open(device)
        .and_then(|f| f.write_all_at(&page, 0))
        .expect("written");
}

/// Nothing of the OSD is anywhere, after what was `said`.
fn nothing_left(site: &Site, said: &str) {
    assert_eq!(site.mapped(), None, "half an OSD is in the map: {said}");
    let options = site.ceph(&["config", "dump"]);
    assert!(!options.contains(&format!("osd.{}", site.id)), "{options}, after: {said}");
    assert_eq!(site.ok(&["volume", "list", "--json"]).trim(), "[]", "after: {said}");
    let left = std::fs::read_dir(site.osd_dir()).map(|all| all.flatten().map(|e| e.file_name()).collect());
    let left: Option<Vec<_>> = left.ok();
    assert_eq!(left, None, "its folder is there, after: {said}");
}

/// Starts a `prepare` and ends it with `signal` while the store is being made; its exit status and its words.
fn cut_off(site: &Site, words: &[String], signal: i32) -> (Option<i32>, String) {
    let mut child =
        site.command(words).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().expect("it runs");
    let mut lines = child.stderr.take().expect("piped");
    let said = std::thread::spawn(move || {
        let mut said = String::new();
        lines.read_to_string(&mut said).expect("text");
        said
    });
    while site.pid().is_none() {
        if let Some(status) = child.try_wait().expect("it can be waited for") {
            panic!("it ended before it made a store ({status}): {}", said.join().expect("text"));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    // SAFETY: the child is ours and not yet waited for.
    unsafe { libc::kill(child.id() as libc::pid_t, signal) };
    let status = child.wait().expect("it ended");
    (status.code(), said.join().expect("text"))
}

#[test]
fn an_impossible_or_cut_off_prepare_leaves_no_osd_and_no_volume() {
    let Some(mut site) = Site::new("refusals of an OSD") else { return };
    let (data, small, other) =
        (site.device("data", DATA), site.device("small", 600 * MIB), site.device("other", 64 * MIB));
    let cache = site.path("cache");
    let refused = |site: &Site, data: &Path, cache: &Path, more: &[&str], says: &str| {
        let words = site.prepare(data, cache, more);
        let said = site.refused(&words);
        assert!(said.contains(says), "{says}: {said}");
        assert!(!site.osd_dir().exists(), "{says}: a folder is left");
    };
    let sized = ["--cache-size", "64m"];
    let force = ["--cache-size", "64m", "--force"];
    refused(&site, data.path(), data.path(), &[], "are the same device");
    refused(&site, small.path(), &cache, &sized, "too few for an OSD behind a label");
    refused(&site, data.path(), &cache, &[], "give --cache-size");
    refused(&site, data.path(), &cache, &["--cache-size", "4m"], "too small");
    refused(
        &site,
        data.path(),
        &cache,
        &["--cache-size", "64m", "--db", &other.path().display().to_string()],
        "bytes at least",
    );
    refused(&site, data.path(), &cache, &["--cache-size", "64m", "--param", "x=y"], "unknown parameter");
    refused(
        &site,
        data.path(),
        &cache,
        &["--cache-size", "64m", "--user", "nobody-at-all"],
        "there is no user",
    );
    refused(
        &site,
        data.path(),
        &cache,
        &["--cache-size", "64m", "--id", "0"],
        "osd.0 is in the cluster already",
    );
    // ceph-volume knows one folder and one user, and no files.
    let by = ["--cache-size", "64m", "--by", "ceph-volume-raw"];
    if loligo_tests::skip::installed("ceph-volume") {
        refused(&site, data.path(), &cache, &by, "leave --osd-dir and --user out");
    }
    refused(&site, data.path(), &cache, &[&by[..], &["--via", "fuse"]].concat(), "--via fuse makes a file");
    {
        let held = std::fs::File::options().read(true).custom_flags(libc::O_EXCL).open(data.path());
        let _held = held.expect("it is free");
        refused(&site, data.path(), &cache, &force, "in use by");
    }
    // A mark of LVM is not overwritten, not even by order; what nobody knows is, by order alone.
    mark(data.path(), 512, b"LABELONE");
    let before = head(data.path());
    refused(&site, data.path(), &cache, &force, "pvremove");
    mark(data.path(), 0, &[0; 4096]);
    let mut label = vec![0; 4096];
    std::fs::File::open(site.other_store()).and_then(|mut f| f.read_exact(&mut label)).expect("a store");
    mark(data.path(), 0, &label);
    refused(&site, data.path(), &cache, &force, "belongs to osd.0");
    mark(data.path(), 0, &[0; 4096]);
    mark(data.path(), 0, b"XFSB");
    refused(&site, data.path(), &cache, &sized, "holds XFS");
    assert_ne!(head(data.path()), before);
    assert_eq!(&head(data.path())[..4], b"XFSB", "a refusal wrote something");
    // The cache of another volume, with something in it.
    let core = site.path("core");
    std::fs::File::create(&core).and_then(|f| f.set_len(64 * MIB)).expect("a core");
    let (core, listen) = (core.display().to_string(), format!("unix:{}", site.path("run/x.nbd").display()));
    let other = other.path().display().to_string();
    site.ok(&[
        "volume", "create", "x", "--core", &core, "--cache", &other, "--mode", "wb", "--listen", &listen,
    ]);
    site.ok(&["volume", "stop", "x"]);
    site.ok(&["volume", "delete", "x"]);
    mark(data.path(), 0, &[0; 4096]);
    refused(&site, data.path(), Path::new(&other), &[], "is the cache of volume 'x'");
    mark(data.path(), 0, b"XFSB");

    nothing_left(&site, "refusals");

    // Ctrl-C while the store is made.
    let words = site.prepare(data.path(), &cache, &force);
    let (status, said) = cut_off(&site, &words, libc::SIGINT);
    assert_eq!(status, Some(130), "{said}");
    assert!(said.contains("taking back") && !said.contains("not taken back"), "{said}");
    nothing_left(&site, &said);
    assert!(!cache.exists(), "the cache is left: {said}");
    let left = head(data.path()).iter().position(|b| *b != 0);
    assert_eq!(left, None, "something is left on the disk: {said}");

    // SIGKILL there: no half OSD in the map, and what is left can be taken away and made anew.
    let (status, said) = cut_off(&site, &words, libc::SIGKILL);
    assert_eq!(status, None, "{said}");
    // Who was making the store dies too; it may be waiting for a disk as it does.
    site.until("the making of the store ends", BACK, || site.listed()["runs"] == false);
    assert_eq!(site.mapped(), None, "{said}");
    let row = site.listed();
    assert_eq!(row["state"], "unfinished", "{row}, after: {said}");
    let id = site.id.to_string();
    let refusal = site.refused(&["osd", "activate", &id]);
    assert!(refusal.contains("never finished"), "{refusal}");
    site.crash();
    site.start();
    let row = site.listed();
    assert_eq!(row["runs"], false, "half an OSD was started: {row}, {:?}", site.pid());
    let out = site.loligo(&["osd", "remove", &id]);
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{said}");
    nothing_left(&site, &said);

    // And without the daemon, it says so.
    site.server.take().expect("it runs").stop().expect("a clean stop");
    let said = site.refused(&words);
    assert!(said.contains("no loligod runs here"), "{said}");
}
