//! SIGTERM and SIGINT as messages.

use anyhow::{Context, Result};
use loligo_block::silence::{Cause, Silence};
use parking_lot::{Mutex, MutexGuard};
use rustix::process::{Signal, getpid, kill_process};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// The start was ended by somebody.
#[derive(Debug, thiserror::Error)]
#[error("stopped while the cache was being written whole")]
pub struct CutOff;

/// The progress of a start: it may be left where it is for as long as there is nothing of it to end.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Gate {
    /// It only looks and opens, which may hang.
    #[default]
    Before,
    /// It makes, writes or notes something: whoever stops it waits for it.
    Passed,
    /// Nobody waits for it, and it does nothing more.
    Closed,
}

/// The state of a start and a stop, shared by the volume and by those who stop it.
#[derive(Debug)]
struct Course {
    /// While the stop waits for what may never come.
    deadly: AtomicBool,
    /// Core and cache have been opened.
    opened: AtomicBool,
    gate: Mutex<Gate>,
    /// While the volume starts: what is to be removed if that is cut off.
    starting: Mutex<Option<Vec<PathBuf>>>,
    /// Of all its devices.
    silence: Silence,
}

impl Course {
    fn begin() -> Arc<Course> {
        let starting = Mutex::new(Some(Vec::new()));
        Arc::new(Course {
            deadly: AtomicBool::new(false),
            opened: AtomicBool::new(false),
            gate: Mutex::default(),
            starting,
            silence: Silence::default(),
        })
    }
}

/// Stops a volume that a daemon serves.
#[derive(Debug)]
pub struct Stopper {
    send: Sender<i32>,
    asked: AtomicBool,
    course: Arc<Course>,
}

impl Stopper {
    /// Ends a start that has done nothing yet but look and open, though it hangs: what is to be removed of it; nothing
    /// where it has done more.
    pub fn leave_behind(&self) -> Option<Vec<PathBuf>> {
        let mut gate = self.course.gate.lock();
        if *gate == Gate::Passed {
            return None;
        }
        *gate = Gate::Closed;
        Some(self.course.starting.lock().take().unwrap_or_default())
    }

    /// True if its devices are there, so that its start ends.
    pub fn has_devices(&self) -> bool {
        self.course.opened.load(Ordering::Acquire)
    }

    /// Stops it, as a first signal does; asked again it is no second one, which would give up what the stop waits for.
    pub fn ask(&self) {
        if !self.asked.swap(true, Ordering::AcqRel) {
            self.stop();
        }
    }

    /// Nobody has asked, as far as the volume is concerned.
    pub fn forget(&self) {
        self.asked.store(false, Ordering::Release);
    }

    /// Ends it at once, wherever it is in its life: nothing is asked of its devices any more.
    pub fn end(&self) {
        self.course.silence.begin(Cause::Ended);
        self.stop();
    }

    /// True if somebody has asked.
    pub fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Acquire)
    }

    /// As a signal does to a volume in the foreground.
    pub fn stop(&self) {
        // It may have ended meanwhile.
        let _ = self.send.send(SIGTERM);
    }

    /// True if the stop waits for what may never come, and ending the process would be as good.
    pub fn is_deadly(&self) -> bool {
        self.course.deadly.load(Ordering::Acquire)
    }
}

/// The signals that arrive from now on.
#[derive(Debug)]
pub struct StopSignals {
    caught: Receiver<i32>,
    /// One was caught that is still to be told of.
    kept: AtomicBool,
    course: Arc<Course>,
}

impl StopSignals {
    /// Catches both. Until `StopSignals::started` they end the process, which is safe at any point of a start, and remove
    /// what it leaves.
    pub fn catch() -> Result<StopSignals> {
        let mut signals = Signals::new([SIGTERM, SIGINT]).context("catching SIGTERM and SIGINT")?;
        let (send, caught) = channel();
        let course = Course::begin();
        let seen = course.clone();
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(move || {
                for signal in signals.forever() {
                    if let Some(left) = &*seen.starting.lock() {
                        for path in left {
                            let _ = std::fs::remove_file(path);
                        }
                        loligo_log::say!("stopped before the volume was ready");
                        loligo_log::finish();
                        std::process::exit(0);
                    }
                    if seen.deadly.load(Ordering::Acquire) {
                        loligo_log::say!(
                            "given up on a second signal: everything acknowledged is on the cache, the next start recovers"
                        );
                        loligo_log::finish();
                        // Libraries of others may hang at an orderly exit, too.
                        let _ = kill_process(getpid(), Signal::KILL);
                    }
                    if send.send(signal).is_err() {
                        return;
                    }
                }
            })
            .context("starting the signal thread")?;
        Ok(StopSignals { caught, kept: AtomicBool::default(), course })
    }

    /// Signals that only the [`Stopper`] gives. A start is never cut off from `StopSignals::passes` on.
    pub fn driven() -> (StopSignals, Stopper) {
        let (send, caught) = channel();
        let course = Course::begin();
        let signals = StopSignals { caught, kept: AtomicBool::default(), course: course.clone() };
        (signals, Stopper { send, asked: AtomicBool::new(false), course })
    }

    /// The silence of all its devices.
    pub fn silence(&self) -> &Silence {
        &self.course.silence
    }

    fn starting(&self) -> MutexGuard<'_, Option<Vec<PathBuf>>> {
        self.course.starting.lock()
    }

    /// Has `path` removed if the start is cut off.
    pub(crate) fn leaves(&self, path: &Path) {
        if let Some(left) = &mut *self.starting() {
            left.push(path.to_owned());
        }
    }

    /// Has what `make` makes at `path` removed if the start is cut off. A signal waits for `make`: it finds the file noted, or
    /// none is made any more.
    pub(crate) fn making<T>(&self, path: &Path, make: impl FnOnce() -> Result<T>) -> Result<T> {
        let mut starting = self.starting();
        let made = make()?;
        if let Some(left) = &mut *starting {
            left.push(path.to_owned());
        }
        Ok(made)
    }

    /// Core and cache are there: what the start does from now on ends.
    pub(crate) fn opened(&self) {
        self.course.opened.store(true, Ordering::Release);
    }

    /// Goes on with a start that may have hung.
    ///
    /// # Errors
    /// [`CutOff`] where nobody waits for it any more: another may have begun since, which is to find nothing taken by it.
    pub(crate) fn goes_on(&self) -> Result<()> {
        self.refuse_ended()?;
        match *self.course.gate.lock() {
            Gate::Closed => Err(CutOff.into()),
            Gate::Before | Gate::Passed => Ok(()),
        }
    }

    fn refuse_ended(&self) -> Result<()> {
        match self.silence().cause() {
            Some(Cause::Ended) => Err(CutOff.into()),
            Some(Cause::Fenced(_)) | None => Ok(()),
        }
    }

    /// From now on the start makes, writes or notes something, and comes to its end.
    ///
    /// # Errors
    /// [`CutOff`] where nobody waits for it any more.
    pub(crate) fn passes(&self) -> Result<()> {
        self.refuse_ended()?;
        let mut gate = self.course.gate.lock();
        if *gate == Gate::Closed {
            return Err(CutOff.into());
        }
        *gate = Gate::Passed;
        Ok(())
    }

    /// From now on clients may be served: signals wait for [`StopSignals::within`].
    pub(crate) fn started(&self) {
        *self.starting() = None;
    }

    /// True if the next signal ends the process at once, as a crash would.
    pub(crate) fn kill(&self, kill: bool) {
        self.course.deadly.store(kill, Ordering::Release);
    }

    /// The one that [`StopSignals::within`] told of last is for whoever asks next.
    pub fn put_back(&self) {
        self.kept.store(true, Ordering::Release);
    }

    /// True if one came within `limit`.
    pub fn within(&self, limit: Duration) -> bool {
        if self.kept.swap(false, Ordering::AcqRel) {
            return true;
        }
        match self.caught.recv_timeout(limit) {
            Ok(_) => true,
            Err(RecvTimeoutError::Timeout) => false,
            Err(RecvTimeoutError::Disconnected) => {
                std::thread::sleep(limit);
                false
            }
        }
    }
}
