//! A core that fails under the daemon: who is told what, what is kept, and what becomes of it once the core is mended.

use crate::site::{CORE, Site};
use loligo_tests::blockdev::impossible;
use loligo_tests::direct;
use loligo_tests::history::{Crash, History};
use loligo_tests::lossy::{Mounted, Part};
use loligo_tests::nbd::Command;
use loligo_tests::server::program;
use loligo_tests::skip;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Sectors that are written, and stay dirty for want of a core.
const WRITTEN: u64 = 4096;

/// A volume `a` whose core is on a file system of our own, and one, `b`, whose core is not.
struct Breakable {
    site: Site,
    fs: Mounted,
    /// The block device of `a`, where there can be one.
    device: Option<PathBuf>,
}

impl Breakable {
    /// Nothing where there can be no such file system; that is said.
    fn new(mode: &str) -> Option<Breakable> {
        let site = Site::new(&["b"]);
        let at = site.path("fs");
        let mounted = skip::fuse().and_then(|()| {
            std::fs::create_dir(&at).and_then(|()| Mounted::new(&at, 5)).map_err(|e| e.to_string())
        });
        let fs = match mounted {
            Ok(fs) => fs,
            Err(why) => {
                skip::skip("a core that fails under the daemon", &why);
                return None;
            }
        };
        let core = fs.make("core", CORE).display().to_string();
        static MADE: AtomicU32 = AtomicU32::new(0);
        let name = format!("t{}-core-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let device = (!impossible("a failing core under a block device"))
            .then(|| PathBuf::from(format!("/dev/loligo/{name}")));
        let old = site.path("a.core").display().to_string();
        let mut a = site.section("a").replace(&old, &core).replace("\"wb\"", &format!("\"{mode}\""));
        if device.is_some() {
            a = a.replace("nbd\"]", &format!("nbd\", \"block:{name}\"]"));
        }
        site.configure(&(a + &site.section("b")));
        Some(Breakable { site, fs, device })
    }

    /// The same without caches.
    fn bare() -> Option<Breakable> {
        let b = Breakable::new("wb")?;
        let file = b.site.path("loligod.toml");
        let text = std::fs::read_to_string(&file).expect("a configuration");
        let of_cache = |line: &&str| ["cache", "mode"].iter().any(|key| line.starts_with(key));
        let bare: Vec<_> = text.lines().filter(|line| !of_cache(line)).collect();
        std::fs::write(file, bare.join("\n")).expect("a configuration");
        Some(b)
    }

    fn fail(&self, part: Part) {
        self.fs.power().fail("core", part);
    }

    fn trouble(&self, volume: &str) -> Option<String> {
        self.site.show(volume)["trouble"].as_str().map(str::to_owned)
    }

    /// The bytes that the kernel's users of the volume read at `at`.
    fn read_by_device(&self, at: u64) -> Option<std::io::Result<()>> {
        let file = direct::open(self.device.as_ref()?, 0).expect("it is there");
        let mut page = loligo_block::Buf::zeroed(4096);
        Some(file.read_exact_at(&mut page, at))
    }

    /// The other volume notices nothing.
    fn other_is_well(&self, history: &mut History) {
        self.site.load("b").write(history, 0..64, true).expect("written");
        assert_eq!(self.trouble("b"), None);
    }
}

#[test]
fn a_core_that_takes_no_writes_is_told_of_and_gets_them_mended() {
    let Some(b) = Breakable::new("wb") else { return };
    let (mut history, mut others) = (History::new(CORE), History::new(CORE));
    let daemon = b.site.daemon();
    assert_eq!(b.trouble("a"), None);
    for part in [Part::Writes, Part::All] {
        b.fail(part);
        b.site.load("a").write(&mut history, 0..WRITTEN, true).expect("the cache takes it");
        let said = b.site.refused(&["flush", "a"]);
        assert!(said.contains("core"), "{said}");
        let told = b.trouble("a").expect("it is told");
        assert!(told.contains("takes no writes") && told.contains("stays on the cache"), "{told}");
        for words in [&["volume", "show", "a"][..], &["volume", "list"]] {
            let said = b.site.ok(words);
            assert!(said.contains("trouble: its core takes no writes"), "{words:?}: {said}");
        }
        assert_eq!(b.site.status("a").0, "serving", "what is cached can be had");
        assert_eq!(b.site.load("a").read(&mut history, 0..WRITTEN).expect("right data"), Some(()));
        b.other_is_well(&mut others);
        b.fs.power().mend();
        b.site.ok(&["flush", "a"]);
        assert_eq!(b.site.show("a")["dirty_bytes"], 0);
        assert!(b.trouble("a").is_none_or(|t| !t.contains("takes no writes")), "{:?}", b.trouble("a"));
        b.site.verified("a", &mut history, None);
    }
    daemon.stop().expect("a clean stop");
    let daemon = b.site.daemon();
    b.site.wait_for("a", "serving");
    assert_eq!(b.trouble("a"), None, "that was another life");
    b.site.verified("a", &mut history, None);
    daemon.stop().expect("a clean stop");
}

#[test]
fn a_detach_whose_last_flush_fails_keeps_the_cache() {
    let Some(b) = Breakable::new("wt") else { return };
    let mut history = History::new(CORE);
    let daemon = b.site.daemon();
    b.site.load("a").write(&mut history, 0..512, true).expect("written");
    b.fail(Part::Flushes);
    let said = b.site.refused(&["volume", "detach", "a"]);
    assert!(said.contains("the cache stays") && said.contains("volume restart a"), "{said}");
    b.fs.power().mend();
    // Its stop says that the cache was not brought to an end.
    let _ = b.site.loligo(&["volume", "restart", "a"]);
    b.site.wait_for("a", "serving");
    assert_eq!(b.site.show("a")["mode"], "wt", "it has its cache");
    b.site.verified("a", &mut history, None);
    b.site.ok(&["volume", "detach", "a"]);
    b.site.verified("a", &mut history, None);
    daemon.stop().expect("a clean stop");
}

#[test]
fn a_detach_whose_note_hangs_leaves_the_volume_to_its_cache() {
    let Some(b) = Breakable::new("wb") else { return };
    let mut history = History::new(CORE);
    let daemon = b.site.daemon();
    b.site.load("a").write(&mut history, 0..512, true).expect("written");
    b.site.ok(&["flush", "a"]);
    let mut client = b.site.line("a");
    client.ask(0, &Command::Read(4096)).expect("the cache has it");
    b.fs.power().hang("core", Part::Flushes);
    let mut detach =
        b.site.command(&["volume", "detach", "a"]).stderr(Stdio::piped()).spawn().expect("it runs");
    // All requests are held, and the folder was tried for the last time.
    let held = std::thread::spawn(move || client.ask(0, &Command::Read(4096)).map(|_| client));
    std::thread::sleep(Duration::from_secs(2));
    // Who opens it to write waits for a reader.
    let fifo = b.site.path("state/state.new");
    let mode = rustix::fs::Mode::RWXU;
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, mode).expect("a pipe");
    b.fs.power().mend();
    let mut said = String::new();
    detach.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
    assert_eq!(detach.wait().expect("a child").code(), Some(1), "{said}");
    assert!(said.contains("keeps its cache") && said.contains("has not answered"), "{said}");
    held.join().expect("it ended").expect("it was answered, and no error");
    assert_eq!((b.site.status("a").0.as_str(), &b.site.show("a")["mode"]), ("serving", &"wt".into()));
    b.site.load("a").write(&mut history, 256..1024, true).expect("written");
    assert_eq!(b.site.show("a")["dirty_bytes"].as_u64(), Some(0), "what may be noted is true");

    let reader = std::fs::File::open(&fifo).expect("a reader");
    std::fs::remove_file(&fifo).expect("removed");
    b.site.ok(&["mode", "a", "wb"]);
    drop(reader);
    b.site.load("a").write(&mut history, 0..512, true).expect("written");
    daemon.kill().expect("it ran");
    let daemon = b.site.daemon();
    b.site.verified("a", &mut history, None);
    b.site.ok(&["volume", "detach", "a"]);
    b.site.verified("a", &mut history, None);
    daemon.stop().expect("a clean stop");
}

#[test]
fn a_longer_core_is_durable_before_its_cache_knows_of_it() {
    let Some(b) = Breakable::new("wb") else { return };
    let mut history = History::new(CORE);
    let daemon = b.site.daemon();
    b.site.load("a").write(&mut history, 0..512, true).expect("written");
    b.fail(Part::Flushes);
    let said = b.site.refused(&["volume", "resize", "a", "--size", &(2 * CORE).to_string()]);
    assert!(said.contains("cannot be made durable"), "{said}");
    daemon.kill().expect("it ran");
    b.fs.power().mend();
    // As a loss of power may leave it.
    let core = std::fs::File::options().write(true).open(b.fs.dir().join("core")).expect("a core");
    core.set_len(CORE).expect("it is as short as it was");
    drop(core);
    let daemon = b.site.daemon();
    b.site.wait_for("a", "serving");
    b.site.verified("a", &mut history, None);
    daemon.stop().expect("a clean stop");
}

#[test]
fn a_core_that_cannot_be_read_fails_only_what_it_alone_has() {
    let Some(b) = Breakable::new("wb") else { return };
    let mut history = History::new(CORE);
    let daemon = b.site.daemon();
    b.site.load("a").write(&mut history, 0..WRITTEN, true).expect("written");
    b.fail(Part::All);
    let far = CORE / 2;
    let missed = b.site.load("a").read(&mut history, far / 512..far / 512 + 8).expect("no wrong data");
    assert_eq!(missed, None, "a client gets EIO");
    if let Some(read) = b.read_by_device(far) {
        assert_eq!(read.expect_err("a program too").raw_os_error(), Some(libc::EIO));
        b.read_by_device(0).expect("a device").expect("what is cached is there");
    }
    assert_eq!(b.site.load("a").read(&mut history, 0..WRITTEN).expect("right data"), Some(()));
    let told = b.trouble("a").expect("it is told");
    assert!(told.contains("have failed since it was started") || told.contains("takes no writes"), "{told}");
    assert_eq!(b.site.status("a").0, "serving");
    // A daemon that starts now does not serve what it cannot vouch for, and loses nothing by that.
    daemon.kill().expect("it lived");
    let daemon = b.site.daemon();
    let deadline = Instant::now() + Duration::from_secs(20);
    while b.site.status("a").0 == "starting" && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(50));
    }
    let (state, why) = b.site.status("a");
    assert!(state == "refused" && why.contains("the core cannot be read"), "{state}: {why}");
    b.other_is_well(&mut History::new(CORE));
    b.fs.power().mend();
    b.site.ok(&["volume", "start", "a"]);
    b.site.verified("a", &mut history, Some(Crash::Killed));
    daemon.stop().expect("a clean stop");
}

#[test]
fn a_flush_that_fails_while_a_cache_is_made_is_not_forgotten() {
    let Some(b) = Breakable::bare() else { return };
    let mut history = History::new(CORE);
    let daemon = b.site.daemon();
    b.site.load("a").write(&mut history, 0..64, true).expect("written");
    let large = b.site.path("large").display().to_string();
    let args = ["volume", "attach", "a", "--cache", &large, "--cache-size", "1g", "--mode", "wb"];
    let mut attach = b.site.command(&args).stderr(Stdio::piped()).spawn().expect("it runs");
    let deadline = Instant::now() + Duration::from_secs(20);
    while std::fs::metadata(&large).map_or(0, |m| std::os::unix::fs::MetadataExt::blocks(&m)) < 1 << 15 {
        assert!(Instant::now() < deadline, "it does not begin");
        std::thread::sleep(Duration::from_millis(5));
    }
    b.fail(Part::Flushes);
    let mut load = b.site.load("a");
    load.write(&mut history, 64..128, false).expect("nothing is flushed");
    load.flush(&mut history).expect_err("the core fails");
    b.fs.power().mend();
    let mut words = String::new();
    std::io::Read::read_to_string(&mut attach.stderr.take().expect("a pipe"), &mut words).expect("text");
    assert!(!attach.wait().expect("it ends").success(), "what is lost would be forgotten: {words}");
    assert!(words.contains("acknowledges nothing any more"), "{words}");
    b.site.load("a").flush(&mut history).expect_err("the next flush cannot vouch for it");
    let said = b.site.refused(&["volume", "stop", "a"]);
    assert!(said.contains("since the last flush may be lost"), "{said}");
    b.site.ok(&["volume", "start", "a"]);
    daemon.stop().expect("a clean stop");
}

#[test]
fn only_a_silent_core_makes_requests_wait_that_need_it() {
    let Some(b) = Breakable::new("wb") else { return };
    let (mut history, mut others) = (History::new(CORE), History::new(CORE));
    let daemon = b.site.daemon();
    b.site.load("a").write(&mut history, 0..WRITTEN, true).expect("written");
    b.fs.power().hang("core", Part::All);
    let mut far = b.site.line("a");
    let missed = std::thread::spawn(move || far.ask(CORE / 2, &Command::Read(4096)));
    let until = Instant::now() + Duration::from_secs(2);
    while Instant::now() < until {
        assert_eq!(b.site.load("a").read(&mut history, 0..WRITTEN).expect("right data"), Some(()));
        b.site.load("a").write(&mut history, WRITTEN..2 * WRITTEN, true).expect("the cache takes it");
        if let Some(read) = b.read_by_device(0) {
            read.expect("a program has it too");
        }
    }
    b.other_is_well(&mut others);
    assert!(!missed.is_finished(), "what only the core has was answered without it");
    b.fs.power().mend();
    let data = missed.join().expect("it ended").expect("it is answered, and no error");
    assert!(data.iter().all(|byte| *byte == 0), "nobody ever wrote there");
    b.site.ok(&["flush", "a"]);
    assert_eq!((b.trouble("a"), b.site.show("a")["dirty_bytes"].as_u64()), (None, Some(0)));
    b.site.verified("a", &mut history, None);
    daemon.stop().expect("a clean stop");
}

#[test]
fn a_write_through_to_a_core_that_fails_is_no_success() {
    let Some(b) = Breakable::new("wt") else { return };
    let mut history = History::new(CORE);
    let daemon = b.site.daemon();
    b.site.load("a").write(&mut history, 0..WRITTEN, true).expect("written");
    b.fail(Part::Writes);
    let refused = b.site.load("a").write(&mut history, 0..64, false);
    assert!(refused.is_err(), "it was acknowledged, and the core does not have it");
    assert!(b.trouble("a").is_some(), "nobody is told");
    b.fs.power().mend();
    b.site.load("a").write(&mut history, 0..64, true).expect("it goes on by itself");
    b.site.verified("a", &mut history, None);
    daemon.kill().expect("it lived");
    let daemon = b.site.daemon();
    b.site.verified("a", &mut history, Some(Crash::Killed));
    daemon.stop().expect("a clean stop");
}

#[test]
fn a_log_that_nobody_reads_holds_no_request_up() {
    let Some(b) = Breakable::new("wt") else { return };
    let (core, listen) = (b.fs.dir().join("core"), b.site.path("a.nbd"));
    b.site.configure(&format!(
        "[volume.a]\ncore = \"{}\"\nlisten = [\"unix:{}\"]\n",
        core.display(),
        listen.display()
    ));
    let (unread, log) = std::io::pipe().expect("a pipe");
    let mut daemon = std::process::Command::new(program())
        .args(["daemon", "--config"])
        .arg(b.site.path("loligod.toml"))
        .env("LOLIGO_RUNTIME_DIR", b.site.dir.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log.try_clone().expect("another end"))
        .spawn()
        .expect("it runs");
    let deadline = Instant::now() + Duration::from_secs(30);
    while !listen.exists() || !b.site.loligo(&["volume", "list"]).status.success() {
        assert!(Instant::now() < deadline, "it does not serve");
        std::thread::sleep(Duration::from_millis(50));
    }
    b.site.wait_for("a", "serving");
    // Opened anew, so that the daemon's end goes on waiting.
    let end = format!("/proc/self/fd/{}", log.as_raw_fd());
    let mut filler =
        std::fs::File::options().write(true).custom_flags(libc::O_NONBLOCK).open(end).expect("its end");
    while filler.write(&[b'.'; 4096]).is_ok() {}
    while filler.write(b".").is_ok() {}
    b.fail(Part::All);
    let mut load = b.site.load("a");
    let (says, said) = std::sync::mpsc::channel();
    let reads = std::thread::spawn(move || {
        let mut history = History::new(CORE);
        for at in 0..500 {
            assert_eq!(load.read(&mut history, at * 8..at * 8 + 8).expect("no wrong data"), None, "EIO");
        }
        let _ = says.send(());
    });
    let answered = said.recv_timeout(Duration::from_secs(30));
    daemon.kill().and_then(|()| daemon.wait()).expect("it lived");
    assert!(answered.is_ok(), "requests wait for the log");
    reads.join().expect("each read fails");
    drop(unread);
}
