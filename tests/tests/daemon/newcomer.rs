//! The encounters of a new user who knows the manual and this program alone.

use crate::site::Site;
use serde_json::Value;
use std::process::Output;

fn words(out: &Output) -> String {
    String::from_utf8_lossy(&out.stderr).into_owned()
}

fn lines(text: &str, with: &str) -> Vec<String> {
    text.lines().filter(|line| line.contains(with)).map(str::to_owned).collect()
}

#[test]
fn list_and_show_give_what_is_served() {
    let site = Site::new(&["a", "b"]);
    site.configure(&site.section("a"));
    let daemon = site.daemon();
    let path = |name: &str| site.path(name).display().to_string();
    let said = || {
        let list = site.ok(&["volume", "list"]);
        let row = lines(&list, "serving").pop().expect("a row");
        (row, list, site.ok(&["volume", "show", "a"]))
    };
    let (_, list, show) = said();
    assert!(!list.contains("next start") && !show.contains("next start"), "{list}{show}");
    let served = site.show("a")["served"].clone();
    assert_eq!((&served["core"], &served["cache"]), (&path("a.core").into(), &path("a.cache").into()));
    assert_eq!(served["changed"], serde_json::json!([]));

    site.configure(&site.section("a").replace("a.core", "b.core").replace("a.cache", "b.cache"));
    site.ok(&["config", "reload"]);
    let (row, list, show) = said();
    assert!(row.contains("a.core") && row.contains("a.cache"), "{list}");
    for said in [&list, &show] {
        let all = lines(said, "is served");
        assert!(
            all.iter().any(|l| l.contains("core") && l.contains("a.core") && l.contains("b.core")),
            "{said}"
        );
        assert!(
            all.iter().any(|l| l.contains("cache") && l.contains("a.cache") && l.contains("b.cache")),
            "{said}"
        );
    }
    let shown = site.show("a");
    assert_eq!(shown["served"]["core"], path("a.core").as_str());
    assert_eq!(shown["served"]["changed"], serde_json::json!(["core", "cache"]));
    assert_eq!(shown["definition"]["core"], path("b.core").as_str());

    // A cache that goes by command, beside a file that names another.
    site.ok(&["volume", "detach", "a"]);
    site.configure(&site.section("a").replace("a.cache", "c.cache"));
    site.ok(&["config", "reload"]);
    let (row, list, _) = said();
    assert!(!row.contains(".cache") && row.contains("bare"), "{list}");
    assert!(
        lines(&list, "is served").iter().any(|l| l.contains("without a cache") && l.contains("c.cache")),
        "{list}"
    );
    assert_eq!(site.show("a")["served"]["cache"], Value::Null);
    daemon.stop().expect("a clean stop");
}

#[test]
fn what_show_prints_makes_the_volume_again() {
    let site = Site::new(&[]);
    let daemon = site.daemon();
    let text = |name: &str| site.path(name).display().to_string();
    std::fs::write(site.path("psk"), format!("u:{}\n", "5a".repeat(32))).expect("keys");
    std::fs::set_permissions(site.path("psk"), std::os::unix::fs::PermissionsExt::from_mode(0o600))
        .expect("private");
    let (core, cache, psk) = (text("x.core"), text("x.cache"), text("psk"));
    site.core("x");
    // A dot in the name, a table in the definition: both are more than a line in TOML.
    let name = "x.1";
    let (listen, tls) = (format!("unix:{}", text("x.nbd")), format!("tls = {{ psk = \"{psk}\" }}"));
    let made = ["--cache", &cache, "--cache-size", "24m", "--mode", "wb", "--listen", &listen, "--set", &tls];
    let more = ["--param", "destage-low=5", "--param", "seq-cutoff=always"];
    site.ok(&[&["volume", "create", name, "--core", &core][..], &made, &more].concat());
    let before = site.show(name)["definition"].clone();
    assert_eq!(before["params"]["destage-low"], "5");
    for how in [&["--json"][..], &[]] {
        let shown = site.ok(&[&["volume", "show", name][..], how].concat());
        std::fs::write(site.path("shown"), &shown).expect("written");
        site.ok(&["volume", "stop", name, "--flush"]);
        site.ok(&["volume", "delete", name]);
        let out = site.loligo(&["volume", "create", name, "--definition", &text("shown")]);
        assert!(out.status.success(), "{how:?}: {}\n{shown}", words(&out));
        assert_eq!(site.status(name).0, "serving");
        assert_eq!(site.show(name)["definition"], before, "{shown}");
    }
    // What show prints is a section of a file, too.
    std::fs::write(site.path("loligod.toml"), site.ok(&["volume", "show", name])).expect("written");
    site.ok(&["config", "check", "--config", &text("loligod.toml")]);
    daemon.stop().expect("a clean stop");
}

#[test]
fn a_file_of_sections_defines_the_one_of_its_name() {
    let site = Site::new(&["a", "b"]);
    std::fs::write(site.path("sections"), site.section("a") + &site.section("b")).expect("written");
    site.configure("");
    let daemon = site.daemon();
    let sections = site.path("sections").display().to_string();
    site.ok(&["volume", "create", "b", "--definition", &sections]);
    assert_eq!(site.show("b")["definition"]["core"], site.path("b.core").display().to_string());
    let why = site.refused(&["volume", "create", "c", "--definition", &sections]);
    assert!(why.contains("'a', 'b'") && why.contains("'c'"), "{why}");
    daemon.stop().expect("a clean stop");
}

#[test]
fn config_show_reads_the_file_of_the_daemon_that_runs() {
    let site = Site::new(&["a"]);
    let daemon = site.daemon();
    site.ok(&["param", "set", "a", "destage-low", "7"]);
    let config = site.path("loligod.toml").display().to_string();
    let said = site.ok(&["config", "show"]);
    assert!(said.starts_with(&format!("# {config}")) && said.contains("[volume.a]"), "{said}");
    assert!(said.contains("destage-low = \"7\""), "{said}");
    let json: Value = serde_json::from_str(&site.ok(&["config", "show", "--json"])).expect("JSON");
    assert!(json["volume"]["a"]["core"].is_string(), "{json}");
    daemon.stop().expect("a clean stop");
    let why = site.refused(&["config", "show"]);
    assert!(why.contains("/etc/loligo/loligod.toml cannot be read"), "{why}");
}

#[test]
fn config_show_prints_what_is_right_beside_what_is_not() {
    let site = Site::new(&["a", "b"]);
    site.configure(&(site.section("a") + &site.section("b").replace("\"24m\"", "\"24q\"")));
    let config = site.path("loligod.toml").display().to_string();
    for more in [&[][..], &["--json"]] {
        let out = site.loligo(&[&["config", "show", "--config", &config][..], more].concat());
        assert_eq!(out.status.code(), Some(3), "{}", words(&out));
        assert!(words(&out).contains("[volume.b]") && words(&out).contains("24q"), "{}", words(&out));
        let shown = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(shown.contains("a.core") && !shown.contains("b.core"), "{shown}");
        if !more.is_empty() {
            let json: Value = serde_json::from_str(&shown).expect("one object");
            assert!(
                json["volume"]["a"].is_object() && json["error"].as_str().is_some_and(|e| e.contains("24q"))
            );
            assert_eq!(json["outcome"], "refused");
        }
    }
}

#[test]
fn what_is_asked_of_no_volume_is_refused() {
    let site = Site::new(&["a"]);
    let daemon = site.daemon();
    let nobody = [
        &["flush", "nobody"][..],
        &["mode", "nobody", "wt"],
        &["param", "set", "nobody", "destage-low", "1"],
        &["stats", "nobody"],
        &["volume", "detach", "nobody"],
        &["volume", "show", "nobody"],
    ];
    for args in nobody {
        let out = site.loligo(args);
        assert_eq!(out.status.code(), Some(3), "{args:?}: {}", words(&out));
    }
    let json: Value =
        serde_json::from_slice(&site.loligo(&["flush", "nobody", "--json"]).stdout).expect("JSON");
    assert_eq!(json["outcome"], "refused", "{json}");
    daemon.stop().expect("a clean stop");
    let out = site.loligo(&["volume", "stop", "a"]);
    assert_eq!(out.status.code(), Some(3), "{}", words(&out));
}

#[test]
fn the_mode_of_a_volume_is_told_without_one_to_set() {
    let site = Site::new(&["a"]);
    let daemon = site.daemon();
    assert_eq!(site.ok(&["mode", "a"]), "wb\n");
    site.ok(&["mode", "a", "wa"]);
    assert_eq!(site.ok(&["mode", "a"]), "wa\n");
    let json: Value = serde_json::from_str(&site.ok(&["mode", "a", "--json"])).expect("JSON");
    assert_eq!((&json["mode"], &json["outcome"]), (&"wa".into(), &"done".into()));
    assert_eq!(site.loligo(&["mode", "a", "--flush"]).status.code(), Some(2));
    site.ok(&["volume", "detach", "a"]);
    assert_eq!(site.ok(&["mode", "a"]), "bare\n");
    daemon.stop().expect("a clean stop");
}
