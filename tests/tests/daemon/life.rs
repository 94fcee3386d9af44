//! Comings and goings: volumes, devices, the daemon itself.

use crate::site::{CORE, Site};
use loligo_tests::history::{Crash, History};
use loligo_tests::server::{Server, program};
use std::io::BufRead;
use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

/// Writes a whole MiB and reads it back, so that the cache is dirty.
fn write_some(site: &Site, volume: &str) -> History {
    let mut history = History::new(CORE);
    let mut load = site.load(volume);
    load.write(&mut history, 0..2048, true).expect("written");
    history
}

#[test]
fn volumes_survive_kills_and_restarts_with_what_was_set() {
    let site = Site::new(&["a", "b"]);
    site.core("c");
    let daemon = site.daemon();
    let (core, cache, nbd) = (site.path("c.core"), site.path("c.cache"), site.path("c.nbd"));
    let text = |p: &std::path::Path| p.display().to_string();
    let listen = format!("unix:{}", text(&nbd));
    let create =
        ["volume", "create", "c", "--core", &text(&core), "--cache", &text(&cache), "--cache-size", "24m"];
    site.ok(&[&create[..], &["--mode", "wb", "--listen", &listen, "--param", "seq-cutoff=never"]].concat());
    let history = write_some(&site, "c");
    site.ok(&["mode", "a", "wt"]);
    site.ok(&["param", "set", "a", "seq-threshold", "2m"]);
    site.ok(&["volume", "stop", "b"]);
    assert_eq!(site.status("b").0, "stopped");

    let right = |mut history: History, crash| {
        assert_eq!(
            (site.status("a").0, site.status("b").0, site.status("c").0),
            ("serving".into(), "stopped".into(), "serving".into())
        );
        assert_eq!(site.ok(&["param", "get", "a", "seq-threshold"]).trim(), "2097152");
        assert_eq!(site.show("a")["definition"]["mode"], "wt");
        assert_eq!(site.ok(&["param", "get", "c", "seq-cutoff"]).trim(), "never");
        site.verified("c", &mut history, crash);
        history
    };
    daemon.kill().expect("it lived");
    let daemon = site.daemon();
    let history = right(history, Some(Crash::Killed));
    daemon.stop().expect("a clean stop");
    let daemon = site.daemon();
    right(history, None);

    // Who edits the file means it, whatever was set before.
    daemon.stop().expect("a clean stop");
    site.configure(&(site.section("a").replace("\"wb\"", "\"wa\"") + &site.section("b")));
    let daemon = site.daemon();
    assert_eq!(site.show("a")["definition"]["mode"], "wa");
    assert_eq!(
        site.ok(&["stats", "a"]).lines().find(|l| l.starts_with("mode ")).map(|l| l.ends_with("wa")),
        Some(true)
    );
    daemon.stop().expect("a clean stop");
}

#[test]
fn a_missing_core_is_waited_for_and_nobody_waits_with_it() {
    let site = Site::new(&["a", "b"]);
    std::fs::rename(site.path("b.core"), site.path("later")).expect("moved");
    let daemon = site.daemon();
    assert_eq!(site.status("a").0, "serving");
    let why = site.wait_for("b", "waiting");
    assert!(why.contains("b.core") && why.contains("No such file"), "{why}");
    assert!(
        site.refused(&["stats", "b"])
            .contains("volume 'b' is waiting for a device or service, and starts once it is there")
    );
    std::fs::rename(site.path("later"), site.path("b.core")).expect("moved");
    site.wait_for("b", "serving");
    write_some(&site, "b");
    daemon.stop().expect("a clean stop");
}

#[test]
fn without_its_dirty_cache_a_volume_is_refused_naming_the_loss() {
    let site = Site::new(&["a"]);
    let daemon = site.daemon();
    site.ok(&["param", "set", "a", "destage-rate", "1"]);
    let history = write_some(&site, "a");
    daemon.stop().expect("a clean stop");
    std::fs::rename(site.path("a.cache"), site.path("away")).expect("moved");

    let daemon = site.daemon();
    let why = site.wait_for("a", "waiting");
    assert!(why.contains("a.cache is not there") && why.contains("bytes that core"), "{why}");
    assert!(!site.path("a.cache").exists(), "none is made in its place");
    // Another cache in its place is as bad.
    let other = site.path("other");
    std::fs::copy(site.path("a.core"), &other).expect("copied");
    let text = |p: std::path::PathBuf| p.display().to_string();
    let bare = ["serve", "--name", "o", "--core", &text(other), "--cache", &text(site.path("a.cache"))];
    let more =
        ["--cache-size", "24m", "--mode", "wt", "--listen", &format!("unix:{}", text(site.path("o.nbd")))];
    let mut serve = site
        .command(&[&bare[..], &more[..]].concat())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut ready = String::new();
    std::io::BufReader::new(serve.stdout.take().expect("a pipe")).read_line(&mut ready).expect("a line");
    assert_eq!(ready, "ready\n");
    serve.kill().and_then(|()| serve.wait()).expect("killed");
    let why = site.wait_for("a", "refused");
    assert!(why.contains("another cache, of volume 'o'") && why.contains("--force"), "{why}");
    std::fs::rename(site.path("away"), site.path("a.cache")).expect("moved back");
    site.ok(&["volume", "start", "a"]);
    let mut history = history;
    site.verified("a", &mut history, None);
    daemon.stop().expect("a clean stop");

    // After a kill nobody knows how much it was.
    let daemon = site.daemon();
    daemon.kill().expect("it lived");
    std::fs::remove_file(site.path("a.cache")).expect("lost");
    let daemon = site.daemon();
    let why = site.wait_for("a", "waiting");
    assert!(why.contains("whatever core") && why.contains("--create"), "{why}");
    // An order counts.
    site.ok(&["volume", "start", "a", "--create"]);
    assert_eq!(site.status("a").0, "serving");
    daemon.stop().expect("a clean stop");
}

#[test]
fn nobody_else_serves_what_the_daemon_serves() {
    let site = Site::new(&["a"]);
    let daemon = site.daemon();
    let mut second = Server::daemon(site.dir.path(), &site.path("loligod.toml")).expect("it runs");
    let why = second.ready().expect_err("one is enough").to_string();
    assert!(why.contains("another loligod runs"), "{why}");
    let text = |name: &str| site.path(name).display().to_string();
    let serve = |name: &str, core: &str| {
        let listen = format!("unix:{}", text("other.nbd"));
        let args = [
            "serve",
            "--name",
            name,
            "--core",
            &text(core),
            "--cache",
            &text("a.cache"),
            "--mode",
            "wb",
            "--listen",
            &listen,
        ];
        site.refused(&args)
    };
    assert!(serve("a", "a.core").contains("a volume named 'a' is being served"), "by its name");
    site.core("x");
    let why = serve("x", "x.core");
    assert!(why.contains("a.cache") && why.contains(&daemon.id().to_string()), "by its cache: {why}");
    // Another daemon elsewhere, with the same volume.
    let other = Site::new(&[]);
    other.configure(&site.section("a").replace("a.nbd", "a2.nbd"));
    let second = other.daemon();
    let why = other.wait_for("a", "refused");
    assert!(why.contains(&daemon.id().to_string()), "the holder is named: {why}");
    second.stop().expect("a clean stop");
    daemon.stop().expect("a clean stop");
}

#[test]
fn the_file_is_read_again_and_a_wrong_section_takes_nothing() {
    let site = Site::new(&["a", "b"]);
    site.core("c");
    let daemon = site.daemon();
    site.configure("[volume.a]\ncore = 5\n");
    assert!(site.refused(&["config", "reload"]).contains("core"));
    assert_eq!(site.status("b").0, "serving");
    let config = site.path("loligod.toml").display().to_string();
    assert!(site.refused(&["config", "check", "--config", &config]).contains("line 4"));

    let changed = site.section("a").replace("mode = \"wb\"", "mode = \"wt\"");
    site.configure(&(changed + &site.section("c")));
    let said = site.ok(&["config", "reload"]);
    assert!(
        said.contains("a: changed") && said.contains("b: no longer") && said.contains("c: new"),
        "{said}"
    );
    site.wait_for("c", "serving");
    site.wait_gone("b");
    site.ok(&["volume", "restart", "a"]);
    assert!(site.ok(&["stats", "a"]).lines().any(|l| l.starts_with("mode ") && l.ends_with("wt")));
    assert!(site.refused(&["volume", "delete", "a"]).contains("take it out of there"));
    daemon.signal(libc::SIGHUP);
    daemon.stop().expect("a clean stop");
}

#[test]
fn what_is_set_after_a_reload_holds_over_the_next_restart() {
    let site = Site::new(&["a"]);
    let daemon = site.daemon();
    site.configure(&site.section("a").replace("mode = \"wb\"", "mode = \"wt\""));
    site.ok(&["config", "reload"]);
    let modes = || {
        let shown: serde_json::Value =
            serde_json::from_str(&site.ok(&["volume", "show", "a", "--json"])).expect("JSON");
        [&shown["mode"], &shown["definition"]["mode"]].map(|m| m.as_str().unwrap_or("none").to_owned())
    };
    assert_eq!(modes(), ["wb", "wt"], "in force, and from the next start on");
    assert!(site.ok(&["volume", "list"]).contains(" wb "));
    assert!(site.ok(&["volume", "show", "a"]).contains("mode wb is in force"));
    site.ok(&["mode", "a", "wa"]);
    assert_eq!(modes(), ["wa", "wa"]);
    site.ok(&["volume", "restart", "a"]);
    assert_eq!(modes(), ["wa", "wa"]);
    assert!(!site.ok(&["volume", "show", "a"]).contains("in force"));
    daemon.stop().expect("a clean stop");
}

#[test]
fn a_volume_whose_cache_is_dirty_is_deleted_only_by_force() {
    let site = Site::new(&["a"]);
    let daemon = site.daemon();
    site.core("c");
    let text = |name: &str| site.path(name).display().to_string();
    let listen = format!("unix:{}", text("c.nbd"));
    let create = [
        "volume",
        "create",
        "c",
        "--core",
        &text("c.core"),
        "--cache",
        &text("c.cache"),
        "--cache-size",
        "24m",
    ];
    site.ok(&[&create[..], &["--mode", "wb", "--listen", &listen, "--param", "destage-rate=1"]].concat());
    let again = [&create[..], &["--mode", "wb", "--listen", &listen]].concat();
    assert!(site.refused(&again).contains("there is a volume 'c' already"));
    let same = again.iter().map(|w| if *w == "c" { "d" } else { w }).collect::<Vec<_>>();
    assert!(site.refused(&same).contains("is volume 'c' already"));
    write_some(&site, "c");
    assert!(site.refused(&["volume", "delete", "c"]).contains("stop it first"));
    site.ok(&["volume", "stop", "c"]);
    assert!(site.refused(&["volume", "delete", "c"]).contains("loligo flush c"));
    site.ok(&["volume", "start", "c"]);
    site.ok(&["volume", "stop", "c", "--flush"]);
    site.ok(&["volume", "delete", "c"]);
    assert!(site.path("c.cache").exists() && !site.ok(&["volume", "list"]).contains("c.core"));
    daemon.stop().expect("a clean stop");
}

#[test]
fn cores_of_one_pool_are_served_together_and_keep_their_data() {
    let site = Site::new(&[]);
    let text = |name: &str| site.path(name).display().to_string();
    site.ok(&["cache", "create", &text("pool"), "--size", "256m"]);
    let mut sections = String::new();
    for (number, name) in [(1, "a"), (2, "b"), (3, "c")] {
        site.core(name);
        let number = number.to_string();
        site.ok(&[
            "cache",
            "attach",
            &text("pool"),
            "--core",
            &number,
            "--name",
            name,
            "--min",
            "48m",
            "--max",
            "96m",
        ]);
        let own = site.section(name).replace("cache-size = \"24m\"\n", "");
        sections += &own.replace(&format!("{name}.cache"), &format!("pool#{number}"));
    }
    site.configure(&sections.replace("cache = \"", "cache = \"pool:"));
    let daemon = site.daemon();
    let histories: Vec<_> = ["a", "b", "c"].map(|v| (v, write_some(&site, v))).into();
    let twice = format!("unix:{}", text("x.nbd"));
    let share = format!("pool:{}#1", text("pool"));
    let args = [
        "serve",
        "--name",
        "x",
        "--core",
        &text("a.core"),
        "--cache",
        &share,
        "--mode",
        "wb",
        "--listen",
        &twice,
    ];
    assert!(site.refused(&args).contains(&daemon.id().to_string()), "the pool is the daemon's");
    daemon.kill().expect("it lived");
    let daemon = site.daemon();
    for (volume, mut history) in histories {
        site.verified(volume, &mut history, Some(Crash::Killed));
    }
    daemon.stop().expect("a clean stop");
}

#[test]
fn systemd_hears_of_the_daemon_from_the_daemon_alone() {
    let site = Site::new(&["a"]);
    let (socket, seen) = (site.path("notify"), site.path("seen"));
    let heard = UnixDatagram::bind(&socket).expect("a socket");
    heard.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    let after =
        format!("after-start = [\"/bin/sh\", \"-c\", \"env > {0}.new; mv {0}.new {0}\"]\n", seen.display());
    site.configure(&(site.section("a") + &after));
    let mut command = std::process::Command::new(program());
    command.env("NOTIFY_SOCKET", &socket).env("WATCHDOG_USEC", "30000000");
    let mut daemon =
        Server::daemon_by(command, site.dir.path(), &site.path("loligod.toml")).expect("it runs");
    daemon.ready().expect("it gets ready");
    let mut words = [0; 4096];
    let mut told = || {
        let n = heard.recv(&mut words).expect("it says something");
        String::from_utf8_lossy(&words[..n]).into_owned()
    };
    while !told().contains("READY=1") {}
    while !told().contains("WATCHDOG=1") {}
    let deadline = Instant::now() + Duration::from_secs(20);
    while !seen.exists() {
        assert!(Instant::now() < deadline, "after-start was not run");
        std::thread::sleep(Duration::from_millis(20));
    }
    let passed = std::fs::read_to_string(&seen).expect("its surroundings");
    assert!(
        passed.contains("LOLIGO_RUNTIME_DIR") && !passed.contains("NOTIFY_") && !passed.contains("WATCHDOG_")
    );
    daemon.stop().expect("a clean stop");
}

#[test]
fn a_refused_create_does_not_forget_its_names_former_cache() {
    let site = Site::new(&["a"]);
    let daemon = site.daemon();
    let text = |name: &str| site.path(name).display().to_string();
    let (core, cache, listen) = (text("a.core"), text("a.cache"), format!("unix:{}", text("a.nbd")));
    let mut history = History::new(CORE);
    site.load("a").write(&mut history, 0..8192, true).expect("written");
    site.ok(&["flush", "a"]);
    site.configure("");
    site.ok(&["config", "reload"]);
    let create = ["volume", "create", "a", "--core", &core, "--listen"];
    let nowhere = format!("unix:{}", text("nowhere/a.nbd"));
    let deadline = Instant::now() + Duration::from_secs(20);
    // The first has to let go of it, and that it had nothing for itself has to be remembered.
    let remembered = || std::fs::read_to_string(site.path("state/state")).unwrap_or_default();
    while site.path("a.nbd").exists() || !remembered().contains("\"dirty_bytes\": 0") {
        assert!(Instant::now() < deadline, "it is served on");
        std::thread::sleep(Duration::from_millis(50));
    }
    let why = site.refused(&[&create[..], &[&nowhere]].concat());
    assert!(why.contains("it is not kept"), "{why}");
    let bare = [&create[..], &[&listen]].concat();
    site.ok(&bare);
    // Of this the cache knows nothing, and must not be believed for it.
    site.load("a").write(&mut history, 4000..4008, true).expect("written");
    site.ok(&["volume", "stop", "a"]);
    site.ok(&["volume", "delete", "a"]);
    site.ok(&[&bare[..], &["--cache", &cache, "--mode", "wb"]].concat());
    site.verified("a", &mut history, None);
    daemon.stop().expect("a clean stop");
}

#[test]
fn a_core_with_another_names_dirty_cache_is_not_served_bare() {
    let site = Site::new(&["a"]);
    let daemon = site.daemon();
    site.ok(&["param", "set", "a", "destage-rate", "1"]);
    let mut history = write_some(&site, "a");
    site.ok(&["volume", "stop", "a"]);
    let why = site.refused(&["volume", "stop", "a", "--flush"]);
    assert!(why.contains("was stopped without a flush") && why.contains("bytes"), "{why}");
    let renamed = |cache: &str| {
        let text = |name: &str| site.path(name).display().to_string();
        format!("[volume.q]\ncore = \"{}\"\nlisten = [\"unix:{}\"]\n{cache}", text("a.core"), text("q.nbd"))
    };
    site.configure(&renamed(""));
    site.ok(&["config", "reload"]);
    let why = site.wait_for("q", "refused");
    assert!(why.contains("as volume 'a'") && why.contains("a.cache") && why.contains("--force"), "{why}");
    let cache = format!("cache = \"{}\"\nmode = \"wb\"\n", site.path("a.cache").display());
    site.configure(&renamed(&cache));
    site.ok(&["config", "reload"]);
    site.ok(&["volume", "start", "q"]);
    site.verified("q", &mut history, None);
    site.ok(&["volume", "stop", "q", "--flush"]);
    daemon.stop().expect("a clean stop");
}
