//! fio, which verifies what it wrote itself.

use crate::server::Server;
use crate::skip::{installed, skip};
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Bytes of what it says that are read: more is a flood.
const MOST_WORDS: u64 = 16 << 10;
/// The time that it may take to note down what was acknowledged, once told.
const NOTES: Duration = Duration::from_secs(20);

/// True if it is there and speaks to volumes; says where it is not.
pub fn can_run(what: &str) -> bool {
    let speaks = Command::new("fio").arg("--enghelp=nbd").output().is_ok_and(|o| o.status.success());
    if !speaks {
        skip(what, if installed("fio") { "this fio has no nbd engine" } else { "apt-get install fio" });
    }
    speaks
}

/// A part of a volume for fio alone, and a way there.
#[derive(Debug, Clone)]
pub struct Fio {
    dir: PathBuf,
    way: Vec<String>,
    from: usize,
    len: usize,
    /// Writes a second, so that a pass takes a while.
    rate: u32,
}

impl Fio {
    /// Through the export `name` on `socket`; what it notes down is in the folder `dir`, which no other has.
    pub fn nbd(dir: &Path, socket: &Path, name: &str) -> Fio {
        let uri = format!("--uri=nbd+unix:///{name}?socket={}", socket.display());
        Fio::by(dir, vec!["--ioengine=nbd".to_owned(), uri])
    }

    /// In a file.
    pub fn file(dir: &Path, path: &Path) -> Fio {
        let file = format!("--filename={}", path.display());
        Fio::by(dir, vec!["--ioengine=libaio".to_owned(), file])
    }

    /// On a block device, past the page cache.
    pub fn device(dir: &Path, path: &Path) -> Fio {
        let mut fio = Fio::file(dir, path);
        fio.way.push("--direct=1".to_owned());
        fio
    }

    fn by(dir: &Path, way: Vec<String>) -> Fio {
        Fio { dir: dir.to_owned(), way, from: 0, len: 8 << 20, rate: 700 }
    }

    /// The part of `len` bytes from `from` on, at `rate` writes a second.
    #[must_use]
    pub fn part(self, from: usize, len: usize, rate: u32) -> Fio {
        Fio { from, len, rate, ..self }
    }

    /// Every block of its part once, in an order that `seed` gives. Its checksums lie otherwise apart than those of three seeds out of four:
    /// what an earlier pass wrote is right by itself, and must not be taken for what is looked for.
    fn pass(&self, seed: u64, more: &[&str]) -> Command {
        let mut command = Command::new("fio");
        command.args(["--name=verify", "--rw=randwrite", "--bs=4k", "--verify=crc32c", "--verify_fatal=1"]);
        command.args([format!("--offset={}", self.from), format!("--size={}", self.len)]);
        command.args([format!("--randseed={seed}"), format!("--verify_interval={}", 512 << (seed % 4))]);
        command.arg("--randrepeat=0");
        command.args(["--iodepth=16", "--output-format=terse"]).args(&self.way).args(more);
        command.current_dir(&self.dir).stdin(Stdio::null());
        command
    }

    fn rate(&self) -> String {
        format!("--rate_iops={}", self.rate)
    }

    /// Passes over its part, each written and verified, until they are told to stop. None is like the one before, nor like what
    /// [`Fio::write`] writes.
    pub fn passes(&self) -> Passes {
        let (stop, fio) = (Arc::new(AtomicBool::new(false)), self.clone());
        let (ordered, rate) = (stop.clone(), self.rate());
        let thread = std::thread::spawn(move || {
            let (mut n, mut seed) = (0, 0);
            while !ordered.load(Ordering::Acquire) {
                n += 1;
                seed = 4 * n + 2 + n % 2;
                let more = [rate.as_str(), "--do_verify=1", "--verify_backlog=512"];
                verified(fio.pass(seed, &more)).unwrap_or_else(|e| panic!("pass {n}: {e}"));
            }
            println!("fio: {n} passes");
            seed
        });
        Passes { stop, thread, fio: self.clone() }
    }

    /// Begins to write for the `n`th time, until all is written or [`Writing::kill`]; then it kills the process `victim`, if it is the one
    /// that is to.
    pub fn write(&self, n: u64, victim: Option<u32>) -> Writing {
        let (trigger, state) = (self.trigger(), self.state());
        // They are those of the time before.
        let _ = (std::fs::remove_file(&trigger), std::fs::remove_file(&state));
        let file = format!("--trigger-file={}", trigger.display());
        let then = victim.map_or("--trigger=true".to_owned(), |id| format!("--trigger=kill -9 {id}"));
        let rate = self.rate();
        let more = [rate.as_str(), "--do_verify=0", "--verify_state_save=1", &file, &then];
        let seed = 4 * n + n % 2;
        let mut fio = self.pass(seed, &more);
        let child = fio.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("fio runs");
        Writing { fio: self.clone(), seed, kills: victim.is_some(), running: Running(child) }
    }

    fn trigger(&self) -> PathBuf {
        self.dir.join("trigger")
    }

    fn state(&self) -> PathBuf {
        self.dir.join("local-verify-0-verify.state")
    }
}

/// Runs it to its end. Its words are the reason if it fails. Its engine says for ever that a connection is
/// gone, so that it is ended if it says too much.
fn verified(mut fio: Command) -> Result<(), String> {
    let mut fio = fio.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("fio runs");
    let mut words = Vec::new();
    let stderr = fio.stderr.take().expect("a pipe");
    let read = stderr.take(MOST_WORDS).read_to_end(&mut words);
    if !read.is_ok_and(|n| (n as u64) < MOST_WORDS) {
        let _ = fio.kill();
    }
    let status = fio.wait().expect("fio ends");
    if status.success() {
        return Ok(());
    }
    Err(format!("fio: {status}: {}", String::from_utf8_lossy(&words)))
}

/// Passes over a part of a volume, each written and verified.
#[derive(Debug)]
pub struct Passes {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
    fio: Fio,
}

impl Passes {
    /// Ends them after the pass that runs; gives what was written last.
    ///
    /// # Panics
    /// If a pass found something wrong.
    pub fn stop(self) -> Written {
        self.stop.store(true, Ordering::Release);
        let seed = self.thread.join().expect("every pass is verified");
        Written { fio: self.fio, seed, state: false }
    }
}

/// A fio that does not outlive its test.
#[derive(Debug)]
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Its engine may say for ever that the connection is gone; or it has ended.
        let _ = (self.0.kill(), self.0.wait());
    }
}

/// A pass that writes until its service is killed.
#[derive(Debug)]
pub struct Writing {
    fio: Fio,
    seed: u64,
    kills: bool,
    running: Running,
}

impl Writing {
    /// Has all of them note down what is acknowledged, and one of them at once kill `server`. One that has written everything by then has
    /// nothing to note down.
    ///
    /// # Panics
    /// If one had failed before, or notes nothing down.
    pub fn kill(all: Vec<Writing>, server: &mut Server) -> Vec<Written> {
        let (mut through, mut under_way) = (Vec::new(), Vec::new());
        for mut w in all {
            match w.running.0.try_wait().expect("it is ours") {
                Some(status) => {
                    assert!(status.success(), "fio ended before anything was killed: {status}");
                    through.push(Written { fio: w.fio, seed: w.seed, state: false });
                }
                None => under_way.push(w),
            }
        }
        for w in &under_way {
            std::fs::write(w.fio.trigger(), "").expect("a file");
        }
        if !under_way.iter().any(|w| w.kills) {
            server.signal(libc::SIGKILL);
        }
        let status = server.ended().expect("fio kills it");
        assert_eq!(status.signal(), Some(9), "{}", server.words());
        through.extend(under_way.into_iter().map(Writing::end));
        through
    }

    fn end(self) -> Written {
        let (state, deadline) = (self.fio.state(), Instant::now() + NOTES);
        while !state.exists() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
        // What it notes down, it writes in one go.
        std::thread::sleep(Duration::from_millis(200));
        drop(self.running);
        assert!(state.exists(), "fio has noted nothing down");
        Written { fio: self.fio, seed: self.seed, state: true }
    }
}

/// The writes of fio.
#[derive(Debug)]
pub struct Written {
    fio: Fio,
    seed: u64,
    /// It was interrupted, and has noted down what was acknowledged.
    state: bool,
}

impl Written {
    /// Has fio verify it through `there`, the way by which it was written or another one.
    ///
    /// # Errors
    /// If fio fails; the error holds its words.
    pub fn is_in(&self, there: &Fio) -> Result<(), String> {
        // Only one behind the other it knows which of the last writes it noted down, and which were still under way. fio 3.41 looks at
        // writes behind its notes where the job is to write.
        let state: &[&str] =
            if self.state { &["--verify_state_load=1", "--iodepth=1", "--rw=randread"] } else { &[] };
        // It would note down that everything is there now.
        let more = [state, &["--verify_only", "--verify_state_save=0"]].concat();
        verified(Fio { way: there.way.clone(), ..self.fio.clone() }.pass(self.seed, &more))
    }

    /// The same by the way by which it was written.
    ///
    /// # Errors
    /// If fio fails; the error holds its words.
    pub fn is_there(&self) -> Result<(), String> {
        self.is_in(&self.fio)
    }
}
