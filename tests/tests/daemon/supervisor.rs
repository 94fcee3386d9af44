//! A volume that leaves the set is waited for, and of several that come under one name one does.

use crate::site::{CORE, PATIENCE, Site};
use loligo_tests::blockdev::impossible;
use loligo_tests::history::History;
use loligo_tests::load::{End, Load};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Waits until `holds`.
fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Bytes that the other end of `socket` has not read yet.
fn unread(socket: &UnixStream) -> libc::c_int {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the descriptor is open, and one number is written.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    assert_eq!(done, 0, "the kernel tells it of a unix socket");
    bytes
}

/// A volume on a slow disk whose cache is dirty all over, written to the disk when the volume stops.
fn slow_and_dirty(site: &Site) -> (String, History) {
    let slow =
        site.section("a").replace("core = \"", "core = \"hdd:").replace("/a.core\"", "/a.core?rpm=7200\"");
    let section = slow + "flush-on-stop = true\nparams = { destage-low = 90 }\n";
    (section, History::new(CORE))
}

fn dirty(site: &Site, history: &mut History) {
    let mut load = site.load("a");
    for place in 0..48 {
        load.write(history, place * 2560..place * 2560 + 32, false).expect("written");
    }
    load.flush(history).expect("flushed");
}

/// The core has everything: without the cache it is the volume.
fn has_everything(site: &Site, history: &mut History) {
    let dir = site.dir.path().display();
    let bare = format!("[volume.z]\ncore = \"{dir}/a.core\"\nlisten = [\"unix:{dir}/z.nbd\"]\n");
    site.configure(&bare);
    let daemon = site.daemon();
    assert_eq!(site.status("z").0, "serving", "{:?}", site.status("z"));
    site.verified("z", history, None);
    daemon.stop().expect("a clean stop");
}

#[test]
fn a_volume_removed_by_reload_finishes_its_flush() {
    let site = Site::new(&["a"]);
    let (section, mut history) = slow_and_dirty(&site);
    site.configure(&section);
    let daemon = site.daemon();
    dirty(&site, &mut history);
    site.configure("");
    let said = site.ok(&["config", "reload"]);
    assert!(said.contains("a: no longer in the file"), "{said}");
    daemon.stop().expect("a clean stop");
    has_everything(&site, &mut history);
}

#[test]
fn a_volume_whose_section_comes_back_while_it_leaves_stays() {
    let site = Site::new(&["a"]);
    let (section, mut history) = slow_and_dirty(&site);
    site.configure(&section);
    let daemon = site.daemon();
    dirty(&site, &mut history);
    site.configure("");
    site.ok(&["config", "reload"]);
    site.configure(&section);
    let said = site.ok(&["config", "reload"]);
    assert!(said.contains("a: is back") || said.contains("a: new"), "{said}");
    site.wait_for("a", "serving");
    assert!(site.show("a")["leaving"].is_null());
    site.verified("a", &mut history, None);
    daemon.stop().expect("a clean stop");
}

#[test]
fn a_block_device_in_use_outlives_its_section() {
    if impossible("a block device in use outlives its section") {
        return;
    }
    let site = Site::new(&["a"]);
    let name = format!("lea{}", std::process::id());
    let section = site.section("a").replace("\"unix:", &format!("\"loop:{name}\", \"unix:"));
    site.configure(&section);
    let mut daemon = site.daemon();
    let path = std::path::Path::new("/dev/loligo").join(&name);
    let held = std::fs::File::options().read(true).write(true).open(path).expect("the device");
    site.configure("");
    site.ok(&["config", "reload"]);
    let listed = site.show("a");
    assert_eq!(
        (&listed["leaving"], &listed["status"]["state"]),
        (&true.into(), &"stopping".into()),
        "{listed}"
    );
    let why = site.refused(&["volume", "start", "a"]);
    assert!(why.contains("is being stopped, and is none any more after that"), "{why}");
    daemon.terminate();
    wait_until("the daemon says that somebody uses it", || daemon.log().contains("waiting to stop"));
    held.write_all_at(&[7; 4096], 1 << 20).and_then(|()| held.sync_all()).expect("it is served");
    drop(held);
    let ended = daemon.ended().expect("an end");
    assert!(ended.success(), "{ended}");
}

#[test]
fn a_renamed_volume_waits_for_its_former_name() {
    if impossible("a renamed volume waits for its former name") {
        return;
    }
    let site = Site::new(&["a"]);
    let name = format!("ren{}", std::process::id());
    let section = site.section("a").replace("\"unix:", &format!("\"loop:{name}\", \"unix:"));
    site.configure(&section);
    let daemon = site.daemon();
    let mut history = History::new(CORE);
    site.load("a").write(&mut history, 0..2048, true).expect("written");
    let path = std::path::Path::new("/dev/loligo").join(&name);
    let held = std::fs::File::open(path).expect("the device");
    site.configure(&section.replace("[volume.a]", "[volume.b]"));
    site.ok(&["config", "reload"]);
    // Longer than a device that is in use is waited for.
    std::thread::sleep(Duration::from_secs(12));
    assert_eq!(site.status("a").0, "stopping");
    let (state, why) = site.status("b");
    assert!(state == "waiting" && why.contains("'a' is being stopped"), "{state}: {why}");
    drop(held);
    site.wait_gone("a");
    site.wait_for("b", "serving");
    let mut load = Load::connect(&site.path("a.nbd"), "b", 1).expect("a connection");
    assert_eq!(load.verify(&mut history, None).expect("right data"), End::Done);
    daemon.stop().expect("a clean stop");
}

#[test]
fn of_four_creates_at_once_one_counts() {
    let site = Site::new(&[]);
    let daemon = site.daemon();
    let dir = site.dir.path().display().to_string();
    let all: Vec<_> = (0..4)
        .map(|n| {
            site.core(&format!("c{n}"));
            let (core, listen) = (format!("{dir}/c{n}.core"), format!("unix:{dir}/c{n}.nbd"));
            site.command(&["volume", "create", "c", "--core", &core, "--listen", &listen])
                .stderr(Stdio::piped())
                .spawn()
                .expect("it runs")
        })
        .collect();
    let mut counts = Vec::new();
    for (n, mut create) in all.into_iter().enumerate() {
        let mut words = String::new();
        create.stderr.take().expect("a pipe").read_to_string(&mut words).expect("its words");
        if create.wait().expect("an end").success() {
            counts.push(n);
        } else {
            assert!(words.contains("there is a volume 'c' already"), "{words}");
        }
    }
    assert_eq!(counts.len(), 1, "{counts:?}");
    let served: Vec<usize> = (0..4).filter(|n| site.path(&format!("c{n}.nbd")).exists()).collect();
    assert_eq!(served, counts, "nobody serves what is not listed");
    let listed = site.ok(&["volume", "list"]);
    assert!(listed.contains(&format!("c{}.core", counts[0])), "{listed}");
    daemon.stop().expect("a clean stop");
}

#[test]
fn a_restart_goes_on_without_who_asked_for_it() {
    let site = Site::new(&["a"]);
    let daemon = site.daemon();
    let mut history = History::new(CORE);
    site.load("a").write(&mut history, 0..2048, true).expect("written");
    site.configure(&site.section("a").replace("\"wb\"", "\"wt\""));
    site.ok(&["config", "reload"]);
    let mut asks = UnixStream::connect(site.path("loligod.sock")).expect("it listens");
    let restart = b"POST /v1/volumes/a/restart HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n";
    asks.write_all(restart).expect("asked");
    // Who leaves before the daemon has read it has not asked.
    wait_until("the daemon reads it", || unread(&asks) == 0);
    drop(asks);
    wait_until("it is started by its new definition", || site.show("a")["mode"] == "wt");
    site.wait_for("a", "serving");
    site.verified("a", &mut history, None);
    daemon.stop().expect("a clean stop");
}

#[test]
fn a_forced_stop_does_not_wait_for_users_of_a_block_device() {
    if impossible("a forced stop does not wait for users of a block device") {
        return;
    }
    let site = Site::new(&["a", "b"]);
    let name = format!("force{}", std::process::id());
    let section = site.section("a").replace("\"unix:", &format!("\"loop:{name}\", \"unix:"));
    site.configure(&(section + &site.section("b")));
    let daemon = site.daemon();
    let path = std::path::Path::new("/dev/loligo").join(&name);
    let held = std::fs::File::options().read(true).write(true).open(path).expect("the device");
    site.ok(&["volume", "stop", "a", "--force"]);
    assert_eq!((site.status("a").0, site.status("b").0), ("stopped".into(), "serving".into()));
    drop(held);
    daemon.stop().expect("a clean stop");
}

#[test]
fn a_stop_that_flushes_is_taken_back_by_a_start() {
    let site = Site::new(&["a"]);
    let (section, mut history) = slow_and_dirty(&site);
    // Tracks so short that the flush takes seconds, whatever way it goes.
    site.configure(&section.replace("rpm=7200", "rpm=7200&track=64k"));
    let daemon = site.daemon();
    let mut client = site.load("a");
    for place in 0..640 {
        client.write(&mut history, place * 160..place * 160 + 32, false).expect("written");
    }
    let mut stop = site.command(&["volume", "stop", "a"]).stderr(Stdio::piped()).spawn().expect("it runs");
    wait_until("it flushes before it stops", || daemon.log().contains("takes the stop back"));
    assert_eq!(site.status("a").0, "stopping");
    client.write(&mut history, 8..16, true).expect("clients are served meanwhile");
    site.ok(&["volume", "start", "a"]);
    assert_eq!(site.status("a").0, "serving");
    client.write(&mut history, 16..24, true).expect("the same connection is served on");
    assert!(!stop.wait().expect("an end").success(), "the stop came to nothing");
    site.verified("a", &mut history, None);
    drop(client);
    site.ok(&["volume", "stop", "a"]);
    daemon.stop().expect("a clean stop");
    has_everything(&site, &mut history);
}
