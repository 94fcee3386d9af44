//! The service as its users run it: the program, its options, its signals.

use anyhow::{Context, Result, bail, ensure};
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// A start or stop that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// The program: `LOLIGO_BIN` where it is set and exists, else built here, with the checks of a test build.
///
/// # Panics
/// If it cannot be built.
pub fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        if let Some(path) = std::env::var_os("LOLIGO_BIN").map(PathBuf::from).filter(|p| p.exists()) {
            return path;
        }
        let target = std::env::current_exe().expect("a test has a path");
        // <target>/<profile>/deps/<test>
        let target = target.ancestors().nth(3).expect("tests are built into a target directory");
        let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .args(["build", "--quiet", "--profile", "test", "-p", "loligo", "--target-dir"])
            .arg(target)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status()
            .expect("cargo runs");
        assert!(status.success(), "the program does not build");
        target.join("debug/loligo")
    })
}

/// The program for aarch64, which `LOLIGO_AARCH64_BIN` names; `scripts/test-aarch64.sh` builds it.
pub fn aarch64_program() -> Option<PathBuf> {
    std::env::var_os("LOLIGO_AARCH64_BIN").map(PathBuf::from).filter(|path| path.exists())
}

/// The parts of a volume, and how it is served.
#[derive(Debug, Clone)]
pub struct Volume {
    /// Its folder: sockets, and where the service's own output goes.
    pub dir: PathBuf,
    /// Path of the cache.
    pub cache: PathBuf,
    /// Bytes of a new cache.
    pub cache_size: u64,
    /// Path of the core, which must exist.
    pub core: PathBuf,
    /// `wb`, `wt`, ...
    pub mode: &'static str,
    /// Further options.
    pub more: Vec<String>,
}

impl Volume {
    /// Its name, and that of its export.
    pub const NAME: &str = "vol";

    /// The NBD socket.
    pub fn socket(&self) -> PathBuf {
        self.dir.join("nbd.sock")
    }

    /// Its URI for libnbd and qemu.
    pub fn uri(&self) -> String {
        format!("nbd+unix:///{}?socket={}", Volume::NAME, self.socket().display())
    }

    /// Starts the service, not waiting for it.
    ///
    /// # Errors
    /// If the program does not run.
    pub fn launch(&self) -> Result<Server> {
        let mut args = vec!["--mode".to_owned(), self.mode.to_owned()];
        args.extend(["--cache".to_owned(), self.cache.display().to_string()]);
        args.extend(["--cache-size".to_owned(), self.cache_size.to_string()]);
        args.extend(["--core".to_owned(), format!("file:{}", self.core.display())]);
        args.extend(["--listen".to_owned(), format!("unix:{}", self.socket().display())]);
        args.extend(self.more.iter().cloned());
        Server::launch(&self.dir, &args)
    }

    /// Starts the service and waits until clients may come.
    ///
    /// # Errors
    /// If it refuses; its own words are in the message.
    pub fn serve(&self) -> Result<Server> {
        let mut server = self.launch()?;
        server.ready()?;
        Ok(server)
    }

    /// Runs `loligo` with `args` to its end.
    ///
    /// # Errors
    /// If the program does not run.
    pub fn loligo(&self, args: &[&str]) -> Result<Output> {
        Ok(self.command(args).output()?)
    }

    /// `loligo` with `args`, to be run beside other things.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(program());
        command.args(args).env("LOLIGO_RUNTIME_DIR", &self.dir).stdin(Stdio::null());
        command
    }
}

/// A running service; dropping it kills it.
#[derive(Debug)]
pub struct Server {
    child: Child,
    lines: std::sync::mpsc::Receiver<String>,
    log: PathBuf,
}

impl Server {
    /// Starts `loligo serve` for a volume of the usual name with these further arguments, not waiting for it. Its words on
    /// stderr and its control socket go to `dir`.
    ///
    /// # Errors
    /// If the program does not run.
    pub fn launch(dir: &Path, args: &[String]) -> Result<Server> {
        Server::launch_by(Command::new(program()), dir, args)
    }

    /// The same by a `command` that becomes the program, on another host for example.
    ///
    /// # Errors
    /// If it does not run.
    pub fn launch_by(mut command: Command, dir: &Path, args: &[String]) -> Result<Server> {
        command.args(["serve", "--name", Volume::NAME]).args(args);
        Server::spawn(command, dir)
    }

    /// Starts the daemon with the file `config`, not waiting for it.
    ///
    /// # Errors
    /// If the program does not run.
    pub fn daemon(dir: &Path, config: &Path) -> Result<Server> {
        Server::daemon_by(Command::new(program()), dir, config)
    }

    /// The same by a `command` that becomes the program, with less memory for example.
    ///
    /// # Errors
    /// If it does not run.
    pub fn daemon_by(mut command: Command, dir: &Path, config: &Path) -> Result<Server> {
        command.args(["daemon", "--config"]).arg(config);
        Server::spawn(command, dir)
    }

    fn spawn(mut command: Command, dir: &Path) -> Result<Server> {
        let log = dir.join("serve.log");
        let stderr = std::fs::OpenOptions::new().create(true).append(true).open(&log)?;
        let mut child = command
            .env("LOLIGO_RUNTIME_DIR", dir)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .with_context(|| format!("{} does not run", program().display()))?;
        let (tx, lines) = channel();
        if let Some(out) = child.stdout.take() {
            std::thread::spawn(move || {
                for line in BufReader::new(out).lines().map_while(Result::ok) {
                    if tx.send(line).is_err() {
                        return;
                    }
                }
            });
        }
        Ok(Server { child, lines, log })
    }

    /// The number of its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Everything that it, and those before it in the same folder, said on stderr.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Its last words on stderr.
    pub fn words(&self) -> String {
        let all = self.log();
        let lines: Vec<&str> = all.lines().collect();
        lines[lines.len().saturating_sub(12)..].join("\n")
    }

    /// Waits for the line `ready`.
    ///
    /// # Errors
    /// If it ends before, or says something else.
    pub fn ready(&mut self) -> Result<()> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) if line == "ready" => Ok(()),
            Ok(line) => bail!("stdout carries '{line}'"),
            Err(RecvTimeoutError::Timeout) => bail!("not ready within {PATIENCE:?}: {}", self.words()),
            Err(RecvTimeoutError::Disconnected) => {
                let status = self.child.wait()?;
                bail!("refused to start ({status}): {}", self.words())
            }
        }
    }

    /// Ends it as SIGKILL does.
    ///
    /// # Errors
    /// If it was dead already, and not by a signal of ours.
    pub fn kill(mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("had ended by itself ({status}): {}", self.words());
        }
        self.child.kill()?;
        let status = self.child.wait()?;
        ensure!(status.signal() == Some(9), "ended with {status}: {}", self.words());
        Ok(())
    }

    /// Asks it to stop, as SIGTERM does, and returns at once.
    pub fn terminate(&self) {
        self.signal(libc::SIGTERM);
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: i32) {
        // SAFETY: the child is ours and not yet waited for, so the number is still its own.
        unsafe { libc::kill(self.child.id() as libc::pid_t, signal) };
    }

    /// Asks it to stop and waits.
    ///
    /// # Errors
    /// If it does not.
    pub fn stop(mut self) -> Result<ExitStatus> {
        self.terminate();
        let status = self.ended()?;
        ensure!(status.success(), "stopped with {status}: {}", self.words());
        Ok(status)
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// If it does not come.
    pub fn ended(&mut self) -> Result<ExitStatus> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        bail!("does not stop within {PATIENCE:?}: {}", self.words())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already; then there is nothing to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
