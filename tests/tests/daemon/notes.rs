//! The daemon's memory counts: one daemon writes it, what cannot be written is not done, and no stale cache comes back.

use crate::site::{CORE, Site};
use loligo_tests::history::History;
use loligo_tests::server::Server;
use std::io::Read;
use std::process::Stdio;
use std::time::Duration;

#[test]
fn a_second_daemon_on_a_state_folder_is_refused() {
    let (site, other) = (Site::new(&["a"]), Site::new(&["b"]));
    let daemon = site.daemon();
    let text = format!("[daemon]\nstate-dir = \"{}\"\n{}", site.path("state").display(), other.section("b"));
    std::fs::write(other.path("loligod.toml"), text).expect("a configuration");
    let mut second = Server::daemon(other.dir.path(), &other.path("loligod.toml")).expect("it runs");
    let why = second.ready().expect_err("the folder is in use").to_string();
    let id = daemon.id();
    assert!(why.contains(&format!("another loligod (process {id}) remembers in")), "{why}");
    daemon.kill().expect("it lived");
    let daemon = other.daemon();
    daemon.stop().expect("a clean stop");
}

#[test]
fn a_mode_that_cannot_be_remembered_is_not_set() {
    let site = Site::new(&["a"]);
    let daemon = site.daemon();
    // Nothing can be written in this place, not even by root.
    std::fs::create_dir(site.path("state/state.new")).expect("a folder");
    let why = site.refused(&["mode", "a", "wt"]);
    assert!(why.contains("could not be remembered"), "{why}");
    assert_eq!(site.show("a")["mode"], "wb");
    let why = site.refused(&["param", "set", "a", "seq-threshold", "2m"]);
    assert!(why.contains("could not be remembered"), "{why}");
    assert_eq!(site.ok(&["param", "get", "a", "seq-threshold"]).trim(), "1048576");
    std::fs::remove_dir(site.path("state/state.new")).expect("removed");
    site.ok(&["mode", "a", "wt"]);
    assert_eq!(site.show("a")["mode"], "wt");
    daemon.stop().expect("a clean stop");
}

#[test]
fn a_deleted_volumes_cache_is_void_once_its_core_changes() {
    let site = Site::new(&[]);
    site.core("a");
    let daemon = site.daemon();
    let dir = site.dir.path().display().to_string();
    let (core, cache) = (format!("{dir}/a.core"), format!("{dir}/a.cache"));
    let listen = |name: &str| format!("unix:{dir}/{name}.nbd");
    let cached = |name: &str| {
        let own = listen(name);
        let words = ["volume", "create", name, "--core", &core, "--listen", &own, "--cache", &cache];
        site.ok(&[&words[..], &["--cache-size", "24m", "--mode", "wb"]].concat());
    };
    let away = |name: &str| {
        site.ok(&["volume", "stop", name, "--flush"]);
        site.ok(&["volume", "delete", name]);
    };
    let mut history = History::new(CORE);
    cached("a");
    site.load("a").write(&mut history, 0..8192, true).expect("written");
    away("a");
    site.ok(&["volume", "create", "b", "--core", &core, "--listen", &listen("b")]);
    site.load("b").write(&mut history, 4000..4008, true).expect("written");
    site.ok(&["volume", "stop", "b"]);
    site.ok(&["volume", "delete", "b"]);
    cached("c");
    site.verified("c", &mut history, None);
    away("c");
    daemon.stop().expect("a clean stop");
}

#[test]
fn clients_are_not_held_for_a_state_folder_that_hangs() {
    let site = Site::new(&["a", "b"]);
    let at = |name: &str| site.path(name).display().to_string();
    let (core, listen) = (at("b.core"), at("b.nbd"));
    let b = format!("[volume.b]\ncore = \"{core}\"\nlisten = [\"unix:{listen}\"]\n");
    site.configure(&format!("{}{b}", site.section("a")));
    let daemon = site.daemon();
    // Who opens it to write waits for a reader.
    let fifo = site.path("state/state.new");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status();
    assert!(made.expect("it runs").success());
    let attach = ["volume", "attach", "b", "--cache", &at("b.cache"), "--cache-size", "24m", "--mode", "wt"];
    for (volume, change) in [("b", &attach[..]), ("a", &["volume", "detach", "a"])] {
        let mut client = site.line(volume);
        let mut changing = site.command(change).stderr(Stdio::piped()).spawn().expect("it runs");
        std::thread::sleep(Duration::from_secs(1));
        client.flush().expect("an answer");
        assert!(changing.try_wait().expect("a child").is_none(), "it was not asked of the folder");
        let mut why = String::new();
        changing.stderr.take().expect("a pipe").read_to_string(&mut why).expect("text");
        assert_eq!(changing.wait().expect("a child").code(), Some(3), "{why}");
        assert!(why.contains("nothing is changed") && why.contains("Mend the file system"), "{why}");
    }
    assert!(!site.path("b.cache").exists() && site.show("a")["mode"] == "wb");
    let reader = std::fs::File::open(&fifo).expect("a reader");
    std::fs::remove_file(&fifo).expect("removed");
    site.ok(&attach);
    site.ok(&["volume", "detach", "a"]);
    drop(reader);
    daemon.stop().expect("a clean stop");
}
