//! Commands as scripts use them: every one that changes something says as JSON how it ended, and its exit status says the same.

use crate::site::Site;
use serde_json::Value;
use std::collections::BTreeSet;

/// Commands that change nothing, or are programs of their own. By the names of their pages.
const OTHERS: [&str; 33] = [
    "cache-show",
    "config-check",
    "config-show",
    "daemon",
    "doctor",
    "tune-explain",
    "tune-facts",
    "tune-history",
    "tune-partition",
    "tune-plan",
    "tune-presets",
    "tune-watch",
    "inspect",
    "lab-array",
    "lab-cache-status",
    "lab-env",
    "lab-exec",
    "lab-power-status",
    "lab-status",
    "osd-list",
    "pair-history",
    "pair-run",
    "pair-status",
    "param-get",
    "probe",
    "rbd-status",
    "serve",
    "stats",
    "top",
    "volume-list",
    "volume-show",
    "bench",
    "demo",
];

/// The pages of the commands that have none below them, without 'loligo-', and what they say.
fn pages(site: &Site) -> Vec<(String, String)> {
    let dir = site.path("man");
    site.ok(&["man", &dir.display().to_string()]);
    let read = |name: &String| std::fs::read_to_string(dir.join(name)).expect("a page");
    let names: BTreeSet<String> = std::fs::read_dir(&dir)
        .expect("a folder")
        .map(|e| e.expect("a page").file_name().into_string().expect("a name"))
        .filter(|name| name.ends_with(".1"))
        .collect();
    let stem = |name: &str| name.trim_end_matches(".1").to_owned();
    let leaf = |name: &&String| !names.iter().any(|other| other.starts_with(&(stem(name) + "-")));
    let short = |name: &String| stem(name).trim_start_matches("loligo-").to_owned();
    names.iter().filter(leaf).map(|name| (short(name), read(name))).collect()
}

/// The stdout of `loligo` with `args` and `--json`, and its exit status.
fn said(site: &Site, args: &[&str]) -> (Value, i32) {
    let out = site.loligo(&[args, &["--json"]].concat());
    let words = String::from_utf8_lossy(&out.stderr);
    let status = out.status.code().unwrap_or_else(|| panic!("{args:?}: {:?}", out.status));
    let json = serde_json::from_slice(&out.stdout);
    (json.unwrap_or_else(|e| panic!("{args:?} ({status}): no JSON ({e}): {words}")), status)
}

/// It comes to nothing, with this outcome.
fn ends(site: &Site, args: &[&str], outcome: &str) {
    let (json, status) = said(site, args);
    assert_eq!(json["outcome"], outcome, "{args:?} ended with {status}: {json}");
    let wanted = ["done", "failed", "usage", "refused", "waiting"].iter().position(|o| *o == outcome);
    assert_eq!(Some(status as usize), wanted, "{args:?}: {json}");
    assert!(json["error"].as_str().is_some_and(|why| !why.is_empty()), "{args:?}: {json}");
}

/// It does what it is to do.
fn does(site: &Site, args: &[&str]) -> Value {
    let (json, status) = said(site, args);
    let right = status == 0 && (json["outcome"] == "done" || json["outcome"] == "begun");
    assert!(right && json["error"].is_null(), "{args:?} ended with {status}: {json}");
    json
}

#[test]
fn every_command_that_changes_something_refuses_in_json() {
    let site = Site::new(&["a", "b"]);
    let daemon = site.daemon();
    site.ok(&["volume", "stop", "b"]);
    let text = |name: &str| site.path(name).display().to_string();
    let (plain, own, none) = (text("a.core"), text("a.cache"), text("none"));
    let cluster = ["--conf", &none, "--keyring", &none];
    let prepare = [&["osd", "prepare", "--data", &plain, "--cache", &own][..], &cluster].concat();
    let adopt = [&["osd", "adopt", "7", "--cache", &own][..], &cluster].concat();
    let table: Vec<(&str, Vec<&str>, &str)> = vec![
        ("cache-create", vec!["cache", "create", &none], "refused"),
        ("cache-attach", vec!["cache", "attach", "PLAIN", "--name", "x", "--min", "8m"], "refused"),
        ("cache-detach", vec!["cache", "detach", "PLAIN", "0"], "refused"),
        ("cache-resize", vec!["cache", "resize", "PLAIN", "0", "--size", "8m"], "refused"),
        ("cache-dissolve", vec!["cache", "dissolve", "PLAIN"], "refused"),
        ("config-reload", vec!["config", "reload"], "refused"),
        ("flush", vec!["flush", "b"], "refused"),
        ("lab-down", vec!["lab", "down", "--dir", &none], "failed"),
        ("lab-fail", vec!["lab", "fail", "mon", "a", "--dir", &none], "failed"),
        ("lab-mend", vec!["lab", "mend", "--dir", &none], "failed"),
        ("lab-power-off", vec!["lab", "power", "off", "n0a", "--dir", &none], "failed"),
        ("lab-power-on", vec!["lab", "power", "on", "n0a", "--dir", &none], "failed"),
        ("lab-up", vec!["lab", "up", "--replicas", "99", "--dir", &none], "refused"),
        ("mode", vec!["mode", "b", "wt"], "refused"),
        ("osd-activate", vec!["osd", "activate", "7"], "refused"),
        ("osd-adopt", adopt, "failed"),
        ("osd-prepare", prepare, "failed"),
        ("osd-release", vec!["osd", "release", "7"], "refused"),
        ("osd-remove", vec!["osd", "remove", "7"], "refused"),
        ("pair-drill", vec!["pair", "drill", "--pool", "p", "--as", "a", "--config", &none], "failed"),
        ("pair-giveback", vec!["pair", "giveback", "--as", "a", "--config", &none], "failed"),
        ("pair-setup", vec!["pair", "setup", "--as", "a", "--config", &none], "failed"),
        ("pair-takeover", vec!["pair", "takeover", "--as", "a", "--config", &none], "failed"),
        ("param-set", vec!["param", "set", "a", "nothing", "1"], "refused"),
        ("release", vec!["release", &own], "refused"),
        ("tune-apply", vec!["tune", "apply", "--conf", &none, "--yes"], "refused"),
        (
            "tune-search",
            vec!["tune", "search", "--conf", &none, "--pool", "p", "--space", &none, "--record", &none],
            "failed",
        ),
        ("tune-threads", vec!["tune", "threads", "7", "--root", &none], "refused"),
        ("tune-verify", vec!["tune", "verify", "--conf", &none, "--pool", "p", "--same"], "refused"),
        ("tune-rollback", vec!["tune", "rollback", "--conf", &none], "refused"),
        ("volume-attach", vec!["volume", "attach", "a", "--cache", &none, "--mode", "wb"], "refused"),
        ("volume-create", vec!["volume", "create", "a", "--core", &none, "--listen", "unix:/x"], "refused"),
        ("volume-bind", vec!["volume", "bind", "a"], "refused"),
        ("volume-unbind", vec!["volume", "unbind", "a", "tcp:127.0.0.1:1"], "refused"),
        ("volume-end", vec!["volume", "end", "none"], "refused"),
        ("volume-delete", vec!["volume", "delete", "a"], "refused"),
        ("volume-detach", vec!["volume", "detach", "b"], "refused"),
        ("volume-forget", vec!["volume", "forget", "none"], "refused"),
        ("volume-resize", vec!["volume", "resize", "b"], "refused"),
        ("volume-restart", vec!["volume", "restart", "none"], "refused"),
        ("volume-start", vec!["volume", "start", "none"], "refused"),
        ("volume-stop", vec!["volume", "stop", "none"], "refused"),
    ];
    for (page, words) in pages(&site) {
        if OTHERS.iter().any(|other| page == *other || page.starts_with(&format!("{other}-"))) {
            continue;
        }
        assert!(words.contains("\\-\\-json"), "loligo {page} changes something and has no --json");
        assert!(table.iter().any(|(known, ..)| *known == page), "loligo {page} is not tried here");
    }
    std::fs::write(site.path("plain"), vec![0; 1 << 20]).expect("a file");
    std::fs::write(site.path("loligod.toml"), "[daemon").expect("a broken file");
    let plain = text("plain");
    for (_, args, outcome) in &table {
        let args: Vec<&str> = args.iter().map(|a| if *a == "PLAIN" { &plain } else { *a }).collect();
        ends(&site, &args, outcome);
    }
    ends(&site, &["volume", "stop"], "usage");
    ends(&site, &["param", "set", "a", "seq-threshold", "2m", "--nothing"], "usage");
    daemon.stop().expect("a clean stop");
}

#[test]
fn every_command_that_does_what_it_is_to_says_so_in_json() {
    let site = Site::new(&["a"]);
    site.core("c");
    let daemon = site.daemon();
    let text = |name: &str| site.path(name).display().to_string();
    let (core, cache, listen) = (text("c.core"), text("c.cache"), format!("unix:{}", text("c.nbd")));
    let created = does(&site, &["volume", "create", "c", "--core", &core, "--listen", &listen]);
    assert_eq!((&created["volume"], &created["state"]), (&"c".into(), &"serving".into()));
    does(&site, &["volume", "attach", "c", "--cache", &cache, "--cache-size", "24m", "--mode", "wb"]);
    does(&site, &["mode", "c", "wt", "--flush"]);
    assert_eq!(does(&site, &["param", "set", "c", "seq-threshold", "2m"])["param"]["value"], "2097152");
    assert_eq!(does(&site, &["flush", "c"])["flush"]["running"], false);
    does(&site, &["flush", "c", "--no-wait"]);
    does(&site, &["volume", "resize", "c", "--size", "65m"]);
    does(&site, &["volume", "restart", "c"]);
    does(&site, &["volume", "unbind", "c", &listen]);
    assert_eq!(does(&site, &["volume", "bind", "c", &listen])["listen"][0], *listen);
    assert_eq!(does(&site, &["volume", "end", "c"])["state"], "stopped");
    does(&site, &["volume", "start", "c"]);
    assert_eq!(does(&site, &["volume", "stop", "c", "--flush"])["state"], "stopped");
    does(&site, &["volume", "forget", "c"]);
    does(&site, &["volume", "start", "c"]);
    does(&site, &["volume", "detach", "c"]);
    does(&site, &["volume", "stop", "c"]);
    does(&site, &["volume", "delete", "c"]);
    does(&site, &["config", "reload"]);
    let pool = text("pool");
    does(&site, &["cache", "create", &pool, "--size", "128m", "--sparse"]);
    let attached = does(&site, &["cache", "attach", &pool, "--name", "x", "--min", "32m"]);
    assert_eq!(attached["core"], 0);
    does(&site, &["cache", "resize", &pool, "x", "--weight", "7"]);
    does(&site, &["cache", "detach", &pool, "x"]);
    does(&site, &["cache", "dissolve", &pool]);
    does(&site, &["volume", "stop", "a", "--flush"]);
    does(&site, &["release", &text("a.cache")]);
    daemon.stop().expect("a clean stop");
}

#[test]
fn what_goes_on_has_an_exit_status_of_its_own() {
    let site = Site::new(&["a", "w"]);
    std::fs::rename(site.path("w.core"), site.path("later")).expect("moved");
    let daemon = site.daemon();
    ends(&site, &["volume", "start", "w"], "waiting");
    ends(&site, &["volume", "start", "w", "--wait", "--timeout", "1"], "waiting");
    ends(&site, &["flush", "w"], "waiting");
    assert_eq!(does(&site, &["volume", "start", "w", "--no-wait"])["outcome"], "begun");
    let mut waits = site.command(&["volume", "start", "w", "--wait"]).spawn().expect("it runs");
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert!(waits.try_wait().expect("asked").is_none(), "it waits for the device");
    std::fs::rename(site.path("later"), site.path("w.core")).expect("moved");
    assert!(waits.wait().expect("it ends").success());
    assert_eq!(site.status("w").0, "serving");
    site.ok(&["param", "set", "a", "destage-rate", "1"]);
    let mut history = loligo_tests::history::History::new(crate::site::CORE);
    site.load("a").write(&mut history, 0..512, true).expect("written");
    ends(&site, &["flush", "a", "--timeout", "0"], "waiting");
    ends(&site, &["volume", "stop", "a", "--flush", "--timeout", "0"], "waiting");
    site.ok(&["volume", "stop", "a", "--force"]);
    daemon.stop().expect("a clean stop");
}
