//! Waits for a cluster that can be given up: a thread of its own waits, and is left behind.

use crate::CephError;
use crate::error::refuse;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// Between two looks at whether it is still waited for.
pub(crate) const LOOK: Duration = Duration::from_millis(50);

/// Work for the cluster by a thread of its own, which is left behind where nobody waits for it any more.
#[derive(Debug)]
pub struct Cancellable<T>(Receiver<T>);

impl<T: Send + 'static> Cancellable<T> {
    /// Begins `work`.
    ///
    /// # Errors
    /// If no thread can be had.
    pub fn begin(work: impl FnOnce() -> T + Send + 'static) -> Result<Cancellable<T>, CephError> {
        let (says, said) = channel();
        let thread = std::thread::Builder::new().name("rbd-wait".to_owned());
        // Nobody may be waiting any more.
        let work = move || drop(says.send(work()));
        thread.spawn(work).map_err(|e| CephError::Named(format!("no thread can be had: {e}")))?;
        Ok(Cancellable(said))
    }

    /// Its result, if that comes within `limit`.
    ///
    /// # Errors
    /// If its thread has ended without a word.
    pub fn within(&self, limit: Duration) -> Result<Option<T>, CephError> {
        match self.0.recv_timeout(limit) {
            Ok(result) => Ok(Some(result)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => refuse("a thread that waited for the cluster has ended"),
        }
    }

    /// The same, as long as `goes_on` says so, which is asked some times a second; nothing: it was given up.
    ///
    /// # Errors
    /// As above.
    pub fn while_waited_for(self, mut goes_on: impl FnMut() -> bool) -> Result<Option<T>, CephError> {
        loop {
            match self.within(LOOK)? {
                None if goes_on() => {}
                result => return Ok(result),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_hangs_is_waited_for_as_long_as_somebody_wants() {
        let (ends, end) = channel::<u32>();
        let work = Cancellable::begin(move || end.recv()).unwrap();
        assert!(work.within(Duration::from_millis(10)).unwrap().is_none());
        ends.send(7).unwrap();
        assert_eq!(work.within(Duration::from_secs(60)).unwrap(), Some(Ok(7)), "it went on meanwhile");
        assert!(work.within(Duration::from_millis(10)).is_err(), "it has said everything");
        let (_ends, end) = channel::<u32>();
        let work = Cancellable::begin(move || end.recv()).unwrap();
        assert_eq!(work.while_waited_for(|| false).unwrap(), None);
    }
}
