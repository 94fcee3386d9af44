//! Where a service's log goes: through a thread of its own, for those that carry requests out must not wait for whoever reads stderr.

use anyhow::{Context, Result};
use std::io::{self, Write};
use std::sync::OnceLock;
use tracing_appender::non_blocking::{NonBlocking, NonBlockingBuilder, WorkerGuard};

/// Lines that may wait to be written. More are dropped: whoever does not read them has no use for them.
const LINES: usize = 4096;

static ASIDE: OnceLock<NonBlocking> = OnceLock::new();

/// What a line of the log is written to.
pub fn writer() -> Box<dyn Write> {
    match ASIDE.get() {
        Some(aside) => Box::new(aside.clone()),
        None => Box::new(io::stderr()),
    }
}

/// From now on nobody waits for the log. What is dropped at the end writes what is left, for a second at most.
///
/// # Errors
/// Where it is so already.
pub(crate) fn aside() -> Result<WorkerGuard> {
    let (aside, guard) = NonBlockingBuilder::default()
        .lossy(true)
        .buffered_lines_limit(LINES)
        .thread_name("log")
        .finish(io::stderr());
    ASIDE.set(aside).ok().context("the log has a thread already")?;
    Ok(guard)
}
