//! An OSD that was there before its cache: adopted, killed, released, and what is left then.

use crate::life::{fsck, raw_disk_shows_nothing, scrub};
use crate::site::{BACK, DATA, Site};
use loligo_ceph::release::Release;
use loligo_sim::rng::Rng;
use loligo_tests::skip::is_long;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Objects that are written and read.
const OBJECTS: u32 = 3;

/// An OSD of class `cached` on `data` as Ceph's own tools make one, running.
fn plain_osd(site: &Site, data: &Path) {
    let (dir, id) = (site.osd_dir(), site.id.to_string());
    fs::create_dir(&dir).expect("a folder");
    std::os::unix::fs::symlink(data, dir.join("block")).expect("a link");
    let say = |program: &str, args: &[&str]| {
        let mut command = Command::new(program);
        command.args(args).env_remove("CEPH_ARGS").current_dir("/");
        let out = command.output().expect("it runs");
        assert!(out.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).expect("text").trim().to_owned()
    };
    let key = say("ceph-authtool", &["--gen-print-key"]);
    let uuid = fs::read_to_string("/proc/sys/kernel/random/uuid").expect("an id").trim().to_owned();
    let at = |name: &str| dir.join(name).display().to_string();
    fs::write(at("keyring"), format!("[osd.{id}]\n\tkey = {key}\n")).expect("written");
    fs::write(at("key"), &key).expect("written");
    let secrets = format!("{{\"cephx_secret\": \"{key}\", \"crush_device_class\": \"cached\"}}");
    fs::write(at("secrets"), secrets).expect("written");
    site.ceph(&["osd", "new", &uuid, &id, "-i", &at("secrets")]);
    site.ceph(&["mon", "getmap", "-o", &at("monmap")]);
    let (conf, osd_dir) = (site.conf(), dir.display().to_string());
    let osd = ["-i", &id, "--conf", &conf, "--osd-data", &osd_dir];
    let mut mkfs = vec!["--mkfs", "--osd-objectstore", "bluestore", "--osd-uuid", &uuid, "--no-mon-config"];
    // Since 19 a store has further copies of its label, with which it is not adopted.
    if Release::loaded().is_ok_and(|r| r.0 >= 19) {
        mkfs.push("--bluestore_bdev_label_multi=false");
    }
    let (monmap, keyfile) = (at("monmap"), at("key"));
    let with = ["--monmap", &monmap, "--keyfile", &keyfile];
    say("ceph-osd", &[&osd[..], &mkfs[..], &with[..]].concat());
    say("ceph-osd", &[&osd[..], &["--keyring", &at("keyring")]].concat());
    site.until("the OSD is up", BACK, || site.up_from().is_some());
}

fn adopt_words(site: &Site, cache: &Path, more: &[&str]) -> Vec<String> {
    let (id, conf, dir) = (site.id.to_string(), site.conf(), site.osd_dir().display().to_string());
    let cache = cache.display().to_string();
    let words = ["osd", "adopt", &id, "--cache", &cache, "--conf", &conf, "--osd-dir", &dir];
    words.iter().chain(more).map(|w| (*w).to_owned()).collect()
}

fn adopt(site: &Site, cache: &Path, more: &[&str]) -> String {
    let words = adopt_words(site, cache, more);
    let out = site.loligo(&words);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "{said}");
    said
}

fn refused(site: &Site, cache: &Path, more: &[&str], says: &str) {
    let words = adopt_words(site, cache, more);
    let said = site.refused(&words);
    assert!(said.contains(says), "{says}: {said}");
}

/// The content of object `n` after `round`.
fn content(n: u32, round: u32) -> Vec<u8> {
    let mut rng = Rng::new(u64::from(n) << 32 | u64::from(round));
    (0..1_000_000).map(|_| rng.below(256) as u8).collect()
}

fn rados(site: &Site, args: &[&str]) {
    let ran = Command::new("rados").args(["--conf", &site.conf(), "-p", "both"]).args(args).output();
    let ran = ran.expect("rados runs");
    assert!(ran.status.success(), "rados {args:?}: {}", String::from_utf8_lossy(&ran.stderr));
}

fn put(site: &Site, round: u32) {
    let from = site.path("object");
    for n in 0..OBJECTS {
        fs::write(&from, content(n, round)).expect("written");
        rados(site, &["put", &format!("o{n}"), &from.display().to_string()]);
    }
}

fn same(site: &Site, round: u32) {
    let to = site.path("object");
    for n in 0..OBJECTS {
        rados(site, &["get", &format!("o{n}"), &to.display().to_string()]);
        assert!(fs::read(&to).expect("read") == content(n, round), "object {n} of round {round} is another");
    }
}

/// The options that are set for the OSD, but for that which it sets itself: how fast its disk was at its first start (18.2 and later).
fn options_of(site: &Site) -> Vec<String> {
    let (dump, who) = (site.json(&["config", "dump"]), format!("osd.{}", site.id));
    let own = dump.as_array().expect("a list").iter().filter(|o| o["section"] == *who);
    own.filter_map(|o| o["name"].as_str())
        .filter(|name| !name.starts_with("osd_mclock_max_capacity_iops_"))
        .map(str::to_owned)
        .collect()
}

fn first_block(of: &Path) -> Vec<u8> {
    let mut raw = vec![0; 4096];
    fs::File::open(of).and_then(|f| f.read_exact_at(&mut raw, 0)).expect("it can be read");
    raw
}

/// Runs a command and kills it, or the daemon, after a while.
fn cut_off(site: &mut Site, words: &[String], after: Duration, daemon: bool) {
    let mut child = site.command(words).stderr(Stdio::null()).stdout(Stdio::null()).spawn().expect("it runs");
    std::thread::sleep(after);
    if daemon {
        site.crash();
    } else {
        // It may have ended.
        let _ = child.kill();
    }
    child.wait().expect("it ended");
    if daemon {
        site.start();
    }
}

/// Placement groups look for each other for a while after an OSD has come.
fn may_stop(site: &Site) {
    let id = site.id.to_string();
    site.until("it may stop", BACK, || site.try_ceph(&["osd", "ok-to-stop", &id]).status.success());
}

/// Has a pool of whose objects there is one copy, some of them on the OSD, while it calls `then`.
fn while_it_is_needed(site: &Site, then: impl FnOnce()) {
    let id = site.id.to_string();
    site.ceph_all(&[
        "osd pool create one 16 16 replicated",
        "osd pool set one size 1 --yes-i-really-mean-it",
    ]);
    site.until("it is needed", BACK, || !site.try_ceph(&["osd", "ok-to-stop", &id]).status.success());
    then();
    site.ceph(&["osd", "pool", "rm", "one", "one", "--yes-i-really-really-mean-it"]);
}

/// A release obeys the cluster, and leaves everything as it was: the OSD is the same process on the same volume.
fn not_released_while_it_is_needed(site: &Site, device: &Path) {
    let (came, ran) = (site.up_from(), site.pid());
    while_it_is_needed(site, || {
        let said = site.refused(&["osd", "release", &site.id.to_string()]);
        assert!(said.contains("may not stop now"), "{said}");
    });
    assert!(site.up_from() == came && site.pid() == ran && runs_on(site, device), "it was stopped");
    assert_eq!(site.listed()["volume_state"], "serving");
}

/// Runs the command again, until it is through, or says that it was `done`.
fn again(site: &Site, words: &[String], what: &str, done: &str) {
    site.until(what, BACK, || {
        let out = site.loligo(words);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        let through = out.status.success() || said.contains(done);
        assert!(through || said.contains("may not stop now"), "{what}: {said}");
        through
    });
}

/// Begins to adopt, has that (or the daemon) killed at a random moment, and goes on by the same command.
fn adopt_cut_off(site: &mut Site, data: &Path, head: &[u8], words: &[String], rng: &mut Rng, daemon: bool) {
    let after = Duration::from_millis(rng.below(3500));
    let what =
        format!("{} killed {after:?} after adopt began", if daemon { "the daemon" } else { "the command" });
    println!("{what}");
    cut_off(site, words, after, daemon);
    let raw = first_block(data);
    assert!(raw == head || raw[8..].starts_with(b"LOLIGOVL"), "{what}: neither the OSD's nor ours");
    again(site, words, &what, "adopted already");
    raw_shows_the_label(data);
    site.until("the OSD is up", BACK, || site.up_from().is_some());
}

/// The same of a release.
fn release_cut_off(site: &mut Site, data: &Path, head: &[u8], rng: &mut Rng, daemon: bool) {
    let words: Vec<String> =
        ["osd", "release", &site.id.to_string()].iter().map(|w| (*w).to_owned()).collect();
    let after = Duration::from_millis(rng.below(3500));
    let what =
        format!("{} killed {after:?} after release began", if daemon { "the daemon" } else { "the command" });
    println!("{what}");
    may_stop(site);
    cut_off(site, &words, after, daemon);
    let raw = first_block(data);
    assert!(raw == head || raw[8..].starts_with(b"LOLIGOVL"), "{what}: neither the OSD's nor ours");
    again(site, &words, &what, "stands on no volume");
    assert_eq!(first_block(data), head, "{what}");
    site.until("the OSD is up", BACK, || site.up_from().is_some());
}

fn runs_on(site: &Site, device: &Path) -> bool {
    let Some(pid) = site.pid() else { return false };
    let open = fs::read_dir(format!("/proc/{pid}/fd")).expect("its files");
    let device = fs::canonicalize(device).expect("it is there");
    open.flatten().filter_map(|f| fs::read_link(f.path()).ok()).any(|to| to == device)
}

/// The OSD is as it was before anybody adopted it.
fn as_before(site: &Site, data: &Path, head: &[u8]) {
    let link = fs::read_link(site.osd_dir().join("block")).expect("a link");
    assert_eq!(link, PathBuf::from(data));
    assert_eq!(first_block(data), head, "its first block");
    assert!(runs_on(site, data), "it runs on something else");
    assert_eq!(site.ok(&["volume", "list", "--json"]).trim(), "[]");
    assert_eq!(site.ok(&["osd", "list", "--json"]).trim(), "[]");
    let probed = site.ok(&["probe", &data.display().to_string()]);
    assert!(probed.contains("Ceph BlueStore"), "{probed}");
    let left: Vec<_> =
        fs::read_dir(site.osd_dir()).expect("its folder").flatten().map(|e| e.file_name()).collect();
    let ours = |n: &&std::ffi::OsString| {
        let name = n.to_string_lossy().into_owned();
        name.starts_with("loligo") && name != "loligo-lock"
    };
    assert_eq!(left.iter().find(ours), None);
}

#[test]
fn an_osd_with_data_is_adopted_and_released_as_it_was() {
    let begun = Instant::now();
    let past = |what: &str| println!("{what} after {:.1} s", begun.elapsed().as_secs_f64());
    let Some(mut site) = Site::new("adopting an OSD") else { return };
    past("a cluster");
    let (data, cache) = (site.device("data", DATA), site.path("cache"));
    plain_osd(&site, data.path());
    past("an OSD");
    let (id, data) = (site.id.to_string(), data.path().to_owned());
    site.ceph_all(&[
        "osd crush rule create-replicated both default osd",
        "osd pool create both 4 4 replicated both",
        "osd pool set both size 2",
        "osd pool set both min_size 1",
    ]);
    put(&site, 0);
    past("objects");
    let (head, came) = (first_block(&data), site.up_from());
    assert!(head.starts_with(b"bluestore block device"));

    // What cannot be changes nothing.
    let sized = ["--cache-size", "128m"];
    while_it_is_needed(&site, || refused(&site, &cache, &sized, "may not stop now"));
    refused(&site, &data, &[], "are the same device");
    refused(&site, &cache, &[], "give --cache-size");
    let elsewhere = ["osd", "adopt", &id, "--cache", "/none", "--cache-size", "64m", "--conf", &site.conf()];
    assert!(site.refused(&elsewhere).contains("is not on this host"));
    assert!(site.refused(&["osd", "release", &id]).contains("stands on no volume"));
    assert!(site.up_from() == came && first_block(&data) == head && !cache.exists());

    may_stop(&site);
    past("refusals");
    adopt(&site, &cache, &sized);
    past("adopted");
    let device = Path::new("/dev/loligo").join(format!("osd{id}"));
    assert!(runs_on(&site, &device), "it runs on something else");
    raw_disk_shows_nothing(&data, &device);
    let row = site.listed();
    assert!(row["adopted"] == true && row["state"] == "up" && row["mode"] == "wb", "{row}");
    let class = site.ceph(&["osd", "crush", "get-device-class", &format!("osd.{id}")]);
    assert_eq!(class.trim(), "cached", "its class was changed");
    assert_eq!(options_of(&site), Vec::<String>::new(), "its options were changed");
    let probed = site.ok(&["probe", &data.display().to_string()]);
    assert!(probed.contains("content from byte 0 on"), "{probed}");
    refused(&site, &cache, &sized, "adopted already");
    same(&site, 0);
    not_released_while_it_is_needed(&site, &device);
    past("not released");

    forgotten(&mut site, &data, &cache);
    // Bare, or as somebody else's core, it is not to be had.
    let taken = site.refused(&[
        "osd",
        "prepare",
        "--data",
        &data.display().to_string(),
        "--cache",
        "/none",
        "--conf",
        &site.conf(),
    ]);
    assert!(taken.contains("in use"), "{taken}");

    past("killed");

    let mut rng = Rng::new(std::process::id().into());
    release_cut_off(&mut site, &data, &head, &mut rng, false);
    past("released");
    as_before(&site, &data, &head);
    assert!(!cache.exists());
    same(&site, 1);
    let long = is_long();
    let words = adopt_words(&site, &cache, &sized);
    if long {
        its_own_osd_keeps_it(&site, &data, &head);
    }
    for round in 0..if long { 20 } else { 0 } {
        adopt_cut_off(&mut site, &data, &head, &words, &mut rng, round % 2 == 0);
        release_cut_off(&mut site, &data, &head, &mut rng, round % 4 > 1);
        as_before(&site, &data, &head);
    }

    taken_back(&site, &cache);
    as_before(&site, &data, &head);
    assert!(!cache.exists());

    // A cache that writes through dies: the disk has everything, its first block too.
    let words = adopt_words(&site, &cache, &["--cache-size", "64m", "--mode", "wt"]);
    may_stop(&site);
    adopt_cut_off(&mut site, &data, &head, &words, &mut rng, true);
    past("adopted again");
    put(&site, 2);
    site.crash();
    fs::remove_file(&cache).expect("it was there");
    site.start();
    let said = site.refused(&["osd", "release", &id]);
    assert!(said.contains("--without-cache"), "{said}");
    site.ok(&["osd", "release", &id, "--without-cache"]);
    as_before(&site, &data, &head);
    same(&site, 2);
    past("a lost cache");
    if long {
        scrub(&site);
    }
    site.end(libc::SIGTERM);
    fsck(&site);
    past("all");
}

/// The daemon dies with the OSD's data in the cache, and what it remembered is lost too.
fn forgotten(site: &mut Site, data: &Path, cache: &Path) {
    put(site, 1);
    let before = site.up_from();
    site.crash();
    raw_shows_the_label(data);
    fs::remove_dir_all(site.path("state")).expect("it was there");
    site.start();
    assert_eq!(site.ok(&["volume", "list", "--json"]).trim(), "[]");
    // 'block' leads to the volume, so that nobody can tell from that where the data are.
    refused(site, cache, &[], "Give its own device with --data");
    let own = data.display().to_string();
    let other = site.path("other");
    refused(site, &other, &["--cache-size", "64m", "--data", &own], "--force does not give that up");
    let stranger = site.other_store().display().to_string();
    refused(site, cache, &["--data", &stranger], "is not the store of osd.");
    raw_shows_the_label(data);
    assert!(!other.exists());
    adopt(site, cache, &["--data", &own]);
    site.until("the OSD is back", BACK, || site.up_from().is_some_and(|now| Some(now) != before));
    same(site, 1);
}

/// On a device that its OSD runs on nothing is put, and nothing waits for ever.
fn its_own_osd_keeps_it(site: &Site, data: &Path, head: &[u8]) {
    let (core, other) = (data.display().to_string(), site.path("other").display().to_string());
    let listen = format!("unix:{}", site.path("run/other.nbd").display());
    let words = ["serve", "--name", "other", "--core", &core, "--cache", &other, "--cache-size", "24m"];
    let more = ["--mode", "wb", "--data-offset", "0", "--listen", &listen];
    let said = site.refused(&[&words[..], &more[..]].concat());
    assert!(said.contains("in use by") && said.contains("ceph-osd"), "{said}");
    assert_eq!(first_block(data), head);
}

/// Ctrl-C once the volume is made: the OSD comes back on its own device, and nothing else is left.
fn taken_back(site: &Site, cache: &Path) {
    may_stop(site);
    let words = adopt_words(site, cache, &["--cache-size", "64m"]);
    let mut child = site.command(&words).stderr(Stdio::piped()).spawn().expect("it runs");
    let mut lines = BufReader::new(child.stderr.take().expect("piped"));
    let (mut said, mut line) = (String::new(), String::new());
    while !line.contains("making volume") {
        line.clear();
        assert_ne!(lines.read_line(&mut line).expect("text"), 0, "it ended before: {said}");
        said += &line;
    }
    // SAFETY: the child is ours and not yet waited for.
    unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGINT) };
    lines.read_to_string(&mut said).expect("text");
    assert_eq!(child.wait().expect("it ended").code(), Some(130), "{said}");
    assert!(said.contains("taking back") && !said.contains("not taken back"), "{said}");
    site.until("the OSD is up", BACK, || site.up_from().is_some());
}

fn raw_shows_the_label(data: &Path) {
    assert!(first_block(data)[8..].starts_with(b"LOLIGOVL"));
}
