//! A folder with a core, and `loligo` run in it.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

pub const MIB: u64 = 1 << 20;

/// A scratch folder.
pub struct Rig {
    pub dir: tempfile::TempDir,
}

impl Rig {
    /// With a core of `core` bytes, all holes.
    pub fn new(core: u64) -> Rig {
        let rig = Rig { dir: tempfile::tempdir().unwrap() };
        File::create(rig.path("core")).unwrap().set_len(core).unwrap();
        rig
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn loligo(&self, args: &[&str]) -> Command {
        let mut c = Command::new(env!("CARGO_BIN_EXE_loligo"));
        c.args(args)
            .env("LOLIGO_RUNTIME_DIR", self.path("run"))
            .current_dir(self.dir.path())
            .stdin(Stdio::null());
        c
    }

    /// Runs a command to its end, which it must reach within a minute.
    pub fn run(&self, args: &[&str]) -> Output {
        let mut child = self.loligo(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let begun = Instant::now();
        while child.try_wait().unwrap().is_none() {
            if begun.elapsed() > Duration::from_secs(60) {
                child.kill().unwrap();
                panic!("{args:?} goes on: {:?}", child.wait_with_output().unwrap());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        child.wait_with_output().unwrap()
    }

    /// Runs a command that must succeed; its stdout.
    pub fn ok(&self, args: &[&str]) -> String {
        let out = self.run(args);
        assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    }

    /// Runs a command that must be refused, or fail before it has begun, with an empty stdout; its stderr.
    pub fn refused(&self, args: &[&str]) -> String {
        let out = self.run(args);
        let said = String::from_utf8(out.stderr).unwrap();
        assert!(matches!(out.status.code(), Some(1..=3)), "{args:?} ended with {:?}: {said}", out.status);
        assert_eq!(out.stdout, b"", "{args:?}: stdout carries nothing but 'ready'");
        said
    }

    /// Arguments that serve `core` through `cache` of 32 MiB as `vol` at `sock`, in write-back mode.
    pub fn args<'a>(&self, more: &[&'a str]) -> Vec<&'a str> {
        let mut args = vec![
            "serve",
            "--name",
            "vol",
            "--cache",
            "cache",
            "--core",
            "file:core",
            "--listen",
            "unix:sock",
        ];
        if !more.contains(&"--mode") {
            args.extend(["--mode", "wb"]);
        }
        if !more.contains(&"--cache-size") && !self.path("cache").exists() {
            args.extend(["--cache-size", "32m"]);
        }
        args.extend(more);
        args
    }

    /// Serves until the result is stopped, killed or dropped.
    pub fn serve(&self, more: &[&str]) -> Served {
        self.serve_args(&self.args(more))
    }

    pub fn serve_args(&self, args: &[&str]) -> Served {
        self.serve_with(args, &[])
    }

    /// The same with more in its environment.
    pub fn serve_with(&self, args: &[&str], env: &[(&str, &str)]) -> Served {
        let stderr = self.path("stderr");
        let mut command = self.loligo(args);
        command.envs(env.iter().copied());
        let mut child =
            command.stdout(Stdio::piped()).stderr(File::create(&stderr).unwrap()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n", "{}", fs::read_to_string(&stderr).unwrap());
        Served { child, out, stderr }
    }

    /// The URI of export `vol`.
    pub fn uri(&self) -> String {
        format!("nbd+unix:///vol?socket={}", self.path("sock").display())
    }

    pub fn stats(&self) -> serde_json::Value {
        serde_json::from_str(&self.ok(&["stats", "vol", "--json"])).unwrap()
    }
}

/// A running service.
pub struct Served {
    child: Child,
    out: BufReader<std::process::ChildStdout>,
    stderr: PathBuf,
}

impl Served {
    pub fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal).unwrap();
    }

    /// SIGTERM; exit status 0 and nothing more on stdout. The result is all that stderr said from the start.
    pub fn stop(mut self) -> String {
        self.signal(rustix::process::Signal::TERM);
        self.ended(0)
    }

    /// Waits for the end with this exit status.
    pub fn ended(&mut self, code: i32) -> String {
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(begun.elapsed() < Duration::from_secs(30), "it does not end");
            std::thread::sleep(Duration::from_millis(5));
        };
        let said = fs::read_to_string(&self.stderr).unwrap();
        assert_eq!(status.code(), Some(code), "{said}");
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "", "the line 'ready' is all that stdout carries");
        said
    }

    /// SIGKILL.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn said(&self) -> String {
        fs::read_to_string(&self.stderr).unwrap()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// True if `program` is installed; says so where it is not.
pub fn have(program: &str) -> bool {
    let found =
        std::env::var_os("PATH").is_some_and(|p| std::env::split_paths(&p).any(|d| d.join(program).exists()));
    if !found {
        eprintln!("SKIP: {program} is not installed");
    }
    found
}

/// Runs a client that must succeed; its output.
pub fn client(dir: &Path, program: &str, args: &[&str]) -> String {
    let out = Command::new(program).args(args).current_dir(dir).stdin(Stdio::null()).output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{program} {args:?}: {text}");
    text
}
