//! A word to the network that nobody answers: said at once, and again some times in the background.

use std::io;
use std::time::Duration;

/// Calls `say`, and again after each of `waits`, by a thread of the name `name`.
///
/// # Errors
/// If the first call fails.
pub(crate) fn now_and_again(
    name: &str,
    waits: &'static [Duration],
    say: impl Fn() -> io::Result<()> + Send + 'static,
) -> io::Result<()> {
    say()?;
    let later = move || {
        for wait in waits {
            std::thread::sleep(*wait);
            // The first one has gone out.
            let _ = say();
        }
    };
    // Once is enough in most networks.
    let _ = std::thread::Builder::new().name(name.to_owned()).spawn(later);
    Ok(())
}
