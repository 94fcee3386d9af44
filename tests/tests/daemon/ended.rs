//! A volume that is ended at once, as the death of its process would, while the daemon lives on; and sockets that are bound and let
//! go of while it is served.

use crate::site::{CORE, PATIENCE, Site};
use loligo_sim::rng::Rng;
use loligo_tests::history::{Crash, History};
use loligo_tests::load::{End, Mix};
use loligo_tests::nbd::Command;
use loligo_tests::shared_array::SharedArray;
use std::io::Read;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Longest that an end may take, whatever hangs.
const AT_ONCE: Duration = Duration::from_secs(3);
/// The time in which a write that is still to come would come.
const LATER: Duration = Duration::from_secs(2);

#[test]
fn an_end_at_once_leaves_the_cache_as_after_a_crash() {
    let site = Site::new(&["a"]);
    let daemon = site.daemon();
    let mut history = History::new(CORE);
    let mut load = site.load("a");
    load.write(&mut history, 0..4096, false).expect("written");
    let begun = Instant::now();
    std::thread::scope(|s| {
        let running = s.spawn(|| {
            let end =
                load.run(&mut history, &mut Rng::new(3), &Mix::default(), || begun.elapsed() > PATIENCE);
            assert_eq!(end.expect("right data"), End::Lost);
        });
        std::thread::sleep(Duration::from_millis(500));
        let ended = Instant::now();
        site.ok(&["volume", "end", "a"]);
        assert!(ended.elapsed() < AT_ONCE, "it took {:?}", ended.elapsed());
        running.join().expect("its clients are hung up on");
    });
    assert_eq!(site.status("a").0, "stopped");
    let bytes = || ["a.cache", "a.core"].map(|name| std::fs::read(site.path(name)).expect("a file"));
    let then = bytes();
    std::thread::sleep(LATER);
    assert!(bytes() == then, "something was written after the end");
    let superblock = site.ok(&["inspect", &site.path("a.cache").display().to_string()]);
    assert!(!superblock.contains("stopped cleanly: yes"), "{superblock}");
    assert!(!site.path("a.nbd").exists(), "its socket is gone");
    site.ok(&["volume", "end", "a"]);
    site.ok(&["volume", "start", "a"]);
    site.verified("a", &mut history, Some(Crash::Killed));
    daemon.stop().expect("a clean stop");
}

#[test]
fn an_end_at_once_waits_for_no_device_that_hangs() {
    let site = Site::new(&[]);
    let Some(array) = SharedArray::new("devices that hang", &site.path("cache"), "24m") else { return };
    site.core("v");
    site.configure(&format!(
        "[volume.v]\ncore = \"{}\"\ncache = \"{}\"\nmode = \"wb\"\nlisten = [\"unix:{}\"]\n",
        site.path("v.core").display(),
        array.lun("a").display(),
        site.path("v.nbd").display()
    ));
    let daemon = site.daemon();
    let mut history = History::new(CORE);
    let mut load = site.load("v");
    load.write(&mut history, 0..2048, false).expect("written");
    array.fault("a", r#"{"delay_ms": 15000}"#);
    std::thread::scope(|s| {
        let writing = s.spawn(|| {
            load.write(&mut history, 2048..4096, false).expect_err("its connection ends");
            Instant::now()
        });
        std::thread::sleep(Duration::from_millis(500));
        assert!(!writing.is_finished(), "the device does not hang");
        let begun = Instant::now();
        site.ok(&["volume", "end", "v"]);
        assert!(begun.elapsed() < AT_ONCE, "it took {:?}", begun.elapsed());
        let cut = writing.join().expect("it is cut").saturating_duration_since(begun);
        assert!(cut < AT_ONCE, "the client was held for {cut:?}");
    });
    assert_eq!(site.status("v").0, "stopped");
    assert!(UnixStream::connect(site.path("v.nbd")).is_err(), "nobody listens");
    // Operations that the kernel has keep the device until they are over.
    let deadline = Instant::now() + PATIENCE + PATIENCE;
    array.fault("a", "{}");
    while !site.loligo(&["volume", "start", "v"]).status.success() {
        assert!(Instant::now() < deadline, "it does not start again: {}", daemon.words());
        std::thread::sleep(Duration::from_millis(200));
    }
    site.verified("v", &mut history, Some(Crash::Killed));
    daemon.stop().expect("a clean stop");
}

/// A port of this host that nobody has.
fn port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its number").port()
}

#[test]
fn a_socket_is_bound_and_let_go_of_when_told() {
    let site = Site::new(&["a"]);
    let told = format!("127.0.0.1:{}", port());
    site.configure(
        &site.section("a").replace("listen = [", &format!("listen = [\"tcp:{told}?when-told\", ")),
    );
    let daemon = site.daemon();
    let connect = || TcpStream::connect(&told);
    assert!(connect().is_err(), "nobody said so yet");
    let mut stays = site.line("a");
    for _ in 0..3 {
        let said = site.ok(&["volume", "bind", "a"]);
        assert!(said.contains(&format!("tcp:{told}")), "{said}");
        site.ok(&["volume", "bind", "a"]);
        let mut client = connect().expect("it listens");
        let mut greeting = [0; 16];
        client.read_exact(&mut greeting).expect("it is served");
        assert_eq!(&greeting, b"NBDMAGICIHAVEOPT");
        let said = site.ok(&["volume", "unbind", "a"]);
        assert!(!said.contains("tcp:"), "{said}");
        client.set_read_timeout(Some(AT_ONCE)).expect("a timeout");
        assert_eq!(
            client.read_to_end(&mut Vec::new()).expect("it is hung up on"),
            2,
            "the flags, and no more"
        );
        assert!(connect().is_err(), "its address is free");
        // It can be another's at once.
        drop(std::net::TcpListener::bind(&told).expect("the address is free"));
        stays.try_ask(0, &Command::Read(4096)).expect("the other way stays").expect("an answer");
    }
    let unix = format!("unix:{}", site.path("a.nbd").display());
    site.ok(&["volume", "unbind", "a", &unix]);
    assert!(!site.path("a.nbd").exists());
    stays.try_ask(0, &Command::Read(4096)).expect_err("it is hung up on");
    site.ok(&["volume", "bind", "a", &unix]);
    site.line("a").try_ask(0, &Command::Read(4096)).expect("it is served again").expect("an answer");
    daemon.stop().expect("a clean stop");
}

#[test]
fn a_socket_whose_address_is_not_there_is_refused_with_the_mend() {
    let site = Site::new(&["a"]);
    std::fs::write(site.path("keys"), format!("host:{}\n", "5a".repeat(32))).expect("a key");
    std::fs::set_permissions(site.path("keys"), std::os::unix::fs::PermissionsExt::from_mode(0o600))
        .expect("it is ours");
    // An address for documentation: none of this host's.
    let section = site.section("a").replace("listen = [", "listen = [\"tcp:203.0.113.9:10809?when-told\", ");
    site.configure(&format!("{section}tls = {{ psk = \"{}\" }}\n", site.path("keys").display()));
    let daemon = site.daemon();
    assert_eq!(site.status("a").0, "serving", "it does not wait for the address");
    let why = site.refused(&["volume", "bind", "a"]);
    assert!(why.contains("203.0.113.9:10809") && why.contains("Add the address to this host first"), "{why}");
    let why = site.refused(&["volume", "bind", "a", "tcp:127.0.0.1:1"]);
    assert!(why.contains("no socket of this volume's definition"), "{why}");
    daemon.stop().expect("a clean stop");
}
