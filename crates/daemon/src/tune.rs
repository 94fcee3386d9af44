//! The watch over values that the tuner applied.
//!
//! Each look is a process of its own, `loligo tune watch --once --json`: a cluster that hangs, or the library that asks it,
//! holds up nobody who serves a volume (0092).

use crate::config::TuneSection;
use crate::{guard, started};
use anyhow::{Context, Result, bail};
use loligo_client::tune::Look;
use loligo_lab::child::describe;
use loligo_lab::interrupt::Interrupt;
use loligo_lab::process::{Ended, outcome};
use loligo_log::say;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

/// The time that one look may take.
const LIMIT: Duration = Duration::from_secs(300);
/// The exit status of a look that saw a drift.
const DRIFTED: i32 = 1;

/// The watch as a scrape tells of it.
#[derive(Debug, Clone, Default)]
pub struct TuneNumbers {
    /// The last look that succeeded, with its time.
    pub last: Option<(SystemTime, Look)>,
    /// True if the last try failed, or none was made.
    pub is_blind: bool,
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
    /// A watch before its first look.
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
    started::apart(&mut command);
    command
}

/// Looks once.
///
/// # Errors
/// If the process cannot be run, fails, takes too long, or says what this daemon cannot read.
fn look(command: &mut Command, stop: &Interrupt) -> Result<Look> {
    let Ended { status, out, err } = outcome(command, LIMIT, stop)?;
    if !status.success() && status.code() != Some(DRIFTED) || out.is_empty() {
        bail!("{}: {}", describe(status), err.lines().last().unwrap_or("it said nothing"));
    }
    serde_json::from_str(&out).context("what a look says is not understood")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    fn shell(text: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", text]);
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
