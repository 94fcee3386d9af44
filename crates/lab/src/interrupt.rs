//! Ctrl-C as a flag that every waiting loop looks at, so that guards run their drop and nothing is left behind.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A flag that SIGINT, SIGTERM and SIGHUP set.
#[derive(Debug, Clone, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// A flag set by SIGINT, SIGTERM and SIGHUP from now on.
    pub fn on_signals() -> std::io::Result<Interrupt> {
        let flag = Interrupt::default();
        for signal in [2, 15, 1] {
            signal_hook::flag::register(signal, Arc::clone(&flag.0))?;
        }
        Ok(flag)
    }

    /// Sets the flag by hand.
    pub fn set(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// An error once the flag is set.
    pub fn check(&self) -> Result<(), Interrupted> {
        if self.0.load(Ordering::SeqCst) { Err(Interrupted) } else { Ok(()) }
    }

    /// Sleeps, waking early with an error when the flag is set.
    pub fn sleep(&self, time: Duration) -> Result<(), Interrupted> {
        let end = Instant::now() + time;
        loop {
            self.check()?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(Duration::from_millis(20)));
        }
    }
}

/// The run was stopped by a signal. A command that ends with this error exits with [`Interrupted::EXIT_CODE`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interrupted;

impl Interrupted {
    /// The exit status that a shell expects of a program ended by Ctrl-C.
    pub const EXIT_CODE: i32 = 130;
}

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("interrupted: everything started was stopped and removed")
    }
}

impl std::error::Error for Interrupted {}

/// The process exit code for an error of this crate: 130 after an interrupt, otherwise 1.
pub fn exit_code(error: &anyhow::Error) -> i32 {
    if error.chain().any(|cause| cause.is::<Interrupted>()) { Interrupted::EXIT_CODE } else { 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn an_interrupt_under_any_context_exits_with_130() {
        let error = Err::<(), _>(Interrupted).context("phase 4K random write").unwrap_err();
        assert_eq!(exit_code(&error), 130);
        assert_eq!(exit_code(&anyhow::anyhow!("fio failed")), 1);
    }

    #[test]
    fn a_sleep_ends_when_the_flag_is_set() {
        let flag = Interrupt::default();
        let other = flag.clone();
        let begun = Instant::now();
        std::thread::spawn(move || other.set());
        assert_eq!(flag.sleep(Duration::from_secs(60)), Err(Interrupted));
        assert!(begun.elapsed() < Duration::from_secs(30));
    }
}
