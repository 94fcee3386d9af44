//! Progress while the demo runs: a bar on a terminal, plain lines elsewhere, both on stderr.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Progress over the whole run.
#[derive(Debug)]
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    begun: Instant,
}

impl Progress {
    /// Starts; `expected` is about how long everything takes.
    pub(super) fn new(expected: Duration) -> Progress {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(expected.as_millis() as u64);
            let style = ProgressStyle::with_template("{elapsed:>4} [{bar:30}] {wide_msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
            bar
        });
        Progress { bar, begun: Instant::now() }
    }

    /// A new stage begins.
    pub(super) fn stage(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.set_message(text.to_owned()),
            None => loligo_log::say!("{:4} s  {text}", self.begun.elapsed().as_secs()),
        }
    }

    /// The stage goes on; `detail` is shown on a terminal only.
    pub(super) fn tick(&self, stage: &str, detail: &str) {
        if let Some(bar) = &self.bar {
            let total = bar.length().unwrap_or(1);
            // An estimate that was too short must not look finished.
            bar.set_position((self.begun.elapsed().as_millis() as u64).min(total * 99 / 100));
            bar.set_message(format!("{stage}{detail}"));
        }
    }

    /// A line that stays.
    pub(super) fn say(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(text),
            None => loligo_log::say!("        {text}"),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
