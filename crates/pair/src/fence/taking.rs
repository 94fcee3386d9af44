//! Taking a LUN in a thread of its own. An array may answer after seconds, or never.

use super::path::{Fence, FenceError};
use super::proof::{Confirmed, take};
use crate::reservation::Key;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// A [`take`] under way.
#[derive(Debug)]
pub struct Taking {
    lun: String,
    done: Receiver<Result<Confirmed, FenceError>>,
}

impl Taking {
    /// Begins to take `lun` from `victim`. The call goes on if this is dropped; until it is answered, no other is confirmed.
    ///
    /// # Errors
    /// If there can be no thread.
    pub fn start<F: Fence + Send + 'static>(
        mut lun: F,
        mine: Key,
        victim: Key,
    ) -> Result<Taking, FenceError> {
        let name = lun.name();
        let (send, done) = channel();
        let work = move || drop(send.send(take(&mut lun, mine, victim)));
        match std::thread::Builder::new().name("fence".to_owned()).spawn(work) {
            Ok(_) => Ok(Taking { lun: name, done }),
            Err(why) => Err(FenceError::Io { lun: name, why }),
        }
    }

    /// Waits until it has ended, at most `limit`. It can be waited for again after [`FenceError::TimedOut`].
    ///
    /// # Errors
    /// As [`take`], and if the time is over.
    pub fn wait(&self, limit: Duration) -> Result<Confirmed, FenceError> {
        match self.done.recv_timeout(limit) {
            Ok(result) => result,
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                Err(FenceError::TimedOut { lun: self.lun.clone(), limit })
            }
        }
    }
}

/// The same as [`take`], within `limit`. A call that has not come back by then is left behind with its thread, and counts as no
/// fence. [`Taking`] is for who would rather go on waiting.
///
/// # Errors
/// As [`take`], and if the time is over.
pub fn take_within<F: Fence + Send + 'static>(
    lun: F,
    mine: Key,
    victim: Key,
    limit: Duration,
) -> Result<Confirmed, FenceError> {
    Taking::start(lun, mine, victim)?.wait(limit)
}
