//! Another host, over ssh.

use super::site::Site;
use loligo_tests::lab::{good, refused};
use loligo_tests::server::program;
use loligo_tests::skip::skip;
use std::path::Path;
use std::process::{Command, Stdio};

/// A host that sshd leads to, with files of its own: its program is given another root.
struct Host {
    dir: tempfile::TempDir,
    sshd: std::process::Child,
    port: u16,
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.sshd.kill();
        let _ = self.sshd.wait();
    }
}

impl Host {
    fn new() -> Host {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().expect("a folder");
        let at = |name: &str| dir.path().join(name);
        for key in ["host", "client"] {
            let made = Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(at(key))
                .status();
            assert!(made.expect("ssh-keygen runs").success());
        }
        let files = [
            ("root/proc/sys/kernel/hostname", "node2\n"),
            ("root/proc/meminfo", "MemTotal: 134217728 kB\nMemAvailable: 67108864 kB\nSwapTotal: 0 kB\n"),
            ("root/sys/block/rbd0/queue/nr_requests", "128\n"),
            ("root/sys/block/rbd0/queue/read_ahead_kb", "4096\n"),
            ("root/sys/block/rbd1/queue/nr_requests", "128\n"),
            ("root/sys/block/rbd1/queue/read_ahead_kb", "2048\n"),
        ];
        for (path, text) in files {
            std::fs::create_dir_all(at(path).parent().expect("a folder")).expect("folders");
            std::fs::write(at(path), text).expect("a file");
        }
        let wrapper =
            format!("#!/bin/sh\nexec {} \"$@\" --root {}\n", program().display(), at("root").display());
        std::fs::write(at("loligo"), wrapper).expect("a file");
        std::fs::set_permissions(at("loligo"), std::fs::Permissions::from_mode(0o755)).expect("rights");
        std::fs::create_dir_all("/run/sshd").expect("its folder");
        let port =
            std::net::TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("a port").port();
        let mut sshd = Command::new("/usr/sbin/sshd");
        sshd.args(["-D", "-e", "-f", "/dev/null", "-p", &port.to_string(), "-o", "ListenAddress=127.0.0.1"]);
        for option in ["StrictModes=no", "UsePAM=no", "PermitRootLogin=yes", "PidFile=none"] {
            sshd.args(["-o", option]);
        }
        sshd.arg("-o").arg(format!("HostKey={}", at("host").display()));
        sshd.arg("-o").arg(format!("AuthorizedKeysFile={}", at("client.pub").display()));
        let sshd = sshd.stdin(Stdio::null()).stderr(Stdio::null()).spawn().expect("sshd runs");
        let host = Host { dir, sshd, port };
        loligo_tests::lab::until("sshd answers", std::time::Duration::from_secs(10), || {
            std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        host
    }

    /// The arguments that lead to it.
    fn args(&self) -> Vec<String> {
        let at = |name: &str| self.dir.path().join(name).display().to_string();
        let mut args = vec!["--host".to_owned(), "root@127.0.0.1".to_owned()];
        args.extend(["--remote-program".to_owned(), at("loligo")]);
        for option in [
            format!("Port={}", self.port),
            format!("IdentityFile={}", at("client")),
            "StrictHostKeyChecking=no".to_owned(),
            "UserKnownHostsFile=/dev/null".to_owned(),
        ] {
            args.extend(["--ssh-option".to_owned(), option]);
        }
        args
    }

    fn file(&self, path: &str) -> String {
        let text = std::fs::read_to_string(self.dir.path().join("root").join(path)).unwrap_or_default();
        text.trim().to_owned()
    }
}

#[test]
fn another_host_is_changed_over_ssh_and_put_back() {
    if !Path::new("/usr/sbin/sshd").exists() {
        return skip("another host over ssh", "sshd is missing: apt-get install openssh-server");
    }
    let Some(site) = Site::new("tune-ssh") else { return };
    let host = Host::new();
    let more = host.args();
    let with = |args: &[&str]| {
        let all: Vec<&str> = args.iter().copied().chain(more.iter().map(String::as_str)).collect();
        site.tune(&all)
    };
    good(with(&["apply", "--yes", "--rule", "BLK-03"]));
    let ahead = |disk: &str| host.file(&format!("sys/block/{disk}/queue/read_ahead_kb"));
    assert_eq!((ahead("rbd0").as_str(), ahead("rbd1").as_str()), ("128", "128"));
    let kept = host.file("etc/tmpfiles.d/zz-loligo-tune.conf");
    assert!(kept.is_empty(), "a disk has another name after a boot: {kept}");
    let again = good(with(&["apply", "--yes", "--rule", "BLK-03"]));
    let again = String::from_utf8_lossy(&again.stdout).into_owned();
    let place = "node2 /sys/block/rbd1/queue/read_ahead_kb is 128 (the kernel's)";
    assert!(again.contains("BLK-03 is so already") && again.contains(place), "{again}");

    // Without the way there nothing of it is taken back, and it says which way is missing.
    let out = site.tune(&["rollback"]);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(!out.status.success() && said.contains("--host node2"), "{said}");
    good(with(&["rollback"]));
    assert_eq!((ahead("rbd0").as_str(), ahead("rbd1").as_str()), ("4096", "2048"));
    assert!(host.file("etc/tmpfiles.d/zz-loligo-tune.conf").is_empty());

    // A host that does not answer is named among what was not seen, and its rules propose nothing.
    let dead = ["--host", "root@127.0.0.1", "--ssh-option", "Port=1", "--rule", "BLK-03"];
    let said = refused(&site.tune(&[&["apply", "--yes"], &dead[..]].concat()));
    assert!(said.contains("BLK-03 proposes nothing here"), "{said}");
    let facts = site.json(&["facts", "--host", "root@127.0.0.1", "--ssh-option", "Port=1"]);
    assert!(facts["unseen"].to_string().contains("ssh does not reach it"), "{}", facts["unseen"]);
}
