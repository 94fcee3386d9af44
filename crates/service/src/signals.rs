//! SIGTERM and SIGINT as messages.

use anyhow::{Context, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// The signals that arrive from now on.
#[derive(Debug)]
pub(crate) struct StopSignals(Receiver<i32>);

impl StopSignals {
    /// Catches both.
    pub(crate) fn catch() -> Result<StopSignals> {
        let mut signals = Signals::new([SIGTERM, SIGINT]).context("catching SIGTERM and SIGINT")?;
        let (send, caught) = channel();
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(move || {
                for signal in signals.forever() {
                    if send.send(signal).is_err() {
                        return;
                    }
                }
            })
            .context("starting the signal thread")?;
        Ok(StopSignals(caught))
    }

    /// Whether one came within `limit`.
    pub(crate) fn within(&self, limit: Duration) -> bool {
        match self.0.recv_timeout(limit) {
            Ok(_) => true,
            Err(RecvTimeoutError::Timeout) => false,
            Err(RecvTimeoutError::Disconnected) => {
                std::thread::sleep(limit);
                false
            }
        }
    }
}
