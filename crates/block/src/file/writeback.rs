//! The word about data that the kernel took and could not write, and who hears it.
//!
//! The kernel tells a failed write-back once to each open file description. Users of one description would share that one
//! report: whoever flushes first gets it, and the flush of everybody else succeeds over data that is gone. So each user that
//! writes by itself has a description of its own ([`DeviceFile::separate`]). A flush can also fail below the page cache, in a
//! command to the device; that error goes to one caller whatever descriptions there are, so failed flushes are counted for all
//! users of a file.

use super::{DeviceFile, lock, open};
use crate::IoError;
use parking_lot::Mutex;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The failed flushes of a file, by all its users.
#[derive(Debug, Default)]
pub(super) struct Failures {
    count: AtomicU64,
    last: Mutex<Option<IoError>>,
}

impl Failures {
    fn add(&self, error: &IoError) {
        *self.last.lock() = Some(error.clone());
        self.count.fetch_add(1, Ordering::Release);
    }

    fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }
}

/// The state that one user of a file has for itself.
#[derive(Debug)]
pub(super) struct User {
    /// Its own description for buffered I/O and flushes; without one it shares that of the file.
    buffered: Option<Arc<OwnedFd>>,
    /// The failed flushes that it knows of.
    heard: AtomicU64,
}

impl User {
    /// One that shares all descriptions.
    pub(super) fn sharing() -> Arc<User> {
        Arc::new(User { buffered: None, heard: AtomicU64::new(0) })
    }
}

impl DeviceFile {
    /// The same for a user that writes by itself: a write-back that fails is told to it however many others flush. Clones are the
    /// same user.
    ///
    /// # Errors
    /// If there is no further descriptor, or no place for its lock.
    pub fn separate(&self) -> Result<DeviceFile, IoError> {
        let path = self.path().display();
        let fd = open::buffered_again(self.main_fd(), self.handle.flags)
            .map_err(|e| IoError::from_errno(e.raw_os_error(), format!("opening {path} once more")))?;
        if self.handle.locked {
            lock::lock_further(self.path(), &fd, self.handle.read_only())?;
        }
        Ok(self.used_by(Some(Arc::new(fd))))
    }

    /// The same for a user that hears of every flush that fails from now on, its own or not, through the descriptions of this one.
    pub(crate) fn listening(&self) -> DeviceFile {
        self.used_by(self.user.buffered.clone())
    }

    fn used_by(&self, buffered: Option<Arc<OwnedFd>>) -> DeviceFile {
        let heard = AtomicU64::new(self.handle.failures.count());
        DeviceFile { user: Arc::new(User { buffered, heard }), ..self.clone() }
    }

    /// For buffered I/O, and for flushes.
    pub(crate) fn buffered_fd(&self) -> BorrowedFd<'_> {
        match (&self.user.buffered, &self.handle.direct) {
            (Some(own), _) => own.as_fd(),
            (None, Some((_, twin))) => twin.as_fd(),
            (None, None) => self.handle.main.as_fd(),
        }
    }

    /// The error that a flush that begins now is to be told at its end.
    pub(crate) fn failures(&self) -> u64 {
        self.handle.failures.count()
    }

    /// A write that was to be durable has failed. It may have got the one report that the next flush needed: that one is to fail, and
    /// this user's too.
    pub(crate) fn not_durable(&self, error: &IoError) {
        self.handle.failures.add(error);
    }

    /// The end of a flush that began at `before` failures, as its user must see it: a success does not count where somebody's flush
    /// has failed since this user's last one, or while this one was under way, be it another one of the same user.
    pub(crate) fn durable(&self, before: u64, result: Result<(), IoError>) -> Result<(), IoError> {
        if let Err(error) = &result {
            self.handle.failures.add(error);
        }
        let count = self.handle.failures.count();
        if self.user.heard.swap(count, Ordering::AcqRel) == count && before == count {
            return result;
        }
        result?;
        let last = self.handle.failures.last.lock().clone();
        Err(last.map_or_else(
            || IoError::new(crate::IoKind::Io, format!("flush of {} failed", self.path().display())),
            |e| IoError { context: format!("a flush by another user failed: {}", e.context).into(), ..e },
        ))
    }
}

#[cfg(test)]
mod tests {
    use crate::{DeviceFile, IoError, IoKind, OpenOptions};

    fn opened(dir: &tempfile::TempDir) -> DeviceFile {
        DeviceFile::create(dir.path().join("f"), 1 << 20, &OpenOptions::default()).unwrap()
    }

    #[test]
    fn each_user_hears_once_of_anybodys_failed_flush() {
        let dir = tempfile::tempdir().unwrap();
        let file = opened(&dir);
        let (one, two) = (file.separate().unwrap(), file.listening());
        one.durable(0, Err(IoError::new(IoKind::Io, "lost"))).unwrap_err();
        let told = two.durable(1, Ok(())).unwrap_err();
        assert!(told.to_string().contains("lost"), "{told}");
        one.durable(1, Ok(())).unwrap();
        two.durable(1, Ok(())).unwrap();
        file.listening().durable(1, Ok(())).unwrap();
    }

    #[test]
    fn a_flush_beside_one_that_fails_does_not_hold() {
        let dir = tempfile::tempdir().unwrap();
        let one = opened(&dir).separate().unwrap();
        let before = one.failures();
        one.durable(before, Err(IoError::new(IoKind::Io, "lost"))).unwrap_err();
        one.durable(before, Ok(())).unwrap_err();
        one.durable(one.failures(), Ok(())).unwrap();
    }

    #[test]
    fn a_durable_write_that_fails_leaves_its_error_to_a_flush() {
        let dir = tempfile::tempdir().unwrap();
        let one = opened(&dir).separate().unwrap();
        one.not_durable(&IoError::new(IoKind::Io, "lost"));
        one.durable(one.failures(), Ok(())).unwrap_err();
        one.durable(one.failures(), Ok(())).unwrap();
    }

    #[test]
    fn a_separate_users_lock_outlives_the_files_own() {
        let dir = tempfile::tempdir().unwrap();
        let file = opened(&dir);
        let (path, users) = (file.path().to_owned(), [file.separate().unwrap(), file.separate().unwrap()]);
        let own = users.map(|u| u.user.clone());
        drop(file);
        let now = OpenOptions { exclusive: Some(std::time::Duration::ZERO), ..OpenOptions::default() };
        assert_eq!(DeviceFile::open(&path, &now).unwrap_err().errno, libc::EBUSY);
        drop(own);
        DeviceFile::open(&path, &now).unwrap();
    }
}
