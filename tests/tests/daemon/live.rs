//! Changes under clients that stay: a cache that comes or goes, a size.

use crate::site::{CORE, Site};
use loligo_sim::rng::Rng;
use loligo_tests::blockdev::impossible;
use loligo_tests::history::{Crash, History};
use loligo_tests::load::{End, Load, Mix};
use serde_json::Value;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

impl Site {
    /// The section of a volume without a cache.
    fn bare(&self, volume: &str) -> String {
        let dir = self.dir.path().display();
        format!("[volume.{volume}]\ncore = \"{dir}/{volume}.core\"\nlisten = [\"unix:{dir}/{volume}.nbd\"]\n")
    }

    /// With one bare volume, `a`.
    fn one_bare() -> Site {
        let site = Site::new(&[]);
        site.core("a");
        site.configure(&site.bare("a"));
        site
    }

    fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn attach(&self, volume: &str, cache: &str, more: &[&str]) -> Vec<String> {
        let path = self.text(cache);
        let args = ["volume", "attach", volume, "--cache", &path, "--cache-size", "24m", "--sparse"];
        [&args[..], more].concat().into_iter().map(str::to_owned).collect()
    }

    fn does(&self, args: &[String]) -> String {
        self.ok(args)
    }

    fn refuses(&self, args: &[String]) -> String {
        self.refused(args)
    }

    fn cached(&self, volume: &str) -> bool {
        let shown = self.show(volume);
        let info = shown["definition"]["cache"].is_string();
        assert_eq!(info, self.stats(volume)["mode"] != "bare", "what is shown is what is served: {shown}");
        info
    }

    pub fn stats(&self, volume: &str) -> Value {
        serde_json::from_str(&self.ok(&["stats", volume, "--json"])).expect("JSON")
    }
}

/// Runs `meanwhile` beside a verifying load on `connections` to `volume`, none of whose requests may fail.
pub fn under_load(site: &Site, volume: &str, history: &mut History, meanwhile: impl FnOnce()) {
    /// Ends the load, also where the test has failed.
    struct Over<'a>(&'a AtomicBool);
    impl Drop for Over<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let stop = AtomicBool::new(false);
    let mut load = Load::connect(&site.path(&format!("{volume}.nbd")), volume, 3).expect("connections");
    std::thread::scope(|s| {
        let running = s.spawn(|| {
            let end = load.run(history, &mut Rng::new(7), &Mix::default(), || stop.load(Ordering::Relaxed));
            assert_eq!(end.expect("right data"), End::Done, "no request fails, no connection ends");
            assert_eq!(load.verify(history, None).expect("right data"), End::Done);
            load.answered
        });
        let over = Over(&stop);
        meanwhile();
        drop(over);
        let answered = running.join().expect("the load");
        assert!(answered > 100, "{answered} requests were answered");
    });
}

#[test]
fn a_cache_comes_and_goes_under_clients_who_notice_nothing() {
    let site = Site::one_bare();
    let daemon = site.daemon();
    let mut history = History::new(CORE);
    under_load(&site, "a", &mut history, || {
        for mode in ["wb", "wt", "wo"] {
            assert!(!site.cached("a"));
            let said = site.does(&site.attach("a", "c", &["--mode", mode, "--param", "destage-low=70"]));
            assert!(said.contains("attached") && said.contains("requests were held for"), "{said}");
            println!("{}", said.trim());
            assert!(site.cached("a"));
            assert_eq!(site.stats("a")["mode"], mode);
            assert_eq!(site.ok(&["param", "get", "a", "destage-low"]).trim(), "70");
            site.ok(&["mode", "a", "wb"]);
            std::thread::sleep(std::time::Duration::from_millis(300));
            assert!(site.stats("a")["write_hits"].as_u64() > Some(0), "it is used");
            let said = site.ok(&["volume", "detach", "a"]);
            println!("{}", said.trim());
            assert!(said.contains("detached") && said.contains("held for"), "{said}");
        }
    });
    daemon.stop().expect("a clean stop");
    // The core has everything, and the cache is none any more.
    assert!(site.refused(&["release", &site.text("c")]).contains("no Loligo cache"));
    let daemon = site.daemon();
    assert!(!site.cached("a"));
    site.verified("a", &mut history, None);
    daemon.stop().expect("a clean stop");
}

#[test]
fn an_attach_or_detach_holds_after_a_kill_with_all_dirty_data() {
    let site = Site::one_bare();
    let daemon = site.daemon();
    let mut history = History::new(CORE);
    site.load("a").write(&mut history, 4096..6144, false).expect("written");
    site.does(&site.attach("a", "c", &["--mode", "wb", "--param", "destage-rate=1"]));
    site.load("a").write(&mut history, 0..2048, false).expect("written");
    daemon.kill().expect("it lived");
    let daemon = site.daemon();
    assert!(site.cached("a"), "the dirty cache is not left out");
    site.verified("a", &mut history, Some(Crash::Killed));
    assert_eq!(site.ok(&["param", "get", "a", "destage-rate"]).trim(), "1");
    // Nor is it when it is not there.
    daemon.kill().expect("it lived");
    std::fs::rename(site.path("c"), site.path("away")).expect("moved");
    let daemon = site.daemon();
    assert!(site.wait_for("a", "waiting").contains("is not there"));
    std::fs::rename(site.path("away"), site.path("c")).expect("moved");
    site.wait_for("a", "serving");

    site.ok(&["volume", "detach", "a"]);
    site.load("a").write(&mut history, 0..64, false).expect("written");
    daemon.kill().expect("it lived");
    let daemon = site.daemon();
    assert!(!site.cached("a"));
    site.verified("a", &mut history, Some(Crash::Killed));

    // Who edits the file means it; the device is a new cache then.
    daemon.stop().expect("a clean stop");
    site.configure(&site.section("a").replace("a.cache", "c"));
    let daemon = site.daemon();
    assert!(site.cached("a"));
    site.verified("a", &mut history, None);
    // A volume of the file that is detached is bare over restarts, whatever else is edited.
    site.ok(&["volume", "detach", "a"]);
    site.configure(&(site.section("a").replace("a.cache", "c") + "autostart = true\n"));
    daemon.stop().expect("a clean stop");
    let daemon = site.daemon();
    assert!(!site.cached("a"));
    site.verified("a", &mut history, None);
    daemon.stop().expect("a clean stop");
}

#[test]
fn a_label_says_through_every_change_whether_a_cache_is_ahead() {
    let site = Site::new(&["a"]);
    site.configure(&(site.section("a") + "data-offset = \"1m\"\n"));
    let daemon = site.daemon();
    let mut history = History::new(CORE - (1 << 20));
    // By itself the core is looked at under another name, while nobody serves it.
    let alone = |said: Option<&str>| {
        std::fs::copy(site.path("a.core"), site.path("copy")).expect("copied");
        let nbd = format!("unix:{}", site.text("x.nbd"));
        let args = ["serve", "--name", "x", "--bare", "--core", &site.text("copy"), "--listen", &nbd];
        let mut child = site.command(&args).stderr(std::process::Stdio::piped()).spawn().expect("it runs");
        if said.is_none() {
            let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
            while !site.path("x.nbd").exists() && std::time::Instant::now() < deadline {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            assert_eq!(site.load("x").size(), CORE - (1 << 20));
            child.kill().expect("it lives");
        }
        let mut words = String::new();
        let mut pipe = child.stderr.take().expect("a pipe");
        std::io::Read::read_to_string(&mut pipe, &mut words).expect("text");
        child.wait().expect("it ends");
        assert!(words.contains(said.unwrap_or_default()), "{words}");
    };
    site.load("a").write(&mut history, 0..64, true).expect("written");
    alone(Some("whatever the core did not have"));
    site.ok(&["volume", "detach", "a"]);
    alone(None);
    site.load("a").write(&mut history, 64..128, false).expect("written");
    daemon.kill().expect("it lived");
    let daemon = site.daemon();
    assert!(!site.cached("a"));
    site.verified("a", &mut history, Some(Crash::Killed));
    site.does(&site.attach("a", "c", &["--mode", "wb", "--param", "destage-rate=1"]));
    site.load("a").write(&mut history, 0..64, true).expect("written");
    alone(Some("whatever the core did not have"));
    daemon.kill().expect("it lived");
    let daemon = site.daemon();
    assert!(site.cached("a"));
    site.verified("a", &mut history, Some(Crash::Killed));
    daemon.stop().expect("a clean stop");
}

#[test]
fn an_attach_that_writes_a_large_file_ends_by_a_stop_cleanly() {
    let site = Site::one_bare();
    let mut history = History::new(CORE);
    let daemon = site.daemon();
    site.load("a").write(&mut history, 0..64, true).expect("written");
    let file = site.path("large");
    let args =
        ["volume", "attach", "a", "--cache", &site.text("large"), "--cache-size", "6g", "--mode", "wb"];
    let mut attach = site.command(&args).stderr(std::process::Stdio::piped()).spawn().expect("it runs");
    let deadline = Instant::now() + Duration::from_secs(20);
    let written = || std::fs::metadata(&file).map_or(0, |m| std::os::unix::fs::MetadataExt::blocks(&m) * 512);
    while written() < 16 << 20 {
        assert!(Instant::now() < deadline, "it does not begin");
        std::thread::sleep(Duration::from_millis(5));
    }
    site.ok(&["volume", "stop", "a"]);
    assert!(written() == 0, "{} bytes are left", written());
    let mut words = String::new();
    std::io::Read::read_to_string(&mut attach.stderr.take().expect("a pipe"), &mut words).expect("text");
    assert!(!attach.wait().expect("it ends").success(), "it was not done: {words}");
    site.ok(&["volume", "start", "a"]);
    assert!(!site.cached("a"));
    assert_eq!(site.load("a").read(&mut history, 0..64).expect("right data"), Some(()));
    daemon.stop().expect("a clean stop");
}

#[test]
fn an_attach_that_cannot_be_remembered_makes_no_cache() {
    let site = Site::one_bare();
    let mut history = History::new(CORE);
    let daemon = site.daemon();
    site.load("a").write(&mut history, 0..64, true).expect("written");
    let (state, kept) = (site.path("state").join("state"), site.path("kept"));
    // A folder cannot be replaced by a file: it fails where nobody can tell whether the file was.
    std::fs::rename(&state, &kept).expect("renamed");
    std::fs::create_dir_all(state.join("in the way")).expect("a folder");
    let why = site.refuses(&site.attach("a", "c", &["--mode", "wb"]));
    assert!(why.contains("nothing is changed") && why.contains("cannot be written"), "{why}");
    assert!(!site.cached("a") && !site.path("c").exists(), "nothing was made");
    std::fs::remove_dir_all(&state).expect("removed");
    std::fs::rename(&kept, &state).expect("renamed");
    site.load("a").write(&mut history, 64..128, true).expect("it is served as before");
    // From now on it can tell again.
    site.does(&site.attach("a", "d", &["--mode", "wb"]));
    daemon.kill().expect("it lived");
    let daemon = site.daemon();
    assert!(site.cached("a"));
    site.verified("a", &mut history, Some(Crash::Killed));
    daemon.stop().expect("a clean stop");
}

#[test]
fn a_core_is_not_served_bare_while_its_cache_may_hold_more() {
    let site = Site::new(&["a"]);
    let daemon = site.daemon();
    site.ok(&["param", "set", "a", "destage-rate", "1"]);
    let mut history = History::new(CORE);
    site.load("a").write(&mut history, 0..2048, true).expect("written");
    daemon.stop().expect("a clean stop");
    site.configure(&site.bare("a"));
    let daemon = site.daemon();
    let why = site.wait_for("a", "refused");
    assert!(why.contains("a.cache") && why.contains("bytes that core") && why.contains("--force"), "{why}");
    daemon.stop().expect("a clean stop");
    site.configure(&site.section("a"));
    let daemon = site.daemon();
    site.verified("a", &mut history, None);
    site.ok(&["volume", "stop", "a", "--flush"]);
    site.configure(&site.bare("a"));
    site.ok(&["config", "reload"]);
    site.ok(&["volume", "start", "a"]);
    assert!(!site.cached("a"), "it holds nothing more");
    daemon.stop().expect("a clean stop");
}

#[test]
fn an_impossible_attach_is_refused_at_once_and_changes_nothing() {
    let site = Site::new(&["b"]);
    site.core("a");
    site.configure(&(site.bare("a") + &site.section("b")));
    let daemon = site.daemon();
    let mut history = History::new(CORE);
    site.load("a").write(&mut history, 0..64, false).expect("written");
    let mode = ["--mode", "wb"];
    let refused = |args: &[String], said: &str| {
        let why = site.refuses(args);
        assert!(why.contains(said), "{args:?}: {why}");
    };
    std::fs::write(site.path("foreign"), vec![7; 32 << 20]).expect("written");
    refused(&site.attach("a", "foreign", &mode), "holds unknown data");
    assert!(std::fs::read(site.path("foreign")).expect("read").iter().all(|b| *b == 7));
    refused(&site.attach("a", "b.cache", &mode), "is volume 'b' already");
    refused(&site.attach("b", "c", &mode), "has a cache");
    refused(&site.attach("x", "c", &mode), "there is no volume");
    refused(&site.attach("a", "a.core", &mode), "the same device");
    let small = site.attach("a", "c", &mode).iter().map(|w| w.replace("24m", "12m")).collect::<Vec<_>>();
    refused(&small, "no cache can be made like that");
    refused(&site.attach("a", "c", &["--mode", "xx"]), "xx");
    refused(&site.attach("a", "c", &["--mode", "wb", "--param", "seq-cutoff=x"]), "seq-cutoff");
    assert!(site.refused(&["volume", "detach", "a"]).contains("served bare"));
    assert!(!site.path("c").exists(), "what a refused attach made goes with it");
    // A cache that another volume has left, dirty or not.
    site.ok(&["param", "set", "b", "destage-rate", "1"]);
    site.load("b").write(&mut History::new(CORE), 0..64, true).expect("written");
    daemon.stop().expect("a clean stop");
    site.configure(&site.bare("a"));
    let daemon = site.daemon();
    let used = site.attach("a", "b.cache", &mode);
    refused(&used, "holds the cache of volume 'b'");
    assert!(!site.cached("a"));
    site.verified("a", &mut history, None);
    site.does(&[used, vec!["--force".to_owned()]].concat());
    assert!(site.cached("a"));
    site.verified("a", &mut history, None);
    daemon.stop().expect("a clean stop");
}

#[test]
fn a_volume_of_several_threads_keeps_them_without_a_cache() {
    let site = Site::new(&["a"]);
    site.configure(&(site.section("a").replace("24m", "64m") + "shards = 2\n"));
    let daemon = site.daemon();
    let mut history = History::new(CORE);
    under_load(&site, "a", &mut history, || {
        for _ in 0..2 {
            site.ok(&["volume", "detach", "a"]);
            assert!(!site.cached("a"));
            let more = ["--mode", "wb"];
            let args: Vec<_> =
                site.attach("a", "a.cache", &more).iter().map(|w| w.replace("24m", "64m")).collect();
            site.does(&args);
            assert!(site.cached("a"));
        }
    });
    assert_eq!(site.ok(&["volume", "show", "a"]).matches("shards").count(), 0, "they follow the threads");
    daemon.stop().expect("a clean stop");
}

#[test]
fn an_interrupted_detach_leaves_the_cache_as_it_was() {
    let site = Site::new(&["a"]);
    let hdd =
        site.section("a").replace("/a.core\"", "/a.core?rpm=7200\"").replace("core = \"", "core = \"hdd:");
    site.configure(&hdd);
    let daemon = site.daemon();
    let mut history = History::new(CORE);
    site.ok(&["param", "set", "a", "destage-rate", "1"]);
    {
        // Far apart, so that the disk needs seconds for them.
        let mut load = site.load("a");
        for n in 0..500 {
            let at = (n * 7919 % 16000) * 8;
            load.write(&mut history, at..at + 8, false).expect("written");
        }
    }
    let mut command = site.command(&["volume", "detach", "a"]);
    let mut child = command.stderr(std::process::Stdio::piped()).spawn().expect("it runs");
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while site.stats("a")["mode"] != "wt" && std::time::Instant::now() < deadline {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let why = site.refused(&["mode", "a", "wo"]);
    // SAFETY: the child is ours and not yet waited for, so the number is still its own.
    unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGINT) };
    let status = child.wait().expect("it ends");
    let mut said = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().expect("a pipe"), &mut said).expect("text");
    assert!(why.contains("being detached"), "{why}");
    assert!(!status.success() && said.contains("given up"), "{status}: {said}");
    assert_eq!(site.stats("a")["mode"], "wb", "as before");
    assert!(site.cached("a"));
    site.verified("a", &mut history, None);
    daemon.stop().expect("a clean stop");
}

#[test]
fn a_core_that_grew_is_followed_by_every_way_to_its_volume() {
    let here = impossible("the size of a block device follows");
    let site = Site::new(&["a"]);
    let name = format!("t{}-size", std::process::id());
    let fuse = site.path("fuse");
    std::fs::create_dir(&fuse).expect("a folder");
    let mut section = site.section("a").replace("24m", "64m") + "shards = 2\n";
    if !here {
        let ways = format!(", \"block:{name}\", \"fuse:{}\"]", fuse.display());
        section = section.replace("nbd\"]", &format!("nbd\"{ways}"));
    }
    site.configure(&section);
    let daemon = site.daemon();
    let mut history = History::new(CORE);
    let larger = CORE + (32 << 20);
    under_load(&site, "a", &mut history, || {
        let said = site.ok(&["volume", "resize", "a"]);
        assert!(said.contains("as large as it was"), "{said}");
        std::fs::File::options()
            .write(true)
            .open(site.path("a.core"))
            .and_then(|f| f.set_len(CORE + (16 << 20)))
            .expect("longer");
        assert!(site.ok(&["volume", "resize", "a"]).contains("grew"));
        let why = site.refused(&["volume", "resize", "a", "--size", "64m"]);
        assert!(why.contains("does not get smaller"), "{why}");
        let said = site.ok(&["volume", "resize", "a", "--size", &larger.to_string()]);
        assert!(said.contains(&format!("to {larger} bytes")) && !said.contains("stays as"), "{said}");
    });
    history.grow(larger);
    let mut load = site.load("a");
    assert_eq!(load.size(), larger, "to a client that comes now");
    let (first, last) = (CORE / 512, larger / 512);
    load.write(&mut history, first - 32..first + 32, false).expect("across the former end");
    load.write(&mut history, last - 64..last, true).expect("at the end");
    assert_eq!(load.verify(&mut history, None).expect("right data"), End::Done);
    if !here {
        assert_eq!(std::fs::metadata(fuse.join("a")).expect("the file").len(), larger);
        let node = std::fs::canonicalize(format!("/dev/loligo/{name}")).expect("the link leads somewhere");
        let size = format!("/sys/block/{}/size", node.file_name().expect("a node").to_string_lossy());
        assert_eq!(std::fs::read_to_string(&size).expect("its size").trim(), last.to_string());
        loligo_tests::direct::verify(&node, &mut history, None).expect("right data");
    }
    drop(load);
    daemon.kill().expect("it lived");
    let daemon = site.daemon();
    let end = site.load("a").verify(&mut history, Some(Crash::Killed)).expect("right data");
    assert_eq!((end, site.show("a")["size"].as_u64()), (End::Done, Some(larger)));
    // Also where nothing is cached.
    site.ok(&["volume", "detach", "a"]);
    site.ok(&["volume", "resize", "a", "--size", &(larger + (1 << 20)).to_string()]);
    history.grow(larger + (1 << 20));
    let end = site.load("a").verify(&mut history, None).expect("right data");
    assert_eq!((end, site.show("a")["size"].as_u64()), (End::Done, Some(larger + (1 << 20))));
    daemon.stop().expect("a clean stop");
}

#[test]
fn a_served_volumes_share_is_resized_and_can_be_detached() {
    let site = Site::new(&[]);
    site.core("a");
    let pool = site.text("pool");
    site.ok(&["cache", "create", &pool, "--size", "256m"]);
    site.ok(&["cache", "attach", &pool, "--core", "1", "--name", "a", "--min", "48m", "--max", "160m"]);
    site.configure(&site.bare("a"));
    let daemon = site.daemon();
    let mut history = History::new(CORE);
    let share = format!("pool:{pool}#1");
    under_load(&site, "a", &mut history, || {
        site.ok(&["volume", "attach", "a", "--cache", &share, "--mode", "wb"]);
        let before = site.stats("a")["cache_bytes"].as_u64().expect("bytes");
        site.ok(&["cache", "resize", &pool, "1", "--size", "128m"]);
        let after = site.stats("a")["cache_bytes"].as_u64().expect("bytes");
        assert!(after > before, "{before} and {after}");
        assert!(site.refused(&["cache", "resize", &pool, "1", "--size", "1m"]).contains("has 50331648 to"));
        site.ok(&["cache", "resize", &pool, "1", "--size", "64m"]);
        assert!(site.stats("a")["cache_bytes"].as_u64() < Some(after));
        site.ok(&["volume", "detach", "a"]);
        site.ok(&["volume", "attach", "a", "--cache", &share, "--mode", "wt"]);
    });
    daemon.kill().expect("it lived");
    let daemon = site.daemon();
    assert!(site.cached("a"));
    site.verified("a", &mut history, Some(Crash::Killed));
    daemon.stop().expect("a clean stop");
}
