//! The progress of something long, on stderr.

use std::time::{Duration, Instant};

/// A line that is rewritten on a terminal, and repeated every few seconds elsewhere.
#[derive(Debug)]
pub struct Progress {
    what: String,
    next: Instant,
}

impl Progress {
    /// Names what is under way.
    pub fn new(what: impl Into<String>) -> Progress {
        let prefix = loligo_log::speaker().map(|name| format!("{name}: ")).unwrap_or_default();
        let what = format!("{prefix}{}", what.into());
        Progress { what, next: Instant::now() }
    }

    /// `done` of `all` bytes (or blocks) are done; shown when it is time to.
    pub fn show(&mut self, done: u64, all: u64) {
        let percent = (done.min(all) * 100).checked_div(all).unwrap_or(100);
        self.say(&format!("{percent} %"));
    }

    /// Shows `words` while nobody knows how much is left, when it is time to.
    pub fn say(&mut self, words: &str) {
        let now = Instant::now();
        if now < self.next {
            return;
        }
        let pause = if loligo_log::is_rewritten() { 200 } else { 2000 };
        self.next = now + Duration::from_millis(pause);
        loligo_log::progress(format_args!("{}: {words}", self.what), false);
    }

    /// It is over, with this outcome.
    pub fn end(self, outcome: &str) {
        loligo_log::progress(format_args!("{}: {outcome}", self.what), true);
    }
}
