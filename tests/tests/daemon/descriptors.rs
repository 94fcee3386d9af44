//! The number of files that the services may have open.

use crate::site::{PATIENCE, Site};
use loligo_tests::server::{Server, program};
use std::process::Command;
use std::time::{Duration, Instant};

/// The program with a soft limit of 512.
fn limited() -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "ulimit -Sn 512 && exec \"$0\" \"$@\""]).arg(program());
    command
}

/// Soft and hard limit of a process.
fn limits(pid: u32) -> (String, String) {
    let all = std::fs::read_to_string(format!("/proc/{pid}/limits")).expect("it lives");
    let line = all.lines().find(|l| l.starts_with("Max open files")).expect("a limit").to_owned();
    let mut words = line.split_whitespace().skip(3).map(str::to_owned);
    words.next().zip(words.next()).expect("two")
}

#[test]
fn a_service_has_as_many_files_as_it_may_its_commands_as_before() {
    let site = Site::new(&["a"]);
    let seen = site.path("seen");
    let after = format!(
        "after-start = [\"/bin/sh\", \"-c\", \"ulimit -Sn > {0}.new; mv {0}.new {0}\"]\n",
        seen.display()
    );
    site.configure(&(site.section("a") + &after));
    let mut daemon =
        Server::daemon_by(limited(), site.dir.path(), &site.path("loligod.toml")).expect("it runs");
    daemon.ready().expect("it gets ready");
    let (soft, hard) = limits(daemon.id());
    assert!(soft == hard && soft != "512", "{soft} of {hard}");
    let deadline = Instant::now() + PATIENCE;
    while !seen.exists() {
        assert!(Instant::now() < deadline, "after-start was not run");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(std::fs::read_to_string(&seen).expect("its word").trim(), "512");
    daemon.stop().expect("a clean stop");

    let (run, core) = (site.path("run"), site.path("a.core").display().to_string());
    std::fs::create_dir(&run).expect("a folder");
    let listen = format!("unix:{}", site.path("s.nbd").display());
    let args = ["--bare", "--core", &core, "--listen", &listen].map(str::to_owned);
    let mut server = Server::launch_by(limited(), &run, &args).expect("it runs");
    server.ready().expect("it gets ready");
    let (soft, hard) = limits(server.id());
    assert_eq!(soft, hard);
    server.stop().expect("a clean stop");
}
