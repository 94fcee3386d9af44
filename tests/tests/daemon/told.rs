//! Messages to a user: in the words of what he has written, with the mend, and before anything is stopped for it.

use crate::site::Site;
use loligo_tests::history::History;

#[test]
fn a_failed_start_is_told_in_keys_of_the_file_not_options() {
    let site = Site::new(&["a", "b"]);
    let all = |cut: &str| {
        let changed = site.section("b").replace(cut, "");
        site.configure(&format!("{}{changed}", site.section("a")));
    };
    all("cache-size = \"24m\"\n");
    let daemon = site.daemon();
    let why = site.wait_for("b", "refused");
    assert!(why.contains("give cache-size = SIZE to make it") && !why.contains("--"), "{why}");
    std::fs::write(site.path("b.cache"), [7; 1 << 20]).expect("somebody's data");
    let why = site.refused(&["volume", "start", "b"]);
    assert!(
        why.contains("add --force; else give another cache (--force: for 'loligo volume start'"),
        "{why}"
    );
    let config = site.path("loligod.toml").display().to_string();
    all(&format!("\"unix:{}/b.nbd\"", site.dir.path().display()));
    let why = site.refused(&["config", "check", "--config", &config]);
    assert!(why.contains("give listen unix:PATH") && !why.contains("--listen"), "{why}");
    daemon.stop().expect("a clean stop");
}

#[test]
fn a_files_socket_is_whole_and_a_commands_begins_where_typed() {
    let site = Site::new(&["a", "x"]);
    site.configure(&site.section("a"));
    let daemon = site.daemon();
    let config = site.path("loligod.toml").display().to_string();
    site.configure(&site.section("a").replace(&format!("unix:{}/", site.dir.path().display()), "unix:run/"));
    for words in [&["config", "check", "--config", &config][..], &["config", "reload"]] {
        let why = site.refused(words);
        assert!(why.contains("listen = \"unix:run/a.nbd\": the path is not whole"), "{words:?}: {why}");
        assert!(why.contains("give it whole, as unix:/run/a.nbd"), "{words:?}: {why}");
    }
    assert_eq!(site.status("a").0, "serving");
    let typed = ["volume", "create", "x", "--core", "x.core", "--listen", "unix:x.nbd"];
    let out = site.command(&typed).current_dir(site.dir.path()).output().expect("it runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let listens = format!("unix:{}", site.path("x.nbd").display());
    assert_eq!(site.show("x")["definition"]["listen"][0], listens.as_str());
    daemon.stop().expect("a clean stop");
}

#[test]
fn a_stopped_volume_is_answered_with_what_starts_it() {
    let site = Site::new(&["a"]);
    let daemon = site.daemon();
    site.ok(&["volume", "stop", "a"]);
    for words in [
        &["mode", "a", "wt"][..],
        &["flush", "a"],
        &["param", "set", "a", "destage-rate", "1"],
        &["param", "get", "a"],
        &["stats", "a"],
        &["volume", "detach", "a"],
        &["volume", "resize", "a"],
    ] {
        let why = site.refused(words);
        assert!(why.contains("volume 'a' is stopped: 'loligo volume start a' starts it"), "{words:?}: {why}");
        assert!(!why.contains(".sock"), "{words:?}: {why}");
    }
    let why = site.refused(&["flush", "nobody"]);
    assert!(why.contains("no volume 'nobody' is being served here"), "{why}");
    daemon.stop().expect("a clean stop");
    let why = site.refused(&["flush", "a"]);
    assert!(why.contains("no volume 'a' is being served here"), "without a daemon nobody knows it: {why}");
}

#[test]
fn a_stopped_volume_shows_its_profiles_mode_and_its_cores_lack() {
    let site = Site::new(&["a"]);
    site.configure(&site.section("a").replace("mode = \"wb\"", "profile = \"osd-hdd\""));
    let daemon = site.daemon();
    let line = || {
        let list = site.ok(&["volume", "list"]);
        list.lines().find(|l| l.contains("a.core")).expect("it is listed").to_owned()
    };
    assert!(line().split_whitespace().any(|word| word == "wb"), "{}", line());
    site.ok(&["param", "set", "a", "destage-rate", "1"]);
    let mut history = History::new(crate::site::CORE);
    site.load("a").write(&mut history, 0..1024, true).expect("written");
    site.ok(&["volume", "stop", "a"]);
    assert!(line().contains("stopped") && line().split_whitespace().any(|w| w == "wb"), "{}", line());
    assert!(site.ok(&["volume", "show", "a"]).contains("# mode wb from the next start on"));
    for words in [&["volume", "list"][..], &["volume", "show", "a"]] {
        let said = site.ok(words);
        assert!(said.contains("its cache holds ") && said.contains(" bytes that core "), "{said}");
    }
    let shown = site.show("a");
    assert!(shown["mode"].is_null() && shown["next_mode"] == "wb", "{shown}");
    daemon.stop().expect("a clean stop");
}

#[test]
fn a_restart_stops_nothing_that_could_not_start_again() {
    let site = Site::new(&["a", "b"]);
    let daemon = site.daemon();
    let (mut history, dir) = (History::new(crate::site::CORE), site.dir.path().display().to_string());
    site.load("a").write(&mut history, 0..1024, true).expect("written");
    let with = |from: &str, to: &str| {
        let changed = site.section("a").replace(from, to);
        assert_ne!(changed, site.section("a"), "{from}");
        site.configure(&format!("{changed}{}", site.section("b")));
        site.ok(&["config", "reload"]);
    };
    let refused = |said: &str| {
        let why = site.refused(&["volume", "restart", "a"]);
        assert!(why.contains("volume 'a' is not stopped") && why.contains(said), "{why}");
        assert_eq!(site.status("a").0, "serving", "{why}");
    };
    with("a.core", "gone.core");
    refused(&format!("the core {dir}/gone.core is not there"));
    with("a.cache\"\ncache-size = \"24m\"", "other.cache\"\ncache-size = \"64k\"");
    refused("other.cache is not there. It held whatever core");
    with(&format!("{dir}/a.cache\"\ncache-size = \"24m\""), &format!("pool:{dir}/pool#a\""));
    refused(&format!("the device of the pool {dir}/pool is not there"));
    with("a.core", "link");
    // After the file was read: a check of the file would see it.
    std::os::unix::fs::symlink(site.path("b.core"), site.path("link")).expect("a link");
    refused("is volume 'b' already");
    site.configure(&format!("{}{}", site.section("a"), site.section("b")));
    site.ok(&["config", "reload"]);
    site.ok(&["volume", "restart", "a"]);
    site.verified("a", &mut history, None);
    daemon.stop().expect("a clean stop");
}

#[test]
fn a_pool_that_is_missing_is_told_of_with_what_it_held() {
    let site = Site::new(&[]);
    let (pool, dir) = (site.path("pool"), site.dir.path().display().to_string());
    let path = pool.display().to_string();
    site.ok(&["cache", "create", &path, "--size", "160m", "--sparse"]);
    let mut sections = String::new();
    for name in ["a", "b"] {
        site.ok(&["cache", "attach", &path, "--name", name, "--min", "48m"]);
        site.core(name);
        let own = site.section(name).replace("cache-size = \"24m\"\n", "");
        sections += &own.replace(&format!("{dir}/{name}.cache"), &format!("pool:{path}#{name}"));
    }
    site.configure(&sections);
    let daemon = site.daemon();
    let more = site.refused(&["cache", "resize", &path, "a", "--min", "120m"]);
    assert!(more.contains("are promised to others (core 1 ('b') has"), "{more}");
    assert!(more.contains("is promised 50331648). Give ") && more.contains(" at most"), "{more}");
    site.ok(&["param", "set", "a", "destage-rate", "1"]);
    let mut history = History::new(crate::site::CORE);
    site.load("a").write(&mut history, 0..1024, true).expect("written");
    daemon.stop().expect("a clean stop");
    std::fs::rename(&pool, site.path("away")).expect("moved");
    let daemon = site.daemon();
    let why = site.wait_for("b", "waiting");
    assert!(why.contains(&format!("the device of the pool {path} is not there")), "{why}");
    assert!(
        why.contains("volume 'a' (core a of the pool): ") && why.contains("a.core does not have"),
        "{why}"
    );
    assert!(why.contains("volume 'b' (core b of the pool): nothing that core"), "{why}");
    assert!(why.contains("made anew in its place") && why.contains("is given up with it"), "{why}");
    std::fs::rename(site.path("away"), &pool).expect("back");
    site.wait_for("a", "serving");
    site.verified("a", &mut history, None);
    daemon.stop().expect("a clean stop");
}
