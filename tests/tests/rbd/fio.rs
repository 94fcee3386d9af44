//! fio, which verifies what it wrote itself.

use crate::site::Site;
use loligo_tests::server::{Server, Volume};
use loligo_tests::skip::{installed, skip};
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Where its part of a volume begins; what lies before is others'.
pub(crate) const FROM: usize = 32 << 20;
/// Bytes of its part.
pub(crate) const LEN: usize = 8 << 20;
/// Writes a second, so that a pass takes a while.
const RATE: &str = "--rate_iops=700";
/// Bytes of what it says that are read: more is a flood.
const MOST_WORDS: u64 = 16 << 10;

/// Whether it is there and speaks to volumes.
pub(crate) fn can_run() -> bool {
    let speaks = Command::new("fio").arg("--enghelp=nbd").output().is_ok_and(|o| o.status.success());
    if !speaks {
        skip(
            "fio beside writers",
            if installed("fio") { "this fio has no nbd engine" } else { "apt-get install fio" },
        );
    }
    speaks
}

/// Every block of its part once, in an order that `seed` gives, in the folder `dir`.
fn pass(dir: &Path, seed: u64, more: &[&str]) -> Command {
    let mut command = Command::new("fio");
    command.args(["--name=verify", "--rw=randwrite", "--bs=4k", "--verify=crc32c", "--verify_fatal=1"]);
    command.args([format!("--offset={FROM}"), format!("--size={LEN}"), format!("--randseed={seed}")]);
    command.args(["--randrepeat=0", "--iodepth=16", "--output-format=terse"]).args(more);
    command.current_dir(dir).stdin(Stdio::null());
    command
}

fn uri(socket: &Path) -> String {
    format!("--uri=nbd+unix:///{}?socket={}", Volume::NAME, socket.display())
}

/// Runs it to its end. What it says is its reason where it fails; its engine says for ever that a connection is gone, so that
/// it is ended where it says too much.
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

/// Passes over its part of a volume, each written and verified, until it is told to stop.
#[derive(Debug)]
pub(crate) struct Passes {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
    dir: PathBuf,
}

impl Passes {
    /// Starts them; nothing where there is no fio.
    pub(crate) fn start(site: &Site<'_>) -> Option<Passes> {
        if !can_run() {
            return None;
        }
        let (stop, dir, uri) = (Arc::new(AtomicBool::new(false)), site.dir.clone(), uri(&site.socket()));
        let (ordered, folder) = (stop.clone(), dir.clone());
        let thread = std::thread::spawn(move || {
            let mut seed = 0;
            while !ordered.load(Ordering::Acquire) {
                seed += 1;
                let more = ["--ioengine=nbd", &uri, RATE, "--do_verify=1", "--verify_backlog=512"];
                verified(pass(&folder, seed, &more)).unwrap_or_else(|e| panic!("pass {seed}: {e}"));
            }
            seed
        });
        Some(Passes { stop, thread, dir })
    }

    /// Ends them after the pass that runs; gives what was written last.
    pub(crate) fn stop(self) -> Written {
        self.stop.store(true, Ordering::Release);
        let seed = self.thread.join().expect("every pass is verified");
        println!("fio: {seed} passes");
        Written { seed, dir: self.dir, state: false }
    }
}

/// What fio wrote.
#[derive(Debug)]
pub(crate) struct Written {
    seed: u64,
    dir: PathBuf,
    /// It was interrupted, and has noted down what was acknowledged.
    state: bool,
}

impl Written {
    /// Has fio write until some time in a pass it notes down what is acknowledged and, at once, kills `server`.
    pub(crate) fn until_killed(site: &Site<'_>, seed: u64, server: &mut Server) -> Written {
        let (uri, trigger) = (uri(&site.socket()), site.dir.join("trigger"));
        let state = site.dir.join("local-verify-0-verify.state");
        let _ = (std::fs::remove_file(&trigger), std::fs::remove_file(&state));
        let file = format!("--trigger-file={}", trigger.display());
        let kill = format!("--trigger=kill -9 {}", server.id());
        let more = ["--ioengine=nbd", &uri, RATE, "--do_verify=0", "--verify_state_save=1", &file, &kill];
        // Its engine says for ever that the connection is gone.
        let mut fio = pass(&site.dir, seed, &more)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("fio runs");
        std::thread::sleep(Duration::from_millis(1500));
        std::fs::write(&trigger, "").expect("a file");
        let status = server.ended().expect("fio kills it");
        assert_eq!(status.signal(), Some(9), "{}", server.words());
        let _ = (fio.kill(), fio.wait());
        assert!(state.exists(), "fio has noted nothing down");
        Written { seed, dir: site.dir.clone(), state: true }
    }

    fn verify(&self, more: &[&str]) -> Result<(), String> {
        let state: &[&str] = if self.state { &["--verify_state_load=1"] } else { &[] };
        // It would note down that everything is there now.
        let more = [more, state, &["--verify_only", "--verify_state_save=0"]].concat();
        verified(pass(&self.dir, self.seed, &more))
    }

    /// Has fio verify it through the volume.
    pub(crate) fn is_in_volume(&self, site: &Site<'_>) -> Result<(), String> {
        self.verify(&["--ioengine=nbd", &uri(&site.socket())])
    }

    /// Has fio verify it in a file that holds the volume.
    pub(crate) fn is_in_file(&self, file: &Path) -> Result<(), String> {
        self.verify(&["--ioengine=libaio", &format!("--filename={}", file.display())])
    }
}
