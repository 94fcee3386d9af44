//! The cluster's own commands, asked as its administrator.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::interrupt::Interrupt;
use crate::layout::Layout;
use crate::process;

/// The time that one command may take, where nothing else is said.
const LIMIT: Duration = Duration::from_secs(60);

/// Programs that a lab needs, and the packages of Debian and Ubuntu that hold them.
pub(crate) const PROGRAMS: [(&str, &str); 7] = [
    ("ceph-mon", "ceph-mon"),
    ("monmaptool", "ceph-mon"),
    ("ceph-mgr", "ceph-mgr"),
    ("ceph-osd", "ceph-osd"),
    ("ceph", "ceph-common"),
    ("ceph-authtool", "ceph-common"),
    ("rbd", "ceph-common"),
];

/// Looks for a program on the search path.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|p| p.is_file())
}

/// These programs, each with its package, are all here.
///
/// # Errors
/// With the line that installs those that are not.
pub fn installed(programs: &[(&str, &str)]) -> Result<()> {
    let missing: Vec<_> = programs.iter().filter(|(program, _)| find(program).is_none()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let mut packages: Vec<&str> = missing.iter().map(|m| m.1).collect();
    packages.dedup();
    let names: Vec<&str> = missing.iter().map(|m| m.0).collect();
    bail!("Ceph is missing ({}): apt-get install {}", names.join(", "), packages.join(" "));
}

/// One cluster, spoken to as client.admin.
#[derive(Debug, Clone)]
pub struct Ceph {
    conf: PathBuf,
    stop: Interrupt,
    limit: Duration,
}

impl Ceph {
    /// The cluster of a lab.
    pub fn of(at: &Layout, stop: &Interrupt) -> Ceph {
        Ceph { conf: at.conf(), stop: stop.clone(), limit: LIMIT }
    }

    /// The same, whose commands may take so long.
    #[must_use]
    pub fn within(self, limit: Duration) -> Ceph {
        Ceph { limit, ..self }
    }

    /// A command line of one of Ceph's programs, for this cluster and no other.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        own_environment(&mut command, &self.conf);
        command
    }

    /// Runs `ceph ARGS` and gives what it says.
    pub fn run<S: AsRef<OsStr>>(&self, args: &[S]) -> Result<String> {
        let mut command = self.command("ceph");
        command.args(["--connect-timeout", "30"]);
        ask(command, args, self.limit, &self.stop)
    }

    /// Runs `ceph ARGS` and reads its JSON.
    pub fn json<S: AsRef<OsStr>>(&self, args: &[S]) -> Result<Value> {
        json(args, |all| self.run(all))
    }

    /// Runs another of Ceph's programs.
    pub fn tool<S: AsRef<OsStr>>(&self, program: &str, args: &[S]) -> Result<String> {
        process::run(self.command(program).args(args), self.limit, &self.stop)
    }
}

/// Runs `command`, which is `ceph` with what leads it to a cluster, for `args`, and gives what it says.
///
/// # Errors
/// With what it said of its failure.
pub fn ask<S: AsRef<OsStr>>(
    mut command: Command,
    args: &[S],
    limit: Duration,
    stop: &Interrupt,
) -> Result<String> {
    let what: Vec<_> = args.iter().map(|a| a.as_ref().to_string_lossy()).collect();
    process::run(command.args(args), limit, stop).with_context(|| format!("ceph {}", what.join(" ")))
}

/// Has `run` ask for JSON with `args`, and reads it.
///
/// # Errors
/// If it fails, or says something else.
pub fn json<S: AsRef<OsStr>>(args: &[S], run: impl FnOnce(&[&OsStr]) -> Result<String>) -> Result<Value> {
    let mut all: Vec<&OsStr> = args.iter().map(AsRef::as_ref).collect();
    all.extend(["--format", "json"].map(OsStr::new));
    let text = run(&all)?;
    serde_json::from_str(&text).with_context(|| format!("what ceph said is not JSON: {}", text.trim()))
}

/// A new id, as `ceph` takes it.
///
/// # Errors
/// If the kernel gives none.
pub fn uuid() -> Result<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/uuid").context("the kernel's random ids")?;
    Ok(text.trim().to_owned())
}

/// Takes away what would lead a program of Ceph to another cluster, and names this one.
pub fn own_environment(command: &mut Command, conf: &Path) {
    for name in ["CEPH_ARGS", "CEPH_KEYRING", "CEPH_KEY"] {
        command.env_remove(name);
    }
    command.env("CEPH_CONF", conf);
}
