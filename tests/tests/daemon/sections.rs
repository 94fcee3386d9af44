//! A fault of one section of the file is its volume's trouble, and a device that is not there yet is waited for.

use crate::site::{CORE, PATIENCE, Site};
use loligo_tests::history::History;
use std::process::Command;
use std::time::{Duration, Instant};

#[test]
fn a_wrong_section_refuses_its_volume_alone() {
    let site = Site::new(&["a", "b", "c"]);
    let b = site.section("b");
    site.configure(
        &(site.section("a") + &b.replace("mode = \"wb\"", "mode = \"wr\"") + "[volume.c]\nkore = 5\n"),
    );
    let daemon = site.daemon();
    assert_eq!(site.status("a").0, "serving");
    let (state, why) = site.status("b");
    assert!(state == "refused" && why.contains("mode = \"wr\""), "{state}: {why}");
    assert!(site.status("c").1.contains("kore"), "{:?}", site.status("c"));
    let why = site.refused(&["volume", "start", "b"]);
    assert!(why.contains("mode = \"wr\""), "{why}");
    let why = site.refused(&["config", "reload"]);
    assert!(
        why.contains("b: its section of the file is not right") && why.contains("c: its section"),
        "{why}"
    );
    site.configure(&(site.section("a") + &b));
    let said = site.ok(&["config", "reload"]);
    assert!(said.contains("b: its section is right now: it is started"), "{said}");
    site.wait_for("b", "serving");
    site.wait_gone("c");
    daemon.stop().expect("a clean stop");
}

#[test]
fn a_section_that_becomes_wrong_stops_nobody() {
    let site = Site::new(&["a", "b", "c"]);
    site.configure(&(site.section("a") + &site.section("c")));
    let daemon = site.daemon();
    let mut history = History::new(CORE);
    let mut load = site.load("a");
    load.write(&mut history, 0..64, true).expect("written");
    let wrong = site.section("a").replace("\"24m\"", "\"24q\"");
    site.configure(&(wrong + &site.section("b")));
    let why = site.refused(&["config", "reload"]);
    assert!(why.contains("24q") && why.contains("it is served on"), "{why}");
    site.wait_for("b", "serving");
    assert_eq!(site.status("c").0, "serving", "nobody is taken for gone by a file that is not right");
    load.write(&mut history, 64..128, true).expect("the same connection is served");
    assert!(site.refused(&["volume", "restart", "a"]).contains("is not stopped"));
    site.configure(&(site.section("a") + &site.section("b")));
    let said = site.ok(&["config", "reload"]);
    assert!(said.contains("a: its section is right again"), "{said}");
    site.wait_gone("c");
    site.verified("a", &mut history, None);
    daemon.stop().expect("a clean stop");
}

#[test]
fn sections_that_share_a_core_are_refused_and_the_others_served() {
    let site = Site::new(&["a", "b", "c"]);
    let shared = site.section("b").replace("b.core", "a.core");
    site.configure(&(site.section("a") + &shared + &site.section("c")));
    let daemon = site.daemon();
    assert_eq!(site.status("c").0, "serving");
    for (one, other) in [("a", "b"), ("b", "a")] {
        let (state, why) = site.status(one);
        let said = format!("is that of volume '{other}' too");
        assert!(state == "refused" && why.contains(&said), "{one}: {state}: {why}");
    }
    daemon.stop().expect("a clean stop");
}

#[test]
fn neither_of_two_that_share_a_core_is_served_if_one_is_wrong() {
    let site = Site::new(&["a", "b", "c"]);
    let wrong = site.section("b").replace("b.core", "a.core").replace("\"wb\"", "\"wr\"");
    site.configure(&(site.section("a") + &wrong + &site.section("c")));
    let daemon = site.daemon();
    assert_eq!(site.status("c").0, "serving");
    let (state, why) = site.status("a");
    assert!(state == "refused" && why.contains("is that of volume 'b' too"), "{state}: {why}");
    let (state, why) = site.status("b");
    assert!(state == "refused" && why.contains("mode = \"wr\""), "{state}: {why}");
    // By another name, which a reload looks for.
    site.configure(&(site.section("a") + &site.section("c")));
    site.ok(&["config", "reload"]);
    site.wait_for("a", "serving");
    std::os::unix::fs::symlink(site.path("a.core"), site.path("link")).expect("a link");
    let other = site.section("d").replace("d.core", "link").replace("\"wb\"", "\"wr\"");
    site.configure(&(site.section("a") + &other + &site.section("c")));
    let why = site.refused(&["config", "reload"]);
    assert!(why.contains("a: its section") && why.contains("is volume 'd' already"), "{why}");
    daemon.stop().expect("a clean stop");
}

/// An address that this host does not have: of those for documentation.
const FOREIGN: &str = "192.0.2.77";

/// Gives loopback another address, and takes it away when this is dropped.
struct Extra;

impl Extra {
    fn ip(what: &str) -> bool {
        let args = ["addr", what, &format!("{FOREIGN}/32"), "dev", "lo"];
        Command::new("ip").args(args).status().is_ok_and(|s| s.success())
    }
}

impl Drop for Extra {
    fn drop(&mut self) {
        Extra::ip("del");
    }
}

#[test]
fn an_address_that_is_not_there_yet_is_waited_for() {
    let site = Site::new(&["a", "b"]);
    let psk = site.path("psk");
    std::fs::write(&psk, format!("u:{}\n", "5a".repeat(32))).expect("keys");
    std::fs::set_permissions(&psk, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("private");
    let tcp = format!(", \"tcp:{FOREIGN}:0\"]\ntls = {{ psk = \"{}\" }}\n", psk.display());
    site.configure(&(site.section("a").replace(".nbd\"]\n", &format!(".nbd\"{tcp}")) + &site.section("b")));
    let daemon = site.daemon();
    assert_eq!(site.status("b").0, "serving");
    let why = site.wait_for("a", "waiting");
    assert!(why.contains(FOREIGN), "{why}");
    assert!(!site.path("a.nbd").exists(), "nobody comes to a volume that is not served");
    if Extra::ip("add") {
        let _extra = Extra;
        site.wait_for("a", "serving");
        daemon.stop().expect("a clean stop");
    } else {
        println!("SKIP: this user cannot give the host another address");
    }
}

#[test]
fn metrics_on_an_address_to_come_keep_no_daemon_down() {
    let site = Site::new(&["a"]);
    let text = format!(
        "[daemon]\nstate-dir = \"{}\"\nmetrics = \"192.0.2.78:9283\"\n{}",
        site.path("state").display(),
        site.section("a")
    );
    std::fs::write(site.path("loligod.toml"), text).expect("a configuration");
    let daemon = site.daemon();
    assert_eq!(site.status("a").0, "serving");
    let deadline = Instant::now() + PATIENCE;
    while !daemon.log().contains("for metrics is no address of this host") {
        assert!(Instant::now() < deadline, "it is not said");
        std::thread::sleep(Duration::from_millis(50));
    }
    daemon.stop().expect("a clean stop");
}
