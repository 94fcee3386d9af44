//! The watch over values that the tuner applied.
//!
//! Each look is a process of its own, `loligo tune watch --once --json`: a cluster that hangs, or the library that asks it,
//! holds up nobody who serves a volume (0092).

use crate::config::TuneSection;
use crate::{descriptors, guard};
use anyhow::{Context, Result, bail, ensure};
use loligo_lab::child::{Child, describe};
use loligo_lab::interrupt::Interrupt;
use loligo_log::say;
use parking_lot::Mutex;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

/// The time that one look may take.
const LIMIT: Duration = Duration::from_secs(300);
/// Between two questions whether a look has ended.
const POLL: Duration = Duration::from_millis(100);
/// The exit status of a look that saw a drift.
const DRIFTED: i32 = 1;

/// A value that is no more as it was applied.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub(crate) struct Drift {
    pub(crate) run: String,
    pub(crate) rule: String,
    pub(crate) place: String,
    pub(crate) why: String,
}

/// The outcome of a look.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Look {
    /// Values that were looked at.
    pub(crate) steps: u64,
    pub(crate) drifts: BTreeSet<Drift>,
}

/// The watch as a scrape tells of it.
#[derive(Debug, Clone, Default)]
pub(crate) struct TuneNumbers {
    /// The last look that succeeded, with its time.
    pub(crate) last: Option<(SystemTime, Look)>,
    /// True if the last try failed, or none was made.
    pub(crate) is_blind: bool,
}

/// The watch, as the metrics ask it.
#[derive(Debug, Clone)]
pub(crate) struct TuneWatch(Arc<Mutex<TuneNumbers>>);

/// A thread that looks for as long as the daemon lives.
#[derive(Debug)]
pub(crate) struct TuneThread {
    stop: Interrupt,
    thread: Option<JoinHandle<()>>,
}

impl TuneWatch {
    /// One that has not looked yet.
    pub(crate) fn new() -> TuneWatch {
        TuneWatch(Arc::new(Mutex::new(TuneNumbers { last: None, is_blind: true })))
    }

    pub(crate) fn numbers(&self) -> TuneNumbers {
        self.0.lock().clone()
    }

    /// Takes a look in, and tells what changed.
    fn take(&self, looked: Result<Look>) {
        let mut known = self.0.lock();
        let look = match looked {
            Ok(look) => look,
            Err(why) => {
                // Once, and not with each look while the cluster is away.
                if !known.is_blind || known.last.is_none() {
                    say!("tune: applied values cannot be looked at: {why:#}");
                }
                known.is_blind = true;
                return;
            }
        };
        let none = BTreeSet::new();
        let before = known.last.as_ref().map_or(&none, |(_, last)| &last.drifts);
        for it in look.drifts.difference(before) {
            say!("tune: drift: {} ({}, {}): {}", it.place, it.rule, it.run, it.why);
        }
        for it in before.difference(&look.drifts) {
            say!("tune: as before: {} ({}, {})", it.place, it.rule, it.run);
        }
        *known = TuneNumbers { last: Some((SystemTime::now(), look)), is_blind: false };
    }
}

impl TuneThread {
    /// Starts to look, by the program of this process.
    ///
    /// # Errors
    /// If there can be no thread, or the program has no path.
    pub(crate) fn start(section: TuneSection, state_dir: &Path, watch: TuneWatch) -> Result<TuneThread> {
        let stop = Interrupt::default();
        let until = stop.clone();
        let program = std::env::current_exe().context("the path of this program")?;
        let state = state_dir.join("tune");
        let keep = move || {
            guard::unmark();
            loop {
                let looked = look(&mut command(&program, &section, &state), &until);
                if until.check().is_err() {
                    return;
                }
                watch.take(looked);
                if until.sleep(Duration::from_secs(section.every)).is_err() {
                    return;
                }
            }
        };
        let thread =
            std::thread::Builder::new().name("tune".into()).spawn(keep).context("starting a thread")?;
        Ok(TuneThread { stop, thread: Some(thread) })
    }

    /// Ends it, and the look that it has under way.
    pub(crate) fn end(&mut self) {
        self.stop.set();
        if let Some(thread) = self.thread.take() {
            // A panic was told by the panic's own message.
            let _ = thread.join();
        }
    }
}

/// The command of a look.
fn command(program: &Path, section: &TuneSection, state: &Path) -> Command {
    let mut command = Command::new(program);
    command.args(["tune", "watch", "--once", "--json", "--state"]).arg(state);
    let [conf, keyring] = [&section.conf, &section.keyring].map(|it| it.as_ref().map(|it| it.as_os_str()));
    let name = section.name.as_ref().map(OsStr::new);
    for (option, value) in [("conf", conf), ("keyring", keyring), ("name", name)] {
        if let Some(value) = value {
            command.arg(format!("--{option}")).arg(value);
        }
    }
    for host in &section.hosts {
        command.args(["--host", host]);
    }
    for name in ["NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC"] {
        command.env_remove(name);
    }
    descriptors::as_before(&mut command);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Looks once.
///
/// # Errors
/// If the process cannot be run, fails, takes too long, or says what this daemon cannot read.
fn look(command: &mut Command, stop: &Interrupt) -> Result<Look> {
    let mut child = Child::spawn(command).context("a process for the look")?;
    let pipes = [child.take_stdout().map(whole), child.take_stderr().map(whole)];
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().context("waiting for the look")? {
            break status;
        }
        ensure!(begun.elapsed() < LIMIT, "no answer within {} s: it was given up", LIMIT.as_secs());
        if stop.sleep(POLL).is_err() {
            bail!("the daemon ends");
        }
    };
    let [out, err] = pipes.map(|it| it.and_then(|thread| thread.join().ok()).unwrap_or_default());
    if !status.success() && status.code() != Some(DRIFTED) || out.is_empty() {
        bail!("{}: {}", describe(status), err.lines().last().unwrap_or("it said nothing"));
    }
    serde_json::from_str(&out).context("what a look says is not understood")
}

/// Reads a pipe to its end in a thread of its own, so that none fills.
fn whole(mut pipe: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut text = String::new();
        // A part that can be read is better than nothing; what is not whole is refused as a document.
        let _ = pipe.read_to_string(&mut text);
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(text: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", text]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    #[test]
    fn a_look_is_its_document_and_a_failure_its_last_line() {
        let stop = Interrupt::default();
        let drift = r#"{"steps": 2, "drifts": [{"run": "r", "rule": "X", "place": "p", "why": "w"}]}"#;
        let seen = look(&mut shell(&format!("echo '{drift}'; exit 1")), &stop).expect("a look");
        assert_eq!((seen.steps, seen.drifts.len()), (2, 1));
        for (script, word) in [
            ("echo first >&2; echo 'error: no cluster' >&2; exit 2", "error: no cluster"),
            ("echo 'error: gone' >&2; exit 1", "error: gone"),
            ("echo '{}'", "not understood"),
            ("kill -9 $$", "signal 9"),
        ] {
            let why = format!("{:#}", look(&mut shell(script), &stop).expect_err(script));
            assert!(why.contains(word), "{script}: {why}");
        }
        stop.set();
        let begun = Instant::now();
        assert!(look(&mut shell("sleep 60"), &stop).is_err() && begun.elapsed() < Duration::from_secs(20));
    }

    #[test]
    fn a_cluster_that_is_away_keeps_the_last_look_and_says_so() {
        let watch = TuneWatch::new();
        assert!(watch.numbers().is_blind);
        let seen = Look { steps: 3, drifts: BTreeSet::new() };
        watch.take(Ok(seen.clone()));
        watch.take(Err(anyhow::anyhow!("away")));
        let numbers = watch.numbers();
        assert!(numbers.is_blind && numbers.last.is_some_and(|(_, last)| last == seen));
    }
}
