//! Results on standard output.

use crate::shown::{one_line, shown};
use parking_lot::Mutex;
use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};

/// The first error, after which nothing is printed any more.
static FAILED: Mutex<Option<io::Error>> = Mutex::new(None);

/// Prints `words`, which are one line where that `ends_line`. Once the reader has gone (`| head`, `| grep -q`) or printing has failed, nothing more is printed: a
/// command that changes something does so to its end.
pub fn print(words: Arguments<'_>, ends_line: bool) {
    let words = words.to_string();
    let mut out = io::stdout().lock();
    let mut write = |text: &str| out.write_all(text.as_bytes());
    attempt(|| match ends_line {
        true => write(&one_line(&words)).and_then(|()| write("\n")),
        false => write(&shown(&words)),
    });
}

/// Has printed results reach their reader now; whether there is still one.
pub fn flush_output() -> bool {
    attempt(|| io::stdout().flush())
}

/// The end of all results.
///
/// # Errors
/// If they could not be printed, for another reason than that nobody reads them.
pub fn finish_output() -> io::Result<()> {
    flush_output();
    match FAILED.lock().take() {
        Some(why) if why.kind() != ErrorKind::BrokenPipe => Err(why),
        _ => Ok(()),
    }
}

fn attempt(print: impl FnOnce() -> io::Result<()>) -> bool {
    let mut failed = FAILED.lock();
    if failed.is_none() {
        *failed = print().err();
    }
    failed.is_none()
}
