//! An OSD on a modelled disk whose database and log lie on devices of their own.

use crate::site::{BACK, DATA, Site, without};
use loligo_tests::loops::Loop;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bytes of the database and of the log: not the same, so that neither is taken for the other.
const DB: u64 = 768 << 20;
const LOG: u64 = 512 << 20;
/// Bytes that 'remove --zap' writes over.
const ZAPPED: usize = 10 << 20;

/// The OSD's own word on where its database and log lie.
fn lie_apart(site: &Site) {
    let told = site.json(&["osd", "metadata", &site.id.to_string()]);
    let text = |key: &str| told[key].as_str().unwrap_or_default().to_owned();
    assert_eq!(["bluefs_dedicated_db", "bluefs_dedicated_wal"].map(text), ["1", "1"], "{told}");
    assert_eq!(["bluefs_db_size", "bluefs_wal_size"].map(text), [DB, LOG].map(|n| n.to_string()), "{told}");
}

/// The targets of the links in the OSD's folder.
fn links(site: &Site) -> [PathBuf; 3] {
    ["block", "block.db", "block.wal"]
        .map(|name| fs::canonicalize(site.osd_dir().join(name)).expect("a link"))
}

fn head(of: &Loop) -> Vec<u8> {
    let mut raw = vec![0; ZAPPED];
    fs::File::open(of.path()).and_then(|f| f.read_exact_at(&mut raw, 0)).expect("it can be read");
    raw
}

#[test]
fn a_database_and_a_log_apart_are_found_again_and_go_with_it() {
    let Some(site) = Site::new("an OSD with its database and log apart") else { return };
    let (disk, cache) = (site.path("disk"), site.path("cache"));
    fs::File::create(&disk).and_then(|f| f.set_len(DATA)).expect("a disk");
    let [db, log] = [("db", DB), ("wal", LOG)].map(|(name, size)| site.device(name, size));
    let [db_path, log_path] = [&db, &log].map(|device| device.path().display().to_string());
    let more = ["--cache-size", "64m", "--db", &db_path, "--wal", &log_path];
    let data = format!("hdd:{}?rpm=7200", disk.display());
    // Nobody says of what class it is: a disk that turns does.
    site.ok(&without("--class", site.prepare(Path::new(&data), &cache, &more)));
    let (id, device) = (site.id.to_string(), Path::new("/dev/loligo").join(format!("osd{}", site.id)));
    let class = site.ceph(&["osd", "crush", "get-device-class", &format!("osd.{id}")]);
    assert_eq!(class.trim(), "hdd");
    lie_apart(&site);
    let expected = [&device, db.path(), log.path()].map(|path| fs::canonicalize(path).expect("a device"));
    assert_eq!(links(&site), expected);

    let before = site.up_from();
    site.end(libc::SIGTERM);
    fs::remove_dir_all(site.osd_dir()).expect("it is there");
    site.ok(&["osd", "activate", &id]);
    site.until("it is back", BACK, || site.up_from().is_some_and(|now| Some(now) != before));
    lie_apart(&site);
    assert_eq!(links(&site), expected);

    for aside in [&db, &log] {
        assert!(head(aside).starts_with(b"bluestore block device"), "{}", aside.path().display());
    }
    site.ok(&["osd", "remove", &id, "--wait", "--zap"]);
    for aside in [&db, &log] {
        assert!(head(aside).iter().all(|b| *b == 0), "something is left on {}", aside.path().display());
    }
    assert!(site.mapped().is_none() && !site.osd_dir().exists() && !cache.exists());
}
