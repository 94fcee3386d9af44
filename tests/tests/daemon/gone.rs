//! A cache device that goes. While the core has everything the volume goes on without it, and nobody believes it afterwards; where the
//! core lacks anything, everything fails at once.

use crate::live::under_load;
use crate::site::{CORE, Site};
use loligo_tests::history::{Crash, History};
use loligo_tests::line::{EIO, Line};
use loligo_tests::lossy::{Mounted, Part};
use loligo_tests::nbd::Command;
use loligo_tests::server::{Server, Volume};
use loligo_tests::skip;
use std::time::{Duration, Instant};

/// A volume `a` whose cache is on a file system of our own, or the reason why not.
struct Breakable {
    site: Site,
    fs: Mounted,
}

impl Breakable {
    fn new() -> Option<Breakable> {
        let site = Site::new(&[]);
        let at = site.path("fs");
        let mounted = skip::fuse().and_then(|()| {
            std::fs::create_dir(&at).and_then(|()| Mounted::new(&at, 3)).map_err(|e| e.to_string())
        });
        match mounted {
            Ok(fs) => {
                site.core("a");
                let broken = Breakable { site, fs };
                broken.site.configure(&broken.section("wt"));
                Some(broken)
            }
            Err(why) => {
                skip::skip("a cache that is gone", &why);
                None
            }
        }
    }

    fn section(&self, mode: &str) -> String {
        let (dir, at) = (self.site.dir.path().display(), self.fs.dir().display());
        format!(
            "[volume.a]\ncore = \"{dir}/a.core\"\ncache = \"{at}/cache\"\ncache-size = \"24m\"\nmode = \"{mode}\"\n\
             listen = [\"unix:{dir}/a.nbd\"]\n"
        )
    }

    fn fail(&self) {
        self.fs.power().fail("cache", Part::All);
    }

    fn is_gone(&self, volume: &str) -> bool {
        self.site.stats(volume)["cache_gone"].is_string()
    }

    /// Its cache fails under clients, and it is served without one.
    fn goes_on_alone(&self, history: &mut History, daemon: &Server) {
        under_load(&self.site, "a", history, || {
            self.fail();
            self.wait("a", daemon);
        });
    }

    /// Gives the volume another cache.
    fn attach_another(&self) {
        let other = self.site.path("other").display().to_string();
        let attach = ["volume", "attach", "a", "--cache", &other, "--cache-size", "24m", "--mode", "wb"];
        self.site.ok(&attach);
    }

    /// Waits until the volume is served without its cache.
    fn wait(&self, volume: &str, daemon: &Server) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !self.is_gone(volume) {
            assert!(Instant::now() < deadline, "it is not: {}", daemon.words());
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

#[test]
fn a_cache_gone_in_wt_wa_or_wi_is_done_without_failed_requests() {
    let Some(b) = Breakable::new() else { return };
    let mut history = History::new(CORE);
    for mode in ["wt", "wa", "wi"] {
        b.site.configure(&b.section(mode));
        let daemon = b.site.daemon();
        under_load(&b.site, "a", &mut history, || {
            std::thread::sleep(Duration::from_millis(300));
            b.fail();
            b.wait("a", &daemon);
            // What the cache has is older than this by the end.
            std::thread::sleep(Duration::from_millis(700));
        });
        let said = daemon.words();
        assert!(said.contains("serves alone") && said.contains("the daemon remembers it"), "{said}");
        assert!(b.site.refused(&["mode", "a", "wb"]).contains("the cache is gone"));
        b.site.verified("a", &mut history, None);
        daemon.kill().expect("it lived");
        b.fs.power().mend();
        // It is back with all that it held, and begins anew.
        let daemon = b.site.daemon();
        assert!(daemon.words().contains("made anew"), "{}", daemon.words());
        assert!(!b.is_gone("a"));
        b.site.verified("a", &mut history, Some(Crash::Killed));
        daemon.stop().expect("a clean stop");
    }
}

/// Longest that a request may take which nothing is to be waited for.
const AT_ONCE: Duration = Duration::from_secs(5);

#[test]
fn a_cache_gone_in_wb_fails_requests_and_has_all_once_back() {
    let Some(b) = Breakable::new() else { return };
    b.site.core("b");
    b.site.configure(&(b.section("wb") + &b.site.section("b")));
    let (mut history, mut others) = (History::new(CORE), History::new(CORE));
    let daemon = b.site.daemon();
    b.site.ok(&["param", "set", "a", "destage-rate", "1"]);
    b.site.load("a").write(&mut history, 0..4096, true).expect("written");
    let (mut reader, mut client, mut writer) = (b.site.line("a"), b.site.line("a"), b.site.load("a"));
    let ask = |line: &mut Line, at: u64, command: &Command| {
        let begun = Instant::now();
        let said = line.try_ask(at, command).expect("an answer");
        assert!(begun.elapsed() < AT_ONCE, "{command:?} was answered after {:?}", begun.elapsed());
        said
    };
    std::thread::scope(|s| {
        // Of what is dirty, and so on the cache alone.
        let reading = s.spawn(move || {
            let deadline = Instant::now() + Duration::from_secs(20);
            while ask(&mut reader, 0, &Command::Read(4096)) != Err(EIO) {
                assert!(Instant::now() < deadline, "it is still read");
            }
        });
        std::thread::sleep(Duration::from_millis(300));
        b.fail();
        let begun = Instant::now();
        writer.write(&mut history, 0..64, false).expect_err("it cannot be kept");
        assert!(begun.elapsed() < AT_ONCE, "refused after {:?}", begun.elapsed());
        reading.join().expect("an error at once");
    });
    // What is cached, what only the core has, and every kind of change: whoever stands on the volume is to end.
    let write = |fua| Command::Write { data: vec![1; 4096], fua };
    let zeroes = Command::Zeroes { len: 4096, fua: false };
    let (read, far) = (Command::Read(4096), CORE / 2);
    for (at, command) in [(0, &read), (far, &read), (far, &write(false)), (far, &write(true)), (far, &zeroes)]
    {
        assert_eq!(ask(&mut client, at, command), Err(EIO), "{command:?} at {at}");
    }
    assert_eq!(ask(&mut client, 0, &Command::Flush), Err(EIO));
    for words in [&["volume", "show", "a"][..], &["volume", "list"]] {
        let said = b.site.ok(words);
        assert!(said.contains("trouble: it acknowledges nothing any more: "), "{words:?}: {said}");
    }
    let trouble = b.site.show("a")["trouble"].as_str().unwrap_or_default().to_owned();
    assert!(trouble.contains("cache") && !b.is_gone("a"), "{trouble}");
    b.site.load("b").write(&mut others, 0..4096, true).expect("the other volume is served");
    b.site.verified("b", &mut others, None);
    let why = b.site.refused(&["volume", "stop", "a"]);
    assert!(why.contains("could not be stopped cleanly"), "{why}");

    b.fs.power().mend();
    b.site.ok(&["volume", "start", "a"]);
    assert!(b.site.show("a")["trouble"].is_null(), "that was another life");
    b.site.verified("a", &mut history, Some(Crash::Killed));
    b.site.ok(&["flush", "a"]);
    daemon.stop().expect("a clean stop");
}

#[test]
fn a_cache_that_stays_away_is_left_out_and_begins_anew_later() {
    let Some(b) = Breakable::new() else { return };
    let mut history = History::new(CORE);
    let daemon = b.site.daemon();
    b.goes_on_alone(&mut history, &daemon);
    daemon.stop().expect("a clean stop");
    // Also at the one after that.
    for _ in 0..2 {
        let daemon = b.site.daemon();
        assert!(daemon.words().contains("is served without it"), "{}", daemon.words());
        b.site.verified("a", &mut history, None);
        b.site.load("a").write(&mut history, 0..2048, false).expect("written");
        daemon.stop().expect("a clean stop");
    }
    b.fs.power().mend();
    let daemon = b.site.daemon();
    assert!(daemon.words().contains("made anew"), "{}", daemon.words());
    b.site.verified("a", &mut history, None);
    daemon.stop().expect("a clean stop");
}

#[test]
fn a_volume_whose_cache_is_gone_takes_another_while_served() {
    let Some(b) = Breakable::new() else { return };
    let mut history = History::new(CORE);
    let daemon = b.site.daemon();
    under_load(&b.site, "a", &mut history, || {
        b.fail();
        b.wait("a", &daemon);
        b.site.ok(&["volume", "detach", "a"]);
        b.attach_another();
        std::thread::sleep(Duration::from_millis(300));
    });
    assert!(!b.is_gone("a"));
    assert!(b.site.stats("a")["write_hits"].as_u64() > Some(0), "it is used");
    daemon.kill().expect("it lived");
    b.fs.power().mend();
    let daemon = b.site.daemon();
    b.site.verified("a", &mut history, Some(Crash::Killed));
    daemon.stop().expect("a clean stop");
}

#[test]
fn a_volume_started_without_its_failed_cache_takes_another() {
    let Some(b) = Breakable::new() else { return };
    let mut history = History::new(CORE);
    let daemon = b.site.daemon();
    b.goes_on_alone(&mut history, &daemon);
    daemon.stop().expect("a clean stop");
    let daemon = b.site.daemon();
    let said = daemon.words();
    assert!(said.contains("'loligo volume attach' gives the volume another one"), "{said}");
    b.attach_another();
    b.site.load("a").write(&mut history, 0..2048, false).expect("written");
    assert!(b.site.stats("a")["dirty_bytes"].as_u64() > Some(0), "it is used");
    daemon.kill().expect("it lived");
    b.fs.power().mend();
    let daemon = b.site.daemon();
    b.site.verified("a", &mut history, Some(Crash::Killed));
    daemon.stop().expect("a clean stop");
}

/// Longest that a command may take which meets a device that answers nothing: it looks twice for ten seconds each, and lets
/// those that came before wait for as long.
const SOON: Duration = Duration::from_secs(50);

#[test]
fn a_silent_cache_is_detached_where_the_core_has_everything() {
    let Some(b) = Breakable::new() else { return };
    let mut history = History::new(CORE);
    let daemon = b.site.daemon();
    under_load(&b.site, "a", &mut history, || {
        std::thread::sleep(Duration::from_millis(300));
        b.fs.power().hang("cache", Part::Reads);
        std::thread::sleep(Duration::from_millis(200));
        let begun = Instant::now();
        b.site.ok(&["volume", "detach", "a"]);
        assert!(begun.elapsed() < SOON, "it took {:?}", begun.elapsed());
        std::thread::sleep(Duration::from_millis(300));
        // What the kernel still has under way to the first is nothing to the next.
        b.attach_another();
        std::thread::sleep(Duration::from_millis(300));
        b.fs.power().mend();
        std::thread::sleep(Duration::from_millis(300));
    });
    let said = daemon.words();
    assert!(said.contains("has answered nothing") && said.contains("the daemon remembers it"), "{said}");
    b.site.ok(&["volume", "detach", "a"]);
    daemon.stop().expect("a clean stop");
    b.site.configure(&b.section("wa"));
    let daemon = b.site.daemon();
    assert!(daemon.words().contains("made anew"), "what it holds is void: {}", daemon.words());
    b.site.verified("a", &mut history, None);
    daemon.stop().expect("a clean stop");
}

#[test]
fn a_cache_whose_superblock_takes_no_write_is_detached() {
    let Some(b) = Breakable::new() else { return };
    let mut history = History::new(CORE);
    let daemon = b.site.daemon();
    under_load(&b.site, "a", &mut history, || {
        std::thread::sleep(Duration::from_millis(300));
        b.fs.power().fail_at("cache", Part::Writes, 0..4096);
        b.site.ok(&["volume", "detach", "a"]);
        std::thread::sleep(Duration::from_millis(300));
    });
    assert!(daemon.words().contains("the daemon remembers that what it holds is void"), "{}", daemon.words());
    assert_eq!(b.site.stats("a")["mode"], "bare");
    b.fs.power().mend();
    daemon.stop().expect("a clean stop");
    b.site.configure(&b.section("wa"));
    let daemon = b.site.daemon();
    assert!(daemon.words().contains("made anew"), "what it holds is void: {}", daemon.words());
    b.site.verified("a", &mut history, None);
    daemon.stop().expect("a clean stop");
}

#[test]
fn a_cache_that_was_not_wiped_is_void_where_no_daemon_remembers() {
    let Some(b) = Breakable::new() else { return };
    let mut history = History::new(CORE - (1 << 20));
    b.site.configure(&format!("{}data-offset = \"1m\"\n", b.section("wt")));
    let daemon = b.site.daemon();
    b.site.load("a").write(&mut history, 0..512, false).expect("written");
    b.fs.power().fail_at("cache", Part::Writes, 0..4096);
    b.site.ok(&["volume", "detach", "a"]);
    // The cache knows nothing of these.
    b.site.load("a").write(&mut history, 0..512, false).expect("written");
    daemon.kill().expect("it lived");
    b.fs.power().mend();
    let dir = b.site.dir.path();
    let core = format!("file:{}", b.site.path("a.core").display());
    let cache = b.fs.dir().join("cache").display().to_string();
    let listen = format!("unix:{}", dir.join("x.nbd").display());
    let args = ["--core", &core, "--cache", &cache, "--listen", &listen, "--mode", "wt"];
    let mut server = Server::launch(dir, &args.map(str::to_owned)).expect("it runs");
    let why = format!("{:#}", server.ready().expect_err("it is void"));
    assert!(why.contains("is void"), "{why}");
}

#[test]
fn a_silent_cache_is_kept_where_the_core_lacks_anything() {
    let Some(b) = Breakable::new() else { return };
    let mut history = History::new(CORE);
    b.site.configure(&b.section("wb"));
    let daemon = b.site.daemon();
    b.site.ok(&["param", "set", "a", "destage-rate", "1"]);
    b.site.load("a").write(&mut history, 0..2048, false).expect("written");
    b.fs.power().hang("cache", Part::All);
    let begun = Instant::now();
    let why = b.site.refused(&["volume", "detach", "a"]);
    assert!(begun.elapsed() < SOON, "it took {:?}", begun.elapsed());
    assert!(why.contains("has answered nothing") && why.contains("nothing of it is given up"), "{why}");
    assert_eq!(b.site.stats("a")["mode"], "wb", "it is as it was");
    let begun = Instant::now();
    let why = b.site.refused(&["volume", "stop", "a"]);
    assert!(begun.elapsed() < SOON, "it took {:?}", begun.elapsed());
    assert!(why.contains("could not be stopped cleanly"), "{why}");
    let said = daemon.words();
    assert!(said.contains("dirty bytes of it on that device alone"), "{said}");
    assert_eq!(b.site.status("a").0, "failed");
    b.fs.power().mend();
    // The kernel lets go of it once it has answered.
    std::thread::sleep(Duration::from_millis(500));
    b.site.ok(&["volume", "start", "a"]);
    assert_eq!(b.site.load("a").read(&mut history, 0..2048).expect("right data"), Some(()));
    daemon.stop().expect("a clean stop");
}

#[test]
fn a_stop_with_nothing_to_write_waits_for_no_silent_cache() {
    let Some(b) = Breakable::new() else { return };
    let mut history = History::new(CORE);
    b.site.configure(&b.section("wb"));
    let daemon = b.site.daemon();
    b.site.load("a").write(&mut history, 0..256, false).expect("written");
    b.site.ok(&["volume", "stop", "a"]);
    b.site.ok(&["volume", "start", "a"]);
    // What a start leaves to be written is.
    std::thread::sleep(Duration::from_secs(2));
    b.fs.power().hang("cache", Part::All);
    let begun = Instant::now();
    let why = b.site.refused(&["volume", "stop", "a"]);
    assert!(begun.elapsed() < SOON, "it took {:?}", begun.elapsed());
    assert!(why.contains("has answered nothing"), "{why}");
    assert_eq!(b.site.status("a").0, "failed");
    b.fs.power().mend();
    std::thread::sleep(Duration::from_millis(500));
    b.site.ok(&["volume", "start", "a"]);
    assert_eq!(b.site.load("a").read(&mut history, 0..256).expect("right data"), Some(()));
    daemon.stop().expect("a clean stop");
}

#[test]
fn a_share_of_a_gone_pool_is_not_resized_and_the_mend_is_said() {
    let Some(b) = Breakable::new() else { return };
    let pool = b.fs.dir().join("pool").display().to_string();
    b.site.ok(&["cache", "create", &pool, "--size", "96m", "--sparse"]);
    b.site.ok(&["cache", "attach", &pool, "--core", "1", "--name", "a", "--min", "24m", "--max", "64m"]);
    let whole = b.section("wt").replace("cache-size = \"24m\"\n", "");
    b.site.configure(
        &whole.replace(&b.fs.dir().join("cache").display().to_string(), &format!("pool:{pool}#1")),
    );
    let daemon = b.site.daemon();
    let mut history = History::new(CORE);
    let resize = ["cache", "resize", &pool, "1", "--size", "48m"];
    b.site.ok(&resize);
    b.site.load("a").write(&mut history, 0..64, false).expect("written");
    b.fs.power().fail("pool", Part::All);
    b.site.load("a").write(&mut history, 64..128, false).expect("done without the cache");
    b.wait("a", &daemon);
    let said = b.site.refused(&resize);
    assert!(said.contains("is gone") && said.contains("'loligo volume attach a'"), "{said}");
    b.site.verified("a", &mut history, None);
    daemon.stop().expect("a clean stop");
}

#[test]
fn a_stop_does_not_wait_for_a_cache_that_is_gone() {
    let Some(b) = Breakable::new() else { return };
    let mut history = History::new(CORE);
    for _ in 0..3 {
        let mut daemon = b.site.daemon();
        b.site.load("a").write(&mut history, 0..64, false).expect("written");
        let mut load = b.site.load("a");
        b.fail();
        // Held, failed or done, whichever comes first.
        let writing = std::thread::spawn(move || {
            let mut own = History::new(CORE);
            drop(load.write(&mut own, 4096..4104, false));
        });
        std::thread::sleep(Duration::from_millis(30));
        daemon.terminate();
        daemon.ended().expect("it ends");
        writing.join().expect("an answer");
        b.fs.power().mend();
    }
    let daemon = b.site.daemon();
    assert_eq!(b.site.load("a").read(&mut history, 0..64).expect("right data"), Some(()));
    daemon.stop().expect("a clean stop");
}

#[test]
fn a_cache_that_was_gone_on_without_is_never_believed_again() {
    let Some(b) = Breakable::new() else { return };
    let mut history = History::new(CORE);
    let write = |history: &mut History| b.site.load("a").write(history, 0..4096, false).expect("written");
    let daemon = b.site.daemon();
    write(&mut history);
    b.site.verified("a", &mut history, None);
    b.fail();
    write(&mut history);
    b.wait("a", &daemon);
    // Another one comes and goes, so that the volume knows nothing of the first any more.
    b.site.ok(&["volume", "detach", "a"]);
    b.attach_another();
    write(&mut history);
    b.site.ok(&["volume", "detach", "a"]);
    daemon.stop().expect("a clean stop");
    b.fs.power().mend();
    b.site.configure(&b.section("wa"));
    let daemon = b.site.daemon();
    assert!(daemon.words().contains("made anew"), "{}", daemon.words());
    b.site.verified("a", &mut history, None);
    daemon.stop().expect("a clean stop");

    // The same without any failure: it is served bare for a while. By another mode than that of the definition which the detach by
    // command still stands in for.
    let cached = b.section("wa");
    let bare = cached.lines().filter(|l| !l.starts_with("cache") && !l.starts_with("mode"));
    b.site.configure(&bare.map(|l| format!("{l}\n")).collect::<String>());
    let daemon = b.site.daemon();
    write(&mut history);
    daemon.stop().expect("a clean stop");
    b.site.configure(&cached);
    let daemon = b.site.daemon();
    assert!(daemon.words().contains("made anew"), "{}", daemon.words());
    b.site.verified("a", &mut history, None);
    daemon.stop().expect("a clean stop");
}

#[test]
fn without_a_daemon_the_label_keeps_a_void_cache_out() {
    const NAME: &str = Volume::NAME;
    let Some(b) = Breakable::new() else { return };
    let mut history = History::new(CORE - (1 << 20));
    let (dir, cache) = (b.site.dir.path(), b.fs.dir().join("cache").display().to_string());
    let core = format!("file:{}", b.site.path("a.core").display());
    let serve = |more: &[&str]| {
        let listen = format!("unix:{}", dir.join(format!("{NAME}.nbd")).display());
        let size = ["--cache-size", "24m", "--mode", "wt"];
        let args = [&["--core", &core, "--cache", &cache, "--listen", &listen], &size[..], more].concat();
        Server::launch(dir, &args.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>()).expect("it runs")
    };
    let mut server = serve(&["--home-offset", "1m"]);
    server.ready().expect("it serves");
    under_load(&b.site, NAME, &mut history, || {
        std::thread::sleep(Duration::from_millis(200));
        b.fail();
        b.wait(NAME, &server);
        std::thread::sleep(Duration::from_millis(300));
    });
    assert!(server.words().contains("the core's label says so"), "{}", server.words());
    server.kill().expect("it lived");
    b.fs.power().mend();
    let why = format!("{:#}", serve(&[]).ready().expect_err("it is void"));
    assert!(why.contains("is void") && why.contains("--create --force"), "{why}");
    let mut server = serve(&["--create", "--force"]);
    server.ready().expect("it serves");
    b.site.verified(NAME, &mut history, Some(Crash::Killed));
    server.stop().expect("a clean stop");
}
