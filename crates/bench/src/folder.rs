//! Scratch folders that are gone afterwards, also where the run that made them was killed.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::fs::{FlockOperation, flock};
use tempfile::TempDir;

/// A run's lab, below its folder; of several, the beginning of their names.
pub(crate) const LAB: &str = "lab";
/// Held by the run that a folder belongs to.
const LOCK: &str = "lock";

/// A folder; removed with all it holds when dropped, and by the next run where this one was killed.
#[derive(Debug)]
pub(crate) struct Folder {
    // The lock goes before the folder.
    _lock: File,
    dir: TempDir,
}

impl Folder {
    /// Makes one in `parent`, and removes those of this prefix whose run was killed.
    pub(crate) fn new(parent: &Path, prefix: &str) -> Result<Folder> {
        sweep(parent, prefix);
        let dir = tempfile::Builder::new().prefix(prefix).tempdir_in(parent).context("the scratch folder")?;
        let lock = File::create(dir.path().join(LOCK))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).context("locking the scratch folder")?;
        Ok(Folder { _lock: lock, dir })
    }

    /// Its path.
    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }
}

/// A lab of this run; goes with it, however it ends.
pub(crate) struct OwnLab(pub(crate) PathBuf);

impl Drop for OwnLab {
    fn drop(&mut self) {
        if let Err(error) = loligo_lab::down::down(&self.0, false, &mut |_: &str| ()) {
            loligo_log::say!("the lab could not be taken down: {error:#}");
        }
    }
}

/// Removes folders of earlier runs that were killed: those whose lock nobody holds. A lab in one is taken down first: its
/// daemons outlived their run.
fn sweep(parent: &Path, prefix: &str) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        if !entry.file_name().to_string_lossy().starts_with(prefix) {
            continue;
        }
        let Ok(lock) = File::open(entry.path().join(LOCK)) else { continue };
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            continue;
        }
        let labs = fs::read_dir(entry.path()).into_iter().flatten().flatten();
        let labs = labs.filter(|l| l.file_name().to_string_lossy().starts_with(LAB) && l.path().is_dir());
        let mut stays = false;
        for lab in labs {
            if let Err(error) = loligo_lab::down::down(&lab.path(), false, &mut |_: &str| ()) {
                loligo_log::say!(
                    "a lab that an earlier run left in {} stays: {error:#}",
                    lab.path().display()
                );
                stays = true;
            }
        }
        if stays {
            continue;
        }
        let _ = fs::remove_dir_all(entry.path());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_killed_runs_folder_goes_and_a_running_ones_stays() {
        let parent = tempfile::tempdir().unwrap();
        let left = parent.path().join("run-left");
        fs::create_dir(&left).unwrap();
        fs::write(left.join(LOCK), "").unwrap();
        let other = parent.path().join("other");
        fs::create_dir(&other).unwrap();
        fs::write(other.join(LOCK), "").unwrap();
        let running = Folder::new(parent.path(), "run-").unwrap();
        assert!(!left.exists() && other.exists());
        let second = Folder::new(parent.path(), "run-").unwrap();
        assert!(running.path().exists());
        drop((running, second));
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_folder_with_a_lab_that_cannot_be_taken_down_is_left_alone() {
        let parent = tempfile::tempdir().unwrap();
        let left = parent.path().join("run-left");
        fs::create_dir_all(left.join(LAB)).unwrap();
        fs::write(left.join(LAB).join("lab.json"), "{}").unwrap();
        fs::write(left.join(LOCK), "").unwrap();
        let running = Folder::new(parent.path(), "run-").unwrap();
        assert!(left.exists());
        drop(running);
    }
}
