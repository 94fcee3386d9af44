//! What `prepare` refuses, and what is left of one that does not come to its end: nothing.

use crate::site::{DATA, Site};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::Stdio;

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

fn nothing_left(site: &Site) {
    assert_eq!(site.mapped(), None, "half an OSD is in the map");
    assert!(!site.ceph(&["config", "dump"]).contains(&format!("osd.{}", site.id)));
    assert_eq!(site.ok(&["volume", "list", "--json"]).trim(), "[]");
    assert!(!site.osd_dir().exists());
}

/// Starts a `prepare` and ends it with `signal` once it makes the store; its exit status.
fn cut_off(site: &Site, words: &[&str], signal: i32) -> Option<i32> {
    let mut child =
        site.command(words).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().expect("it runs");
    let mut lines = BufReader::new(child.stderr.take().expect("piped"));
    let mut line = String::new();
    while !line.contains("making the store") {
        line.clear();
        assert_ne!(lines.read_line(&mut line).expect("text"), 0, "it ended before");
    }
    std::thread::sleep(std::time::Duration::from_millis(300));
    // SAFETY: the child is ours and not yet waited for.
    unsafe { libc::kill(child.id() as libc::pid_t, signal) };
    let _ = lines.read_to_string(&mut line);
    child.wait().expect("it ended").code()
}

#[test]
fn a_prepare_that_cannot_be_or_is_cut_off_leaves_no_osd_and_no_volume() {
    let Some(mut site) = Site::new("refusals of an OSD") else { return };
    let (data, small, other) =
        (site.device("data", DATA), site.device("small", 600 * MIB), site.device("other", 64 * MIB));
    let cache = site.path("cache");
    let refused = |site: &Site, data: &Path, cache: &Path, more: &[&str], says: &str| {
        let words = site.prepare(data, cache, more);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let said = site.refused(&words);
        assert!(said.contains(says), "{says}: {said}");
        assert!(!site.osd_dir().exists(), "{says}: a folder is left");
    };
    let sized = ["--cache-size", "64m"];
    let force = ["--cache-size", "64m", "--force"];
    refused(&site, data.path(), data.path(), &[], "are the same device");
    refused(&site, small.path(), &cache, &sized, "an OSD behind a label needs");
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
    refused(&site, data.path(), &cache, &["--cache-size", "64m", "--id", "0"], "there is an osd.0");
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
    let of = site.path("lab/osd.0/block");
    std::fs::File::open(of).and_then(|mut f| f.read_exact(&mut label)).expect("a store");
    mark(data.path(), 0, &label);
    refused(&site, data.path(), &cache, &force, "is osd.0's");
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

    nothing_left(&site);

    // Ctrl-C while the store is made.
    let words = site.prepare(data.path(), &cache, &force);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    assert_eq!(cut_off(&site, &words, libc::SIGINT), Some(130));
    nothing_left(&site);
    assert!(!cache.exists() && head(data.path()).iter().all(|b| *b == 0), "something is left on the devices");

    // SIGKILL there: no half OSD in the map, and what is left can be taken away and made anew.
    assert_eq!(cut_off(&site, &words, libc::SIGKILL), None);
    assert_eq!(site.mapped(), None);
    assert_eq!(site.listed()["state"], "unfinished");
    let id = site.id.to_string();
    assert!(site.refused(&["osd", "activate", &id]).contains("never finished"));
    site.server.take().expect("it runs").kill().expect("it lived");
    site.start();
    assert_eq!(site.listed()["runs"], false, "half an OSD was started");
    site.ok(&["osd", "remove", &id]);
    nothing_left(&site);

    // And without the daemon, it says so.
    site.server.take().expect("it runs").stop().expect("a clean stop");
    assert!(site.refused(&words).contains("no loligod runs here"));
}
