//! How far something long has come, on stderr.

use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

/// A line that is rewritten on a terminal, and repeated every few seconds elsewhere.
#[derive(Debug)]
pub struct Progress {
    what: String,
    terminal: bool,
    next: Instant,
    shown: bool,
}

impl Progress {
    /// Names what is under way.
    pub fn new(what: impl Into<String>) -> Progress {
        let what = format!("{}{}", crate::say::prefix(), what.into());
        Progress { what, terminal: stderr().is_terminal(), next: Instant::now(), shown: false }
    }

    /// `done` of `all` bytes (or blocks) are done; shown when it is time to.
    pub fn show(&mut self, done: u64, all: u64) {
        let percent = (done.min(all) * 100).checked_div(all).unwrap_or(100);
        self.say(&format!("{percent} %"));
    }

    /// What there is to say where nobody knows how much is left; shown when it is time to.
    pub fn say(&mut self, words: &str) {
        let now = Instant::now();
        if now < self.next {
            return;
        }
        self.next = now + if self.terminal { Duration::from_millis(200) } else { Duration::from_secs(2) };
        self.shown = true;
        let end = if self.terminal { '\r' } else { '\n' };
        let mut err = stderr().lock();
        let _ = write!(err, "{}: {words}{end}", self.what);
        let _ = err.flush();
    }

    /// It is over, with this outcome.
    pub fn end(self, outcome: &str) {
        let clear = if self.terminal && self.shown { "\x1b[K" } else { "" };
        let _ = writeln!(stderr(), "{clear}{}: {outcome}", self.what);
    }
}
