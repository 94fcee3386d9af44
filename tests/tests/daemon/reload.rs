//! Reloads under volumes that are in use: file systems on them, and clients by TLS.

use crate::site::{PATIENCE, Site};
use loligo_tests::blockdev::impossible;
use loligo_tests::skip::{installed, skip};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

fn run(program: &str, args: &[&str]) -> Output {
    Command::new(program).args(args).output().unwrap_or_else(|e| panic!("{program}: {e}"))
}

fn good(program: &str, args: &[&str]) {
    let out = run(program, args);
    assert!(out.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&out.stderr));
}

/// A file system that is mounted, until this is dropped.
struct Ext4(PathBuf);

impl Ext4 {
    fn of(device: &str, at: PathBuf) -> Ext4 {
        std::fs::create_dir_all(&at).expect("a folder");
        good("mount", &["-t", "ext4", device, &at.display().to_string()]);
        Ext4(at)
    }

    fn unmount(&self) -> bool {
        run("umount", &[&self.0.display().to_string()]).status.success()
    }
}

impl Drop for Ext4 {
    fn drop(&mut self) {
        let _ = run("umount", &["-l", &self.0.display().to_string()]);
    }
}

/// Writes a file through to the device.
fn write(at: &Path, fill: u8) {
    let file = std::fs::File::create(at).expect("a file");
    std::io::Write::write_all(&mut &file, &vec![fill; 1 << 20])
        .and_then(|()| file.sync_all())
        .expect("no EIO");
}

#[test]
fn ext4_on_a_volume_that_a_reload_removes_gets_no_error() {
    const WHAT: &str = "ext4 on a volume that a reload removes";
    if impossible(WHAT) {
        return;
    }
    if !installed("mkfs.ext4") {
        return skip(WHAT, "mkfs.ext4 is not installed (apt-get install e2fsprogs)");
    }
    let site = Site::new(&["a"]);
    let name = format!("rel{}", std::process::id());
    let section = site.section("a").replace("\"unix:", &format!("\"loop:{name}\", \"unix:"));
    site.configure(&section);
    let device = format!("/dev/loligo/{name}");
    let mut daemon = site.daemon();
    good("mkfs.ext4", &["-q", "-F", &device]);
    let mounted = Ext4::of(&device, site.path("mnt"));
    write(&mounted.0.join("before"), 1);
    site.configure("");
    site.ok(&["config", "reload"]);
    daemon.terminate();
    let deadline = Instant::now() + PATIENCE;
    while !daemon.log().contains("waiting to stop") {
        assert!(Instant::now() < deadline, "it does not say that it waits: {}", daemon.log());
        std::thread::sleep(Duration::from_millis(50));
    }
    write(&mounted.0.join("after"), 2);
    let mut names = std::fs::read_dir(&mounted.0).expect("it is served");
    assert!(names.any(|e| e.expect("an entry").file_name() == "before"));
    drop(names);
    assert!(mounted.unmount(), "nothing is left to be written that cannot be");
    assert!(daemon.ended().expect("an end").success());

    site.configure(&section);
    let daemon = site.daemon();
    let again = Ext4::of(&device, site.path("mnt"));
    for (file, fill) in [("before", 1), ("after", 2)] {
        assert!(std::fs::read(again.0.join(file)).expect("a file") == vec![fill; 1 << 20], "{file}");
    }
    assert!(again.unmount());
    daemon.stop().expect("a clean stop");
}

/// A certificate for localhost that signs itself, and a folder of libnbd's for those who trust it alone.
fn certificate(site: &Site, name: &str) -> String {
    let folder = site.path(name);
    std::fs::create_dir(&folder).expect("a folder");
    let (cert, key) = (folder.join("ca-cert.pem"), folder.join("key.pem"));
    let (cert, key) = (cert.display().to_string(), key.display().to_string());
    let made = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
    let named = ["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"];
    good("openssl", &[&made[..], &named, &["-keyout", &key, "-out", &cert]].concat());
    folder.display().to_string()
}

#[test]
fn a_reload_reads_certificates_again() {
    if !installed("nbdinfo") || !installed("openssl") {
        return skip("certificates over a reload", "nbdinfo or openssl is not installed");
    }
    let site = Site::new(&["a"]);
    let port = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port").port();
    let (old, new) = (certificate(&site, "old"), certificate(&site, "new"));
    let (cert, key) = (site.path("cert.pem"), site.path("key.pem"));
    let install = |from: &str| {
        std::fs::copy(format!("{from}/ca-cert.pem"), &cert).expect("copied");
        std::fs::copy(format!("{from}/key.pem"), &key).expect("copied");
    };
    install(&old);
    let tls = format!("tls = {{ cert = \"{}\", key = \"{}\" }}\n", cert.display(), key.display());
    let listen = format!("\"tcp:127.0.0.1:{port}\", \"unix:");
    site.configure(&(site.section("a").replace("\"unix:", &listen) + &tls));
    let daemon = site.daemon();
    let comes_in = |trusts: &str| {
        run("nbdinfo", &[&format!("nbds://localhost:{port}/a?tls-certificates={trusts}")]).status.success()
    };
    assert!(comes_in(&old) && !comes_in(&new));
    install(&new);
    assert!(comes_in(&old), "nobody reads them before the reload");
    let said = site.ok(&["config", "reload"]);
    assert!(said.contains("a: its files for TLS are read again"), "{said}");
    assert!(comes_in(&new) && !comes_in(&old));
    for (file, good) in [(&cert, "ca-cert.pem"), (&key, "key.pem")] {
        std::fs::write(file, "nothing of the kind").expect("written");
        let why = site.refused(&["config", "reload"]);
        assert!(why.contains("a: its TLS goes on with what it had: cannot use"), "{why}");
        assert!(why.contains(&file.display().to_string()), "{why}");
        assert!(comes_in(&new), "one that cannot be used changes nothing");
        std::fs::copy(format!("{new}/{good}"), file).expect("copied");
    }
    site.ok(&["config", "reload"]);
    daemon.stop().expect("a clean stop");
}
