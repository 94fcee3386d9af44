//! The servers under load: `loligo serve`, and the other NBD servers it is compared with.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};

use crate::child::{Child, describe};
use crate::fio::Target;
use crate::interrupt::Interrupt;

/// The longest that a server may take to format its cache or to recover before it serves.
const START_LIMIT: Duration = Duration::from_secs(120);

/// A running NBD server; killed with its process group when dropped.
#[derive(Debug)]
pub struct Server {
    child: Child,
    command: String,
    stderr: PathBuf,
    socket: PathBuf,
    export: String,
}

/// The sign by which a server says that it accepts connections.
#[derive(Clone, Copy)]
pub(crate) enum Ready {
    /// It prints a line that reads `ready`.
    Line,
    /// Its socket exists.
    Socket,
}

impl Server {
    /// Starts `command`, whose socket is `NAME.nbd` in `dir`, and waits until it accepts connections.
    pub(crate) fn start(
        mut command: Command,
        dir: &Path,
        name: &str,
        export: &str,
        ready: Ready,
        stop: &Interrupt,
    ) -> Result<Server> {
        let socket = dir.join(format!("{name}.nbd"));
        if socket.as_os_str().len() > 107 {
            bail!(
                "the socket path {} is longer than the 107 bytes the kernel allows: choose a shorter folder",
                socket.display()
            );
        }
        stop.check()?;
        let _ = fs::remove_file(&socket);
        let stderr = dir.join(format!("{name}.stderr"));
        let words = format!("{command:?}").replace('"', "");
        command.stdin(Stdio::null()).stderr(File::create(&stderr)?);
        command.stdout(if matches!(ready, Ready::Line) { Stdio::piped() } else { Stdio::null() });
        let child = Child::spawn(&mut command).map_err(|error| {
            let program = command.get_program().to_string_lossy().into_owned();
            if error.kind() == std::io::ErrorKind::NotFound {
                let package = if program == "qemu-nbd" { "qemu-utils" } else { program.as_str() };
                anyhow!("{program} missing: apt-get install {package}")
            } else {
                anyhow::Error::new(error).context(format!("starting {program}"))
            }
        })?;
        let mut server = Server { child, command: words, stderr, socket, export: export.to_owned() };
        match ready {
            Ready::Line => server.await_line(stop)?,
            Ready::Socket => server.await_socket(stop)?,
        }
        Ok(server)
    }

    fn await_line(&mut self, stop: &Interrupt) -> Result<()> {
        let stdout = self.child.take_stdout().context("the server's output is not a pipe")?;
        let (send, lines) = mpsc::channel();
        // The reader ends with the pipe, that is with the server.
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let _ = send.send(line);
            }
        });
        let begun = Instant::now();
        loop {
            stop.check()?;
            match lines.recv_timeout(Duration::from_millis(20)) {
                Ok(line) if line.trim() == "ready" => return Ok(()),
                Ok(_) | Err(mpsc::RecvTimeoutError::Timeout) => self.check_start(begun)?,
                // The pipe is closed: the process is about to end.
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    std::thread::sleep(Duration::from_millis(20));
                    self.check_start(begun)?;
                }
            }
        }
    }

    fn await_socket(&mut self, stop: &Interrupt) -> Result<()> {
        let begun = Instant::now();
        while std::os::unix::net::UnixStream::connect(&self.socket).is_err() {
            stop.sleep(Duration::from_millis(20))?;
            self.check_start(begun)?;
        }
        Ok(())
    }

    fn check_start(&mut self, begun: Instant) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            return Err(self.failure(&format!("ended with {} before it was ready", describe(status))));
        }
        if begun.elapsed() > START_LIMIT {
            return Err(self.failure("was not ready in time"));
        }
        Ok(())
    }

    /// An error that names the command and what it last said.
    fn failure(&self, what: &str) -> anyhow::Error {
        let said = fs::read_to_string(&self.stderr).unwrap_or_default();
        let lines: Vec<&str> = said.lines().collect();
        let tail = lines[lines.len().saturating_sub(8)..].join("\n  ");
        anyhow!("{} {what}: {tail}", self.command)
    }

    /// Fails if the server has ended, with what it said.
    pub fn check(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => Err(self.failure(&format!("ended with {} under load", describe(status)))),
        }
    }

    /// The export's address for fio.
    pub fn target(&self) -> Target {
        Target::Nbd { socket: self.socket.clone(), export: self.export.clone() }
    }

    /// Its stderr since its start.
    pub fn said(&self) -> String {
        fs::read_to_string(&self.stderr).unwrap_or_default()
    }

    /// The command as typed.
    pub fn command(&self) -> &str {
        &self.command
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends SIGTERM and waits for a clean end (exit code 0) within `limit`.
    pub fn stop(mut self, stop: &Interrupt, limit: Duration) -> Result<()> {
        match self.child.terminate(stop, limit)? {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(self.failure(&format!("stopped with {}", describe(status)))),
            None => Err(self.failure(&format!("did not stop within {} s of SIGTERM", limit.as_secs()))),
        }
    }
}

/// Arguments of `loligo serve` for a cached volume.
#[derive(Debug, Clone)]
pub struct Volume {
    /// The cache file.
    pub cache: PathBuf,
    /// Its size, bytes.
    pub cache_bytes: u64,
    /// The core, as `--core` takes it.
    pub core: String,
    /// `wb`, `wt`, `pt`...
    pub mode: &'static str,
    /// The file in which the statistics are rewritten every second.
    pub stats: Option<PathBuf>,
    /// Destage everything on SIGTERM.
    pub flush_on_stop: bool,
}

impl Volume {
    /// The arguments after `serve --name NAME`.
    pub fn args(&self) -> Vec<String> {
        let mut args = vec![
            "--cache".to_owned(),
            self.cache.display().to_string(),
            "--cache-size".to_owned(),
            self.cache_bytes.to_string(),
            "--core".to_owned(),
            self.core.clone(),
            "--mode".to_owned(),
            self.mode.to_owned(),
        ];
        if let Some(stats) = &self.stats {
            args.extend(["--stats-json".to_owned(), stats.display().to_string()]);
        }
        if self.flush_on_stop {
            args.push("--flush-on-stop".to_owned());
        }
        args
    }
}

/// Arguments of `loligo serve` for a core without a cache: the side that a cache is compared with.
pub fn bare_args(core: &str) -> Vec<String> {
    ["--bare", "--core", core].map(str::to_owned).to_vec()
}

/// The spinning-disk model over a file, as `--core` takes it: 7,200 rpm, 1 MiB tracks.
pub fn disk_model(file: &Path) -> String {
    format!("hdd:{}?rpm=7200&track=1MiB", file.display())
}
