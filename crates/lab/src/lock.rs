//! Locks on a lab's files, which end with the process that holds them.

use crate::process::POLL;
use anyhow::{Context, Result, bail};
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

/// A lock that is held; dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Lock(#[allow(dead_code, reason = "it is held")] File);

impl Lock {
    /// Takes the lock on the file at `path`, which is made.
    ///
    /// # Errors
    /// If another has it for longer than `limit`.
    pub(crate) fn take(path: &Path, limit: Duration) -> Result<Lock> {
        let name = path.display();
        let file = File::options().create(true).append(true).open(path);
        let file = file.with_context(|| format!("{name} cannot be opened"))?;
        let begun = Instant::now();
        while flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            if begun.elapsed() > limit {
                bail!(
                    "another 'loligo lab' works on this lab ({name} is locked): try again when it has ended"
                );
            }
            std::thread::sleep(POLL / 5);
        }
        Ok(Lock(file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_had_by_one_and_ends_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let held = Lock::take(&path, Duration::ZERO).unwrap();
        assert!(Lock::take(&path, Duration::ZERO).unwrap_err().to_string().contains("another"));
        drop(held);
        Lock::take(&path, Duration::ZERO).unwrap();
    }
}
