//! A host that sshd leads to: this machine, with a program of its own.

use crate::lab::until;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A host over ssh; its sshd ends with it.
#[derive(Debug)]
pub struct Host {
    /// Its folder.
    pub dir: tempfile::TempDir,
    sshd: Child,
    address: String,
    port: u16,
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.sshd.kill();
        let _ = self.sshd.wait();
    }
}

impl Host {
    /// The reason why there can be none here.
    pub fn missing() -> Option<&'static str> {
        (!Path::new("/usr/sbin/sshd").exists()).then_some("sshd is missing: apt-get install openssh-server")
    }

    /// One at an address of this machine, whose program is the shell's script that `program` makes for its folder.
    ///
    /// # Panics
    /// If sshd does not come up.
    pub fn new(address: &str, program: impl FnOnce(&Path) -> String) -> Host {
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
        std::fs::write(at("loligo"), format!("#!/bin/sh\n{}\n", program(dir.path()))).expect("a file");
        std::fs::set_permissions(at("loligo"), std::fs::Permissions::from_mode(0o755)).expect("rights");
        std::fs::create_dir_all("/run/sshd").expect("its folder");
        let port =
            std::net::TcpListener::bind((address, 0)).and_then(|it| it.local_addr()).expect("a port").port();
        let mut sshd = Command::new("/usr/sbin/sshd");
        sshd.args(["-D", "-e", "-f", "/dev/null", "-p", &port.to_string()]);
        for option in ["StrictModes=no", "UsePAM=no", "PermitRootLogin=yes", "PidFile=none"] {
            sshd.args(["-o", option]);
        }
        sshd.arg("-o").arg(format!("ListenAddress={address}"));
        sshd.arg("-o").arg(format!("HostKey={}", at("host").display()));
        sshd.arg("-o").arg(format!("AuthorizedKeysFile={}", at("client.pub").display()));
        let sshd = sshd.stdin(Stdio::null()).stderr(Stdio::null()).spawn().expect("sshd runs");
        let host = Host { dir, sshd, address: address.to_owned(), port };
        until("sshd answers", Duration::from_secs(10), || {
            std::net::TcpStream::connect((address, port)).is_ok()
        });
        host
    }

    /// A path in its folder.
    pub fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The arguments that lead to it.
    pub fn args(&self) -> Vec<String> {
        let at = |name: &str| self.at(name).display().to_string();
        let mut args = vec!["--host".to_owned(), format!("root@{}", self.address)];
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
}
