//! The program as an administrator types it, against the services of one folder.

use crate::server::{Server, program};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A folder of control sockets.
#[derive(Debug)]
pub struct Cli {
    runtime: PathBuf,
}

impl Cli {
    /// The runtime folder of services that are told this one.
    pub fn new(runtime: impl Into<PathBuf>) -> Cli {
        Cli { runtime: runtime.into() }
    }

    /// Starts the daemon with the file `config` and waits until it is ready.
    ///
    /// # Panics
    /// If it does not come.
    pub fn daemon(&self, config: &Path) -> Server {
        let mut server = Server::daemon(&self.runtime, config).expect("it runs");
        server.ready().unwrap_or_else(|e| panic!("{e:?}"));
        server
    }

    /// `loligo` with `args`, to be run in whatever way.
    pub fn command<S: AsRef<str>>(&self, args: &[S]) -> Command {
        let mut command = Command::new(program());
        command.args(args.iter().map(AsRef::as_ref)).stdin(Stdio::null());
        command.env("LOLIGO_RUNTIME_DIR", &self.runtime).env_remove("CEPH_ARGS");
        command
    }

    /// The outcome of `loligo` with `args`.
    ///
    /// # Panics
    /// If it cannot be run.
    pub fn loligo<S: AsRef<str>>(&self, args: &[S]) -> Output {
        self.command(args).output().expect("it runs")
    }

    /// The output of a command that must succeed.
    ///
    /// # Panics
    /// If it does not succeed, with its words.
    pub fn ok<S: AsRef<str>>(&self, args: &[S]) -> String {
        let out = self.loligo(args);
        assert!(out.status.success(), "{}: {}", line(args), String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).expect("text")
    }

    /// The words of a command that must be refused.
    ///
    /// # Panics
    /// If it succeeds, or ends in another way than by an error that it tells.
    pub fn refused<S: AsRef<str>>(&self, args: &[S]) -> String {
        let out = self.loligo(args);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(matches!(out.status.code(), Some(1..=4)), "{} was not refused: {said}", line(args));
        said
    }
}

fn line<S: AsRef<str>>(args: &[S]) -> String {
    args.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(" ")
}
