//! A lab of a test, a real cluster of the system's own Ceph packages.

use crate::server::program;
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A lab's folder; what stands in it is taken down in the end, whatever became of the test.
#[derive(Debug)]
pub struct Lab {
    /// The folder.
    pub dir: PathBuf,
}

impl Lab {
    /// A lab of this name; nothing runs yet.
    pub fn new(name: &str) -> Lab {
        let dir = std::env::temp_dir().join(format!("ltl-{}-{name}", std::process::id()));
        Lab { dir }
    }

    /// `loligo lab up` with these arguments.
    pub fn up(&self, args: &[&str]) -> Output {
        self.run("up", args)
    }

    /// `loligo lab WHAT` with these arguments.
    ///
    /// # Panics
    /// If the program cannot be run.
    pub fn run(&self, what: &str, args: &[&str]) -> Output {
        self.command(what, args).output().expect("the program runs")
    }

    /// The same, not yet run.
    pub fn command(&self, what: &str, args: &[&str]) -> Command {
        let mut command = Command::new(program());
        command.arg("lab").args(what.split(' ')).arg("--dir").arg(&self.dir).args(args).stdin(Stdio::null());
        command
    }

    /// The lab's status.
    ///
    /// # Panics
    /// If there is none.
    pub fn status(&self) -> Value {
        serde_json::from_slice(&good(self.run("status", &["--json"])).stdout).expect("status is JSON")
    }

    /// Runs a script against the cluster.
    pub fn sh(&self, script: &str) -> Output {
        self.run("exec", &["--", "sh", "-ec", script])
    }

    /// Processes that name the lab's folder in their command line or environment.
    ///
    /// # Panics
    /// If there is no `/proc`.
    pub fn processes(&self) -> Vec<String> {
        let dir = self.dir.to_string_lossy().into_owned();
        std::fs::read_dir("/proc")
            .expect("/proc")
            .flatten()
            .filter_map(|e| {
                let text = |f: &str| {
                    String::from_utf8_lossy(&std::fs::read(e.path().join(f)).ok()?).into_owned().into()
                };
                let both: [Option<String>; 2] = [text("cmdline"), text("environ")];
                let own = e.file_name().to_string_lossy() == std::process::id().to_string();
                (!own && both.iter().flatten().any(|t| t.contains(&dir)))
                    .then(|| both[0].clone().unwrap_or_default())
            })
            .collect()
    }

    /// Checks that nothing of it is left.
    ///
    /// # Panics
    /// If something is.
    pub fn leaves_nothing(&self) {
        assert!(!self.dir.exists(), "{} is still there", self.dir.display());
        assert_eq!(self.processes(), Vec::<String>::new());
        let mounts = std::fs::read_to_string("/proc/self/mounts").expect("mounts");
        assert!(!mounts.contains(&*self.dir.to_string_lossy()), "something is still mounted");
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if self.dir.exists() {
            let _ = self.run("down", &[]);
        }
    }
}

/// Waits until `done` says so, and tells how long that took.
///
/// # Panics
/// If it is not so within `limit`.
pub fn until(what: &str, limit: Duration, mut done: impl FnMut() -> bool) -> Duration {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < limit, "{what}: not after {} s", limit.as_secs());
        std::thread::sleep(Duration::from_millis(100));
    }
    let took = begun.elapsed();
    println!("{:.1} s: {what}", took.as_secs_f64());
    took
}

/// The output of what went well.
///
/// # Panics
/// If it did not.
pub fn good(out: Output) -> Output {
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    out
}

/// What was said by a command that did not do what was asked.
///
/// # Panics
/// If it did.
pub fn refused(out: &Output) -> String {
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(matches!(out.status.code(), Some(1..=4)), "{:?}: {said}", out.status);
    String::from_utf8_lossy(&out.stderr).into_owned()
}
