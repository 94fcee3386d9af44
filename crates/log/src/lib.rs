//! Everything that the programs say: the log and warnings on standard error, results on standard output.
//!
//! Nothing here fails and nothing panics: the reader of either may go at any time, or stop reading. A service
//! ([`begin_service`]) hands its lines to a thread, so that nobody who carries a request out waits for the reader
//! (decision 0034). A command writes by itself.

mod events;
mod output;
mod queue;
mod shown;
mod speaker;
mod style;

pub use events::install;
pub use output::{finish_output, flush_output, print};
pub use shown::one_line;
pub use speaker::{LastWords, speak, speak_for, speaker};

use queue::Queue;
use shown::shown;
use std::fmt::{Arguments, Display};
use std::io::{self, IsTerminal};
use std::sync::OnceLock;
use std::time::Duration;
use style::{Level, Style};

/// Longest that a line of [`line`] is waited for. Once one took longer, none is waited for until the reader reads on.
const PATIENCE: Duration = Duration::from_millis(200);

/// Longest that the end of the program waits for lines that are not written yet.
const LAST: Duration = Duration::from_secs(1);

static SERVICE: OnceLock<Queue> = OnceLock::new();

/// From now on this process is a service: lines go through a thread, with a time stamp each or, where standard error is
/// the journal's, with a priority; so do the words of a panic. Further calls do nothing.
///
/// # Errors
/// If no thread can be started.
pub fn begin_service() -> io::Result<()> {
    if SERVICE.get().is_none() && SERVICE.set(Queue::start()?).is_ok() {
        std::panic::set_hook(Box::new(|info| {
            let thread = std::thread::current();
            let trace = std::backtrace::Backtrace::capture();
            let mut words = format!("thread '{}' {info}", thread.name().unwrap_or("?"));
            if trace.status() == std::backtrace::BacktraceStatus::Captured {
                words.push_str(&format!("\n{trace}"));
            }
            put(Level::Critical, None, &words, PATIENCE);
        }));
    }
    Ok(())
}

/// Says `words`, in the name of `who` where there is one. They are one line, whatever names in them hold. A line that begins with `error:` or `warning:` has that
/// priority.
///
/// The line is written when this returns, unless its reader is gone or does not read: then it is written later, or dropped.
pub fn line(who: Option<&str>, words: Arguments<'_>) {
    let words = words.to_string();
    put(Level::of(&words), who, &one_line(words.trim_end_matches('\n')), PATIENCE);
}

/// Prints how far something has come. On a terminal this rewrites the last such line until `is_last`.
pub fn progress(words: impl Display, is_last: bool) {
    if is_rewritten() {
        let words = words.to_string();
        let words = one_line(&words);
        queue::write(format!("\x1b[K{words}{}", if is_last { '\n' } else { '\r' }).as_bytes());
    } else {
        put(Level::Info, None, &one_line(&words.to_string()), PATIENCE);
    }
}

/// True if [`progress`] rewrites its lines: for a person at a terminal, not in a service's log.
pub fn is_rewritten() -> bool {
    SERVICE.get().is_none() && io::stderr().is_terminal()
}

/// Waits for lines that are not written yet, a second at most. The program ends after this.
pub fn finish() {
    if let Some(queue) = SERVICE.get() {
        queue.finish(LAST);
    }
}

/// Writes a line, and waits for it so long at most.
fn put(level: Level, who: Option<&str>, words: &str, patience: Duration) {
    let words = &*shown(words);
    match SERVICE.get() {
        Some(queue) => queue.put(Style::of_service().render(level, who, words), patience),
        None => {
            queue::write(Style::of_command().render(level, who, words).as_bytes());
        }
    }
}

/// Says a line on standard error, in the name of the volume that this thread speaks for ([`speak_for`]), if there is one.
#[macro_export]
macro_rules! say {
    ($($words:tt)*) => {
        $crate::speak(format_args!($($words)*))
    };
}

/// Prints a part of a result on standard output: a text, in which line ends are what they are.
#[macro_export]
macro_rules! out {
    ($($words:tt)*) => {
        $crate::print(format_args!($($words)*), false)
    };
}

/// Prints a line of a result on standard output. Line ends in it are spelt out.
#[macro_export]
macro_rules! outln {
    () => {
        $crate::print(format_args!(""), true)
    };
    ($($words:tt)*) => {
        $crate::print(format_args!($($words)*), true)
    };
}
