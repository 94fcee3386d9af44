//! Claims about a service that dies after it has broken its predecessor's lock and before it has one of its own.

use crate::cluster::{is_long, shared};
use crate::driven::LeftOut;
use crate::shadow::BLOCK;
use crate::site::{Image, SIZE, Site};
use crate::writer::{End, Writer, fresh, look, read_all};
use loligo_block::{DeviceFile, OpenOptions, SyncFile};
use loligo_ceph::CephError;
use loligo_ceph::attach::{self, AttachRequest, Attachment, Cache, Destage};
use loligo_ceph::bug::{self, Step, leave_out};
use loligo_ceph::lock_record::LockRecord;
use loligo_format::superblock::Superblock;
use loligo_tests::server::Server;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Names place, core and cache for the process that dies.
const VICTIM: &str = "LOLIGO_TEST_VICTIM";

/// Takes the image `core` for the cache at `cache` as a start of the service does. Right before each note in the superblock
/// comes `meanwhile`, which may fail it.
fn take_for(
    core: &str,
    cache: &Path,
    dirty: bool,
    mut meanwhile: impl FnMut(&LockRecord) -> Result<(), String>,
) -> Result<Attachment, CephError> {
    let file = DeviceFile::open(cache, &OpenOptions::default()).expect("the cache");
    let mut dev = SyncFile::new(file);
    let mut sb = Superblock::load(&mut dev).expect("a cache");
    let side = Cache {
        cache: sb.uuid_text(),
        volume: sb.name.clone(),
        core: Some(sb.core.id.clone()),
        dirty,
        dirty_bytes: None,
        record: serde_json::from_str(&sb.core_record).ok(),
        force: false,
        is_alone: true,
    };
    attach::attach(AttachRequest {
        spec: &core.parse().expect("an image"),
        cache: Some(side),
        steal: false,
        without_cache: false,
        lease: Duration::from_secs(20),
        destage: Destage::Auto,
        quiesce_attempts: 4,
        remember: &mut |record| {
            meanwhile(record)?;
            sb.core_record = serde_json::to_string(record).expect("text");
            sb.store(&mut dev).map_err(|e| e.to_string())
        },
    })
}

/// A stock client takes the lock, writes, and lets the lock go.
fn visit(image: &Image) {
    let bench = ["bench", "--io-type", "write", "--io-size", "4K", "--io-total", "4K", "--io-threads", "1"];
    image.cluster.rbd(&[&bench[..], &[&image.spec]].concat());
    assert_eq!(image.lock(), None);
}

/// The body of the process that dies in the gap: as a start of the service for this cache, up to there.
#[test]
#[ignore = "run by the other test here, in a process of its own"]
fn dies_in_the_gap() {
    let Ok(named) = std::env::var(VICTIM) else { return };
    let (place, named) = named.split_once(' ').expect("where to die");
    let (core, cache) = named.split_once(' ').expect("core and cache");
    leave_out(match place {
        "noting" => &[Step::Noting],
        "taking" => &[Step::Taking],
        _ => &[],
    });
    let note = |record: &LockRecord| match record.free_at {
        Some(_) if place == "failing" => Err("left out: the note".to_owned()),
        _ => Ok(()),
    };
    let why = take_for(core, Path::new(cache), true, note).expect_err("it must not come so far").to_string();
    assert!(why.contains("left out"), "{why}");
    // As SIGKILL: nothing of it says goodbye to the cluster.
    std::process::abort();
}

/// Has a start of the service die in the gap, before it has noted that there is no lock, or after.
fn die(site: &Site<'_>, place: &str) {
    let core = site.core();
    let image = core.strip_prefix("rbd:").expect("an image");
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--ignored", "--exact", "gap::dies_in_the_gap", "--test-threads", "1"]);
    command.env(VICTIM, format!("{place} {image} {}", site.dir.join("cache").display()));
    let out = command.stdin(Stdio::null()).output().expect("it runs");
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success() && !said.contains("panicked"), "{}: {said}", out.status);
}

#[test]
fn a_start_that_died_between_two_locks_goes_on_if_undisturbed() {
    let Some((cluster, _shared)) = shared("a crash without any lock") else { return };
    let all = [
        ("gap-alone", 0, false),
        ("gap-visited", 2, true),
        ("gap-noted", 1, false),
        ("gap-visited-at-once", 3, true),
    ];
    for (name, skipped, somebody) in all.into_iter().take(if is_long() { 4 } else { 2 }) {
        let image = Image::new(cluster, name);
        let site = image.site("a");
        let shadow = fresh();
        let server = site.serve(&[]);
        let writer = Writer::start(&site.socket(), &shadow, 1, SIZE as usize / BLOCK);
        writer.goes_on(2000);
        server.kill().expect("it ran");
        assert_eq!(writer.ended(), End::Broken);
        // Dying there again changes nothing.
        for place in ["noting", "taking", "taking"].iter().skip(skipped) {
            die(&site, place);
            assert_eq!(image.lock(), None, "the lock was not broken, or was taken");
        }
        if skipped == 3 {
            die(&site, "noting");
        }
        if somebody {
            visit(&image);
            let words = site.refused(&site.core(), &[]);
            assert!(words.contains("somebody else had image") && words.contains("nobody's now"), "{words}");
            continue;
        }
        let server = site.serve(&[]);
        let versions = look(&shadow).holds(&read_all(&site.socket())).unwrap_or_else(|e| panic!("{e}"));
        look(&shadow).settle(versions);
        site.flush();
        server.stop().expect("a clean stop");
        image.is_whole_and_free(&look(&shadow));
    }
}

#[test]
fn a_note_that_fails_after_the_break_costs_no_force() {
    let Some((cluster, _shared)) = shared("a note that fails without any lock") else { return };
    let image = Image::new(cluster, "gap-failed");
    let site = image.site("a");
    let shadow = fresh();
    let server = site.serve(&[]);
    let writer = Writer::start(&site.socket(), &shadow, 1, SIZE as usize / BLOCK);
    writer.goes_on(500);
    server.kill().expect("it ran");
    assert_eq!(writer.ended(), End::Broken);
    die(&site, "failing");
    assert_eq!(image.lock(), None, "the lock was not broken, or was taken");
    let server = site.serve(&[]);
    let versions = look(&shadow).holds(&read_all(&site.socket())).unwrap_or_else(|e| panic!("{e}"));
    look(&shadow).settle(versions);
    site.flush();
    server.stop().expect("a clean stop");
    image.is_whole_and_free(&look(&shadow));
}

/// A cache of a host that has written to the image.
fn written(site: &Site<'_>) -> (Server, Writer) {
    let shadow = fresh();
    let server = site.serve(&[]);
    let writer = Writer::start(&site.socket(), &shadow, 1, SIZE as usize / BLOCK);
    writer.goes_on(500);
    (server, writer)
}

/// Writes down in the cache what an end of its hold has said.
fn note_left_at(site: &Site<'_>, left_at: Option<u64>) {
    let file = DeviceFile::open(site.dir.join("cache"), &OpenOptions::default()).expect("the cache");
    let mut dev = SyncFile::new(file);
    let mut sb = Superblock::load(&mut dev).expect("a cache");
    let record: LockRecord = serde_json::from_str(&sb.core_record).expect("a record");
    sb.core_record = serde_json::to_string(&LockRecord { left_at, ..record }).expect("text");
    sb.store(&mut dev).expect("it is written");
}

#[test]
fn whoever_comes_and_goes_while_nobody_has_the_lock_is_noticed() {
    let Some((cluster, _shared)) = shared("a visit between two locks") else { return };
    let _whole = LeftOut::nothing();
    let (dirty, clean) = (Image::new(cluster, "passed-dirty"), Image::new(cluster, "passed-clean"));
    let taken = |site: &Site<'_>, dirty: bool| {
        let core = site.core();
        take_for(core.strip_prefix("rbd:").expect("an image"), &site.dir.join("cache"), dirty, |_| Ok(()))
    };
    let comes = |image: &Image| {
        let image = Image::existing(cluster, &image.spec);
        bug::visit(move || visit(&image));
    };
    let site = clean.site("a");
    let (server, writer) = written(&site);
    assert_eq!(writer.stop(), End::Done);
    site.flush();
    server.stop().expect("a clean stop");
    let quiet = taken(&site, false).expect("nobody came");
    assert!(!quiet.changed, "nobody came");
    // After it was let go.
    comes(&clean);
    let left_at = quiet.image.detach(true).expect("an end");
    assert!(left_at.is_some(), "without it the next start knows of nothing");
    note_left_at(&site, left_at);
    let visited = taken(&site, false).expect("it is ours all the same");
    assert!(visited.changed, "somebody wrote right after the end");
    note_left_at(&site, visited.image.detach(true).expect("an end"));
    // Before it is taken.
    comes(&clean);
    let visited = taken(&site, false).expect("it is ours all the same");
    assert!(visited.changed, "somebody wrote right before the start");
    visited.image.detach(true).expect("an end");
    let site = dirty.site("a");
    let (server, writer) = written(&site);
    server.kill().expect("it ran");
    assert_eq!(writer.ended(), End::Broken);
    comes(&dirty);
    let why = taken(&site, true).expect_err("somebody had it").to_string();
    assert!(why.contains("while this cache was about to take it"), "{why}");
}

#[test]
fn a_client_between_the_look_at_an_image_and_its_lock_is_seen() {
    let Some((cluster, _shared)) = shared("a visit before the lock") else { return };
    let _whole = LeftOut::nothing();
    let (dirty, clean) = (Image::new(cluster, "visited-dirty"), Image::new(cluster, "visited-clean"));
    let taken = |image: &Image, site: &Site<'_>, dirty: bool, visits: bool| {
        let core = site.core();
        let mut first = true;
        take_for(core.strip_prefix("rbd:").expect("an image"), &site.dir.join("cache"), dirty, |_| {
            if visits && std::mem::take(&mut first) {
                visit(image);
            }
            Ok(())
        })
    };
    // What is clean may be old afterwards; without a visit it is not.
    let site = clean.site("a");
    let (server, writer) = written(&site);
    assert_eq!(writer.stop(), End::Done);
    site.flush();
    server.stop().expect("a clean stop");
    let quiet = taken(&clean, &site, false, false).expect("nobody came");
    assert!(!quiet.changed);
    let left_at = quiet.image.detach(true).expect("an end");
    assert!(left_at.is_some(), "without it the next start knows of nothing");
    note_left_at(&site, left_at);
    let visited = taken(&clean, &site, false, true).expect("it is ours all the same");
    assert!(visited.changed, "what is clean would be believed");
    visited.image.detach(true).expect("an end");
    // What is dirty is not written over what came meanwhile.
    let site = dirty.site("a");
    let (server, writer) = written(&site);
    server.kill().expect("it ran");
    assert_eq!(writer.ended(), End::Broken);
    die(&site, "taking");
    let why = taken(&dirty, &site, true, true).expect_err("somebody had it").to_string();
    assert!(why.contains("while this cache was about to take it"), "{why}");
    let words = site.refused(&site.core(), &[]);
    assert!(words.contains("somebody else had image"), "{words}");
}
