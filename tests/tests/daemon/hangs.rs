//! Hanging devices and clients, which are not to keep the daemon from ending.

use crate::site::{CORE, PATIENCE, Site};
use loligo_tests::line::Line;
use loligo_tests::server::Server;
use loligo_tests::skip;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// A volume as a file, whose server answers nothing from now on.
fn stuck(site: &Site) -> Option<(Server, std::path::PathBuf)> {
    let (server, file) = mounted(site)?;
    server.signal(libc::SIGSTOP);
    Some((server, file))
}

/// A volume as a file.
fn mounted(site: &Site) -> Option<(Server, std::path::PathBuf)> {
    if let Err(why) = skip::fuse() {
        skip::skip("a core that hangs", &why);
        return None;
    }
    let (core, mount) = (site.path("under.core"), site.path("m"));
    std::fs::File::create(&core).and_then(|f| f.set_len(CORE)).expect("a core");
    std::fs::create_dir(&mount).expect("a folder");
    let run = site.path("other");
    std::fs::create_dir(&run).expect("a folder");
    let args =
        ["--bare", "--core", &core.display().to_string(), "--listen", &format!("fuse:{}", mount.display())];
    let mut server = Server::launch(&run, &args.map(str::to_owned)).expect("it runs");
    server.ready().expect("it gets ready");
    let file = std::fs::read_dir(&mount).expect("a mount").next().expect("a file").expect("an entry").path();
    Some((server, file))
}

#[test]
fn a_stop_does_not_wait_for_a_start_that_hangs() {
    let site = Site::new(&["a"]);
    let Some((server, file)) = stuck(&site) else { return };
    let listen = site.path("h.nbd").display().to_string();
    site.configure(&format!(
        "{}[volume.h]\ncore = \"{}\"\nlisten = [\"unix:{listen}\"]\n",
        site.section("a"),
        file.display()
    ));
    let mut daemon = Server::daemon(site.dir.path(), &site.path("loligod.toml")).expect("it runs");
    let deadline = Instant::now() + PATIENCE;
    while !site.loligo(&["volume", "list"]).status.success() {
        assert!(Instant::now() < deadline, "it does not answer");
        std::thread::sleep(Duration::from_millis(50));
    }
    site.wait_for("a", "serving");
    assert_eq!(site.status("h").0, "starting");
    let begun = Instant::now();
    daemon.terminate();
    let status = daemon.ended().expect("it ends");
    assert!(status.success() && begun.elapsed() < Duration::from_secs(20), "{status}, {:?}", begun.elapsed());
    let log = daemon.log();
    assert!(
        log.contains("h: warning: its start does not come to an end")
            && log.contains(&*file.display().to_string()),
        "{log}"
    );
    assert!(!site.path("h.nbd").exists() && !site.path("a.nbd").exists(), "nothing is left of it");
    server.signal(libc::SIGCONT);
    server.stop().expect("a clean stop");
}

#[test]
fn a_second_signal_right_after_a_clean_stop_is_no_failure() {
    for _ in 0..5 {
        let site = Site::new(&["a"]);
        let mut daemon = site.daemon();
        daemon.terminate();
        let deadline = Instant::now() + Duration::from_secs(20);
        // The listener goes in the stop, some time before the process does.
        while site.path("a.nbd").exists() {
            assert!(Instant::now() < deadline, "it does not stop");
        }
        for _ in 0..100 {
            daemon.signal(libc::SIGTERM);
            std::thread::sleep(Duration::from_millis(2));
        }
        let status = daemon.ended().expect("it ends");
        assert!(status.success(), "{status}: {}", daemon.log());
    }
}

/// A command that hangs as long as a server is stopped.
struct Hanging(std::process::Child);

impl Hanging {
    fn begin(site: &Site, args: &[&str]) -> Hanging {
        let mut child =
            site.command(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it runs");
        std::thread::sleep(Duration::from_secs(1));
        assert!(child.try_wait().expect("a child").is_none(), "{args:?} does not hang");
        Hanging(child)
    }
}

impl Drop for Hanging {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn commands_that_look_at_a_dead_path_hang_alone() {
    let site = Site::new(&["a", "b"]);
    let Some((server, file)) = mounted(&site) else { return };
    let listen = |name: &str| format!("unix:{}", site.path(&format!("{name}.nbd")).display());
    let b =
        format!("[volume.b]\ncore = \"{}\"\nlisten = [\"{}\"]\n", site.path("b.core").display(), listen("b"));
    site.configure(&format!("{}{b}", site.section("a")));
    let daemon = site.daemon();
    site.ok(&["volume", "create", "n", "--core", &file.display().to_string(), "--listen", &listen("n")]);
    site.ok(&["volume", "stop", "n"]);
    server.signal(libc::SIGSTOP);
    // The kernel answers for it a while.
    std::thread::sleep(Duration::from_millis(1500));
    let cache = site.path("new.cache").display().to_string();
    let attach = ["volume", "attach", "b", "--cache", &cache, "--cache-size", "24m", "--mode", "wt"];
    let other = site.path("a.core").display().to_string();
    let create = ["volume", "create", "o", "--core", &other, "--listen", &listen("o")];
    let commands = [&attach[..], &create, &["config", "reload"]].map(|args| Hanging::begin(&site, args));
    let begun = Instant::now();
    for what in ["stop", "start", "restart"] {
        site.ok(&["volume", what, "a", "--timeout", "20"]);
    }
    site.ok(&["volume", "delete", "n"]);
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    server.signal(libc::SIGCONT);
    drop(commands);
    daemon.stop().expect("a clean stop");
    server.stop().expect("a clean stop");
}

/// The volume `name` answers at a socket.
fn answers(site: &Site, socket: &str, name: &str) {
    let mut line = Line::connect(&site.path(socket), name).expect("a connection");
    line.flush().expect("an answer");
}

#[test]
fn a_volume_whose_start_hangs_can_be_stopped_and_replaced() {
    let site = Site::new(&["a", "n"]);
    let Some((server, file)) = mounted(&site) else { return };
    site.configure(&site.section("a"));
    let daemon = site.daemon();
    let listen = format!("unix:{}", site.path("n.nbd").display());
    let create = |core: &std::path::Path| {
        let core = core.display().to_string();
        site.ok(&["volume", "create", "n", "--core", &core, "--listen", &listen]);
    };
    create(&file);
    site.ok(&["volume", "stop", "n"]);
    server.signal(libc::SIGSTOP);
    std::thread::sleep(Duration::from_millis(1500));
    site.ok(&["volume", "start", "n", "--no-wait"]);
    assert_eq!(site.status("n").0, "starting");
    site.ok(&["volume", "stop", "n", "--timeout", "20"]);
    assert_eq!(site.status("n").0, "stopped");
    assert!(daemon.log().contains("n: warning: its start does not come to an end"), "{}", daemon.log());
    site.ok(&["volume", "delete", "n"]);
    create(&site.path("n.core"));
    site.wait_for("n", "serving");
    server.signal(libc::SIGCONT);
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(site.status("n").0, "serving");
    answers(&site, "n.nbd", "n");
    let log = daemon.log();
    assert_eq!(log.matches("n: serving").count(), 2, "the start that woke serves nobody: {log}");
    daemon.stop().expect("a clean stop");
    server.stop().expect("a clean stop");
}

#[test]
fn a_successor_does_not_wait_for_a_start_that_hangs() {
    let site = Site::new(&["a"]);
    let Some((server, file)) = stuck(&site) else { return };
    std::thread::sleep(Duration::from_millis(1500));
    // Its files for TLS are read once its devices are known.
    let file = file.display();
    let hangs =
        format!("{}tls = {{ cert = \"{file}\", key = \"{file}\", anonymous = true }}\n", site.section("a"));
    site.configure(&hangs);
    let mut daemon = Server::daemon(site.dir.path(), &site.path("loligod.toml")).expect("it runs");
    let deadline = Instant::now() + PATIENCE;
    while !site.loligo(&["volume", "list"]).status.success() {
        assert!(Instant::now() < deadline, "it does not answer");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(site.status("a").0, "starting");
    site.configure(&site.section("a").replace("[volume.a]", "[volume.b]"));
    site.ok(&["config", "reload"]);
    site.wait_for("b", "serving");
    site.wait_gone("a");
    daemon.ready().expect("it gets ready");
    server.signal(libc::SIGCONT);
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(site.status("b").0, "serving");
    answers(&site, "a.nbd", "b");
    daemon.stop().expect("a clean stop");
    server.stop().expect("a clean stop");
}
