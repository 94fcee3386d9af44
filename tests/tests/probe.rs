//! Claims about `loligo probe`: it tells what is on a device, also of one that is served, and leaves it alone.

use loligo_tests::blockdev::impossible;
use loligo_tests::line::Line;
use loligo_tests::loops::Loop;
use loligo_tests::nbd::Command as Ask;
use loligo_tests::server::{Volume, program};
use serde_json::Value;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Command;

const MIB: u64 = 1 << 20;

fn probe(paths: &[&Path]) -> Vec<Value> {
    let out = Command::new(program()).args(["probe", "--json"]).args(paths).output().expect("it runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).expect("JSON")
}

fn volume(dir: &Path) -> Volume {
    std::fs::File::create(dir.join("core")).and_then(|f| f.set_len(64 * MIB)).expect("a core");
    Volume {
        dir: dir.to_owned(),
        cache: dir.join("cache"),
        cache_size: 24 * MIB,
        core: dir.join("core"),
        mode: "wb",
        more: ["--data-offset", "1m", "--param", "destage-rate=1"].map(str::to_owned).into(),
    }
}

#[test]
fn a_cache_and_its_core_are_told_while_served_and_stopped() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let volume = volume(dir.path());
    let both = [volume.cache.as_path(), volume.core.as_path()];
    assert_eq!(probe(&[&volume.core])[0]["kind"], "nothing");
    let server = volume.serve().expect("it starts");
    let mut line = Line::to(&volume).expect("a client");
    line.ask(0, &Ask::Write { data: vec![7; 8192], fua: false }).expect("written");
    drop(line);
    let seen = probe(&both);
    assert_eq!((&seen[0]["kind"], &seen[1]["kind"]), (&"cache".into(), &"core".into()), "{seen:?}");
    assert_eq!((&seen[0]["volume"], &seen[1]["volume"]), (&"vol".into(), &"vol".into()));
    assert_eq!(seen[0]["uuid"], seen[1]["cache"], "{seen:?}");
    assert!(seen.iter().all(|s| s["dirty_bytes"].is_null()), "nobody knows while it is served: {seen:?}");
    server.stop().expect("a clean stop");
    let seen = probe(&both);
    assert_eq!((&seen[0]["dirty_bytes"], &seen[1]["dirty_bytes"]), (&8192.into(), &8192.into()), "{seen:?}");
    assert_eq!(seen[0]["clean"], true);
    volume.serve().expect("it starts").kill().expect("it lived");
    assert!(probe(&both).iter().all(|s| s["dirty_bytes"].is_null()));
    // What a looker must not do: make the next start recover from anything else than it would have.
    volume.serve().expect("it starts").stop().expect("a clean stop");
}

#[test]
fn a_locked_device_is_probed_at_once_and_stays_as_it_is() {
    if impossible("probing a locked device") {
        return;
    }
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let device = Loop::new(&dir.path().join("disk"), 32 * MIB, 512).expect("a loop device");
    let before = std::fs::read(dir.path().join("disk")).expect("its content");
    let held = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_EXCL)
        .open(device.path())
        .expect("held");
    // Building it is not waiting.
    program();
    let begun = std::time::Instant::now();
    assert_eq!(probe(&[device.path()])[0]["kind"], "nothing");
    assert!(begun.elapsed().as_secs() < 5, "it waited for the lock");
    drop(held);
    assert_eq!(std::fs::read(dir.path().join("disk")).expect("its content"), before);
}

#[test]
fn udev_learns_nothing_of_strange_devices_and_enough_of_ours() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let volume = volume(dir.path());
    volume.serve().expect("it starts").stop().expect("a clean stop");
    let export = |path: &Path| {
        let out = Command::new(program()).args(["probe", "--export"]).arg(path).output().expect("it runs");
        assert!(out.status.success());
        String::from_utf8(out.stdout).expect("text")
    };
    let text = export(&volume.core);
    for line in ["ID_FS_TYPE=loligo_core", "ID_FS_USAGE=raid", "LOLIGO_VOLUME=vol", "LOLIGO_DIRTY_BYTES=0"] {
        assert!(text.lines().any(|l| l == line), "{line}: {text}");
    }
    assert!(export(&volume.cache).contains("ID_FS_TYPE=loligo_cache"));
    std::fs::write(dir.path().join("other"), vec![1; 1 << 20]).expect("written");
    assert_eq!(export(&dir.path().join("other")), "");
}

#[test]
fn a_pool_is_told_with_its_cores_while_served_and_stopped() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let pool = dir.path().join("pool");
    let text = pool.display().to_string();
    let loligo = |args: &[&str]| {
        let out = Command::new(program()).args(args).output().expect("it runs");
        assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).expect("text")
    };
    loligo(&["cache", "create", &text, "--size", "256m"]);
    let seen = &probe(&[&pool])[0];
    assert_eq!(
        (&seen["kind"], seen["members"].as_array().map(Vec::len)),
        (&"pool".into(), Some(0)),
        "{seen}"
    );
    for (core, name) in [("1", Volume::NAME), ("7", "other")] {
        loligo(&["cache", "attach", &text, "--core", core, "--name", name, "--min", "48m", "--max", "64m"]);
    }
    std::fs::File::create(dir.path().join("core")).and_then(|f| f.set_len(64 * MIB)).expect("a core");
    let listen = format!("unix:{}", dir.path().join("nbd.sock").display());
    let core = dir.path().join("core").display().to_string();
    let share = format!("pool:{text}#1");
    let words = ["--mode", "wb", "--cache", &share, "--core", &core, "--listen", &listen];
    let words: Vec<String> =
        words.iter().chain(&["--param", "destage-rate=1"]).map(|w| (*w).to_owned()).collect();
    let mut server = loligo_tests::server::Server::launch(dir.path(), &words).expect("it runs");
    server.ready().expect("it serves");
    let served = Volume { dir: dir.path().to_owned(), ..volume(dir.path()) };
    let mut line = Line::to(&served).expect("a client");
    line.ask(0, &Ask::Write { data: vec![7; 8192], fua: false }).expect("written");
    drop(line);
    let seen = &probe(&[&pool])[0];
    let (one, other) = (&seen["members"][0], &seen["members"][1]);
    assert_eq!(
        (&one["core"], &one["volume"], &one["mode"]),
        (&1.into(), &"vol".into(), &"wb".into()),
        "{seen}"
    );
    assert!(one["dirty_bytes"].is_null() && seen["dirty_bytes"].is_null(), "nobody knows: {seen}");
    assert!(one["bytes"].as_u64() >= Some(48 * MIB) && one["max"] == 64 * MIB, "{seen}");
    assert_eq!(
        (&other["core"], &other["volume"], &other["dirty_bytes"]),
        (&7.into(), &"other".into(), &0.into())
    );
    assert!(other["cache"].is_null(), "it has none yet: {seen}");
    server.stop().expect("a clean stop");
    let seen = &probe(&[&pool])[0];
    assert_eq!(
        (&seen["members"][0]["dirty_bytes"], &seen["dirty_bytes"]),
        (&8192.into(), &8192.into()),
        "{seen}"
    );
    let said = loligo(&["probe", &text]);
    assert!(said.contains("shared by 2 cores") && said.contains("core 1, volume 'vol'"), "{said}");
    assert!(said.contains("8192 bytes are newer") && said.contains("core 7, volume 'other'"), "{said}");
    let told = loligo(&["probe", "--export", &text]);
    for line in ["ID_FS_TYPE=loligo_pool", "ID_FS_USAGE=raid", "LOLIGO_KIND=pool", "LOLIGO_DIRTY_BYTES=8192"]
    {
        assert!(told.lines().any(|l| l == line), "{line}: {told}");
    }
}
