//! The log's reader may go, or stop reading, at any time.

use crate::site::{CORE, PATIENCE, Site};
use loligo_sim::rng::Rng;
use loligo_tests::history::History;
use loligo_tests::load::{End, Mix};
use loligo_tests::server::program;
use rustix::fs::fstat;
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A daemon whose standard error is a pipe.
struct Logging {
    child: Child,
}

impl Logging {
    fn start(site: &Site, log: &PipeWriter, journal: Option<&str>) -> Logging {
        let mut command = Command::new(program());
        command.args(["daemon", "--config"]).arg(site.path("loligod.toml"));
        command.env("LOLIGO_RUNTIME_DIR", site.dir.path()).stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(log.try_clone().expect("another end"));
        if let Some(journal) = journal {
            command.env("JOURNAL_STREAM", journal);
        }
        let child = command.spawn().expect("it runs");
        let deadline = Instant::now() + PATIENCE;
        while !site.loligo(&["volume", "list"]).status.success() {
            assert!(Instant::now() < deadline, "it does not answer");
            std::thread::sleep(Duration::from_millis(50));
        }
        Logging { child }
    }

    fn end(mut self) -> ExitStatus {
        // SAFETY: the child is ours and not yet waited for, so the number is still its own.
        unsafe { libc::kill(self.child.id() as libc::pid_t, libc::SIGTERM) };
        let deadline = Instant::now() + 2 * PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("it is ours") {
                return status;
            }
            assert!(Instant::now() < deadline, "it does not end");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Logging {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Serves, is told to do what it says something of, and ends, while `log` cannot be written to.
fn lives(site: &Site, daemon: Logging) {
    let mut history = History::new(CORE);
    let mut rng = Rng::new(3);
    let mut load = site.load("a");
    let until = Instant::now() + Duration::from_millis(300);
    load.run(&mut history, &mut rng, &Mix::default(), || Instant::now() < until).expect("right data");
    site.core("b");
    let missing = site.section("c").replace("c.core", "nothing/c.core");
    site.configure(&format!("{}{}{missing}", site.section("a"), site.section("b")));
    site.ok(&["config", "reload"]);
    site.wait_for("b", "serving");
    site.wait_for("c", "waiting");
    site.ok(&["volume", "stop", "b"]);
    site.wait_for("b", "stopped");
    assert_eq!(site.status("a").0, "serving");
    assert_eq!(load.verify(&mut history, None).expect("right data"), End::Done);
    let status = daemon.end();
    assert_eq!(status.code(), Some(0), "every volume was stopped as it should be: {status}");
    let daemon = site.daemon();
    site.verified("a", &mut history, None);
    daemon.stop().expect("a clean stop");
}

#[test]
fn a_log_whose_reader_is_gone_costs_no_volume() {
    let site = Site::new(&["a"]);
    let (reader, log) = std::io::pipe().expect("a pipe");
    let daemon = Logging::start(&site, &log, None);
    drop(reader);
    site.wait_for("a", "serving");
    lives(&site, daemon);
}

#[test]
fn a_log_that_nobody_reads_holds_no_volume_up() {
    let site = Site::new(&["a"]);
    let (unread, log) = std::io::pipe().expect("a pipe");
    // Opened anew, so that the daemon's end goes on waiting.
    let end = format!("/proc/self/fd/{}", log.as_raw_fd());
    let mut filler =
        std::fs::File::options().write(true).custom_flags(libc::O_NONBLOCK).open(end).expect("its end");
    while filler.write(&[b'.'; 4096]).is_ok() {}
    while filler.write(b".").is_ok() {}
    let daemon = Logging::start(&site, &log, None);
    site.wait_for("a", "serving");
    lives(&site, daemon);
    drop(unread);
}

/// Everything that a daemon says from its start to its end.
fn whole_log(journal: impl Fn(&PipeReader) -> Option<String>) -> String {
    let site = Site::new(&["a"]);
    let (mut reader, log) = std::io::pipe().expect("a pipe");
    let journal = journal(&reader);
    let daemon = Logging::start(&site, &log, journal.as_deref());
    drop(log);
    site.wait_for("a", "serving");
    drop(site.line("a"));
    site.configure(&format!(
        "{}{}",
        site.section("a"),
        site.section("c").replace("c.core", "nothing/c.core")
    ));
    site.ok(&["config", "reload"]);
    site.wait_for("c", "waiting");
    assert_eq!(daemon.end().code(), Some(0));
    let mut text = String::new();
    reader.read_to_string(&mut text).expect("text");
    text
}

#[test]
fn lines_have_a_priority_for_the_journal() {
    let text = whole_log(|pipe| {
        let stat = fstat(pipe).expect("a pipe");
        Some(format!("{}:{}", stat.st_dev, stat.st_ino))
    });
    for line in text.lines() {
        assert!(line.starts_with("<6>") || line.starts_with("<4>"), "{text}");
    }
    assert!(text.contains("<6>a: serving"), "{text}");
}

#[test]
fn lines_have_a_time_elsewhere_and_log_ins_their_peer() {
    let text = whole_log(|_| Some("1:1".to_owned()));
    for line in text.lines() {
        let time = line.split(' ').next().unwrap_or_default();
        assert!(time.len() == 24 && time.ends_with('Z') && time.as_bytes()[10] == b'T', "{text}");
    }
    let peer = format!("a client has logged in peer=process {} of user", std::process::id());
    assert!(text.contains(&peer), "{text}");
}
