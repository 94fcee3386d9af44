//! Daemons that outlive their starter, known by process id and start time, so that none is ever mistaken for another.

use std::fmt;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use loligo_block::processes::{Stat, boot_id};
use parking_lot::Mutex;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use crate::child::Child;
use crate::interrupt::Interrupt;

/// The number of times that a waiting loop looks.
pub(crate) const POLL: Duration = Duration::from_millis(50);
/// The time after a program's end in which the rest of its output is read.
const LEFT_OPEN: Duration = Duration::from_secs(3);

/// A process that was started here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// The name of the daemon, as `osd.0`.
    pub name: String,
    /// Its process id.
    pub pid: i32,
    /// The time at which it started, in the kernel's ticks since boot: with the process id no other process
    /// has it.
    pub start: u64,
    /// The boot it was started in.
    pub boot: String,
}

impl Process {
    /// Starts `command` in a process group of its own and in `/`, without a terminal; its output goes to `log`. It runs once it is let go, so that
    /// what nobody has written down never does.
    ///
    /// # Errors
    /// If the log cannot be opened or nothing can be started.
    pub fn hold(name: &str, command: &Command, log: &Path) -> Result<Held> {
        let out = File::options().create(true).append(true).open(log);
        let out = out.with_context(|| format!("opening {}", log.display()))?;
        let err = out.try_clone().with_context(|| format!("opening {}", log.display()))?;
        let mut waits = waiting(command);
        // As a service: Debian's Ceph 18 looks for its object classes below the folder it is started in.
        waits.current_dir("/");
        waits.process_group(0).stdin(Stdio::piped()).stdout(out).stderr(err);
        let program = command.get_program().to_string_lossy().into_owned();
        let mut child = waits.spawn().with_context(|| format!("starting {program} for {name}"))?;
        let pid = child.id() as i32;
        // Not reaped until this program ends, so the process id stays its own up to here.
        let start = Stat::of(pid).map_or(0, |s| s.start);
        let process = Process { name: name.to_owned(), pid, start, boot: boot_id() };
        Ok(Held { process, word: child.stdin.take() })
    }

    /// A process that others started; nothing if it has ended.
    pub(crate) fn found(name: &str, pid: i32) -> Option<Process> {
        let stat = Stat::of(pid).ok().filter(|stat| !stat.is_ended())?;
        Some(Process { name: name.to_owned(), pid, start: stat.start, boot: boot_id() })
    }

    /// True if it still runs, or holds its files and locks.
    pub fn alive(&self) -> bool {
        self.boot == boot_id() && Stat::of(self.pid).is_ok_and(|s| s.start == self.start && !s.is_gone())
    }

    /// True if it was stopped by a signal.
    pub(crate) fn stands_still(&self) -> bool {
        self.boot == boot_id() && Stat::of(self.pid).is_ok_and(|s| s.start == self.start && s.is_stopped())
    }

    /// Sends `signal`, if it still runs.
    pub fn signal(&self, signal: Signal) {
        // The descriptor is taken before the look, so that it cannot belong to a later process of the same number.
        let Some(fd) = Pid::from_raw(self.pid).and_then(|p| pidfd_open(p, PidfdFlags::empty()).ok()) else {
            return;
        };
        if self.alive() {
            // It may end at this moment.
            let _ = pidfd_send_signal(&fd, signal);
        }
    }
}

/// A process that waits to be let go; dropped, or with its starter dead, it ends without having run.
#[derive(Debug)]
pub struct Held {
    /// The process, as it will be known.
    pub process: Process,
    word: Option<ChildStdin>,
}

impl Held {
    /// Lets it go.
    pub fn go(mut self) -> Process {
        if let Some(mut word) = self.word.take() {
            // If it is gone already that shows as with any other that ended.
            let _ = word.write_all(b"go\n");
        }
        self.process
    }
}

/// `command` as a process that becomes it once it has read a line, and ends where there is none to come.
fn waiting(command: &Command) -> Command {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", "read -r go && exec \"$@\" </dev/null", "sh"]);
    through(shell, command)
}

/// `outer` with `command` behind its own arguments, and with its environment.
pub(crate) fn through(mut outer: Command, command: &Command) -> Command {
    outer.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => outer.env(name, value),
            None => outer.env_remove(name),
        };
    }
    outer
}

/// Ends processes: SIGTERM (and SIGCONT, for one that was frozen), and SIGKILL for what still runs after `limit`.
pub fn end(processes: &[Process], limit: Duration) {
    for p in processes {
        p.signal(Signal::TERM);
        p.signal(Signal::CONT);
    }
    if !wait(processes, limit) {
        for p in processes {
            p.signal(Signal::KILL);
        }
        wait(processes, Duration::from_secs(10));
    }
}

/// Waits until none of them runs. False: the time was over before.
pub(crate) fn wait(processes: &[Process], limit: Duration) -> bool {
    let begun = Instant::now();
    while processes.iter().any(Process::alive) {
        if begun.elapsed() > limit {
            return false;
        }
        std::thread::sleep(POLL);
    }
    true
}

/// Runs a program to its end and gives its standard output. On an interrupt it is killed, and it dies with this program.
///
/// # Errors
/// With what it said on standard error where it fails, does not end within `limit`, or is not there.
pub fn run(command: &mut Command, limit: Duration, stop: &Interrupt) -> Result<String> {
    run_on(command, None, limit, stop)
}

/// The same, whatever its status: it and both outputs are the caller's to judge.
///
/// # Errors
/// If it does not end within `limit`, is not there, or on an interrupt.
pub fn outcome(command: &mut Command, limit: Duration, stop: &Interrupt) -> Result<Ended> {
    end_of(command, Child::spawn, None, limit, stop)
}

/// Runs a program that is not to be cut in the middle of a deed: Ctrl-C does not reach it, and it goes on if this program is killed.
/// A program that is late is killed with all that it started.
///
/// # Errors
/// If it does not end within `limit`, which is a [`Late`], or is not there.
pub fn finish(command: &mut Command, input: String, limit: Duration) -> Result<Ended> {
    end_of(command, Child::spawn_apart, Some(input), limit, &Interrupt::default())
}

/// The same for one whose words go to where this program's go.
///
/// # Errors
/// Those of [`finish`].
pub fn finish_aloud(command: &mut Command, limit: Duration) -> Result<ExitStatus> {
    let what = program(command);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let child = Child::spawn_apart(command).with_context(|| format!("starting {what}"))?;
    wait_for(child, &what, limit, &Interrupt::default())
}

/// A program that did not end in time, and was killed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Late {
    program: String,
    limit: Duration,
}

impl fmt::Display for Late {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} gave no answer within {} s", self.program, self.limit.as_secs())
    }
}

impl std::error::Error for Late {}

/// A program that has ended.
#[derive(Debug)]
pub struct Ended {
    /// Its status.
    pub status: ExitStatus,
    /// Its standard output.
    pub out: String,
    /// Its standard error.
    pub err: String,
}

/// The same as [`run`] for a program that reads `input`.
///
/// # Errors
/// Those of [`run`].
pub fn feed(command: &mut Command, input: String, limit: Duration, stop: &Interrupt) -> Result<String> {
    run_on(command, Some(input), limit, stop)
}

fn run_on(command: &mut Command, input: Option<String>, limit: Duration, stop: &Interrupt) -> Result<String> {
    let Ended { status, out, err } = end_of(command, Child::spawn, input, limit, stop)?;
    if !status.success() {
        anyhow::bail!("{} failed ({status}): {}", program(command), last_lines(&err, 4));
    }
    Ok(out)
}

fn program(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}

fn end_of(
    command: &mut Command,
    spawn: fn(&mut Command) -> std::io::Result<Child>,
    input: Option<String>,
    limit: Duration,
    stop: &Interrupt,
) -> Result<Ended> {
    let what = program(command);
    command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = spawn(command).with_context(|| format!("starting {what}"))?;
    if let (Some(input), Some(mut pipe)) = (input, child.take_stdin()) {
        // One that ends without reading to the end says why by how it ends.
        std::thread::spawn(move || drop(pipe.write_all(input.as_bytes())));
    }
    let readers = [child.take_stdout().map(Reader::new), child.take_stderr().map(Reader::new)];
    let status = wait_for(child, &what, limit, stop)?;
    let [out, err] = readers.map(|reader| reader.map(Reader::take).unwrap_or_default());
    Ok(Ended { status, out, err })
}

/// Waits until it ends. One that is late, or is interrupted, is killed.
fn wait_for(mut child: Child, what: &str, limit: Duration, stop: &Interrupt) -> Result<ExitStatus> {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait().with_context(|| format!("waiting for {what}"))? {
            return Ok(status);
        }
        let is_late = begun.elapsed() > limit;
        if is_late || stop.check().is_err() {
            drop(child);
            stop.check()?;
            anyhow::bail!(Late { program: what.to_owned(), limit });
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The words of a program on one of its outputs.
struct Reader {
    said: Arc<Mutex<Vec<u8>>>,
    ended: Receiver<()>,
}

impl Reader {
    fn new(mut from: impl Read + Send + 'static) -> Reader {
        let said = Arc::new(Mutex::new(Vec::new()));
        let (tell, ended) = channel();
        let to = said.clone();
        std::thread::spawn(move || {
            // Whoever waits sees that it has gone.
            let _tell: Sender<()> = tell;
            let mut piece = [0; 64 << 10];
            // What came up to an error is still worth showing.
            while let Ok(len @ 1..) = from.read(&mut piece) {
                to.lock().extend_from_slice(&piece[..len]);
            }
        });
        Reader { said, ended }
    }

    /// All of it, once the program has ended. One that it left behind may hold the output open.
    fn take(self) -> String {
        let _ = self.ended.recv_timeout(LEFT_OPEN);
        String::from_utf8_lossy(&self.said.lock()).into_owned()
    }
}

/// The last `n` lines that hold something, joined.
pub(crate) fn last_lines(text: &str, n: usize) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    lines[lines.len().saturating_sub(n)..].join(" / ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeper(dir: &Path) -> Process {
        Process::hold("sleeper", Command::new("sleep").arg("100"), &dir.join("out")).unwrap().go()
    }

    #[test]
    fn a_process_is_ended_and_its_number_alone_signals_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let p = sleeper(dir.path());
        assert!(p.alive());
        let stranger = Process { start: p.start + 1, ..p.clone() };
        assert!(!stranger.alive());
        end(std::slice::from_ref(&stranger), Duration::from_millis(200));
        assert!(p.alive(), "a process of another start time was ended");
        end(std::slice::from_ref(&p), Duration::from_secs(5));
        assert!(!p.alive());
    }

    #[test]
    fn a_process_that_was_not_let_go_never_runs() {
        let dir = tempfile::tempdir().unwrap();
        let mark = dir.path().join("ran");
        let hold =
            || Process::hold("touch", Command::new("touch").arg(&mark), &dir.path().join("out")).unwrap();
        let held = hold();
        let process = held.process.clone();
        std::thread::sleep(Duration::from_millis(100));
        assert!(process.alive() && !mark.exists(), "it did not wait");
        drop(held);
        assert!(wait(&[process], Duration::from_secs(10)) && !mark.exists(), "it ran all the same");
        let process = hold().go();
        assert!(wait(&[process], Duration::from_secs(10)) && mark.exists(), "it did not run");
    }

    #[test]
    fn a_process_runs_in_the_root_folder() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("out");
        let process = Process::hold("pwd", &Command::new("pwd"), &out).unwrap().go();
        assert!(wait(&[process], Duration::from_secs(10)), "it did not end");
        assert_eq!(std::fs::read_to_string(out).unwrap(), "/\n");
    }

    #[test]
    fn a_frozen_process_is_ended_too() {
        let dir = tempfile::tempdir().unwrap();
        let p = sleeper(dir.path());
        p.signal(Signal::STOP);
        end(std::slice::from_ref(&p), Duration::from_secs(5));
        assert!(!p.alive());
    }

    #[test]
    fn a_failed_program_is_quoted_and_a_slow_one_is_killed() {
        let stop = Interrupt::default();
        let limit = Duration::from_secs(10);
        let e = run(Command::new("sh").args(["-c", "echo why >&2; exit 3"]), limit, &stop).unwrap_err();
        assert!(e.to_string().contains("why"), "{e}");
        let e = run(Command::new("sleep").arg("60"), Duration::from_millis(100), &stop).unwrap_err();
        assert!(e.to_string().contains("no answer"), "{e}");
        assert_eq!(run(Command::new("echo").arg("x"), limit, &stop).unwrap(), "x\n");
        assert_eq!(feed(&mut Command::new("cat"), "y\n".to_owned(), limit, &stop).unwrap(), "y\n");
        assert_eq!(run(&mut Command::new("cat"), limit, &stop).unwrap(), "", "nothing to read");
    }

    #[test]
    fn a_deed_has_a_group_of_its_own_and_a_deadline() {
        let sh = |text: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", text]);
            command
        };
        let alone = "set -- $(cat /proc/$$/stat); test $5 = $$";
        let ended = finish(&mut sh(&format!("{alone} && cat")), "heard".to_owned(), Duration::from_secs(30));
        assert_eq!(ended.unwrap().out, "heard", "Ctrl-C does not reach it");
        assert!(finish_aloud(&mut sh(alone), Duration::from_secs(30)).unwrap().success());
        let begun = Instant::now();
        let limit = Duration::from_millis(50);
        let late = finish(&mut sh("sleep 60 & sleep 60"), String::new(), limit).unwrap_err();
        let left = finish(&mut sh("sleep 60 & echo done"), String::new(), Duration::from_secs(30)).unwrap();
        assert_eq!(left.out, "done\n", "one that it left behind holds the output open");
        assert!(late.is::<Late>() && finish_aloud(&mut sh("sleep 60"), limit).unwrap_err().is::<Late>());
        assert!(begun.elapsed() < Duration::from_secs(30), "it waits for what it has killed");
        assert!(!finish(&mut Command::new("/no/such"), String::new(), limit).unwrap_err().is::<Late>());
    }
}
