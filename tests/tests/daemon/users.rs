//! A person's commands: twice, or in a folder of his own.

use crate::site::{CORE, Site};
use loligo_tests::blockdev::impossible;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

#[test]
fn a_stop_asked_for_twice_still_waits_for_the_devices_user() {
    if impossible("a stop of a volume whose block device is in use") {
        return;
    }
    let site = Site::new(&["a"]);
    let name = format!("t{}-twice", std::process::id());
    site.configure(&site.section("a").replace("nbd\"]", &format!("nbd\", \"block:{name}\"]")));
    let daemon = site.daemon();
    let device = PathBuf::from(format!("/dev/loligo/{name}"));
    let user = std::fs::File::options().read(true).write(true).open(&device).expect("it can be opened");
    let stop = || {
        let mut command = site.command(&["volume", "stop", "a"]);
        let stop = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it runs");
        std::thread::sleep(Duration::from_secs(1));
        stop
    };
    let mut stops = [stop(), stop(), stop()];
    assert_eq!(site.status("a").0, "stopping");
    for stop in &mut stops {
        assert!(stop.try_wait().expect("its state").is_none(), "it does not wait");
    }
    let waits = format!("a: stopping: waiting to stop: {} (", device.display());
    std::thread::sleep(Duration::from_secs(3));
    let listed = site.ok(&["volume", "list"]);
    assert!(
        listed.contains(&waits) && listed.contains(" is in use by "),
        "for whom it waits is not told: {listed}"
    );
    user.write_all_at(&[7; 4096], 0).and_then(|()| user.sync_all()).expect("the device is there");
    drop(user);
    for stop in stops {
        let stop = stop.wait_with_output().expect("its end");
        assert!(stop.status.success());
        let said = String::from_utf8_lossy(&stop.stderr);
        assert!(said.contains(" is in use by "), "who waits for it is not told: {said}");
    }
    assert_eq!(site.status("a").0, "stopped");
    daemon.stop().expect("a clean stop");
}

#[test]
fn paths_are_those_of_the_folder_in_which_the_command_was_typed() {
    let site = Site::new(&["x"]);
    site.configure("");
    let daemon = site.daemon();
    let typed = |words: &[&str]| {
        let out = site.command(words).current_dir(site.dir.path()).output().expect("it runs");
        assert!(out.status.success(), "{words:?}: {}", String::from_utf8_lossy(&out.stderr));
    };
    let listen = format!("unix:{}", site.path("x.nbd").display());
    typed(&["volume", "create", "x", "--core", "x.core", "--listen", &listen]);
    let attach = ["volume", "attach", "x", "--cache", "x.cache", "--cache-size", "24m"];
    assert!(site.refused(&attach).contains("mode is missing"), "its definition has none");
    typed(&[&attach[..], &["--mode", "wb"]].concat());
    let shown = site.show("x");
    let text = |key: &str| shown["definition"][key].as_str().map(PathBuf::from);
    assert_eq!(text("core"), Some(site.path("x.core")));
    assert_eq!(text("cache"), Some(site.path("x.cache")));
    assert_eq!(site.load("x").size(), CORE);
    daemon.stop().expect("a clean stop");
}

#[test]
fn a_volume_that_cannot_start_when_made_is_not_kept() {
    let site = Site::new(&["x"]);
    site.configure("");
    let daemon = site.daemon();
    let text = |name: &str| site.path(name).display().to_string();
    let (core, cache, listen) = (text("x.core"), text("x.cache"), format!("unix:{}", text("x.nbd")));
    let create = ["volume", "create", "x", "--core", &core, "--cache", &cache, "--listen", &listen];
    let why = site.refused(&[&create[..], &["--mode", "wb", "--cache-size", "64k"]].concat());
    assert!(why.contains("it is not kept"), "{why}");
    assert_eq!(site.ok(&["volume", "list", "--json"]).trim(), "[]");
    let wanted = ["--profile", "osd-hdd", "--cache-size", "24m", "--param", "seq-threshold=1m"];
    site.ok(&[&create[..], &wanted].concat());
    let known = |of: &str| ["mode", "profile", "params"].map(|key| site.show(of)["definition"][key].clone());
    let before = known("x");
    assert_eq!(before[1], "osd-hdd");
    site.ok(&["volume", "detach", "x"]);
    assert!(known("x")[1].is_null());
    site.ok(&["volume", "attach", "x", "--cache", &text("y.cache"), "--cache-size", "24m"]);
    assert_eq!(known("x"), before);
    daemon.stop().expect("a clean stop");
}
